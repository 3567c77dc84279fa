// @ts-check
/** One file: its state, its history, and its text with chunks. */

import { call } from "./api.js";
import { el, errorBox, loading, replace, viewHref } from "./dom.js";
import { FileText } from "./file_text.js";
import { stateBadge, stateOf, visiblePath } from "./file_tree.js";
import { ago, bytes, day, number } from "./format.js";
import { renderHistory } from "./history_view.js";

/** @typedef {import("./file_tree.js").MemoryFile} MemoryFile */
/** @typedef {import("./main.js").Context} Context */

/** @type {Record<string, (file: MemoryFile) => any[]>} */
const REASONS = {
  FILE_STATE_PENDING: () => ["This file is not indexed yet. The next sync indexes it."],
  FILE_STATE_STALE: () => ["This file changed after it was indexed. The chunks are those of the indexed content."],
  FILE_STATE_FAILED: ({ error = "" }) => ["This file could not be indexed: ", el("bdi", { text: visiblePath(error) })],
  FILE_STATE_GONE: () => ["This file is indexed but no longer on disk. The next sync removes it from the index."],
  FILE_STATE_FORGOTTEN: () => [
    "This file was removed from the index on request. It is not indexed again until its content changes.",
  ],
  FILE_STATE_EXCLUDED: ({ path, rule = "" }) => [
    path.endsWith("/") ? "This folder and the files in it are excluded by the rule " : "This file is excluded by the rule ",
    el("code", { dir: "auto", text: visiblePath(rule) }),
    ".",
  ],
};
const HAVE_CHUNKS = new Set(["FILE_STATE_INDEXED", "FILE_STATE_STALE"]);

/**
 * Show a file, and in it the line in `line` of the parameters.
 * @param {HTMLElement} root
 * @param {Context} context
 * @param {string} path
 */
export function renderFile(root, context, path) {
  const { signal } = context;
  const about = el("div", { class: "file-about" }, loading("Loading the file"));
  const rest = el("div");
  replace(
    root,
    el("a", { class: "file-back", href: viewHref(context.agentId, "files"), text: "← All files" }),
    el("h3", { class: "file-title" }, el("bdi", { text: visiblePath(path) })),
    about,
    rest,
  );
  load().catch((error) => {
    if (!signal.aborted) replace(about, errorBox(error));
  });

  async function load() {
    const file = await findFile(context, path);
    replace(about, ...aboutFile(context, path, file));
    if (path.endsWith("/")) return;
    const text = new FileText(context, path, {
      isTranscript: file?.source === "SOURCE_SESSIONS",
      isIndexed: HAVE_CHUNKS.has(file?.state ?? ""),
      line: lineOf(context.params),
    });
    const history = el("details", { class: "file-details" });
    const showText = async () => {
      replace(rest, text.chunkDetails, history, text.element);
      try {
        await text.load();
      } catch (error) {
        if (!signal.aborted) replace(text.element, errorBox(error));
      }
    };
    // What keeps a file out of the index usually keeps it from being read, too.
    const button = el("button", { type: "button", class: "button", text: "Show the text", on: { click: showText } });
    replace(rest, history, file?.state === "FILE_STATE_FAILED" && button);
    if (file?.source === "SOURCE_SESSIONS") history.remove();
    else renderHistory(history, context, path);
    if (file && file.state !== "FILE_STATE_FAILED") await showText();
  }
}

/** @param {URLSearchParams} params */
function lineOf(params) {
  const line = Number(params.get("line"));
  return Number.isSafeInteger(line) && line > 0 && line < 2 ** 31 ? line : 0;
}

/**
 * Return the file as it is in the list of files. A path with all files that begin with it is listed first.
 * @param {Context} context
 * @param {string} path
 * @returns {Promise<MemoryFile | undefined>}
 */
async function findFile({ agentId, signal }, path) {
  const request = { agentId, includeExcluded: true, pageSize: 10, filter: { pathPrefixes: [path] } };
  const { files = [] } = await call("ListFiles", request, { signal });
  return files.find((/** @type {MemoryFile} */ file) => file.path === path);
}

/**
 * @param {Context} context
 * @param {string} path
 * @param {MemoryFile | undefined} file
 */
function aboutFile(context, path, file) {
  const why = el("a", { href: viewHref(context.agentId, "search", { why: path }), text: "Why is it not found?" });
  if (!file) return [el("p", { class: "file-problem" }, "This path is not in the list of the agent's files. ", why)];
  const state = stateOf(file);
  const reason = REASONS[state]?.(file);
  return [
    el("dl", { class: "file-facts" }, facts(file).map(([name, value]) => el("div", null, el("dt", { text: name }), el("dd", null, value)))),
    el("p", { class: reason ? "file-problem" : "" }, reason ?? [], " ", why),
  ];
}

/**
 * @param {MemoryFile} file
 * @returns {[string, Node | string][]}
 */
function facts(file) {
  /** @type {[string, Node | string | false][]} */
  const all = [
    ["State", stateBadge(stateOf(file)) ?? "Indexed"],
    ["Size", file.sizeBytes !== undefined && bytes(file.sizeBytes)],
    ["Modified", file.modifiedTime !== undefined && timeOf(file.modifiedTime)],
    ["Date", file.date ? day(file.date) : false],
    ["Chunks", HAVE_CHUNKS.has(stateOf(file)) && number(file.chunks)],
  ];
  return /** @type {[string, Node | string][]} */ (all.filter(([, value]) => value));
}

/**
 * Return a time relative to now, with the complete time as its tooltip.
 * @param {string} timestamp
 */
export function timeOf(timestamp) {
  return el("time", { datetime: timestamp, title: new Date(timestamp).toLocaleString(), text: ago(timestamp) });
}
