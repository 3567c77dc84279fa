// Reads the files that a connection needs; an error names the file.

import { readFileSync } from "node:fs";

import { ConnectError } from "./connect_error.js";

/**
 * What a file holds.
 *
 * @throws {@link ConnectError} when it cannot be read; it names the file and says what the file is for.
 */
export function contentOf(path: string, what: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new ConnectError(`cannot read ${what} ${path}: ${reasonOf(error)}`, { cause: error });
  }
}

/** What a file holds, or undefined where there is none. */
export function contentIfAny(path: string, what: string): Buffer | undefined {
  try {
    return contentOf(path, what);
  } catch (error) {
    if (error instanceof ConnectError && codeOf(error.cause) === "ENOENT") {
      return undefined;
    }
    throw error;
  }
}

/** What an error says of itself. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
