// The memory files of an agent, as the memory tool reads and changes them.

import { createHash } from "node:crypto";

import type { MessageInitShape } from "@bufbuild/protobuf";

import type { MemorydClient } from "./client.js";
import { MemorydError } from "./error.js";
import { Source } from "./gen/memoryd/v1/memory_pb.js";
import {
  FileState,
  type MemoryGetResponse,
  type MemoryWriteRequestSchema,
} from "./gen/memoryd/v1/memory_service_pb.js";
import { type MemoryPath, ToolProblem, fileOf, prefixOf } from "./memory_paths.js";
import { MOST_LINES, type SizedFile } from "./memory_texts.js";

// How often a command is repeated if another program changes the file at the same time.
const ATTEMPTS = 5;
// Maximum numbers of the service.
const LINES_PER_PAGE = 2_000;
const FILES_PER_PAGE = 1_000;

/** Lines of a file, and the hash of the whole file. */
export interface Lines {
  readonly lines: readonly string[];
  /** The number of lines of the file. The empty string after a line feed at the end of the file is a line here. */
  readonly total: number;
  readonly sha256: string;
  /** The numbers of lines of which only the beginning is here. */
  readonly cut: readonly number[];
}

type Operation = NonNullable<
  Extract<MessageInitShape<typeof MemoryWriteRequestSchema>, { operation?: unknown }>["operation"]
>;

/** The operation of a MemoryWrite, and the result text if it succeeds. */
export interface Edit {
  readonly operation: Operation;
  readonly result: string;
}

/** The memory files of an agent. A call fails with FILE_NOT_FOUND if its file does not exist. */
export class MemoryFiles {
  readonly #client: MemorydClient;
  readonly #agentId: string;

  constructor(client: MemorydClient, agentId: string) {
    this.#client = client;
    this.#agentId = agentId;
  }

  /** Returns the lines `first` to `last` of one version of a file; a last line of -1 means all. */
  async read(path: MemoryPath, first = 1, last = -1): Promise<Lines> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      const found = await this.#readOnce(path, first, last);
      if (found) {
        return found;
      }
    }
    throw new ToolProblem(`Error: The file ${path.given} changes while it is read. Try again`);
  }

  async #readOnce(path: MemoryPath, first: number, last: number): Promise<Lines | undefined> {
    const lines: string[] = [];
    const cut: number[] = [];
    let start = first;
    let sha256: string | undefined;
    for (;;) {
      const wanted = last === -1 ? LINES_PER_PAGE : Math.min(LINES_PER_PAGE, last - start + 1);
      const page = await this.#get(path, start, wanted);
      if (sha256 !== undefined && sha256 !== page.contentSha256) {
        return undefined;
      }
      if (page.totalLines > MOST_LINES + 1) {
        throw new ToolProblem(`File ${path.given} exceeds maximum line limit of 999,999 lines.`);
      }
      sha256 = page.contentSha256;
      if (page.endLine >= page.startLine) {
        lines.push(...page.text.split("\n"));
      }
      if (page.truncated) {
        cut.push(page.endLine);
      }
      start = page.nextStartLine;
      if (start === 0 || (last !== -1 && start > last)) {
        return { lines, total: page.totalLines, sha256, cut };
      }
    }
  }

  /** Returns whether a file exists. */
  async exists(path: MemoryPath): Promise<boolean> {
    return (await unlessMissing(this.#get(path, 1, 1))) !== undefined;
  }

  /** Changes a file with the edit that `plan` returns for its text, and returns the result text. */
  async edit(path: MemoryPath, plan: (text: string) => Edit): Promise<string> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      const { lines, sha256 } = await this.read(path);
      const text = lines.join("\n");
      // Bytes that are not UTF-8, and lines that are too long, are not returned as they are in the file.
      if (sha256 !== "" && createHash("sha256").update(text).digest("hex") !== sha256) {
        throw new ToolProblem(`Error: The file ${path.given} is not UTF-8 or has a line that is too long to edit`);
      }
      const { operation, result } = plan(text);
      if (await this.#write(path, sha256, operation)) {
        return result;
      }
    }
    throw changedAgain(path);
  }

  /** Deletes a file with any content. */
  async delete(path: MemoryPath): Promise<void> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      const { contentSha256 } = await this.#get(path, 1, 1);
      if (await this.#write(path, contentSha256, { case: "deleteFile", value: {} })) {
        return;
      }
    }
    throw changedAgain(path);
  }

  /** Creates a file, and returns whether it did not exist. */
  create(path: MemoryPath, content: string): Promise<boolean> {
    return this.#write(path, "", { case: "content", value: content });
  }

  /** Moves a file, and returns whether there was no file at `target`. */
  async move(path: MemoryPath, target: MemoryPath): Promise<boolean> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      const { contentSha256: expectedSha256 } = await this.#get(path, 1, 1);
      const request = { agentId: this.#agentId, path: fileOf(path), newPath: fileOf(target), expectedSha256 };
      const conflict = await conflictOf(this.#client.move(request));
      if (!conflict) {
        return true;
      }
      if (conflict.metadata.path === fileOf(target)) {
        return false;
      }
    }
    throw changedAgain(path);
  }

  /** Returns the memory files on disk below a directory, ordered by path. */
  async below(directory: MemoryPath): Promise<SizedFile[]> {
    const found: SizedFile[] = [];
    let pageToken = "";
    do {
      const page = await this.#client.listFiles({
        agentId: this.#agentId,
        pageSize: FILES_PER_PAGE,
        pageToken,
        sources: [Source.MEMORY],
        filter: { pathPrefixes: [prefixOf(directory)] },
      });
      for (const { path, sizeBytes, state } of page.files) {
        if (state !== FileState.GONE) {
          found.push({ path, size: Number(sizeBytes) });
        }
      }
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    return found;
  }

  #get(path: MemoryPath, start: number, lineCount: number): Promise<MemoryGetResponse> {
    // No file has more than MOST_LINES lines here, and the field is limited to 32 bits.
    const startLine = Math.min(start, MOST_LINES + 2);
    return this.#client.get({ agentId: this.#agentId, path: fileOf(path), startLine, lineCount });
  }

  /** Returns whether the file still had the content with this hash and was written. */
  async #write(path: MemoryPath, expectedSha256: string, operation: Operation): Promise<boolean> {
    const request = { agentId: this.#agentId, path: fileOf(path), expectedSha256, operation };
    return (await conflictOf(this.#client.write(request))) === undefined;
  }
}

/** Returns the response, or undefined if the file does not exist. */
export async function unlessMissing<T>(response: Promise<T>): Promise<T | undefined> {
  try {
    return await response;
  } catch (error) {
    if (error instanceof MemorydError && error.reason === "FILE_NOT_FOUND") {
      return undefined;
    }
    throw error;
  }
}

/** Returns the error of a call that found another content, or undefined if the call succeeded. */
async function conflictOf(response: Promise<unknown>): Promise<MemorydError | undefined> {
  try {
    await response;
    return undefined;
  } catch (error) {
    if (error instanceof MemorydError && error.reason === "CONTENT_CHANGED") {
      return error;
    }
    throw error;
  }
}

function changedAgain(path: MemoryPath): ToolProblem {
  return new ToolProblem(
    `Error: The file ${path.given} was changed by another program at the same time, ${ATTEMPTS} times in a row. ` +
      "Nothing was written. View the file, and try again",
  );
}
