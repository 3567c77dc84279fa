/** The writes of a file, newest first, with the diff of each. The page shows the command that undoes a write. */

import { call } from "./api.js";
import { breakable, el, errorBox, replace, visible } from "./dom.js";
import { ago, bytes, enumWords } from "./format.js";

/** @typedef {Record<string, any> & {diff?: string}} Version FileVersion of the protos. */

const PAGE_SIZE = 20;
const EMPTY = "The history has no writes of this file.";
/**
 * Classes of the lines of a unified diff by their first character.
 * @type {Record<string, string>}
 */
const LINE_CLASSES = { "+": "diff-added", "-": "diff-removed", "@": "muted" };

/**
 * Return the history of a file as a `<details>`, which loads it when it is opened.
 * @param {import("./main.js").Context} context
 * @param {string} path
 */
export function fileHistory({ agentId, agent, signal }, path) {
  const undo = agent.default ? "memoryd undo" : `memoryd undo --agent ${agentId}`;
  const list = el("ol", { class: "history-list" });
  const note = el("div", { class: "muted" });
  const more = el("button", { type: "button", class: "button", hidden: true, text: "Older writes", on: { click: load } });
  let pageToken = "";

  async function load() {
    more.disabled = true;
    replace(note, "Loading the history");
    try {
      const request = { agentId, path, pageSize: PAGE_SIZE, pageToken, includeDiffs: true };
      const { versions = [], nextPageToken = "" } = await call("MemoryHistory", request, { signal });
      for (const version of versions) list.append(versionItem(version, undo));
      pageToken = nextPageToken;
      replace(note, !list.firstChild && (agent.mayEdit ? EMPTY : `${EMPTY} Edits are disabled, or the token does not allow them.`));
    } catch (error) {
      if (!signal.aborted) replace(note, errorBox(error));
    }
    more.hidden = pageToken === "";
    more.disabled = false;
  }

  const loadFirst = (/** @type {any} */ event) => event.target.open && !list.firstChild && load();
  return el("details", { class: "file-details", on: { toggle: loadFirst } }, el("summary", { text: "History" }), list, note, more);
}

/** @param {Version} version @param {string} undo */
function versionItem(version, undo) {
  const { versionId, movedFrom, time, caller = "", kind, restorable } = version;
  const before = version.beforeSha256 ? bytes(version.beforeBytes) : "no file";
  const after = version.afterSha256 ? bytes(version.afterBytes) : "no file";
  return el(
    "li",
    null,
    el(
      "p",
      { class: "row" },
      el("strong", { text: enumWords(kind) }),
      el("time", { datetime: time, title: time, text: ago(time) }),
      el("span", null, "by ", el("bdi", { text: visible(caller) })),
      el("span", { class: "muted", text: `${before} → ${after}` }),
      !restorable && el("span", { class: "badge badge-warn", text: "Cannot be undone" }),
    ),
    movedFrom && el("p", null, "Moved from ", el("code", { dir: "auto", text: visible(movedFrom) })),
    el("details", null, el("summary", { text: "Diff" }), diffOf(version)),
    restorable && el("p", { class: "muted" }, "To undo it: ", el("code", { text: `${undo} ${versionId}` })),
  );
}

/** @param {Version} version */
function diffOf({ diff, diffTruncated }) {
  if (!diff) return el("p", { class: "muted", text: "The content did not change, or is no longer stored." });
  let inHeader = true;
  const lines = diff.replace(/\n$/, "").split("\n").map((line) => {
    inHeader &&= !line.startsWith("@@");
    return el("div", { class: inHeader ? "muted" : LINE_CLASSES[line[0]] }, breakable(line || " "));
  });
  return [
    el("pre", { class: "code diff", tabindex: "0", role: "region", "aria-label": "Diff" }, lines),
    diffTruncated && el("p", { class: "muted", text: "The rest of the diff is not shown." }),
  ];
}
