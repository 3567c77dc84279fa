// @ts-check
/** The state of an agent's index: what is indexed, how it is searched, what does not work, and the sync in progress. */

import { call } from "./api.js";
import { dayChart } from "./chart.js";
import { announce, debounce, el, errorBox, loading, replace, viewHref } from "./dom.js";
import { ago, bytes, count, duration, enumWords, number } from "./format.js";
import { eachFile } from "./timeline.js";

/** @typedef {import("./main.js").Context} Context */

const REFRESH_MS = 300;
const AGES_MS = 10000;
const LEAST_RELOAD_MS = 1000;
/** The files are listed again after at least this multiple of the time that listing them took. */
const RELOAD_FACTOR = 10;

/** @type {Record<string, string>} */
const BADGES = {
  INDEX_STATE_READY: "badge-ok",
  INDEX_STATE_UNAVAILABLE: "badge-bad",
  WATCHER_MODE_NATIVE: "badge-ok",
  WATCHER_MODE_DEAD: "badge-bad",
};

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export function render(root, context) {
  const { agentId, signal } = context;
  const sync = syncCard();
  const status = el("div", { class: "stack" }, loading("Loading the status…"));
  const chart = el("section", { class: "card" }, el("h3", { text: "Notes by day" }));
  replace(root, el("h2", { tabindex: -1, text: "Overview" }), sync.element, status, chart);

  /** @type {any} The last Status. */
  let shown = null;
  /** @type {string | undefined} The revision of the index when the files were listed. */
  let listed;
  let reloadMs = LEAST_RELOAD_MS;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let reloadTimer;

  async function refresh() {
    try {
      shown = await call("Status", { agentId }, { signal });
      if (!context.index) sync.show(shown.activeSync);
      replaceKeepingFocus(status, statusCards(shown, agentId));
    } catch (error) {
      if (!signal.aborted) replace(status, errorBox(error));
    }
  }

  async function loadChart() {
    const start = performance.now();
    listed = context.index?.indexRevision;
    try {
      await showChart(chart, context);
    } catch (error) {
      if (!signal.aborted) replace(chart, el("h3", { text: "Notes by day" }), errorBox(error));
    }
    reloadMs = Math.max(LEAST_RELOAD_MS, RELOAD_FACTOR * (performance.now() - start));
    reloadTimer = undefined;
  }

  const refreshSoon = debounce(refresh, REFRESH_MS);
  const onIndex = (/** @type {any} */ { detail: state }) => {
    const ended = sync.show(state.activeSync);
    if (shown && (ended || differs(state, shown))) refreshSoon();
    listed ??= state.indexRevision;
    if (listed !== state.indexRevision) reloadTimer ??= setTimeout(loadChart, reloadMs);
  };
  const ages = setInterval(() => {
    for (const time of status.querySelectorAll("time")) time.textContent = ago(time.dateTime);
  }, AGES_MS);

  context.watch.addEventListener("index", onIndex, { signal });
  if (context.index) sync.show(context.index.activeSync);
  refresh();
  loadChart();
  return () => {
    clearInterval(ages);
    clearTimeout(reloadTimer);
    refreshSoon.cancel();
  };
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

/**
 * Return whether a watch event has another state than the last Status.
 * @param {any} state
 * @param {any} status
 */
function differs(state, { index = {}, watchers = [] }) {
  const modes = (/** @type {any[]} */ list = []) => list.map(({ root, mode }) => `${root} ${mode}`).join();
  return (
    state.indexRevision !== index.revision ||
    state.state !== index.state ||
    (state.pendingFiles ?? 0) !== (index.pendingFiles ?? 0) ||
    modes(state.watchers) !== modes(watchers)
  );
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
      const isShown = !element.hidden;
      element.hidden = !active;
      if (isShown !== Boolean(active)) announce(active ? "A sync is running." : "The sync ended.");
      if (!active) return isShown;
      const { mode, trigger, progress = {} } = active;
      const { phase, completedFiles = 0, totalFiles = 0, completedChunks = 0, totalChunks = 0, currentPath = "" } = progress;
      const [done, total] = phase === "SYNC_PHASE_EMBEDDING" ? [completedChunks, totalChunks] : [completedFiles, totalFiles];
      title.textContent = `${enumWords(mode)} sync: ${phase ? enumWords(phase).toLowerCase() : "starting"}`;
      if (total) {
        bar.max = total;
        bar.value = done;
      } else bar.removeAttribute("value");
      text.textContent = progressText(progress, trigger);
      path.textContent = currentPath;
      return false;
    },
  };
}

/**
 * @param {any} progress
 * @param {string} trigger
 */
function progressText({ phase, completedFiles, totalFiles, completedChunks, totalChunks, cachedChunks, failedFiles, elapsed, eta, batchJobs }, trigger) {
  const parts = [
    totalFiles && `${number(completedFiles)} of ${count(totalFiles, "file")}`,
    totalChunks && `${number(completedChunks)} of ${count(totalChunks, phase === "SYNC_PHASE_EMBEDDING" ? "vector" : "chunk")}`,
    cachedChunks && `${number(cachedChunks)} from the cache`,
    failedFiles && `${number(failedFiles)} failed`,
    batchJobs && count(batchJobs, "batch job"),
    elapsed && `${duration(elapsed)} so far`,
    eta && `about ${duration(eta)} left`,
    trigger && `trigger: ${enumWords(trigger).toLowerCase()}`,
  ];
  return parts.filter(Boolean).join(", ");
}

/**
 * @param {any} status
 * @param {string} agentId
 */
function statusCards(status, agentId) {
  return [problemsCard(status, agentId), el("div", { class: "grid" }, indexCard(status), searchCard(status)), rootsCard(status), sourcesCard(status)];
}

/** @param {any} status */
function indexCard({ index = {}, workspace = "", activeBackend, service = {} }) {
  const { state, revision, files, chunks, sizeBytes, lastSyncTime, pendingFiles, oldestUnindexedAge } = index;
  return el(
    "section",
    { class: "card" },
    titleRow("Index", BADGES[state] ?? "badge-warn", enumWords(state)),
    el("p", { text: stateSentence(index) }),
    facts({
      Revision: revision ?? "0",
      Files: number(files),
      Chunks: number(chunks),
      Size: bytes(sizeBytes),
      "Last sync": timeOf(lastSyncTime),
      "Pending files": pendingFiles && `${number(pendingFiles)}, the oldest for at most ${duration(oldestUnindexedAge)}`,
      Backend: enumWords(activeBackend).toLowerCase(),
      Workspace: el("span", { class: "path", text: workspace }),
      memoryd: [service.version, ", started ", timeOf(service.startTime)],
    }),
  );
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
function searchCard({ embedding = {}, vector = {}, index = {}, reranker, fulltext = {}, cache = {} }) {
  const { requestedProvider, provider, model, dimensions, fallbackFrom, reason } = embedding;
  const { pendingEmbeddings, chunks, nextIdentity } = index;
  const named = (/** @type {any} */ { provider = "", model = "" }) => `${provider} ${model}`;
  return el(
    "section",
    { class: "card" },
    titleRow("Search", provider ? "badge-ok" : "", provider ? "Keywords and vectors" : "Keywords only"),
    reason && el("p", { text: reason }),
    facts({
      Provider: provider ? `${provider}${fallbackFrom ? ` (instead of ${fallbackFrom})` : ""}` : `none (setting: ${requestedProvider || "none"})`,
      Model: model && el("code", { text: model }),
      Dimensions: provider && number(dimensions || vector.dimensions),
      "Vectors pending": provider && (pendingEmbeddings ? `${number(pendingEmbeddings)} of ${count(chunks, "chunk")}` : "none"),
      "Next model": nextIdentity && named(nextIdentity),
      "Vector engine": provider && `${vector.engine ?? "none"} ${vector.version ?? ""}`,
      "Vectors in memory": vector.residentForm && `${vector.residentForm}, ${bytes(vector.residentBytes)}`,
      "Cached vectors": cache.enabled && `${number(cache.entries)} of at most ${number(cache.maxEntries)}`,
      "Keyword search": fulltext.available ? "works" : `does not work: ${fulltext.error ?? ""}`,
      Reranker: reranker && `${named(reranker)}${reranker.reason ? `: ${reranker.reason}` : ""}`,
    }),
  );
}

/**
 * @param {string} title
 * @param {string} badge
 * @param {string} text
 */
function titleRow(title, badge, text) {
  return el("div", { class: "row" }, el("h3", { text: title }), el("span", { class: `badge ${badge}`, text }));
}

/** @param {Record<string, any>} values Those that are empty are left out. */
function facts(values) {
  return el("dl", { class: "facts" }, Object.entries(values).map(([name, value]) => value && [el("dt", { text: name }), el("dd", null, value)]));
}

/**
 * Return the card of everything that does not work.
 * @param {any} status
 * @param {string} agentId
 */
function problemsCard({ degradations = [], service = {}, sourceIssues, failedFiles = [], index = {} }, agentId) {
  const { settingsError, settingsWarnings, settingsAwaitingRestart, backgroundFailures } = service;
  const failed = failedFiles.map((/** @type {any} */ { path, error }) => [el("a", { class: "path", href: viewHref(agentId, "files", { path }), text: path }), `: ${error}`]);
  const mismatches = (index.identityMismatches ?? []).map((/** @type {any} */ { field, indexValue, wantedValue }) => [el("code", { text: field }), `: ${indexValue ?? "none"} in the index, ${wantedValue ?? "none"} in the settings`]);
  const groups = [
    group("Degradations", "badge-warn", degradations.map(degradationSentence)),
    group("Files that could not be indexed", "badge-bad", failed),
    group("Problems of sources", "badge-warn", sourceIssues),
    group("Differences between the vectors and the settings", "badge-warn", mismatches),
    group("Error in the settings", "badge-bad", settingsError && [settingsError]),
    group("Warnings about the settings", "badge-warn", settingsWarnings),
    group("Settings that take effect after a restart", "badge-warn", settingsAwaitingRestart),
    group("Failures of background tasks", "badge-bad", backgroundFailures),
  ];
  return groups.some(Boolean) && el("section", { class: "card problems", "aria-label": "Problems" }, groups);
}

/**
 * @param {string} title
 * @param {string} badge
 * @param {any[]} [items]
 */
function group(title, badge, items) {
  return Boolean(items?.length) && el("div", null, titleRow(title, badge, number(items?.length)), el("ul", { class: "list" }, items?.map((item) => el("li", null, item))));
}

/** @param {any} degradation */
function degradationSentence({ kind, wanted, used, reason }) {
  const change = wanted ? ` (${wanted} → ${used ?? "nothing"})` : "";
  return [el("strong", { text: enumWords(kind) + change }), reason && `: ${reason}`];
}

/** @param {any} status */
function rootsCard({ index = {}, watchers = [] }) {
  const rows = (index.roots ?? []).map((/** @type {any} */ { root, source, filesOnDisk, filesIndexed, pendingFiles, filesFailed, oldestUnindexedAge }) => {
    const { mode, reason } = watchers.find((/** @type {any} */ watcher) => watcher.root === root) ?? {};
    return [
      el("span", { class: "path", text: root === "." ? ". (workspace)" : root }),
      enumWords(source),
      filesOnDisk,
      filesIndexed,
      pendingFiles,
      filesFailed,
      oldestUnindexedAge ? `at most ${duration(oldestUnindexedAge)}` : "–",
      mode ? [el("span", { class: `badge ${BADGES[mode] ?? "badge-warn"}`, text: enumWords(mode) }), " ", reason] : "–",
    ];
  });
  return tableCard("Freshness by root", ["Root", "Source", "#On disk", "#Indexed", "#Pending", "#Failed", "Oldest pending", "Watcher"], rows);
}

/** @param {any} status */
function sourcesCard({ index = {} }) {
  const rows = (index.sources ?? []).map((/** @type {any} */ { source, filesOnDisk, filesIndexed, filesFailed, chunks }) => [enumWords(source), filesOnDisk, filesIndexed, filesFailed, chunks]);
  return tableCard("By source", ["Source", "#On disk", "#Indexed", "#Failed", "#Chunks"], rows);
}

/**
 * @param {string} title
 * @param {string[]} heads Those of number columns begin with "#".
 * @param {any[][]} rows
 */
function tableCard(title, heads, rows) {
  const isNumber = (/** @type {number} */ column) => heads[column].startsWith("#");
  const cell = (/** @type {any} */ value, /** @type {number} */ column) => {
    if (!column) return el("th", { scope: "row" }, value);
    return isNumber(column) ? el("td", { class: "number", text: number(value) }) : el("td", null, value);
  };
  const head = heads.map((text, column) => el("th", { scope: "col", class: isNumber(column) ? "number" : "", text: text.replace("#", "") }));
  const table = el("table", { class: "table" }, el("thead", null, el("tr", null, head)), el("tbody", null, rows.map((row) => el("tr", null, row.map(cell)))));
  const region = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, table);
  return rows.length > 0 && el("section", { class: "card" }, el("h3", { text: title }), region);
}

/**
 * Load the files, and show how many notes have each date.
 * @param {HTMLElement} chart
 * @param {Context} context
 */
async function showChart(chart, context) {
  const counts = new Map();
  const progress = el("p", { class: "muted loading" });
  if (chart.children.length < 2) chart.append(progress);
  let read = 0;
  const hasMore = await eachFile(context, (files) => {
    read += files.length;
    progress.textContent = `${count(read, "file")} so far…`;
    for (const { source, date } of files) {
      if (source === "SOURCE_MEMORY" && date) counts.set(date, (counts.get(date) ?? 0) + 1);
    }
  });
  const href = (/** @type {string} */ from, /** @type {string} */ to) => viewHref(context.agentId, "timeline", { source: "SOURCE_MEMORY", from, to });
  replace(
    chart,
    el("h3", { text: "Notes by day" }),
    dayChart(counts, { href }),
    hasMore && el("p", { class: "muted", text: `Only the first ${count(read, "file")} are counted.` }),
  );
}
