// Before a turn of a user, what the memory contains about it.

import { stat } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate, setTimeout } from "node:timers/promises";

import { Source } from "@memoryd/client/v1";

import { type Connection, keyFor, reasonOf } from "./connection.js";
import { canSeeSessions } from "./hits.js";
import { type Logger, agentOf, isMainSession, valueAt } from "./host.js";

const TIMEOUT_MS = 300;
const MOST_TURNS = 256;
const RECENT_MESSAGES = 4;
// The daemon reads less of a long message than this at each of its ends.
const MOST_CHARS_AT_END = 16_384;
const LAST_LINE = 2 ** 31 - 1;

/** A prompt that OpenClaw is about to send to the model. */
export interface PromptEvent {
  readonly prompt: string;
  readonly currentUserMessage?: string;
  readonly currentUserMessageId?: string;
  readonly messages: readonly unknown[];
}

/** The run for which a prompt is made. */
export interface PromptContext {
  readonly runId?: string;
  readonly agentId?: string;
  readonly sessionKey?: string;
  readonly sessionId?: string;
  readonly workspaceDir?: string;
  readonly activeProjectKeys?: readonly string[];
  readonly senderId?: string;
  readonly trigger?: string;
  readonly inputProvenance?: { readonly kind: string };
  readonly toolAuthority?: { allows(toolName: string): boolean };
}

/** Recalls for the turns of all sessions. */
export class TurnRecall {
  readonly #connection: Connection;
  readonly #logger: Logger;
  readonly #config: () => unknown;
  readonly #timeoutMs: number;
  // OpenClaw makes the prompt of a turn again for each attempt to send it.
  readonly #turns = new Map<string, Promise<string>>();
  #failing = false;

  /** `config` returns OpenClaw's settings. */
  constructor(connection: Connection, logger: Logger, config: () => unknown, timeoutMs = TIMEOUT_MS) {
    this.#connection = connection;
    this.#logger = logger;
    this.#config = config;
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Returns the text to insert before the prompt, or undefined if the turn is not a user's, nothing relevant is known, or
   * the daemon does not answer in time. A turn whose prompt is made again gets the same text. Never rejects.
   */
  async run(event: PromptEvent, context: PromptContext): Promise<{ prependContext: string } | undefined> {
    const text = (event.currentUserMessage ?? event.prompt).trim();
    if (text === "" || !isUserTurn(context) || context.toolAuthority?.allows("memory_search") !== true) {
      return undefined;
    }
    const block = await this.#inTime(this.#blockOf(text, event, context));
    const isThere = [event.prompt, ...event.messages.map(textOf)].some((each) => block !== "" && each.includes(block));
    return block === "" || isThere ? undefined : { prependContext: block };
  }

  #blockOf(text: string, event: PromptEvent, context: PromptContext): Promise<string> {
    const id = event.currentUserMessageId ?? context.runId;
    const turn = id && JSON.stringify([context.sessionKey, id, text]);
    const known = turn === undefined ? undefined : this.#turns.get(turn);
    if (known !== undefined || turn === undefined) {
      return known ?? this.#recall(text, event, context);
    }
    const block = this.#recall(text, event, context);
    this.#turns.set(turn, block);
    block.catch(() => this.#turns.delete(turn));
    for (const oldest of [...this.#turns.keys()].slice(0, -MOST_TURNS)) {
      this.#turns.delete(oldest);
    }
    return block;
  }

  async #inTime(block: Promise<string>): Promise<string> {
    const limit = new AbortController();
    try {
      const found = await Promise.race([block, this.#late(limit.signal)]);
      this.#failing = false;
      return found;
    } catch (error) {
      // One line, and not one per turn.
      if (!this.#failing) {
        this.#logger.warn(`memoryd: turns continue without recall: ${reasonOf(error)}`);
      }
      this.#failing = true;
      return "";
    } finally {
      limit.abort();
    }
  }

  async #late(signal: AbortSignal): Promise<never> {
    await setTimeout(this.#timeoutMs, undefined, { signal });
    // If the process was busy, the reply has arrived but has not been read.
    await setImmediate(undefined, { signal });
    await setImmediate(undefined, { signal });
    throw new Error(`no answer within ${this.#timeoutMs} ms`);
  }

  async #recall(text: string, event: PromptEvent, context: PromptContext): Promise<string> {
    const agentId = context.agentId ?? agentOf(context.sessionKey) ?? "";
    const sessionKey = keyFor(agentId, context.sessionKey);
    const request = {
      agentId,
      sessionKey,
      text: endsOf(text),
      recentMessages: recentMessages(event.messages, text),
      activeProjects: (context.activeProjectKeys ?? []).slice(0, 16),
      ...(isMainSession(sessionKey, agentId)
        ? {
            sources: seesSessions(this.#config(), agentId, context) ? [] : [Source.MEMORY],
            seen: [...(await loadedFiles(this.#config(), agentId, context.workspaceDir)), ...ownTranscript(context)],
          }
        : // OpenClaw loads MEMORY.md and USER.md in the main session only.
          { sources: [Source.MEMORY], filter: { pathPrefixes: ["memory/"] } }),
    };
    // The next attempt of the turn uses a reply that comes too late for this one.
    return (await this.#connection.call((client) => client.recall(request))).block;
  }
}

// Other triggers are heartbeats, scheduled jobs and compactions. A sub-agent's turn can have the trigger of its parent.
function isUserTurn({ trigger, inputProvenance, sessionKey }: PromptContext): boolean {
  const isOtherSession = /:(subagent|cron|heartbeat)(:|$)/.test(sessionKey ?? "");
  return trigger === "user" && (inputProvenance?.kind ?? "external_user") === "external_user" && !isOtherSession;
}

// OpenClaw does not say whether the sender in a channel is the owner.
function seesSessions(cfg: unknown, agentId: string, { sessionKey, senderId }: PromptContext): boolean {
  const sandboxed = agentSetting(cfg, agentId, "sandbox", "mode") === "all";
  return senderId === undefined && canSeeSessions({ agentId, sessionKey, sandboxed });
}

interface Lines {
  readonly path: string;
  readonly startLine: number;
  readonly endLine: number;
}

function allLines(path: string): Lines {
  return { path, startLine: 1, endLine: LAST_LINE };
}

// The conversation has the messages of its session, or a summary of them.
function ownTranscript({ agentId, sessionId }: PromptContext): Lines[] {
  return agentId === undefined || sessionId === undefined ? [] : [allLines(`sessions/${agentId}/${sessionId}.jsonl`)];
}

/** Returns the files that OpenClaw includes completely in the prompt of a main session. */
async function loadedFiles(cfg: unknown, agentId: string, workspace: string | undefined): Promise<Lines[]> {
  const injection = agentSetting(cfg, agentId, "contextInjection") ?? "always";
  if (workspace === undefined || injection !== "always") {
    return [];
  }
  const limit = agentSetting(cfg, agentId, "bootstrapMaxChars");
  const most = typeof limit === "number" ? limit : 20_000;
  const files = [
    { path: "MEMORY.md", most },
    { path: "USER.md", most: Math.min(most, 4_000) },
  ];
  const sizes = await Promise.all(files.map(({ path }) => stat(join(workspace, path)).catch(() => undefined)));
  return files.filter((file, place) => (sizes[place]?.size ?? Infinity) <= file.most).map(({ path }) => allLines(path));
}

function agentSetting(cfg: unknown, agentId: string, ...keys: string[]): unknown {
  return valueAt(cfg, "agents", "entries", agentId, ...keys) ?? valueAt(cfg, "agents", "defaults", ...keys);
}

// The last message can be the user's message itself.
function recentMessages(messages: readonly unknown[], text: string): string[] {
  return messages
    .slice(-2 * RECENT_MESSAGES)
    .filter((message) => ["user", "assistant"].includes(String(valueAt(message, "role"))))
    .map((message) => endsOf(textOf(message)))
    .filter((message) => message.trim() !== "" && message.trim() !== text)
    .slice(-RECENT_MESSAGES);
}

function textOf(message: unknown): string {
  const content = valueAt(message, "content");
  const blocks: unknown[] = Array.isArray(content) ? content : [{ type: "text", text: content }];
  const texts = blocks.map((block) => (valueAt(block, "type") === "text" ? valueAt(block, "text") : undefined));
  return texts.filter((each) => typeof each === "string").join("\n");
}

function endsOf(text: string): string {
  const most = MOST_CHARS_AT_END;
  return text.length <= 2 * most ? text : `${text.slice(0, most)}\n${text.slice(-most)}`;
}
