// Starts the daemon if none runs.

import { spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, readSync, renameSync, statSync } from "node:fs";
import { dirname } from "node:path";

const MOST_LOG_BYTES = 10 * 1024 * 1024;
const MOST_QUOTED_BYTES = 2_000;
const PAUSE_MS = 100;
// A process that ends because another program has just started a daemon ends before that daemon responds.
const WAIT_FOR_OTHER_MS = 5_000;

/** Why the daemon could not be started. */
export class StartError extends Error {
  override readonly name = "StartError";
}

/**
 * Starts `memoryd serve` at `address` as a process that outlives this one, and waits until `isRunning` resolves to true.
 * The process appends its log to `logFile`. If another program starts a daemon at the same time, one of the two processes
 * ends, because the other one has locked the socket and the index; the other daemon is then used.
 *
 * @throws {@link StartError} if the command cannot be run, or no daemon responds within `timeoutMs`.
 */
export async function startDaemon(
  command: string,
  address: string,
  logFile: string,
  isRunning: () => Promise<boolean>,
  timeoutMs = 20_000,
): Promise<void> {
  if (!address.startsWith("unix:")) {
    throw new StartError(`autostart needs a Unix socket, but the address is ${address}: start the daemon on its host`);
  }
  const args = ["serve", "--listen", address];
  const log = openLog(logFile);
  const start = statSync(logFile).size;
  let end: { readonly reason: string; readonly at: number } | undefined;
  try {
    const child = spawn(command, args, { detached: true, stdio: ["ignore", log, log] });
    child.once("error", (error) => {
      end = { reason: error.message, at: -Infinity };
    });
    child.once("exit", (code, signal) => {
      end ??= { reason: `exit status ${code ?? signal ?? "unknown"}`, at: performance.now() };
    });
    child.unref();
    const deadline = performance.now() + timeoutMs;
    while (!(await isRunning())) {
      const now = performance.now();
      if (now > Math.min(deadline, end === undefined ? Infinity : end.at + WAIT_FOR_OTHER_MS)) {
        const reason = end === undefined ? `no response within ${timeoutMs} ms` : end.reason;
        const name = [command, ...args].join(" ");
        throw new StartError(`\`${name}\` did not start a daemon: ${reason}. ${quote(logFile, start)}`.trim());
      }
      await new Promise((done) => setTimeout(done, PAUSE_MS));
    }
  } finally {
    closeSync(log);
  }
}

function openLog(file: string): number {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > MOST_LOG_BYTES) {
    renameSync(file, `${file}.1`);
  }
  return openSync(file, "a", 0o600);
}

// The first lines that the process wrote, without control characters.
function quote(file: string, start: number): string {
  const log = openSync(file, "r");
  try {
    const bytes = Buffer.alloc(MOST_QUOTED_BYTES);
    const length = readSync(log, bytes, 0, MOST_QUOTED_BYTES, start);
    return bytes.toString("utf8", 0, length).replace(/\p{Cc}+/gu, " ");
  } finally {
    closeSync(log);
  }
}
