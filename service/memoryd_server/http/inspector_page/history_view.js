// @ts-check
/** The writes of a file, newest first, with the differences of each. The page cannot undo; it shows the command. */

import { ApiError, call } from "./api.js";
import { el, errorBox, loading, replace } from "./dom.js";
import { visiblePath } from "./file_tree.js";
import { ago, bytes, count, enumWords } from "./format.js";

/**
 * @typedef {Pick<import("./main.js").Context, "agentId" | "agent" | "signal">} Context
 * @typedef {{versionId: string, path: string, movedFrom?: string, time: string, caller?: string, kind?: string,
 *   beforeSha256?: string, beforeBytes?: string, afterSha256?: string, afterBytes?: string, restorable?: boolean,
 *   diff?: string, diffTruncated?: boolean}} Version
 */

const PAGE_SIZE = 20;
/** Classes of the lines of a unified diff by their first character. */
const LINE_CLASSES = new Map([
  ["+", "diff-added"],
  ["-", "diff-removed"],
  ["@", "diff-place"],
]);
/** Characters that a shell does not interpret. */
const PLAIN = /^[\w.,:@%/+=][\w.,:@%/+=-]*$/;

/**
 * Return the history of a file as a `<details>`.
 * @param {Context} context
 * @param {string} path
 */
export function renderHistory({ agentId, agent, signal }, path) {
  const summary = el("summary", { text: "History" });
  const list = el("ol", { class: "history-list" });
  const note = el("div", { class: "muted" }, "Loading the history");
  const more = el("button", { type: "button", class: "button", hidden: true, text: "Older writes", on: { click: load } });
  let pageToken = "";

  async function load() {
    more.disabled = true;
    try {
      const reply = await call("MemoryHistory", { agentId, path, pageSize: PAGE_SIZE, pageToken }, { signal });
      pageToken = reply.nextPageToken ?? "";
      for (const version of reply.versions ?? []) list.append(versionItem(version, { agentId, agent, signal }));
      summary.textContent = `History (${count(list.childElementCount, "write")}${pageToken ? " shown" : ""})`;
      replace(note, list.childElementCount === 0 && emptyWords(agent.mayEdit));
    } catch (error) {
      if (!signal.aborted) replace(note, problem(error));
    }
    more.hidden = pageToken === "";
    more.disabled = false;
  }

  load();
  return el("details", { class: "file-details" }, summary, note, list, more);
}

/** @param {boolean} [mayEdit] */
function emptyWords(mayEdit) {
  return mayEdit
    ? "memoryd has not edited this file. Changes by other programs are not recorded."
    : "The history has no writes of this file. Edits are disabled, or the token does not allow them.";
}

/** @param {unknown} error */
function problem(error) {
  const isUnavailable = error instanceof ApiError && error.reason === "HISTORY_UNAVAILABLE";
  return isUnavailable ? `The history is unavailable: ${error.message}` : errorBox(error);
}

/**
 * @param {Version} version
 * @param {Context} context
 */
function versionItem(version, context) {
  const { time, caller = "", kind, movedFrom, restorable } = version;
  const diff = el("div", null, loading("Loading the differences"));
  const showOnce = () => details.open && !diff.dataset.loaded && showDiff(diff, version, context);
  const details = el("details", { on: { toggle: showOnce } }, el("summary", { text: "Differences" }), diff);
  return el(
    "li",
    null,
    el(
      "p",
      { class: "row" },
      el("strong", { text: enumWords(kind) }),
      el("time", { datetime: time, title: time, text: ago(time) }),
      el("span", null, "by ", el("bdi", { text: visiblePath(caller) })),
      el("span", { class: "muted", text: sizeWords(version) }),
      !restorable && el("span", { class: "badge badge-warn", text: "Cannot be undone" }),
    ),
    movedFrom && el("p", null, "Moved from ", el("code", { dir: "auto", text: visiblePath(movedFrom) })),
    details,
    restorable && el("p", { class: "muted" }, "To undo it: ", el("code", { text: undoCommand(version, context) })),
  );
}

/** @param {Version} version */
function sizeWords({ beforeSha256, beforeBytes, afterSha256, afterBytes }) {
  return `${beforeSha256 ? bytes(beforeBytes) : "no file"} → ${afterSha256 ? bytes(afterBytes) : "no file"}`;
}

/**
 * @param {Version} version
 * @param {Context} context
 */
function undoCommand({ versionId }, { agentId, agent }) {
  return ["memoryd", "undo", ...(agent.default ? [] : ["--agent", agentId]), versionId].map(quoted).join(" ");
}

/** @param {string} word */
function quoted(word) {
  return PLAIN.test(word) || word === "--agent" ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/**
 * @param {HTMLElement} root
 * @param {Version} version
 * @param {Context} context
 */
async function showDiff(root, { versionId }, { agentId, signal }) {
  root.dataset.loaded = "true";
  try {
    const { versions = [] } = await call("MemoryHistory", { agentId, versionId, includeDiffs: true }, { signal });
    const { diff = "", diffTruncated = false } = versions[0] ?? {};
    replace(
      root,
      diff ? diffBlock(diff) : el("p", { class: "muted", text: "The content did not change, or is no longer stored." }),
      diffTruncated && el("p", { class: "muted", text: "The rest of the differences is not shown." }),
    );
  } catch (error) {
    delete root.dataset.loaded;
    if (!signal.aborted) replace(root, errorBox(error));
  }
}

/** @param {string} diff */
function diffBlock(diff) {
  let inHeader = true;
  const lines = diff.replace(/\n$/, "").split("\n").map((line) => {
    inHeader &&= !line.startsWith("@@");
    return el("div", { class: inHeader ? "diff-header" : LINE_CLASSES.get(line[0]) ?? "", dir: "auto", text: line || " " });
  });
  return el("pre", { class: "code diff", tabindex: "0", role: "region", "aria-label": "Differences" }, lines);
}
