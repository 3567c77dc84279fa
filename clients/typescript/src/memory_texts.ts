// The texts of the memory tool: lists of files, lines with numbers, sizes.

import { type MemoryPath, prefixOf, printable, shownName } from "./memory_paths.js";

export const MOST_LINES = 999_999;
const NUMBER_WIDTH = String(MOST_LINES).length;
const CONTEXT_LINES = 2;
const MOST_NAMED_LINES = 100;
const KIBI = 1024;
// A list contains the items of a directory and those of its directories.
const LEVELS = 2;

/** A memory file and its size in bytes. */
export interface SizedFile {
  readonly path: string;
  readonly size: number;
}

interface Directory {
  size: number;
  readonly directories: Map<string, Directory>;
  readonly files: Map<string, number>;
}

/** Returns the list of a directory with all memory files below it. */
export function listing(path: MemoryPath, files: readonly SizedFile[]): string {
  const top = emptyDirectory();
  for (const file of files) {
    const names = printable(file.path.slice(prefixOf(path).length)).split("/");
    if (!names.some((name) => name.startsWith(".") || name === "node_modules")) {
      add(top, names, file.size);
    }
  }
  const shown = path.given.replace(/\/+$/u, "");
  const header = `Here're the files and directories up to ${LEVELS} levels deep in ${shown}, excluding hidden items and node_modules:`;
  return [header, `${humanSize(top.size)}\t${shown}`, ...rows(top, shown, LEVELS)].join("\n");
}

function emptyDirectory(): Directory {
  return { size: 0, directories: new Map(), files: new Map() };
}

function add(top: Directory, names: readonly string[], size: number): void {
  let directory = top;
  directory.size += size;
  for (const name of names.slice(0, -1)) {
    const below = directory.directories.get(`${name}/`) ?? emptyDirectory();
    directory.directories.set(`${name}/`, below);
    directory = below;
    directory.size += size;
  }
  directory.files.set(shownName(names.at(-1) ?? ""), size);
}

function rows(directory: Directory, shown: string, levels: number): string[] {
  const sizes = new Map(directory.files);
  for (const [name, below] of directory.directories) {
    sizes.set(name, below.size);
  }
  return [...sizes]
    .sort(([one], [other]) => Buffer.compare(Buffer.from(one), Buffer.from(other)))
    .flatMap(([name, size]) => {
      const below = levels > 1 ? directory.directories.get(name) : undefined;
      const row = `${humanSize(size)}\t${shown}/${name}`;
      return below ? [row, ...rows(below, `${shown}/${name.slice(0, -1)}`, levels - 1)] : [row];
    });
}

/** Returns a number of bytes as `512B`, `5.5K`, `1.2M` or `3G`. */
export function humanSize(size: number): string {
  let scaled = size;
  let unit = "B";
  for (const larger of "KMG") {
    if (scaled < KIBI) {
      break;
    }
    scaled /= KIBI;
    unit = larger;
  }
  return scaled.toFixed(1).replace(/\.0$/u, "") + unit;
}

/** Returns the lines of a text. The empty string after a line feed at the end is not a line. */
export function splitLines(text: string): string[] {
  const lines = text.split("\n");
  return lines.at(-1) === "" ? lines.slice(0, -1) : lines;
}

/** Returns lines with their numbers, of which the first is `first`. */
export function numbered(lines: readonly string[], first: number): string {
  return lines.map((line, index) => `${String(first + index).padStart(NUMBER_WIDTH)}\t${line}`).join("\n");
}

/** Returns the lines that contain the `length` code units from `start`, two lines before and two after, numbered. */
export function snippet(text: string, start: number, length: number): string {
  const first = lineFeeds(text.slice(0, start));
  const last = first + lineFeeds(text.slice(start, start + length));
  const begin = Math.max(0, first - CONTEXT_LINES);
  return numbered(splitLines(text).slice(begin, last + CONTEXT_LINES + 1), begin + 1);
}

/**
 * Returns the numbers of the lines in which an occurrence of `part` begins, separated by commas. At most a hundred are
 * returned, followed by "and others" if there are more.
 */
export function linesOfOccurrences(text: string, part: string): string {
  const numbers: number[] = [];
  let line = 1;
  let counted = 0;
  let found = text.indexOf(part);
  while (found >= 0 && numbers.length < MOST_NAMED_LINES) {
    line += lineFeeds(text.slice(counted, found));
    numbers.push(line);
    counted = found;
    const end = text.indexOf("\n", found);
    found = end >= 0 ? text.indexOf(part, end + 1) : -1;
  }
  return numbers.join(", ") + (found >= 0 ? " and others" : "");
}

function lineFeeds(text: string): number {
  return text.split("\n").length - 1;
}
