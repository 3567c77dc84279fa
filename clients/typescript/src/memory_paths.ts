// The paths of the memory tool, and the memory files that they name.
//
//   /memories/a.md        memory/a.md
//   /memories/notes.txt   memory/notes.txt.md
//   /memories/notes       memory/notes.md
//   /memories/projects/   the files below memory/projects/
//
// memoryd stores Markdown only, so `.md` is added to every other name. A list shows `notes.txt` again, without the added
// `.md`, because a name without `.md` that has a suffix always names the same file.

export const ROOT = "/memories";
const FOLDER = "memory";
const MARKDOWN = ".md";

const SUFFIX = /.\.[A-Za-z0-9]{1,16}$/su;
const ENCODED_SEPARATOR = /%(2e|2f|5c)/iu;
const CONTROL_OR_BACKSLASH = /[\u0000-\u001f\u007f\\]/u;
const CONTROL = /[\u0000-\u001f\u007f]/gu;

/** A call of the tool that failed. The message is its result text, which the model reads. */
export class ToolProblem extends Error {
  override readonly name = "ToolProblem";
}

/** A path of the tool. */
export interface MemoryPath {
  /** The path as the model wrote it. */
  readonly given: string;
  /** The names below `/memories`. */
  readonly parts: readonly string[];
  /** True for `/memories` and for a path that ends with a slash. Every other path can name a file or a directory. */
  readonly isDirectory: boolean;
}

/** Returns the memory file that a path names. */
export function fileOf(path: MemoryPath): string {
  const file = [FOLDER, ...path.parts].join("/");
  return file.endsWith(MARKDOWN) ? file : file + MARKDOWN;
}

/** Returns the beginning of the paths of all memory files below the directory that a path names. */
export function prefixOf(path: MemoryPath): string {
  return [FOLDER, ...path.parts, ""].join("/");
}

/** Returns the path that a model wrote. Repeated slashes count as one. */
export function parsePath(given: string): MemoryPath {
  const [lead, first, ...names] = given.split("/");
  const parts = names.filter((name) => name !== "");
  if (
    lead !== "" ||
    first !== ROOT.slice(1) ||
    parts.includes(".") ||
    parts.includes("..") ||
    CONTROL_OR_BACKSLASH.test(given) ||
    ENCODED_SEPARATOR.test(given)
  ) {
    throw new ToolProblem(
      `Error: The path ${given} is not valid. A path is ${ROOT} or begins with ${ROOT}/, and contains no ` +
        "backslash, no control character, no `.` or `..` as a name, and no percent-encoded separator",
    );
  }
  return { given, parts, isDirectory: parts.length === 0 || given.endsWith("/") };
}

/** Returns the path by which a list shows a memory file below `memory/`. */
export function listedPath(file: string): MemoryPath {
  const parts = file.split("/").slice(1);
  const shown = [...parts.slice(0, -1), shownName(parts.at(-1) ?? "")];
  return { given: [ROOT, ...shown].join("/"), parts, isDirectory: false };
}

/** Returns the path of a memory file without control characters, which could forge lines of a list. */
export function printable(path: string): string {
  return path.replace(CONTROL, "\ufffd");
}

/** Returns the name by which a list shows a memory file: without an added `.md`. */
export function shownName(name: string): string {
  const rest = name.endsWith(MARKDOWN) ? name.slice(0, -MARKDOWN.length) : name;
  return SUFFIX.test(rest) && !rest.endsWith(MARKDOWN) ? rest : name;
}
