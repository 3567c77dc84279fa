/** The view of files: the files of an agent with their states, and the selected file. */

import { eachPage } from "./api.js";
import { announce, debounce, el, emptyBox, errorBox, loading, replace, viewHref } from "./dom.js";
import { addState, STATES, treeList } from "./file_tree.js";
import { renderFile } from "./file_view.js";
import { count, enumWords, number } from "./format.js";

/**
 * The files of an agent, and the user's filter, opened folders and scroll position. `revision` is `revisionOf` when they
 * were loaded.
 * @typedef {import("./file_tree.js").MemoryFile} MemoryFile
 * @typedef {{files: MemoryFile[], isComplete: boolean, revision: string, text: string, states: Set<string>,
 *   opened: Map<string, boolean>, scrollTop: number}} FileList
 * @typedef {import("./main.js").Context} Context
 */

const FILTER_DELAY_MS = 150;
/** A list is loaded again when the index has not changed for this time, or for 1 ms for each file if this is longer. */
const RELOAD_DELAY_MS = 1000;
/** All folders are opened if the filter leaves at most this number of files. */
const MOST_FILES_TO_OPEN = 200;

/**
 * The lists by agent, so that a click on a file does not load the list again. A sign-in creates new agents.
 * @type {WeakMap<import("./main.js").Agent, FileList>}
 */
const lists = new WeakMap();

/**
 * Show the files, and the one in `path` of the parameters.
 * @param {HTMLElement} root
 * @param {Context} context
 */
export function render(root, context) {
  const path = context.params.get("path") ?? "";
  const list = el("section", { class: "file-list", "aria-label": "List of files" });
  const panel = el("section", { class: "file-panel", "aria-label": "File" });
  replace(root, el("h2", { tabindex: -1, text: "Files" }), el("div", { class: `files-layout${path && " has-file"}` }, list, panel));
  if (path) renderFile(panel, context, path);
  return renderList(list, context, path);
}

/** @param {HTMLElement} root @param {Context} context @param {string} selected */
function renderList(root, context, selected) {
  const { agentId, agent, signal, watch } = context;
  /** @type {FileList} */
  const list = lists.get(agent) ??
    { files: [], isComplete: false, revision: "", text: "", states: new Set(), opened: new Map(), scrollTop: 0 };
  lists.set(agent, list);
  const boxes = STATES.map((state) => stateBox(state, list, filter));
  const filterByText = debounce(filter, FILTER_DELAY_MS);
  const text = el("input", { type: "search", id: "files-text", value: list.text, on: { input: filterByText } });
  const summary = el("p", { class: "muted" });
  const tree = el("div", { class: "file-groups", on: { scroll: () => (list.scrollTop = tree.scrollTop) } }, loading("Loading the list of files"));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let revision = revisionOf(context.index);

  function filter() {
    list.text = text.value;
    show();
    announce(summary.textContent ?? "");
  }

  function show() {
    const words = list.text.trim().toLowerCase();
    const withText = words ? list.files.filter(({ path }) => path.toLowerCase().includes(words)) : list.files;
    const files = list.states.size ? withText.filter(({ state }) => list.states.has(state)) : withText;
    const isFiltered = words !== "" || list.states.size > 0;
    const counts = new Map();
    for (const file of withText) addState(counts, file);
    for (const box of boxes) box.show(counts);
    summary.textContent = `${isFiltered ? `${number(files.length)} of ` : ""}${count(list.files.length, "path")}${list.isComplete ? "" : ", loading more"}`;
    showTree(tree, files, {
      hrefOf: (path) => viewHref(agentId, "files", { path }),
      selected,
      openAll: isFiltered && files.length <= MOST_FILES_TO_OPEN,
      opened: isFiltered ? new Map() : list.opened,
      rows: 0,
    });
  }

  async function load() {
    const isFirst = !list.isComplete;
    const before = revision;
    /** @type {MemoryFile[]} */
    const files = [];
    const addPage = (/** @type {MemoryFile[]} */ page) => {
      files.push(...page);
      if (!isFirst) return;
      list.files = files;
      show();
    };
    try {
      await eachPage("ListFiles", { agentId, includeExcluded: true }, "files", addPage, { signal });
    } catch (error) {
      if (!signal.aborted) replace(tree, errorBox(error));
      return;
    }
    Object.assign(list, { files, isComplete: true, revision: before || revision });
    show();
    if (isFirst) showSelected(tree);
    follow();
  }

  function follow() {
    list.revision ||= revision;
    clearTimeout(timer);
    if (list.isComplete && revision !== list.revision) timer = setTimeout(load, Math.max(RELOAD_DELAY_MS, list.files.length));
  }

  watch.addEventListener("index", (event) => {
    const next = revisionOf(/** @type {CustomEvent} */ (event).detail);
    if (next === revision) return;
    revision = next;
    follow();
  });
  const states = el("fieldset", { class: "file-states" }, el("legend", { text: "Only these states" }), boxes.map(({ label }) => label));
  replace(root, el("div", { class: "field" }, el("label", { for: "files-text", text: "Path contains" }), text), states, summary, tree);
  if (list.isComplete) {
    show();
    tree.scrollTop = list.scrollTop;
    showSelected(tree);
    follow();
  } else load();
  return () => {
    clearTimeout(timer);
    filterByText.cancel();
  };
}

/**
 * Return a text that changes whenever files or their states change.
 * @param {any} state A WatchIndexResponse, or null.
 */
function revisionOf(state) {
  return state ? `${state.indexRevision} ${state.pendingFiles} ${state.dirty}` : "";
}

/**
 * Return the checkbox of a state. It is hidden if no file has the state.
 * @param {string} state
 * @param {FileList} list
 * @param {() => void} filter
 */
function stateBox(state, { states }, filter) {
  const change = () => {
    states[box.checked ? "add" : "delete"](state);
    filter();
  };
  const box = el("input", { type: "checkbox", checked: states.has(state), on: { change } });
  const n = el("span", { class: "muted" });
  const label = el("label", null, box, ` ${enumWords(state)} `, n);
  const show = (/** @type {Map<string, number>} */ counts) => {
    n.textContent = number(counts.get(state));
    label.hidden = !counts.has(state) && !states.has(state);
  };
  return { label, show };
}

/**
 * Show files. The focus and the scroll position stay where they are.
 * @param {HTMLElement} tree
 * @param {MemoryFile[]} files
 * @param {import("./file_tree.js").TreeOptions} options
 */
function showTree(tree, files, options) {
  const isSession = (/** @type {MemoryFile} */ { source }) => source === "SOURCE_SESSIONS";
  const groups = [
    { title: "Memory files", prefix: "", members: files.filter((file) => !isSession(file)) },
    { title: "Sessions", prefix: "sessions/", members: files.filter(isSession) },
  ].filter(({ members }) => members.length > 0);
  const focused = document.activeElement?.getAttribute("data-key");
  const { scrollTop } = tree;
  replace(
    tree,
    groups.map(({ title, prefix, members }) => el("section", null, el("h3", { text: title }), treeList(members, prefix, options))),
    groups.length === 0 && emptyBox("No files."),
  );
  tree.scrollTop = scrollTop;
  if (focused) /** @type {HTMLElement | null} */ (tree.querySelector(`[data-key="${CSS.escape(focused)}"]`))?.focus();
}

/**
 * Scroll to the selected file. After a click on it, its link has the focus again.
 * @param {HTMLElement} tree
 */
function showSelected(tree) {
  const link = /** @type {HTMLElement | null} */ (tree.querySelector("[aria-current]"));
  if (document.activeElement === document.body) link?.focus({ preventScroll: true });
  link?.scrollIntoView({ block: "nearest" });
}
