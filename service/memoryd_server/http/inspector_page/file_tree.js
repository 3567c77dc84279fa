// @ts-check
// The files of an agent as nested lists of folders. A folder's rows are created when it is opened.

import { el } from "./dom.js";
import { count, enumWords, number } from "./format.js";

/**
 * @typedef {{path: string, source?: string, sizeBytes?: string, modifiedTime?: string, state?: string, error?: string,
 *   chunks?: number, date?: string, rule?: string}} MemoryFile
 * @typedef {{name: string, path: string, folders: Map<string, Folder>, files: MemoryFile[],
 *   counts: Map<string, number>}} Folder
 * @typedef {{hrefOf: (path: string) => string, selected: string, openAll: boolean, opened: Map<string, boolean>,
 *   rows: number}} TreeOptions `opened` has the folders that the user opened or closed; `rows` counts created rows.
 */

const ROWS_AT_A_TIME = 500;
const INDEXED = "FILE_STATE_INDEXED";
const EXCLUDED = "FILE_STATE_EXCLUDED";
const BADGE_CLASSES = new Map([
  ["FILE_STATE_FAILED", "badge-bad"],
  ["FILE_STATE_PENDING", "badge-warn"],
  ["FILE_STATE_STALE", "badge-warn"],
  ["FILE_STATE_GONE", "badge-warn"],
]);
const HIDDEN_CHARACTERS = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/**
 * Return a path with control and direction characters as escapes, so that it is not shown as another path.
 * @param {string} path
 */
export function visiblePath(path) {
  return path.replace(HIDDEN_CHARACTERS, (character) => `\\u{${character.charCodeAt(0).toString(16)}}`);
}

/** @param {MemoryFile} file */
export function stateOf(file) {
  return file.state ?? "FILE_STATE_UNSPECIFIED";
}

/**
 * Return the badge of a file's state, or null for an indexed file.
 * @param {string} state
 */
export function stateBadge(state) {
  if (state === INDEXED) return null;
  return el("span", { class: `badge ${BADGE_CLASSES.get(state) ?? ""}`, text: enumWords(state) });
}

/**
 * Return the folders of `files`, which must be in the order in which they are shown.
 * @param {MemoryFile[]} files
 * @param {string} prefix left out of the names of the folders
 * @returns {Folder}
 */
export function buildTree(files, prefix = "") {
  const root = newFolder("", "");
  for (const file of files) {
    const state = stateOf(file);
    let folder = root;
    addState(folder, state);
    for (const name of folderNames(file.path, prefix)) {
      const path = `${folder.path}${name}/`;
      const next = folder.folders.get(name) ?? newFolder(name, path);
      folder.folders.set(name, next);
      folder = next;
      addState(folder, state);
    }
    folder.files.push(file);
  }
  return root;
}

/**
 * @param {string} name
 * @param {string} path
 * @returns {Folder}
 */
function newFolder(name, path) {
  return { name, path, folders: new Map(), files: [], counts: new Map() };
}

/**
 * @param {Folder} folder
 * @param {string} state
 */
function addState(folder, state) {
  folder.counts.set(state, (folder.counts.get(state) ?? 0) + 1);
}

/**
 * Return the names of the folders above a path; `../` at its beginning belongs to the first name.
 * @param {string} path
 * @param {string} prefix
 */
function folderNames(path, prefix) {
  const shown = path.startsWith(prefix) ? path.slice(prefix.length) : path;
  const above = /^(\.\.\/)*/.exec(shown)?.[0] ?? "";
  const names = shown.slice(above.length).replace(/\/$/, "").split("/");
  names.pop();
  if (names.length > 0) names[0] = above + names[0];
  else if (above) names.push(above.slice(0, -1));
  return names;
}

/** @param {string} path */
function fileName(path) {
  return path.slice(path.replace(/\/$/, "").lastIndexOf("/") + 1);
}

/**
 * Return the nested list of a folder's content.
 * @param {Folder} root
 * @param {TreeOptions} options
 */
export function treeList(root, options) {
  const list = el("ul", { class: "tree file-tree" });
  fill(list, root, 0, options);
  return list;
}

/**
 * Add the rows of a folder, with buttons for what is not shown yet. The row of the selected file is always created.
 * @param {HTMLElement} list
 * @param {Folder} folder
 * @param {number} depth
 * @param {TreeOptions} options
 */
function fill(list, folder, depth, options) {
  const entries = [...folder.folders.values(), ...folder.files];
  const selected = entries.findIndex((entry) => entry.path === options.selected);
  let first = Math.floor(Math.max(selected, 0) / ROWS_AT_A_TIME) * ROWS_AT_A_TIME;
  let end = first;
  const earlier = moreItem(() => {
    const last = first;
    first = Math.max(0, first - ROWS_AT_A_TIME);
    add(earlier, first, last)?.focus();
  });
  const later = moreItem(() => {
    const from = end;
    end = Math.min(entries.length, end + ROWS_AT_A_TIME);
    add(later, from, end)?.focus();
  });

  /**
   * @param {HTMLElement} item
   * @param {number} from
   * @param {number} to
   */
  function add(item, from, to) {
    const rows = entries.slice(from, to).map((entry) => rowOf(entry, depth, options));
    options.rows += rows.length;
    if (item === earlier) item.after(...rows);
    else item.before(...rows);
    label(earlier, first, "earlier");
    label(later, entries.length - end, "more");
    return /** @type {HTMLElement | null} */ (rows[0]?.querySelector("a, summary"));
  }

  list.append(earlier, later);
  end = Math.min(entries.length, first + ROWS_AT_A_TIME);
  add(later, first, end);
}

/** @param {() => void} onClick */
function moreItem(onClick) {
  return el("li", { class: "tree-more" }, el("button", { type: "button", class: "button", on: { click: onClick } }));
}

/**
 * @param {HTMLElement} item
 * @param {number} left
 * @param {string} word
 */
function label(item, left, word) {
  item.hidden = left === 0;
  const button = /** @type {HTMLElement} */ (item.firstElementChild);
  button.textContent = `Show ${number(Math.min(left, ROWS_AT_A_TIME))} ${word} of ${number(left)}`;
}

/**
 * @param {Folder | MemoryFile} entry
 * @param {number} depth
 * @param {TreeOptions} options
 */
function rowOf(entry, depth, options) {
  return "folders" in entry ? folderRow(entry, depth, options) : fileRow(entry, options);
}

/**
 * @param {Folder} folder
 * @param {number} depth
 * @param {TreeOptions} options
 */
function folderRow(folder, depth, options) {
  const list = el("ul");
  const summary = el(
    "summary",
    { dataset: { key: folder.path } },
    el("bdi", { text: `${visiblePath(folder.name)}/` }),
    " ",
    el("span", { class: "muted", text: countWords(folder.counts) }),
  );
  const details = /** @type {HTMLDetailsElement} */ (el("details", {}, summary, list));
  const open = () => {
    if (!list.firstChild) fill(list, folder, depth + 1, options);
  };
  details.addEventListener("toggle", () => details.open && open());
  summary.addEventListener("click", () => options.opened.set(folder.path, !details.open));
  if (isOpen(folder, depth, options)) {
    open();
    details.open = true;
  }
  return el("li", {}, details);
}

/**
 * @param {Folder} folder
 * @param {number} depth
 * @param {TreeOptions} options
 */
function isOpen(folder, depth, options) {
  if (hasSelected(folder, options.selected)) return options.opened.get(folder.path) ?? true;
  const wanted = options.opened.get(folder.path) ?? (options.openAll || depth === 0);
  return wanted && options.rows < ROWS_AT_A_TIME;
}

/**
 * @param {Folder} folder
 * @param {string} selected
 * @returns {boolean}
 */
function hasSelected(folder, selected) {
  if (!selected) return false;
  return folder.files.some((file) => file.path === selected) ||
    [...folder.folders.values()].some((below) => hasSelected(below, selected));
}

/**
 * Return what a folder contains in words, for example `12 files, 1 failed, 2 excluded`.
 * @param {Map<string, number>} counts
 */
export function countWords(counts) {
  let files = 0;
  const words = [];
  for (const [state, n] of counts) {
    if (state !== EXCLUDED) files += n;
    if (state !== INDEXED) words.push(`${number(n)} ${enumWords(state).toLowerCase()}`);
  }
  return [count(files, "file"), ...words].join(", ");
}

/**
 * @param {MemoryFile} file
 * @param {TreeOptions} options
 */
function fileRow(file, options) {
  const reason = file.error || file.rule;
  return el(
    "li",
    {},
    el(
      "a",
      {
        href: options.hrefOf(file.path),
        "aria-current": file.path === options.selected ? "true" : null,
        dataset: { key: file.path },
      },
      el("bdi", { text: visiblePath(fileName(file.path)) }),
    ),
    " ",
    stateBadge(stateOf(file)),
    reason ? el("span", { class: "file-reason muted", text: visiblePath(reason) }) : null,
  );
}
