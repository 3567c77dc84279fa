// @ts-check
/** The files of an agent with their states, and the selected file. */

import { eachPage } from "./api.js";
import { announce, debounce, el, emptyBox, errorBox, loading, replace, viewHref } from "./dom.js";
import { buildTree, countWords, stateOf, treeList } from "./file_tree.js";
import { renderFile } from "./file_view.js";
import { enumWords, number } from "./format.js";

/** @typedef {import("./file_tree.js").MemoryFile} MemoryFile */

const RELOAD_DELAY_MS = 1000;
const FILTER_DELAY_MS = 150;
/** Longer lists are loaded again only when the user says so. */
const MOST_FILES_TO_FOLLOW = 5000;
/** Folders are all opened if the filter leaves at most this number of files. */
const MOST_FILES_TO_OPEN = 200;
const SESSIONS = "SOURCE_SESSIONS";
const STATES = [
  "FILE_STATE_INDEXED",
  "FILE_STATE_PENDING",
  "FILE_STATE_STALE",
  "FILE_STATE_FAILED",
  "FILE_STATE_GONE",
  "FILE_STATE_FORGOTTEN",
  "FILE_STATE_EXCLUDED",
];

/**
 * The last list that was loaded, and what the user did with it. It is kept so that a click on a file loads no list.
 * @typedef {{files: MemoryFile[], isComplete: boolean, revision: string, text: string,
 *   states: Set<string>, opened: Map<string, boolean>, scrollTop: number}} FileList
 */

/**
 * Lists by the agents of the current session: a sign-in loads other objects.
 * @type {WeakMap<import("./main.js").Agent, FileList>}
 */
const lists = new WeakMap();

/**
 * @param {import("./main.js").Agent} agent
 * @returns {FileList}
 */
function listOf(agent) {
  const known = lists.get(agent);
  if (known) return known;
  const list = { files: [], isComplete: false, revision: "", text: "", states: new Set(), opened: new Map(), scrollTop: 0 };
  lists.set(agent, list);
  return list;
}

/**
 * Show the files, and the one in `path` of the parameters.
 * @param {HTMLElement} root
 * @param {import("./main.js").Context} context
 */
export function render(root, context) {
  const path = context.params.get("path") ?? "";
  const panel = el("section", { class: "file-panel", "aria-label": "File" });
  const tree = el("section", { class: "file-list", "aria-label": "List of files" });
  replace(
    root,
    el("h2", { tabindex: "-1", text: "Files" }),
    el("div", { class: `files-layout${path ? " has-file" : ""}` }, tree, panel),
  );
  const stopList = renderList(tree, context, path);
  if (path) renderFile(panel, context, path);
  return stopList;
}

/**
 * @param {HTMLElement} root
 * @param {import("./main.js").Context} context
 * @param {string} selected
 */
function renderList(root, context, selected) {
  const list = listOf(context.agent);
  if (context.params.has("state")) {
    list.states = new Set(STATES.filter((state) => context.params.getAll("state").includes(state)));
  }
  const parts = listParts(list);
  let revision = revisionOf(context.index);

  const show = () => showTree(parts, list, context.agentId, selected);
  const load = async () => {
    parts.notice.hidden = true;
    const first = list.files.length === 0;
    if (first) replace(parts.tree, loading("Loading the list of files"));
    try {
      const request = { agentId: context.agentId, includeExcluded: true };
      const before = revision;
      /** @type {MemoryFile[]} */
      const files = [];
      const addPage = (/** @type {MemoryFile[]} */ page) => {
        files.push(...page);
        if (!first) return;
        list.files = files;
        show();
      };
      await eachPage("ListFiles", request, "files", addPage, { signal: context.signal });
      list.files = files;
      list.isComplete = true;
      list.revision = before;
      show();
      if (first) announce(countWords(statesOf(list.files)));
    } catch (error) {
      if (!context.signal.aborted) replace(parts.tree, errorBox(error));
    }
  };
  const reload = debounce(load, RELOAD_DELAY_MS);
  const onIndex = (/** @type {any} */ event) => {
    revision = revisionOf(event.detail);
    compare();
  };
  const compare = () => {
    list.revision ||= revision;
    if (!list.isComplete || revision === list.revision) return;
    if (list.files.length <= MOST_FILES_TO_FOLLOW) reload();
    else parts.notice.hidden = false;
  };

  parts.text.addEventListener("input", debounce(() => {
    list.text = parts.text.value;
    show();
    announce(parts.summary.textContent ?? "");
  }, FILTER_DELAY_MS));
  parts.states.addEventListener("change", (event) => {
    const box = /** @type {HTMLInputElement} */ (event.target);
    if (box.checked) list.states.add(box.value);
    else list.states.delete(box.value);
    show();
    announce(parts.summary.textContent ?? "");
  });
  parts.reload.addEventListener("click", load);
  parts.tree.addEventListener("scroll", () => (list.scrollTop = parts.tree.scrollTop), { passive: true });
  replace(root, parts.filter, parts.notice, parts.summary, parts.tree);
  context.watch.addEventListener("index", onIndex, { signal: context.signal });
  if (list.isComplete) {
    show();
    parts.tree.scrollTop = list.scrollTop;
    showSelected(parts.tree);
    compare();
  } else {
    list.files = [];
    load();
  }
  return reload.cancel;
}

/**
 * Scroll the list, not the page, to the selected file. After a click on it, its link has the focus again.
 * @param {HTMLElement} tree
 */
function showSelected(tree) {
  const link = /** @type {HTMLElement | null} */ (tree.querySelector("[aria-current]"));
  if (!link) return;
  if (document.activeElement === document.body) link.focus({ preventScroll: true });
  const below = link.getBoundingClientRect().bottom - tree.getBoundingClientRect().bottom;
  const above = link.getBoundingClientRect().top - tree.getBoundingClientRect().top;
  if (below > 0) tree.scrollTop += below;
  else if (above < 0) tree.scrollTop += above;
}

/**
 * Return what changes if files or their states change.
 * @param {any} state A WatchIndexResponse, or null.
 */
function revisionOf(state) {
  if (!state) return "";
  return `${state.indexRevision ?? 0}/${state.pendingFiles ?? 0}/${state.dirty ?? false}`;
}

/** @param {FileList} list */
function listParts(list) {
  const text = el("input", { type: "search", id: "files-text", autocomplete: "off", spellcheck: "false" });
  text.value = list.text;
  const states = el("fieldset", { class: "file-states" });
  const reload = el("button", { type: "button", class: "button", text: "Load again" });
  return {
    text,
    states,
    reload,
    filter: el(
      "form",
      { class: "file-filter", on: { submit: (event) => event.preventDefault() } },
      el("div", { class: "field" }, el("label", { for: "files-text", text: "Path contains" }), text),
      states,
    ),
    notice: el("p", { class: "row", hidden: true }, "The index has changed. ", reload),
    summary: el("p", { class: "muted" }),
    tree: el("div", { class: "file-groups" }),
  };
}

/**
 * Show the files that the filter leaves. The focus and the scroll position stay where they are.
 * @param {ReturnType<typeof listParts>} parts
 * @param {FileList} list
 * @param {string} agentId
 * @param {string} selected
 */
function showTree(parts, list, agentId, selected) {
  const text = list.text.trim().toLowerCase();
  const withText = text ? list.files.filter((file) => file.path.toLowerCase().includes(text)) : list.files;
  showStates(parts.states, list, statesOf(withText));
  const files = list.states.size ? withText.filter((file) => list.states.has(stateOf(file))) : withText;
  const isFiltered = text !== "" || list.states.size > 0;
  const words = countWords(statesOf(files));
  const of = isFiltered ? ` of ${number(list.files.length)} entries` : "";
  parts.summary.textContent = `${words}${of}${list.isComplete ? "" : ", loading more"}`;
  const options = {
    hrefOf: (/** @type {string} */ path) => viewHref(agentId, "files", { path }),
    selected,
    openAll: isFiltered && files.length <= MOST_FILES_TO_OPEN,
    opened: isFiltered ? new Map() : list.opened,
    rows: 0,
  };
  const focused = document.activeElement instanceof HTMLElement && parts.tree.contains(document.activeElement)
    ? document.activeElement.closest("[data-key]")?.getAttribute("data-key")
    : null;
  const scrollTop = parts.tree.scrollTop;
  const memory = files.filter((file) => file.source !== SESSIONS);
  const sessions = files.filter((file) => file.source === SESSIONS);
  replace(
    parts.tree,
    memory.length > 0 && group("Memory files", treeList(buildTree(memory), options)),
    sessions.length > 0 && group("Sessions", treeList(buildTree(sessions, "sessions/"), options)),
    files.length === 0 && emptyBox(isFiltered ? "No file matches the filter." : "The agent has no files."),
  );
  parts.tree.scrollTop = scrollTop;
  if (focused) keyed(parts.tree, focused)?.focus();
}

/**
 * @param {string} title
 * @param {HTMLElement} tree
 */
function group(title, tree) {
  return el("section", { class: "file-group" }, el("h3", { text: title }), tree);
}

/**
 * @param {HTMLElement} root
 * @param {string} key
 */
function keyed(root, key) {
  return /** @type {HTMLElement | null} */ (root.querySelector(`[data-key="${CSS.escape(key)}"]`));
}

/** @param {MemoryFile[]} files */
function statesOf(files) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const file of files) counts.set(stateOf(file), (counts.get(stateOf(file)) ?? 0) + 1);
  return counts;
}

/**
 * Show a checkbox for each state that occurs or is checked.
 * @param {HTMLElement} root
 * @param {FileList} list
 * @param {Map<string, number>} counts
 */
function showStates(root, list, counts) {
  const focused = document.activeElement instanceof HTMLInputElement && root.contains(document.activeElement)
    ? document.activeElement.value
    : null;
  const boxes = STATES.filter((state) => counts.has(state) || list.states.has(state)).map((state) => {
    const box = el("input", { type: "checkbox", value: state, checked: list.states.has(state), dataset: { key: state } });
    return el("label", {}, box, ` ${enumWords(state)} (${number(counts.get(state))})`);
  });
  replace(root, el("legend", { text: "Only files in these states" }), boxes);
  if (focused) keyed(root, focused)?.focus();
}
