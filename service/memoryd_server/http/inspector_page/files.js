// @ts-check
/** The files of an agent with their states, and the selected file. */

import { eachPage } from "./api.js";
import { announce, debounce, el, emptyBox, errorBox, loading, replace, viewHref } from "./dom.js";
import { addState, stateOf, STATES, treeList } from "./file_tree.js";
import { renderFile } from "./file_view.js";
import { count, enumWords, number } from "./format.js";

/**
 * The files of an agent, and what the user did with the list. `revision` is that of the index when they were loaded.
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
 * The lists by agents, so that a click on a file does not load the list again. A sign-in makes new agents.
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
  replace(
    root,
    el("h2", { tabindex: "-1", text: "Files" }),
    el("div", { class: `files-layout${path ? " has-file" : ""}` }, list, panel),
  );
  if (path) renderFile(panel, context, path);
  return renderList(list, context, path);
}

/**
 * @param {HTMLElement} root
 * @param {Context} context
 * @param {string} selected
 */
function renderList(root, context, selected) {
  const list = listOf(context);
  const parts = partsOf(list);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let revision = revisionOf(context.index);

  const show = () => showFiles(parts, list, context.agentId, selected);
  const load = async () => {
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
      const request = { agentId: context.agentId, includeExcluded: true };
      await eachPage("ListFiles", request, "files", addPage, { signal: context.signal });
    } catch (error) {
      if (!context.signal.aborted) replace(parts.tree, errorBox(error));
      return;
    }
    Object.assign(list, { files, isComplete: true, revision: before || revision });
    show();
    if (isFirst) showSelected(parts.tree);
    follow();
  };
  const follow = () => {
    list.revision ||= revision;
    clearTimeout(timer);
    if (!list.isComplete || revision === list.revision) return;
    timer = setTimeout(load, Math.max(RELOAD_DELAY_MS, list.files.length));
  };
  const filter = () => {
    show();
    announce(parts.summary.textContent ?? "");
  };
  const filterByText = debounce(filter, FILTER_DELAY_MS);

  parts.text.addEventListener("input", () => {
    list.text = parts.text.value;
    filterByText();
  });
  parts.states.addEventListener("change", ({ target }) => {
    const { checked, value } = /** @type {HTMLInputElement} */ (target);
    list.states[checked ? "add" : "delete"](value);
    filter();
  });
  parts.tree.addEventListener("scroll", () => (list.scrollTop = parts.tree.scrollTop));
  context.watch.addEventListener("index", (event) => {
    const next = revisionOf(/** @type {CustomEvent} */ (event).detail);
    if (next === revision) return;
    revision = next;
    follow();
  });
  replace(root, parts.filter, parts.summary, parts.tree);
  if (list.isComplete) {
    show();
    parts.tree.scrollTop = list.scrollTop;
    showSelected(parts.tree);
    follow();
  } else {
    replace(parts.tree, loading("Loading the list of files"));
    load();
  }
  return () => {
    clearTimeout(timer);
    filterByText.cancel();
  };
}

/**
 * Return the list of the context's agent. The parameter `state` sets its filter.
 * @param {Context} context
 */
function listOf({ agent, params }) {
  /** @type {FileList} */
  const list = lists.get(agent) ??
    { files: [], isComplete: false, revision: "", text: "", states: new Set(), opened: new Map(), scrollTop: 0 };
  lists.set(agent, list);
  if (params.has("state")) list.states = new Set(params.getAll("state").filter((state) => STATES.includes(state)));
  return list;
}

/**
 * Return what changes if files or their states change.
 * @param {any} state A WatchIndexResponse, or null.
 */
function revisionOf(state) {
  return state ? `${state.indexRevision} ${state.pendingFiles} ${state.dirty}` : "";
}

/** @param {FileList} list */
function partsOf(list) {
  const text = el("input", { type: "search", id: "files-text", value: list.text, autocomplete: "off", spellcheck: "false" });
  const boxes = STATES.map((state) => {
    const box = el("input", { type: "checkbox", value: state, checked: list.states.has(state) });
    return { state, label: el("label", null, box, ` ${enumWords(state)} `, el("span", { class: "muted" })) };
  });
  const states = el("fieldset", { class: "file-states" }, el("legend", { text: "Only these states" }), boxes.map(({ label }) => label));
  const field = el("div", { class: "field" }, el("label", { for: "files-text", text: "Path contains" }), text);
  return {
    text,
    states,
    boxes,
    filter: el("div", { class: "file-filter" }, field, states),
    summary: el("p", { class: "muted" }),
    tree: el("div", { class: "file-groups" }),
  };
}

/**
 * Show the files that the filter leaves. The focus and the scroll position stay where they are.
 * @param {ReturnType<typeof partsOf>} parts
 * @param {FileList} list
 * @param {string} agentId
 * @param {string} selected
 */
function showFiles({ boxes, summary, tree }, list, agentId, selected) {
  const text = list.text.trim().toLowerCase();
  const withText = text ? list.files.filter(({ path }) => path.toLowerCase().includes(text)) : list.files;
  const files = list.states.size ? withText.filter((file) => list.states.has(stateOf(file))) : withText;
  const isFiltered = text !== "" || list.states.size > 0;
  const counts = new Map();
  for (const file of withText) addState(counts, file);
  for (const { state, label } of boxes) {
    label.hidden = !counts.has(state) && !list.states.has(state);
    for (const span of label.getElementsByTagName("span")) span.textContent = number(counts.get(state));
  }
  const shown = isFiltered ? `${number(files.length)} of ` : "";
  summary.textContent = `${shown}${count(list.files.length, "path")}${list.isComplete ? "" : ", loading more"}`;
  const options = {
    hrefOf: (/** @type {string} */ path) => viewHref(agentId, "files", { path }),
    selected,
    openAll: isFiltered && files.length <= MOST_FILES_TO_OPEN,
    opened: isFiltered ? new Map() : list.opened,
    rows: 0,
  };
  const isSession = ({ source = "" }) => source === "SOURCE_SESSIONS";
  const groups = [
    { title: "Memory files", prefix: "", members: files.filter((file) => !isSession(file)) },
    { title: "Sessions", prefix: "sessions/", members: files.filter(isSession) },
  ];
  const focused = document.activeElement?.closest("[data-key]")?.getAttribute("data-key");
  const { scrollTop } = tree;
  replace(
    tree,
    groups.map(({ title, prefix, members }) =>
      members.length > 0 && el("section", null, el("h3", { text: title }), treeList(members, prefix, options))),
    files.length === 0 && emptyBox(isFiltered ? "No file matches the filter." : "The agent has no files."),
  );
  tree.scrollTop = scrollTop;
  if (focused) /** @type {HTMLElement | null} */ (tree.querySelector(`[data-key="${CSS.escape(focused)}"]`))?.focus();
}

/**
 * Scroll the list, not the page, to the selected file. After a click on it, its link has the focus again.
 * @param {HTMLElement} tree
 */
function showSelected(tree) {
  const link = /** @type {HTMLElement | null} */ (tree.querySelector("[aria-current]"));
  if (!link) return;
  if (document.activeElement === document.body) link.focus({ preventScroll: true });
  const { top, bottom } = tree.getBoundingClientRect();
  const place = link.getBoundingClientRect();
  tree.scrollTop += Math.max(0, place.bottom - Math.min(bottom, innerHeight)) + Math.min(0, place.top - top);
}
