// What the plugin does in OpenClaw's memory slot.

import { realpath } from "node:fs/promises";

import { type Connection, reasonOf } from "./connection.js";
import { canSeeSessions, classifyPaths } from "./hits.js";
import type { Logger, MemoryPluginCapability, MemoryRuntime, OpenClawPluginApi } from "./host.js";
import { DaemonManager } from "./manager.js";
import { buildPrompt, planFlush } from "./plans.js";

/** Returns the capability. It opens no connection until OpenClaw uses it. */
export function memoryCapability(api: OpenClawPluginApi, connection: Connection): MemoryPluginCapability {
  return {
    deterministicRecallToolName: "memory_search",
    promptBuilder: buildPrompt,
    flushPlanResolver: ({ cfg, nowMs, contextWindowTokens }) =>
      planFlush(cfg ?? api.config, new Date(nowMs ?? Date.now()), contextWindowTokens),
    runtime: memoryRuntime(connection),
  };
}

function memoryRuntime(connection: Connection): MemoryRuntime {
  return {
    supportsWorkspaceMemoryReadSources: true,
    async getMemorySearchManager({ agentId, purpose }) {
      const start = performance.now();
      try {
        const manager = await DaemonManager.open(connection, agentId);
        const managerMs = Math.round(performance.now() - start);
        return { manager, debug: { backend: "builtin", ...(purpose && { purpose }), managerMs } };
      } catch (error) {
        return { manager: null, error: reasonOf(error) };
      }
    },
    // The only value that OpenClaw knows.
    resolveMemoryBackendConfig: () => ({ backend: "builtin" }),
    authorizeSearchHits({ agentId, requesterSessionKey, sandboxed, hits }) {
      const authorized = canSeeSessions({ agentId, sessionKey: requesterSessionKey, sandboxed });
      return Promise.resolve(authorized ? hits : hits.filter(({ source }) => source !== "sessions"));
    },
    classifyWorkspaceMemoryPaths: ({ workspaceDir, relativePaths, readSources }) =>
      classifyPaths(workspaceDir, relativePaths, readSources),
    prepareReload: () => ({
      drain: () => connection.close(),
      resume: () => undefined,
    }),
    closeMemorySearchManager: () => Promise.resolve(),
    closeAllMemorySearchManagers: () => connection.close(),
  };
}

/** Compares the workspaces of OpenClaw and memoryd, once per agent: with different ones, each has another memory. */
export class WorkspaceCheck {
  readonly #checked = new Set<string>();
  readonly #logger: Logger;
  readonly #connection: Connection;

  constructor(logger: Logger, connection: Connection) {
    this.#logger = logger;
    this.#connection = connection;
  }

  /** Logs a warning if the daemon's workspace of `agentId` is not `workspace`. Never rejects. */
  async run(agentId: string, workspace: string): Promise<void> {
    if (this.#checked.has(agentId)) {
      return;
    }
    this.#checked.add(agentId);
    try {
      const status = await this.#connection.call((client) => client.status({ agentId }));
      if ((await real(status.workspace)) !== (await real(workspace))) {
        this.#logger.warn(
          `memoryd: agent "${agentId}" has the workspace ${workspace} in OpenClaw, but ${status.workspace} in ` +
            "memoryd, so that its memory is not the one in its workspace. Run the daemon with OpenClaw's settings " +
            "(OPENCLAW_STATE_DIR or OPENCLAW_CONFIG_PATH).",
        );
      }
    } catch {
      // The tool call has reported the failure. Check at the next call.
      this.#checked.delete(agentId);
    }
  }
}

async function real(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch {
    return path;
  }
}
