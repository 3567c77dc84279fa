// Reads the files of a connection; errors name the file.

import { readFileSync } from "node:fs";

import { ConnectError } from "./connect_error.js";

/**
 *
 * Returns the content of a file.
 *
 * @throws {@link ConnectError} if the file cannot be read, with its name and purpose.
 *
 */
export function contentOf(path: string, what: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new ConnectError(`cannot read ${what} ${path}: ${reasonOf(error)}`, { cause: error });
  }
}

/** Returns the content of a file, or undefined if it does not exist. */
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

/** Returns the message of an error. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
