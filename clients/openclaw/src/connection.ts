// The connection of a process to the daemon, which all agents and tools share.

import { join } from "node:path";
import { setTimeout } from "node:timers/promises";

import { Code, type MemorydClient, MemorydError, connect } from "@memoryd/client";
import type { SyncResponse } from "@memoryd/client/v1";

import { startDaemon } from "./daemon.js";
import { type Logger, agentOf } from "./host.js";
import { type Settings, addressOf, connectOptions } from "./settings.js";

const PAUSE_BETWEEN_STARTS_MS = 30_000;
const CLOSE_MS = 5_000;
const SILENCE_MS = 60_000;

/** What an operator can do about a failure. */
export const ACTION =
  "Check that the daemon runs (`memoryd status`), and that plugins.entries.memoryd.config.address is its address.";

/** A client, and the calls under way. */
interface Opened {
  readonly address: string;
  readonly client: MemorydClient;
  readonly running: Set<Promise<unknown>>;
}

async function track<T>({ client, running }: Opened, use: (client: MemorydClient) => Promise<T>): Promise<T> {
  const call = use(client);
  running.add(call);
  try {
    return await call;
  } finally {
    running.delete(call);
  }
}

// A call that is cancelled may have been carried out, and would be repeated.
async function retire(opened: Opened | undefined): Promise<void> {
  if (opened === undefined) {
    return;
  }
  if (opened.running.size > 0) {
    const limit = new AbortController();
    const ended = Promise.allSettled(opened.running).finally(() => {
      limit.abort();
    });
    await Promise.race([ended, setTimeout(CLOSE_MS, undefined, { signal: limit.signal }).catch(() => undefined)]);
  }
  await opened.client.close();
}

/** Opens the connection at the first call, and starts the daemon if the settings say so. */
export class Connection {
  readonly settings: Settings;
  readonly #logger: Logger;
  readonly #stateDir: () => string;
  readonly #now: () => number;
  #opened: Opened | undefined;
  #starting: Promise<void> | undefined;
  #lastStart = -Infinity;

  /** `stateDir` returns the state directory of OpenClaw. */
  constructor(settings: Settings, logger: Logger, stateDir: () => string, now = (): number => performance.now()) {
    this.settings = settings;
    this.#logger = logger;
    this.#stateDir = stateDir;
    this.#now = now;
  }

  /**
   * Returns the result of `use`. If no daemon answers, calls `use` once more if the daemon's address has changed, or if
   * `autostart` is set and a daemon was started.
   *
   * @throws {@link MemorydError} if the call failed, or another error if the settings cannot be used.
   */
  async call<T>(use: (client: MemorydClient) => Promise<T>): Promise<T> {
    const opened = this.#open();
    const { address } = opened;
    try {
      return await track(opened, use);
    } catch (error) {
      if (!isNotRunning(error)) {
        throw error;
      }
      const moved = addressOf(this.settings, this.#stateDir()) !== address;
      if (!moved && !(this.settings.autostart && (await this.#start(address)))) {
        throw error;
      }
      return track(this.#open(), use);
    }
  }

  /** Closes the connection when the calls under way have ended, after at most 5 s. The next call opens it again. */
  async close(): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    await retire(opened);
  }

  #open(): Opened {
    const address = addressOf(this.settings, this.#stateDir());
    if (this.#opened?.address !== address) {
      void retire(this.#opened);
      const client = connect(connectOptions(this.settings, address));
      this.#opened = { address, client, running: new Set() };
    }
    return this.#opened;
  }

  // Concurrent calls wait for the same start. Returns false if the last attempt is too recent.
  async #start(address: string): Promise<boolean> {
    if (this.#starting === undefined) {
      if (this.#now() - this.#lastStart < PAUSE_BETWEEN_STARTS_MS) {
        return false;
      }
      this.#lastStart = this.#now();
      const log = join(this.#stateDir(), "logs", "memoryd.log");
      this.#starting = startDaemon(this.settings.command, address, log, () => this.#isRunning())
        .then(() => {
          this.#logger.info("memoryd: the daemon is running");
        })
        .finally(() => {
          this.#starting = undefined;
        });
    }
    await this.#starting;
    return true;
  }

  async #isRunning(): Promise<boolean> {
    const address = addressOf(this.settings, this.#stateDir());
    const client = connect(connectOptions(this.settings, address));
    try {
      await client.listAgents({ pageSize: 1 }, { timeoutMs: 1_000 });
      return true;
    } catch (error) {
      return !isNotRunning(error) && !isTimeout(error);
    } finally {
      await client.close();
    }
  }
}

/**
 * Runs a sync and calls `onEvent` for each event.
 *
 * @throws {@link MemorydError} if the sync failed, with DEADLINE_EXCEEDED if the daemon sends nothing for `silenceMs`.
 */
export async function runSync(
  client: MemorydClient,
  request: Parameters<MemorydClient["sync"]>[0],
  onEvent: (event: SyncResponse["event"]) => void = () => undefined,
  silenceMs = SILENCE_MS,
): Promise<void> {
  // The daemon sends an event or a heartbeat every ten seconds.
  await using events = client.sync(request);
  const silence = globalThis.setTimeout(() => {
    const message = `the daemon sent nothing for ${silenceMs} ms`;
    events.cancel(new MemorydError({ code: Code.DEADLINE_EXCEEDED, message }));
  }, silenceMs);
  try {
    for await (const { event } of events) {
      silence.refresh();
      onEvent(event);
    }
  } finally {
    clearTimeout(silence);
  }
}

/** Returns the key to send with a request for `agentId`: none if it is that of another agent's session. */
export function keyFor(agentId: string, sessionKey: string | undefined): string {
  const named = agentOf(sessionKey);
  return sessionKey === undefined || (named !== undefined && agentId !== "" && named !== agentId) ? "" : sessionKey;
}

/** Returns the reason of a failure, for people. */
export function reasonOf(error: unknown): string {
  if (error instanceof MemorydError) {
    return `memoryd: ${error.reason === "" ? Code[error.code] : error.reason}: ${error.message}`;
  }
  return `memoryd: ${error instanceof Error ? error.message : String(error)}`;
}

// gRPC itself made the status, so no daemon answered.
function isNotRunning(error: unknown): boolean {
  return error instanceof MemorydError && error.code === Code.UNAVAILABLE && error.reason === "";
}

function isTimeout(error: unknown): boolean {
  return error instanceof MemorydError && error.code === Code.DEADLINE_EXCEEDED;
}
