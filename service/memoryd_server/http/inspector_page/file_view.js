/** One file: its state, its history, and its text with chunks. */

import { call } from "./api.js";
import { el, errorBox, loading, replace, viewHref, visible } from "./dom.js";
import { FileText } from "./file_text.js";
import { stateBadge } from "./file_tree.js";
import { ago, bytes, day, number } from "./format.js";
import { fileHistory } from "./history_view.js";

/** @typedef {import("./file_tree.js").MemoryFile} MemoryFile */
/** @typedef {import("./main.js").Context} Context */

/** @type {Record<string, string>} */
const REASONS = {
  FILE_STATE_PENDING: "This file is not indexed yet. The next sync indexes it.",
  FILE_STATE_STALE: "This file changed after it was indexed. The chunks are those of the indexed content.",
  FILE_STATE_FAILED: "This file could not be indexed: ",
  FILE_STATE_GONE: "This file is indexed but no longer on disk. The next sync removes it from the index.",
  FILE_STATE_FORGOTTEN: "This file was removed from the index by MemoryForget. It is not indexed again until its content changes.",
  FILE_STATE_EXCLUDED: "This path is not indexed: ",
};
const WITH_CHUNKS = new Set(["FILE_STATE_INDEXED", "FILE_STATE_STALE"]);
/** The text of these files is loaded only on request, because this often fails. */
const UNREADABLE = new Set(["FILE_STATE_FAILED", "FILE_STATE_EXCLUDED"]);

/**
 * Show a file, and in it the line in `line` of the parameters.
 * @param {HTMLElement} root
 * @param {Context} context
 * @param {string} path
 */
export async function renderFile(root, context, path) {
  const about = el("div", { class: "file-about" }, loading("Loading the file"));
  replace(
    root,
    el("a", { class: "file-back", href: viewHref(context.agentId, "files"), text: "← All files" }),
    el("h3", { class: "file-title" }, el("bdi", { text: visible(path) })),
    about,
  );
  try {
    const file = await findFile(context, path);
    replace(about, aboutFile(context, path, file));
    if (file && !path.endsWith("/")) showContent(root, context, file);
  } catch (error) {
    if (!context.signal.aborted) replace(about, errorBox(error));
  }
}

/**
 * Return the file as it is in the list of files. It is the first of the files whose paths begin with this path.
 * @param {Context} context
 * @param {string} path
 * @returns {Promise<MemoryFile | undefined>}
 */
async function findFile({ agentId, signal }, path) {
  const request = { agentId, includeExcluded: true, pageSize: 10, filter: { pathPrefixes: [path] } };
  const { files = [] } = await call("ListFiles", request, { signal });
  return files.find((/** @type {MemoryFile} */ file) => file.path === path);
}

/** @param {Context} context @param {string} path @param {MemoryFile | undefined} file */
function aboutFile({ agentId }, path, file) {
  const why = el("a", { href: viewHref(agentId, "search", { why: path }), text: "Why is it not found?" });
  if (!file) return el("p", { class: "file-problem" }, "This path is not in the list of the agent's files. ", why);
  const reason = REASONS[file.state];
  const detail = file.error || file.rule;
  return [
    el("dl", { class: "file-facts" }, factsOf(file).map(([name, value]) => value && el("div", null, el("dt", { text: name }), el("dd", null, value)))),
    el("p", { class: reason && "file-problem" }, reason, detail && el("code", { dir: "auto", text: visible(detail) }), " ", why),
  ];
}

/** @param {MemoryFile} file @returns {[string, Node | string | false | undefined][]} */
function factsOf({ state, sizeBytes, modifiedTime, date, chunks }) {
  return [
    ["State", stateBadge(state) ?? "Indexed"],
    ["Size", sizeBytes && bytes(sizeBytes)],
    ["Modified", modifiedTime && el("time", { datetime: modifiedTime, title: modifiedTime, text: ago(modifiedTime) })],
    ["Date", date && day(date)],
    ["Chunks", WITH_CHUNKS.has(state) && number(chunks)],
  ];
}

/**
 * Show the history and the text of a file.
 * @param {HTMLElement} root
 * @param {Context} context
 * @param {MemoryFile} file
 */
function showContent(root, context, file) {
  const { path, state, source } = file;
  const isTranscript = source === "SOURCE_SESSIONS";
  const text = new FileText(context, path, {
    noun: isTranscript ? "message" : "line",
    isIndexed: WITH_CHUNKS.has(state),
    wanted: Number(context.params.get("line")) || 0,
  });
  const open = () => (show.replaceWith(text.element), text.open());
  const show = el("button", { type: "button", class: "button", text: "Show the text", on: { click: open } });
  const content = [text.details, !isTranscript && fileHistory(context, path), state !== "FILE_STATE_GONE" && show];
  root.append(...content.filter((part) => part instanceof Node));
  if (show.isConnected && !UNREADABLE.has(state)) open();
}
