// The memory tool of Anthropic's API, executed by a memoryd daemon.

import type { MemorydClient } from "./client.js";
import { MemorydError } from "./error.js";
import { type Edit, MemoryFiles, unlessMissing } from "./memory_files.js";
import { type MemoryPath, ROOT, ToolProblem, listedPath, parsePath, prefixOf } from "./memory_paths.js";
import { linesOfOccurrences, listing, numbered, snippet, splitLines } from "./memory_texts.js";

/** Options of a {@link MemoryTool}. */
export interface MemoryToolOptions {
  /** The agent whose memory the tool uses; by default `main`, or the default agent. */
  readonly agentId?: string | undefined;
}

/**
 * Executes calls of the memory tool of Anthropic's API (`memory_20250818`) with the memory of one agent. The directory
 * `/memories` of the tool is the agent's folder `memory/`. The README of this package describes the names of files, and
 * which errors are texts.
 */
export class MemoryTool {
  /** The element of `tools` in a request to Anthropic's API. */
  static readonly definition = { type: "memory_20250818", name: "memory" } as const;

  readonly #files: MemoryFiles;

  constructor(client: MemorydClient, options: MemoryToolOptions = {}) {
    this.#files = new MemoryFiles(client, options.agentId ?? "");
  }

  /**
   * Executes a call of the tool, and returns its result text. `input` is the `input` of a `tool_use` block. If the call
   * fails for a reason that the model can change, for example because a file does not exist, the result is the text of
   * the error. If it fails for another reason, for example because edits are disabled, the promise is rejected with a
   * {@link MemorydError}.
   */
  async execute(input: unknown): Promise<string> {
    try {
      if (typeof input !== "object" || input === null || Array.isArray(input)) {
        return "Error: The input must be an object";
      }
      const given = new Arguments(new Map(Object.entries(input)));
      const name = given.text("command");
      const command = COMMANDS.get(name);
      if (!command) {
        return `Error: Unknown command: ${name}. The commands are ${[...COMMANDS.keys()].join(", ")}`;
      }
      return await command(this.#files, given);
    } catch (error) {
      if (error instanceof ToolProblem) {
        return error.message;
      }
      if (error instanceof MemorydError && isOfTheCall(error)) {
        return `Error: ${error.message}`;
      }
      throw error;
    }
  }
}

/** Whether the message of an error tells the model what to change in its call. */
function isOfTheCall({ reason, violations }: MemorydError): boolean {
  return (
    reason === "PATH_NOT_ALLOWED" ||
    (reason === "INVALID_REQUEST" && !violations.some(({ field }) => field === "agent_id"))
  );
}

// The arguments of a call, which a model wrote.
class Arguments {
  readonly #given: ReadonlyMap<string, unknown>;

  constructor(given: ReadonlyMap<string, unknown>) {
    this.#given = given;
  }

  text(name: string): string {
    const value = this.#required(name);
    if (typeof value !== "string") {
      throw new ToolProblem(`Error: The parameter \`${name}\` must be a string`);
    }
    if (/\p{Surrogate}/u.test(value)) {
      throw new ToolProblem(`Error: The parameter \`${name}\` is not valid Unicode text`);
    }
    return value;
  }

  path(name = "path"): MemoryPath {
    return parsePath(this.text(name));
  }

  integer(name: string): number {
    return integer(name, this.#required(name));
  }

  // The first and the last line to view; -1 is the last line of the file.
  viewRange(): [number, number] {
    const value = this.#given.get("view_range") ?? [1, -1];
    if (!Array.isArray(value) || value.length !== 2) {
      throw new ToolProblem("Error: Invalid `view_range` parameter. It should be a list of two integers");
    }
    const [first, last] = [integer("view_range", value[0]), integer("view_range", value[1])];
    if (last !== -1 && last < Math.max(first, 1)) {
      throw new ToolProblem(
        `Error: Invalid \`view_range\` parameter: [${first}, ${last}]. Its second element should be -1 or not less ` +
          "than its first element",
      );
    }
    return [Math.max(first, 1), last];
  }

  #required(name: string): unknown {
    const value = this.#given.get(name) ?? undefined;
    if (value === undefined) {
      throw new ToolProblem(`Error: The parameter \`${name}\` is missing`);
    }
    return value;
  }
}

function integer(name: string, value: unknown): number {
  if (typeof value !== "number" || !Number.isInteger(value)) {
    throw new ToolProblem(`Error: Invalid \`${name}\` parameter: ${String(value)}. It should be an integer`);
  }
  return value;
}

async function view(files: MemoryFiles, given: Arguments): Promise<string> {
  const path = given.path();
  const [first, last] = given.viewRange();
  const text = path.isDirectory ? undefined : await unlessMissing(viewFile(files, path, first, last));
  if (text !== undefined) {
    return text;
  }
  const found = await files.below(path);
  if (path.parts.length > 0 && found.length === 0) {
    return `The path ${path.given} does not exist. Please provide a valid path.`;
  }
  return listing(path, found);
}

async function viewFile(files: MemoryFiles, path: MemoryPath, first: number, last: number): Promise<string> {
  const found = await files.read(path, first, last);
  const ended = found.lines.at(-1) === "" && first + found.lines.length - 1 === found.total;
  const lines = ended ? found.lines.slice(0, -1) : found.lines;
  if (lines.length === 0 && first > 1) {
    return `Error: Invalid \`view_range\` parameter: [${first}, ${last}]. Its first element is after the last line of the file`;
  }
  const cut = found.cut.map((number) => `\n(Line ${number} is too long: only its beginning is shown)`);
  return `Here's the content of ${path.given} with line numbers:\n${numbered(lines, first)}${cut.join("")}`;
}

async function create(files: MemoryFiles, given: Arguments): Promise<string> {
  const path = given.path();
  const content = given.text("file_text");
  requireFileName(path);
  const created = await files.create(path, content);
  return created ? `File created successfully at: ${path.given}` : `Error: File ${path.given} already exists`;
}

async function strReplace(files: MemoryFiles, given: Arguments): Promise<string> {
  const path = given.path();
  const oldText = given.text("old_str");
  const newText = given.text("new_str");
  if (oldText === "") {
    return "Error: The parameter `old_str` must not be empty";
  }
  const plan = (text: string): Edit => {
    const start = text.indexOf(oldText);
    if (start < 0) {
      throw new ToolProblem(
        `No replacement was performed, old_str \`${oldText}\` did not appear verbatim in ${path.given}.`,
      );
    }
    if (text.includes(oldText, start + 1)) {
      throw new ToolProblem(
        `No replacement was performed. Multiple occurrences of old_str \`${oldText}\` in lines: ` +
          `${linesOfOccurrences(text, oldText)}. Please ensure it is unique`,
      );
    }
    const changed = text.slice(0, start) + newText + text.slice(start + oldText.length);
    return {
      operation: { case: "replace", value: { oldText, newText } },
      result:
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n" +
        snippet(changed, start, newText.length),
    };
  };
  return edit(files, path, plan, `Error: The path ${path.given} does not exist. Please provide a valid path.`);
}

async function insert(files: MemoryFiles, given: Arguments): Promise<string> {
  const path = given.path();
  const afterLine = given.integer("insert_line");
  const inserted = given.text("insert_text");
  const plan = (text: string): Edit => {
    const count = splitLines(text).length;
    if (afterLine < 0 || afterLine > count) {
      throw new ToolProblem(
        `Error: Invalid \`insert_line\` parameter: ${afterLine}. It should be within the range of lines of the file: ` +
          `[0, ${count}]`,
      );
    }
    const lines = inserted.endsWith("\n") ? inserted : `${inserted}\n`;
    return {
      operation: { case: "insert", value: { afterLine, text: lines } },
      result: `The file ${path.given} has been edited.`,
    };
  };
  return edit(files, path, plan, `Error: The path ${path.given} does not exist`);
}

async function edit(
  files: MemoryFiles,
  path: MemoryPath,
  plan: (text: string) => Edit,
  missing: string,
): Promise<string> {
  return path.isDirectory ? missing : ((await unlessMissing(files.edit(path, plan))) ?? missing);
}

async function remove(files: MemoryFiles, given: Arguments): Promise<string> {
  const path = given.path();
  if (path.parts.length === 0) {
    return `Error: Cannot delete the ${ROOT} directory itself`;
  }
  if (path.isDirectory || !(await removed(files, path))) {
    const found = await files.below(path);
    if (found.length === 0) {
      return `Error: The path ${path.given} does not exist`;
    }
    for (const file of found) {
      await removed(files, listedPath(file.path));
    }
  }
  return `Successfully deleted ${path.given}`;
}

/** Deletes a file, and returns whether it existed. */
async function removed(files: MemoryFiles, path: MemoryPath): Promise<boolean> {
  return (await unlessMissing(files.delete(path).then(() => true))) ?? false;
}

async function rename(files: MemoryFiles, given: Arguments): Promise<string> {
  const source = given.path("old_path");
  const target = given.path("new_path");
  if (source.parts.length === 0) {
    return `Error: Cannot rename the ${ROOT} directory itself`;
  }
  if (target.parts.length === 0 || (await files.below(target)).length > 0) {
    return occupied(target);
  }
  if (!source.isDirectory && (await files.exists(source))) {
    requireFileName(target);
    const moved = await unlessMissing(files.move(source, target));
    if (moved === undefined) {
      return `Error: The path ${source.given} does not exist`;
    }
    return moved ? renamed(source, target) : occupied(target);
  }
  return renameDirectory(files, source, target);
}

async function renameDirectory(files: MemoryFiles, source: MemoryPath, target: MemoryPath): Promise<string> {
  const found = await files.below(source);
  if (found.length === 0) {
    return `Error: The path ${source.given} does not exist`;
  }
  if (prefixOf(target).startsWith(prefixOf(source))) {
    return `Error: Cannot rename ${source.given} to a path below itself`;
  }
  if (await files.exists(target)) {
    return occupied(target);
  }
  for (const [count, file] of found.entries()) {
    const moved = listedPath(prefixOf(target) + file.path.slice(prefixOf(source).length));
    if ((await unlessMissing(files.move(listedPath(file.path), moved))) === false) {
      return `${occupied(moved)}. ${count} of ${found.length} files were renamed`;
    }
  }
  return renamed(source, target);
}

function renamed(source: MemoryPath, target: MemoryPath): string {
  return `Successfully renamed ${source.given} to ${target.given}`;
}

function occupied(target: MemoryPath): string {
  return `Error: The destination ${target.given} already exists`;
}

function requireFileName(path: MemoryPath): void {
  if (path.isDirectory) {
    throw new ToolProblem(`Error: The path ${path.given} names a directory, not a file`);
  }
}

type Command = (files: MemoryFiles, given: Arguments) => Promise<string>;

const COMMANDS: ReadonlyMap<string, Command> = new Map([
  ["view", view],
  ["create", create],
  ["str_replace", strReplace],
  ["insert", insert],
  ["delete", remove],
  ["rename", rename],
]);
