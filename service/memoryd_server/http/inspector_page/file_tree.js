/** The files of an agent as nested lists of folders. A folder's rows are created when it is opened. */

import { el, visible } from "./dom.js";
import { count, enumWords, number } from "./format.js";

/**
 * @typedef {{path: string, source?: string, sizeBytes?: string, modifiedTime?: string, state: string, error?: string,
 *   chunks?: number, date?: string, rule?: string}} MemoryFile
 * @typedef {{name: string, path: string, folders: Map<string, Folder>, files: MemoryFile[], counts: Map<string, number>}} Folder
 * @typedef {{hrefOf: (path: string) => string, selected: string, openAll: boolean, opened: Map<string, boolean>,
 *   rows: number}} TreeOptions `opened` has the folders that the user opened or closed; `rows` counts created rows.
 */

export const STATES = ["INDEXED", "PENDING", "STALE", "FAILED", "GONE", "FORGOTTEN", "EXCLUDED"].map((name) => `FILE_STATE_${name}`);
const ROWS_AT_A_TIME = 500;
const INDEXED = "FILE_STATE_INDEXED";
const EXCLUDED = "FILE_STATE_EXCLUDED";

/**
 * Return the badge of a file's state, or null for an indexed file.
 * @param {string} state
 */
export function stateBadge(state) {
  if (state === INDEXED) return null;
  const kind = state === "FILE_STATE_FAILED" ? "badge-bad" : state === EXCLUDED ? "" : "badge-warn";
  return el("span", { class: `badge ${kind}`, text: enumWords(state) });
}

/** @param {Map<string, number>} counts @param {MemoryFile} file */
export function addState(counts, { state }) {
  counts.set(state, (counts.get(state) ?? 0) + 1);
}

/**
 * Return the number of files in words, for example `12 files, 1 failed, 2 excluded`.
 * @param {Map<string, number>} counts
 */
function countWords(counts) {
  let files = 0;
  for (const [state, n] of counts) if (state !== EXCLUDED) files += n;
  const others = STATES.filter((state) => state !== INDEXED && counts.has(state));
  return [count(files, "file"), ...others.map((state) => `${number(counts.get(state))} ${enumWords(state).toLowerCase()}`)].join(", ");
}

/**
 * Return the nested list of files, which must be in the order in which they are shown.
 * @param {MemoryFile[]} files
 * @param {string} prefix Beginning of all paths, which is not shown.
 * @param {TreeOptions} options
 */
export function treeList(files, prefix, options) {
  const root = newFolder("", prefix);
  for (const file of files) {
    let folder = root;
    for (const name of folderNames(file.path, prefix)) {
      const next = folder.folders.get(name) ?? newFolder(name, `${folder.path}${name}/`);
      folder.folders.set(name, next);
      folder = next;
      addState(folder.counts, file);
    }
    folder.files.push(file);
  }
  const list = el("ul", { class: "tree file-tree" });
  fill(list, root, 0, options);
  return list;
}

/** @param {string} name @param {string} path @returns {Folder} */
function newFolder(name, path) {
  return { name, path, folders: new Map(), files: [], counts: new Map() };
}

/**
 * Return the names of the folders above a path. `../` at its beginning belongs to the first name.
 * @param {string} path
 * @param {string} prefix
 */
function folderNames(path, prefix) {
  const below = path.startsWith(prefix) ? path.slice(prefix.length) : path;
  return below.match(/^(\.\.\/)+[^/]*(?=\/[^])|[^/]+(?=\/[^])/g) ?? [];
}

/**
 * Add rows of a folder, with those of the selected file, and buttons for the others.
 * @param {HTMLElement} list
 * @param {Folder} folder
 * @param {number} depth
 * @param {TreeOptions} options
 */
function fill(list, folder, depth, options) {
  const entries = [...folder.folders.values(), ...folder.files];
  const selected = Math.max(0, entries.findIndex(({ path }) => path === options.selected));
  let start = selected - (selected % ROWS_AT_A_TIME);
  let end = start;
  const earlier = el("li", null, el("button", { class: "button", on: { click: () => add(start - ROWS_AT_A_TIME, start) } }));
  const later = el("li", null, el("button", { class: "button", on: { click: () => add(end, end + ROWS_AT_A_TIME) } }));

  /** @param {number} from @param {number} to */
  function add(from, to) {
    const rows = entries.slice(from, to).map((entry) =>
      el("li", null, "folders" in entry ? folderRow(entry, depth, options) : fileRow(entry, options)));
    const hadFocus = list.contains(document.activeElement);
    options.rows += rows.length;
    if (from < start) earlier.after(...rows);
    else later.before(...rows);
    start = Math.min(start, from);
    end = Math.max(end, from + rows.length);
    for (const [item, left, word] of /** @type {const} */ ([[earlier, start, "earlier"], [later, entries.length - end, "more"]])) {
      item.hidden = left === 0;
      item.children[0].textContent = `Show ${number(Math.min(left, ROWS_AT_A_TIME))} ${word} of ${number(left)}`;
    }
    if (hadFocus) /** @type {HTMLElement | null} */ (rows[0].querySelector("a, summary"))?.focus();
  }

  list.append(earlier, later);
  add(start, start + ROWS_AT_A_TIME);
}

/** @param {Folder} folder @param {number} depth @param {TreeOptions} options */
function folderRow(folder, depth, options) {
  const { path, name, counts } = folder;
  const { selected, opened, openAll, rows } = options;
  const isWanted = (selected !== path && selected.startsWith(path)) || ((openAll || depth === 0) && rows < ROWS_AT_A_TIME);
  const list = el("ul");
  const fillOnce = () => {
    if (details.open && !list.firstChild) fill(list, folder, depth + 1, options);
  };
  const summary = el(
    "summary",
    // The click event is sent before the folder opens or closes.
    { dataset: { key: path }, on: { click: () => opened.set(path, !details.open) } },
    el("bdi", { text: `${visible(name)}/` }),
    " ",
    el("span", { class: "muted", text: countWords(counts) }),
  );
  const details = el("details", { open: opened.get(path) ?? isWanted, on: { toggle: fillOnce } }, summary, list);
  fillOnce();
  return details;
}

/** @param {MemoryFile} file @param {TreeOptions} options */
function fileRow(file, { hrefOf, selected }) {
  const { path, state, error, rule } = file;
  const name = path.slice(path.lastIndexOf("/", path.length - 2) + 1);
  const reason = error || rule;
  return [
    el(
      "a",
      { href: hrefOf(path), "aria-current": path === selected && "true", dataset: { key: path } },
      el("bdi", { text: visible(name) }),
    ),
    " ",
    stateBadge(state),
    reason && el("span", { class: "file-reason muted", text: visible(reason) }),
  ];
}
