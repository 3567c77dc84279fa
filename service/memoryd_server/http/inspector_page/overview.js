/** The state of an agent's index: what is indexed, how it is searched, what does not work, and the sync in progress. */

import { call } from "./api.js";
import { dayChart } from "./chart.js";
import { announce, debounce, el, errorBox, loading, replace, viewHref } from "./dom.js";
import { ago, bytes, count, duration, enumWords, number } from "./format.js";
import { eachFile } from "./timeline.js";

/** @typedef {import("./main.js").Context} Context */

const REFRESH_MS = 300;
const AGES_MS = 10000;
/** The files are listed again after at least this multiple of the time that listing them took. */
const RELOAD_FACTOR = 10;

/** @type {Record<string, string>} */
const BADGES = {
  INDEX_STATE_READY: "badge-ok",
  INDEX_STATE_UNAVAILABLE: "badge-bad",
  WATCHER_MODE_NATIVE: "badge-ok",
  WATCHER_MODE_DEAD: "badge-bad",
};

/** @param {HTMLElement} root @param {Context} context */
export function render(root, context) {
  const { agentId, signal } = context;
  const sync = syncCard();
  const status = el("div", { class: "stack" }, loading("Loading the status…"));
  const chart = el("section", { class: "card" }, el("h3", { text: "Notes by day" }), loading("Loading the files…"));
  replace(root, el("h2", { tabindex: -1, text: "Overview" }), sync.element, status, chart);

  /** @type {any} The last Status; empty after an error, so that the next watch event gets it again. */
  let shown = null;
  /** @type {string | undefined} The revision of the index when the files were listed. */
  let listed;
  let reloadMs = 0;
  let reloadTimer = 0;

  async function refresh() {
    try {
      shown = await call("Status", { agentId }, { signal });
      if (!context.index) sync.show(shown.activeSync);
      replaceKeepingFocus(status, statusCards(shown, agentId));
    } catch (error) {
      shown = {};
      if (!signal.aborted) replace(status, errorBox(error));
    }
  }

  async function loadChart() {
    const start = performance.now();
    listed = context.index?.indexRevision;
    try {
      const content = await chartOf(context, (text) => chart.lastElementChild?.matches(".loading") && replace(chart.lastElementChild, text));
      replace(chart, el("h3", { text: "Notes by day" }), content);
    } catch (error) {
      listed = "";
      if (!signal.aborted) replace(chart, el("h3", { text: "Notes by day" }), errorBox(error));
    }
    reloadMs = REFRESH_MS + RELOAD_FACTOR * (performance.now() - start);
    reloadTimer = 0;
  }

  const refreshSoon = debounce(refresh, REFRESH_MS);
  const onIndex = (/** @type {any} */ { detail: state }) => {
    const ended = sync.show(state.activeSync);
    if (shown && (ended || summary(state, state) !== summary(shown.index ?? {}, shown))) refreshSoon();
    listed ??= state.indexRevision;
    if (listed !== state.indexRevision) reloadTimer ||= setTimeout(loadChart, reloadMs);
  };
  const ages = setInterval(() => {
    for (const time of status.querySelectorAll("time")) time.textContent = ago(time.dateTime);
  }, AGES_MS);

  context.watch.addEventListener("index", onIndex, { signal });
  if (context.index) sync.show(context.index.activeSync);
  // Listing the files takes longer than the status.
  refresh().then(loadChart);
  return () => {
    clearInterval(ages);
    clearTimeout(reloadTimer);
    refreshSoon.cancel();
  };
}

/** Return what a watch event and Status have in common. @param {any} index @param {any} status */
function summary({ indexRevision, revision = indexRevision, state, pendingFiles = 0 }, { watchers = [] }) {
  return JSON.stringify([revision, state, pendingFiles, watchers]);
}

/**
 * Replace the children of an element; if a link has the focus, focus the new link to the same place.
 * @param {HTMLElement} element
 * @param {import("./dom.js").Child} children
 */
function replaceKeepingFocus(element, children) {
  const place = element.contains(document.activeElement) && document.activeElement?.getAttribute("href");
  replace(element, children);
  if (place) [...element.querySelectorAll("a")].find((link) => link.getAttribute("href") === place)?.focus();
}

/** Return the card of the sync in progress. `show` takes an ActiveSync, and returns whether a sync ended. */
function syncCard() {
  const title = el("h3", { id: "sync-title" });
  const bar = el("progress", { "aria-labelledby": title.id });
  const text = el("p");
  const path = el("p", { class: "muted path" });
  const element = el("section", { class: "card sync", hidden: true }, title, bar, text, path);
  return {
    element,
    /** @param {any} active */
    show(active) {
      const wasShown = !element.hidden;
      element.hidden = !active;
      if (wasShown !== Boolean(active)) announce(active ? "A sync is running." : "The sync ended.");
      if (!active) return wasShown;
      const { mode, trigger, progress = {} } = active;
      const { phase, completedFiles, totalFiles, completedChunks, totalChunks, cachedChunks, failedFiles, batchJobs, elapsed, eta, currentPath } = progress;
      const isEmbedding = phase === "SYNC_PHASE_EMBEDDING";
      title.textContent = `${enumWords(mode)} sync: ${phase ? enumWords(phase).toLowerCase() : "starting"}`;
      bar.removeAttribute("value");
      bar.max = (isEmbedding ? totalChunks : totalFiles) || 1;
      if (totalFiles) bar.value = (isEmbedding ? completedChunks : completedFiles) ?? 0;
      const parts = [
        totalFiles && `${number(completedFiles)} of ${count(totalFiles, "file")}`,
        totalChunks && `${number(completedChunks)} of ${count(totalChunks, isEmbedding ? "vector" : "chunk")}`,
        cachedChunks && `${number(cachedChunks)} from the cache`,
        failedFiles && `${number(failedFiles)} failed`,
        batchJobs && count(batchJobs, "batch job"),
        elapsed && `${duration(elapsed)} so far`,
        eta && `about ${duration(eta)} left`,
        trigger && `trigger: ${enumWords(trigger).toLowerCase()}`,
      ];
      text.textContent = parts.filter(Boolean).join(", ");
      path.textContent = currentPath ?? "";
      return false;
    },
  };
}

/** @param {any} status @param {string} agentId */
function statusCards(status, agentId) {
  return [problemsCard(status, agentId), el("div", { class: "grid" }, indexCard(status), searchCard(status)), rootsCard(status)];
}

/** @param {any} status */
function indexCard({ index = {}, workspace, activeBackend, service = {} }) {
  return factsCard("Index", BADGES[index.state] ?? "badge-warn", enumWords(index.state), stateSentence(index), {
    Revision: index.revision ?? "0",
    Files: number(index.files),
    Chunks: number(index.chunks),
    Size: bytes(index.sizeBytes),
    "Last sync": timeOf(index.lastSyncTime),
    "Pending files": index.pendingFiles && `${number(index.pendingFiles)}, the oldest for at most ${duration(index.oldestUnindexedAge)}`,
    Backend: enumWords(activeBackend).toLowerCase(),
    Workspace: el("span", { class: "path", text: workspace }),
    memoryd: [service.version, ", started ", timeOf(service.startTime)],
  });
}

/** @param {any} index */
function stateSentence({ state, files, pendingFiles, sources = [] }) {
  const failed = sources.reduce((/** @type {number} */ sum, /** @type {any} */ { filesFailed = 0 }) => sum + filesFailed, 0);
  switch (state) {
    case "INDEX_STATE_READY":
      return `The current content of ${count(files, "file")} is indexed. ${failed ? `${count(failed, "file")} could not be indexed.` : ""}`;
    case "INDEX_STATE_STALE":
      return `${pendingFiles ? count(pendingFiles, "file") : "Files"} changed since the last sync. Searches use the index as it is.`;
    case "INDEX_STATE_BUILDING":
      return "The index is being built. Searches use what is already indexed.";
    case "INDEX_STATE_UNAVAILABLE":
      return "The index is damaged or cannot be opened, and searches fail.";
    default:
      return "Nothing is indexed.";
  }
}

/** @param {string | undefined} timestamp */
function timeOf(timestamp) {
  return timestamp ? el("time", { datetime: timestamp, title: timestamp, text: ago(timestamp) }) : "never";
}

/** @param {any} status */
function searchCard({ embedding = {}, vector = {}, index = {}, reranker, fulltext = {} }) {
  const { requestedProvider = "none", provider, model, dimensions = vector.dimensions, fallbackFrom, reason } = embedding;
  const { pendingEmbeddings, chunks, nextIdentity } = index;
  const pending = pendingEmbeddings ? `${number(pendingEmbeddings)} of ${count(chunks, "chunk")}` : "none";
  const named = (/** @type {any} */ { provider = "", model = "", reason = "" }) => `${provider} ${model} ${reason}`;
  return factsCard("Search", provider ? "badge-ok" : "", provider ? "Keywords and vectors" : "Keywords only", reason, {
    Provider: provider ? `${provider}${fallbackFrom ? ` (instead of ${fallbackFrom})` : ""}` : `none (setting: ${requestedProvider})`,
    Model: model && el("code", { text: model }),
    Dimensions: provider && number(dimensions),
    "Vectors pending": provider && pending,
    "Next model": nextIdentity && named(nextIdentity),
    "Vector engine": provider && `${vector.engine ?? "none"} ${vector.version ?? ""}`,
    "Keyword search": fulltext.available ? "works" : `does not work: ${fulltext.error ?? ""}`,
    Reranker: reranker && named(reranker),
  });
}

/**
 * @param {string} title
 * @param {string} badge
 * @param {string} state
 * @param {string | undefined} sentence
 * @param {Record<string, any>} facts Those that are empty are left out.
 */
function factsCard(title, badge, state, sentence, facts) {
  const list = Object.entries(facts).map(([name, value]) => value && [el("dt", { text: name }), el("dd", null, value)]);
  return el("section", { class: "card" }, titleRow(title, badge, state), sentence && el("p", { text: sentence }), el("dl", { class: "facts" }, list));
}

/** @param {string} title @param {string} badge @param {string} text */
function titleRow(title, badge, text) {
  return el("div", { class: "row" }, el("h3", { text: title }), el("span", { class: `badge ${badge}`, text }));
}

/** Return the card of everything that does not work. @param {any} status @param {string} agentId */
function problemsCard({ degradations = [], service = {}, sourceIssues, failedFiles = [], index = {} }, agentId) {
  const { settingsError, settingsWarnings, settingsAwaitingRestart, backgroundFailures } = service;
  const degradation = (/** @type {any} */ { kind, wanted, used = "nothing", reason }) => [el("strong", { text: `${enumWords(kind)}${wanted ? ` (${wanted} → ${used})` : ""}` }), reason && `: ${reason}`];
  const failure = (/** @type {any} */ { path, error }) => [el("a", { class: "path", href: viewHref(agentId, "files", { path }), text: path }), `: ${error}`];
  const mismatch = (/** @type {any} */ { field, indexValue = "none", wantedValue = "none" }) => `${field}: ${indexValue} in the index, ${wantedValue} in the settings`;
  const groups = [
    group("Degradations", "warn", degradations.map(degradation)),
    group("Files that could not be indexed", "bad", failedFiles.map(failure)),
    group("Problems of sources", "warn", sourceIssues),
    group("Differences between the vectors and the settings", "warn", index.identityMismatches?.map(mismatch)),
    group("Error in the settings", "bad", settingsError && [settingsError]),
    group("Warnings about the settings", "warn", settingsWarnings),
    group("Settings that take effect after a restart", "warn", settingsAwaitingRestart),
    group("Failures of background tasks", "bad", backgroundFailures),
  ];
  return groups.some(Boolean) && el("section", { class: "card problems", "aria-label": "Problems" }, groups);
}

/** @param {string} title @param {string} badge @param {any[]} [items] */
function group(title, badge, items = []) {
  return items.length > 0 && el("div", null, titleRow(title, `badge-${badge}`, number(items.length)), el("ul", { class: "list" }, items.map((item) => el("li", null, item))));
}

/** @param {any} status */
function rootsCard({ index = {}, watchers = [] }) {
  const rows = index.roots?.map((/** @type {any} */ counts) => {
    const { root, oldestUnindexedAge } = counts;
    const { mode, reason } = watchers.find((/** @type {any} */ watcher) => watcher.root === root) ?? {};
    return [
      el("span", { class: "path", text: root === "." ? ". (workspace)" : root }),
      enumWords(counts.source),
      counts.filesOnDisk,
      counts.filesIndexed,
      counts.pendingFiles,
      counts.filesFailed,
      oldestUnindexedAge ? `at most ${duration(oldestUnindexedAge)}` : "–",
      mode ? [el("span", { class: `badge ${BADGES[mode] ?? "badge-warn"}`, text: enumWords(mode) }), " ", reason] : "–",
    ];
  });
  return tableCard("Freshness by root", ["Root", "Source", "#On disk", "#Indexed", "#Pending", "#Failed", "Oldest pending", "Watcher"], rows);
}

/** @param {string} title @param {string[]} heads Those of number columns begin with "#". @param {any[][]} [rows] */
function tableCard(title, heads, rows = []) {
  const classOf = (/** @type {number} */ column) => (heads[column].startsWith("#") ? "number" : "");
  const head = heads.map((text, column) => el("th", { scope: "col", class: classOf(column), text: text.replace("#", "") }));
  const cell = (/** @type {any} */ value, /** @type {number} */ column) =>
    column ? el("td", { class: classOf(column) }, classOf(column) ? number(value) : value) : el("th", { scope: "row" }, value);
  const table = el("table", { class: "table" }, el("thead", null, el("tr", null, head)), el("tbody", null, rows.map((row) => el("tr", null, row.map(cell)))));
  const region = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, table);
  return rows.length > 0 && el("section", { class: "card" }, el("h3", { text: title }), region);
}

/**
 * List the files, and return a chart of how many notes have each date.
 * @param {Context} context
 * @param {(text: string) => void} onProgress
 */
async function chartOf(context, onProgress) {
  const counts = new Map();
  let read = 0;
  const hasMore = await eachFile(context, (files) => {
    read += files.length;
    onProgress(`${count(read, "file")} so far…`);
    for (const { source, date } of files) if (source === "SOURCE_MEMORY" && date) counts.set(date, (counts.get(date) ?? 0) + 1);
  });
  const href = (/** @type {string} */ from, /** @type {string} */ to) => viewHref(context.agentId, "timeline", { source: "SOURCE_MEMORY", from, to });
  return [dayChart(counts, "note", href), hasMore && el("p", { class: "muted", text: `Only the first ${count(read, "file")} are counted.` })];
}
