// The parts of OpenClaw's plugin API that the plugin uses, derived from the host's published types.

import type { MemoryPluginCapability } from "openclaw/plugin-sdk/memory-host-core";
import type {
  AnyAgentTool,
  OpenClawConfig,
  OpenClawPluginApi,
  OpenClawPluginToolContext,
} from "openclaw/plugin-sdk/plugin-entry";

export type { AnyAgentTool, MemoryPluginCapability, OpenClawPluginApi };

/** OpenClaw's settings. */
export type HostConfig = OpenClawConfig;
/** Writes to OpenClaw's log. */
export type Logger = OpenClawPluginApi["logger"];
/** The session for which a tool is made. */
export type ToolContext = OpenClawPluginToolContext;
/** The calls of OpenClaw's own memory features: status, doctor, the RPC `memory.search`. */
export type MemoryRuntime = NonNullable<MemoryPluginCapability["runtime"]>;
/** Searches, reads and syncs the memory of one agent. */
export type MemoryManager = NonNullable<Awaited<ReturnType<MemoryRuntime["getMemorySearchManager"]>>["manager"]>;
/** A search result as OpenClaw shows it. */
export type Hit = Awaited<ReturnType<MemoryManager["search"]>>[number];
/** The status as OpenClaw shows it. */
export type MemoryStatus = ReturnType<MemoryManager["status"]>;
/** When and how an agent writes notes before its context is compacted. */
export type FlushPlan = NonNullable<ReturnType<NonNullable<MemoryPluginCapability["flushPlanResolver"]>>>;
/** The parameters of the memory section of a system prompt. */
export type PromptParameters = Parameters<NonNullable<MemoryPluginCapability["promptBuilder"]>>[0];
/** Registers the plugin's commands. */
export type CliContext = Parameters<Parameters<OpenClawPluginApi["registerCli"]>[0]>[0];

/** The ID of the plugin, as in its manifest. */
export const PLUGIN_ID = "memoryd";

/** Returns the value at `keys` in a tree of objects, or undefined. */
export function valueAt(tree: unknown, ...keys: string[]): unknown {
  return keys.reduce<unknown>(
    (value, key) =>
      typeof value === "object" && value !== null && Object.hasOwn(value, key)
        ? (value as Record<string, unknown>)[key]
        : undefined,
    tree,
  );
}

/** Returns the agent that a session key names, `agent:<id>:<rest>`. */
export function agentOf(sessionKey: string | undefined): string | undefined {
  return /^agent:([^:]+):/.exec(sessionKey ?? "")?.[1];
}

/** Returns whether `sessionKey` is that of the agent's private main session, or of a thread of it. */
export function isMainSession(sessionKey: string | undefined, agentId: string): boolean {
  const main = `agent:${agentId}:main`.toLowerCase();
  const key = sessionKey?.toLowerCase();
  return key === main || key?.startsWith(`${main}:thread:`) === true;
}
