// The connection of a process to the daemon, which all agents and tools share.

import { Code, type MemorydClient, MemorydError, connect } from "@memoryd/client";

import { startDaemon } from "./daemon.js";
import type { Logger } from "./host.js";
import { type Settings, connectOptions } from "./settings.js";

const PAUSE_BETWEEN_STARTS_MS = 30_000;

/** What an operator can do about a failure. */
export const ACTION =
  "Check that the daemon runs (`memoryd status`), and that plugins.entries.memoryd.config.address is its address.";

/** Opens the connection at the first call, and starts the daemon if the settings say so. */
export class Connection {
  readonly settings: Settings;
  readonly #logger: Logger;
  readonly #logFile: () => string;
  readonly #now: () => number;
  #client: MemorydClient | undefined;
  #starting: Promise<void> | undefined;
  #lastStart = -Infinity;

  /** `logFile` returns the path of the log of a daemon that this connection starts. */
  constructor(settings: Settings, logger: Logger, logFile: () => string, now: () => number = () => performance.now()) {
    this.settings = settings;
    this.#logger = logger;
    this.#logFile = logFile;
    this.#now = now;
  }

  /**
   * Returns the result of `use`. If no daemon runs and `autostart` is set, starts one and calls `use` once more.
   *
   * @throws {@link MemorydError} if the call failed, or another error if the settings cannot be used.
   */
  async call<T>(use: (client: MemorydClient) => Promise<T>): Promise<T> {
    try {
      return await use(this.#open());
    } catch (error) {
      if (!this.settings.autostart || !isNotRunning(error)) {
        throw error;
      }
      if (!(await this.#start())) {
        throw error;
      }
      return use(this.#open());
    }
  }

  /** Closes the connection. The next call opens it again. */
  async close(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    await client?.close();
  }

  #open(): MemorydClient {
    return (this.#client ??= connect(connectOptions(this.settings)));
  }

  // Concurrent calls wait for the same start. Returns false if the last attempt is too recent.
  async #start(): Promise<boolean> {
    if (this.#starting === undefined) {
      if (this.#now() - this.#lastStart < PAUSE_BETWEEN_STARTS_MS) {
        return false;
      }
      this.#lastStart = this.#now();
      this.#starting = startDaemon(this.settings, this.#logFile(), () => this.#isRunning())
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

  // Connects anew: the address of a daemon that was just started can differ from the one that was found before.
  async #isRunning(): Promise<boolean> {
    const client = connect(connectOptions(this.settings));
    try {
      await client.listAgents({ pageSize: 1 }, { timeoutMs: 1_000 });
    } catch (error) {
      return !isNotRunning(error) && !isTimeout(error);
    } finally {
      await client.close();
    }
    await this.close();
    return true;
  }
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
