// @ts-check
/** The state of an agent's index: what is indexed, how it is searched, what does not work, and the sync in progress. */

import { call } from "./api.js";
import { dayChart } from "./chart.js";
import { announce, debounce, el, errorBox, loading, replace, viewHref } from "./dom.js";
import { ago, bytes, count, duration, enumWords, number } from "./format.js";
import { dateOf, eachFile } from "./timeline.js";

/** @typedef {import("./main.js").Context} Context */

const REFRESH_MS = 300;
const AGE_MS = 15000;
const LEAST_RELOAD_MS = 1000;
/** A chart is loaded again after this multiple of the time that loading it took. */
const RELOAD_FACTOR = 10;

/** @type {Record<string, string>} */
const STATE_BADGES = {
  INDEX_STATE_READY: "badge-ok",
  INDEX_STATE_STALE: "badge-warn",
  INDEX_STATE_BUILDING: "badge-warn",
  INDEX_STATE_EMPTY: "badge-warn",
  INDEX_STATE_UNAVAILABLE: "badge-bad",
};

/** @type {Record<string, string>} */
const WATCHER_BADGES = { WATCHER_MODE_NATIVE: "badge-ok", WATCHER_MODE_DEAD: "badge-bad" };

/** @type {Record<string, string>} */
const PHASES = {
  SYNC_PHASE_PLANNING: "Comparing the files with the index",
  SYNC_PHASE_INDEXING: "Indexing files",
  SYNC_PHASE_EMBEDDING: "Computing vectors",
  SYNC_PHASE_SWAPPING: "Replacing the old index",
  SYNC_PHASE_WAITING: "Waiting for another run",
};

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export function render(root, context) {
  const sync = syncCard();
  const status = el("div", { class: "stack" }, loading("Loading the status…"));
  const chart = el("section", { class: "card", "aria-label": "Notes by day" }, el("h3", { text: "Notes by day" }));
  replace(root, el("h2", { tabindex: -1, text: "Overview" }), sync.element, status, chart);

  /** @type {any} */
  let shown = null;
  let chartRevision = "";
  let reloadMs = LEAST_RELOAD_MS;

  async function refresh() {
    try {
      shown = await call("Status", { agentId: context.agentId }, { signal: context.signal });
    } catch (error) {
      if (!context.signal.aborted) replace(status, errorBox(error));
      return;
    }
    if (!context.index) sync.show(shown.activeSync);
    showStatus();
  }

  function showStatus() {
    const place = status.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
    replace(status, statusCards(shown, context));
    if (place) /** @type {HTMLElement | undefined} */ ([...status.querySelectorAll("a")].find((link) => link.getAttribute("href") === place))?.focus();
  }

  async function loadChart() {
    const start = performance.now();
    chartRevision = context.index?.indexRevision ?? chartRevision;
    try {
      await showChart(chart, context);
    } catch (error) {
      if (!context.signal.aborted) replace(chart, el("h3", { text: "Notes by day" }), errorBox(error));
    }
    reloadMs = Math.max(LEAST_RELOAD_MS, RELOAD_FACTOR * (performance.now() - start));
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let chartTimer;
  const reloadChart = () => {
    chartTimer ??= setTimeout(async () => {
      await loadChart();
      chartTimer = undefined;
    }, reloadMs);
  };
  const refreshSoon = debounce(refresh, REFRESH_MS);

  context.watch.addEventListener("index", (event) => {
    const state = /** @type {CustomEvent} */ (event).detail;
    const ended = sync.show(state.activeSync);
    if (shown && (ended || differs(state, shown))) refreshSoon();
    if (chartRevision && chartRevision !== state.indexRevision) reloadChart();
    chartRevision ||= state.indexRevision ?? "";
  }, { signal: context.signal });

  const ages = setInterval(() => shown && replace(status, statusCards(shown, context)), AGE_MS);
  if (context.index) sync.show(context.index.activeSync);
  refresh();
  loadChart();
  return () => {
    clearInterval(ages);
    clearTimeout(chartTimer);
    refreshSoon.cancel();
  };
}

/**
 * Return whether a watch event has a state other than that of the last Status.
 * @param {any} state
 * @param {any} shown
 */
function differs(state, { index = {}, watchers = [] }) {
  const modes = (/** @type {any[]} */ list) => JSON.stringify(list.map(({ root, mode }) => [root, mode]));
  return (
    state.indexRevision !== index.revision ||
    state.state !== index.state ||
    (state.pendingFiles ?? 0) !== (index.pendingFiles ?? 0) ||
    modes(state.watchers ?? []) !== modes(watchers)
  );
}

/** Return the card of the sync in progress. `show` takes an ActiveSync, and returns whether a run ended. */
function syncCard() {
  const title = el("h3");
  const bar = el("progress", { "aria-labelledby": "sync-title" });
  const text = el("p");
  const path = el("p", { class: "muted path" });
  title.id = "sync-title";
  const element = el("section", { class: "card sync", hidden: true }, title, bar, text, path);
  return {
    element,
    /** @param {any} active */
    show(active) {
      const before = !element.hidden;
      element.hidden = !active;
      if (!active) {
        if (before) announce("The sync ended.");
        return before;
      }
      if (!before) announce("A sync is running.");
      const { phase = "", completedFiles = 0, totalFiles = 0, completedChunks = 0, totalChunks = 0, currentPath = "" } = active.progress ?? {};
      const [done, total] = phase === "SYNC_PHASE_EMBEDDING" ? [completedChunks, totalChunks] : [completedFiles, totalFiles];
      title.textContent = `${enumWords(active.mode)} sync: ${(PHASES[phase] ?? "starting").toLowerCase()}`;
      if (total) {
        bar.max = total;
        bar.value = done;
      } else bar.removeAttribute("value");
      text.textContent = progressText(active.progress ?? {}, active.trigger);
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
  const parts = [];
  if (totalFiles) parts.push(`${number(completedFiles)} of ${count(totalFiles, "file")}`);
  if (totalChunks) parts.push(`${number(completedChunks)} of ${count(totalChunks, phase === "SYNC_PHASE_EMBEDDING" ? "vector" : "chunk")}`);
  if (cachedChunks) parts.push(`${number(cachedChunks)} from the cache`);
  if (failedFiles) parts.push(`${number(failedFiles)} failed`);
  if (batchJobs) parts.push(count(batchJobs, "batch job"));
  if (elapsed) parts.push(`${duration(elapsed)} so far`);
  if (eta) parts.push(`about ${duration(eta)} left`);
  if (trigger) parts.push(`started by: ${enumWords(trigger).toLowerCase()}`);
  return parts.join(", ");
}

/**
 * @param {any} status
 * @param {Context} context
 */
function statusCards(status, context) {
  return [
    problemsCard(status, context),
    el("div", { class: "grid" }, indexCard(status), vectorCard(status)),
    rootsCard(status),
    sourcesCard(status),
  ];
}

/** @param {any} status */
function indexCard({ index = {}, workspace = "", activeBackend, service = {} }) {
  const pending = index.pendingFiles ?? 0;
  return el(
    "section",
    { class: "card" },
    el("div", { class: "row" }, el("h3", { text: "Index" }), el("span", { class: `badge ${STATE_BADGES[index.state] ?? ""}`, text: enumWords(index.state) })),
    el("p", { text: stateSentence(index) }),
    facts([
      ["Revision", number(index.revision)],
      ["Files", number(index.files)],
      ["Chunks", number(index.chunks)],
      ["Size", bytes(index.sizeBytes)],
      ["Last sync", index.lastSyncTime ? el("time", { datetime: index.lastSyncTime, title: index.lastSyncTime, text: ago(index.lastSyncTime) }) : "never"],
      ["Pending files", pending > 0 && `${number(pending)}, the oldest for at most ${duration(index.oldestUnindexedAge)}`],
      ["Backend", enumWords(activeBackend).toLowerCase()],
      ["Workspace", el("span", { class: "path", text: workspace })],
      ["memoryd", `${service.version ?? ""}, started ${ago(service.startTime)}`],
    ]),
  );
}

/** @param {any} index */
function stateSentence({ state, files = 0, pendingFiles = 0 }) {
  switch (state) {
    case "INDEX_STATE_READY":
      return `All ${count(files, "file")} are indexed in their current content.`;
    case "INDEX_STATE_STALE":
      return pendingFiles ? `${count(pendingFiles, "file")} changed since the last sync. Searches use the index as it is.` : "Files changed since the last sync. Searches use the index as it is.";
    case "INDEX_STATE_BUILDING":
      return "The index is being built. Searches use what is indexed already.";
    case "INDEX_STATE_UNAVAILABLE":
      return "The index is damaged or cannot be opened, and searches fail.";
    default:
      return "Nothing is indexed.";
  }
}

/** @param {any} status */
function vectorCard({ embedding = {}, vector = {}, index = {}, reranker, fulltext = {}, cache = {} }) {
  const { provider = "", model = "", reason = "", fallbackFrom = "" } = embedding;
  const pending = index.pendingEmbeddings ?? 0;
  const next = index.nextIdentity;
  return el(
    "section",
    { class: "card" },
    el("div", { class: "row" }, el("h3", { text: "Search" }), el("span", { class: `badge ${provider ? "badge-ok" : ""}`, text: provider ? "Keywords and vectors" : "Keywords only" })),
    reason && el("p", { text: reason }),
    facts([
      ["Provider", provider ? `${provider}${fallbackFrom ? ` (instead of ${fallbackFrom})` : ""}` : `none (setting: ${embedding.requestedProvider || "none"})`],
      ["Model", model && el("code", { text: model })],
      ["Dimensions", provider && number(embedding.dimensions || vector.dimensions)],
      ["Vectors pending", provider && (pending ? `${number(pending)} of ${count(index.chunks, "chunk")}` : "none")],
      ["Next model", next && `${next.provider ?? ""} ${next.model ?? ""}`],
      ["Vector engine", provider && `${vector.engine || "none"}${vector.version ? ` ${vector.version}` : ""}`],
      ["Vectors in memory", vector.residentForm && `${vector.residentForm}, ${bytes(vector.residentBytes)}`],
      ["Cached vectors", cache.enabled && `${number(cache.entries)} of at most ${number(cache.maxEntries)}`],
      ["Keyword search", fulltext.available ? fulltext.tokenizer || "works" : `does not work: ${fulltext.error ?? ""}`],
      ["Reranker", reranker && `${reranker.provider ?? ""} ${reranker.model ?? ""}${reranker.reason ? `: ${reranker.reason}` : ""}`],
    ]),
  );
}

/** @param {[string, any][]} pairs Those without a value are left out. */
function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.filter(([, value]) => value).map(([name, value]) => [el("dt", { text: name }), el("dd", null, value)]));
}

/**
 * Return the card of everything that does not work, or null.
 * @param {any} status
 * @param {Context} context
 */
function problemsCard({ degradations = [], service = {}, sourceIssues = [], failedFiles = [], index = {} }, { agentId }) {
  const groups = [
    group("Degradations", "badge-warn", degradations.map(degradationSentence)),
    group("Files that could not be indexed", "badge-bad", failedFiles.map((/** @type {any} */ { path = "", error = "" }) => [el("a", { class: "path", href: viewHref(agentId, "files", { path }), text: path }), `: ${error}`])),
    group("Sources", "badge-warn", sourceIssues),
    group("Differences between index and settings", "badge-warn", (index.identityMismatches ?? []).map(mismatchSentence)),
    group("Error of the settings", "badge-bad", service.settingsError ? [service.settingsError] : []),
    group("Warnings about the settings", "badge-warn", service.settingsWarnings ?? []),
    group("Settings that need a restart", "badge-warn", service.settingsAwaitingRestart ?? []),
    group("Failures of background tasks", "badge-bad", service.backgroundFailures ?? []),
  ].filter(Boolean);
  return groups.length > 0 && el("section", { class: "card problems", "aria-label": "Problems" }, groups);
}

/**
 * @param {string} title
 * @param {string} badge
 * @param {any[]} items
 */
function group(title, badge, items) {
  if (!items.length) return null;
  return el("div", { class: "stack-small" }, el("h3", { class: "row" }, title, " ", el("span", { class: `badge ${badge}`, text: number(items.length) })), el("ul", { class: "list" }, items.map((item) => el("li", null, item))));
}

/** @param {any} degradation */
function degradationSentence({ kind, wanted = "", used = "", reason = "" }) {
  const change = wanted && used ? ` (${wanted} → ${used})` : wanted ? ` (${wanted} → nothing)` : "";
  return [el("strong", { text: `${enumWords(kind)}${change}` }), reason && `: ${reason}`];
}

/** @param {any} mismatch */
function mismatchSentence({ field = "", indexValue = "", wantedValue = "" }) {
  return [el("code", { text: field }), `: ${indexValue || "none"} in the index, ${wantedValue || "none"} in the settings`];
}

/** @param {any} status */
function rootsCard({ index = {}, watchers = [] }) {
  const roots = index.roots ?? [];
  const watcherOf = new Map(watchers.map((/** @type {any} */ watcher) => [watcher.root, watcher]));
  const rows = roots.map((/** @type {any} */ root) => [
    el("span", { class: "path", text: root.root === "." ? ". (workspace)" : root.root }),
    enumWords(root.source),
    root.filesOnDisk,
    root.filesIndexed,
    root.pendingFiles,
    root.filesFailed,
    root.oldestUnindexedAge ? `at most ${duration(root.oldestUnindexedAge)}` : "–",
    watcherCell(watcherOf.get(root.root)),
  ]);
  if (!rows.length) rows.push(...watchers.map((/** @type {any} */ watcher) => [el("span", { class: "path", text: watcher.root }), "", null, null, null, null, "–", watcherCell(watcher)]));
  return card("Freshness by root", ["Root", "Source", "#On disk", "#Indexed", "#Pending", "#Failed", "Oldest pending", "Watcher"], rows);
}

/** @param {any} watcher */
function watcherCell(watcher) {
  if (!watcher) return "–";
  const { mode, reason = "" } = watcher;
  return [el("span", { class: `badge ${WATCHER_BADGES[mode] ?? "badge-warn"}`, text: enumWords(mode) }), reason && ` ${reason}`];
}

/** @param {any} status */
function sourcesCard({ index = {} }) {
  const rows = (index.sources ?? []).map((/** @type {any} */ item) => [enumWords(item.source), item.filesOnDisk, item.filesIndexed, item.filesFailed, item.chunks]);
  return card("By source", ["Source", "#On disk", "#Indexed", "#Failed", "#Chunks"], rows);
}

/**
 * @param {string} title
 * @param {string[]} heads Those of number columns begin with "#".
 * @param {any[][]} rows
 */
function card(title, heads, rows) {
  if (!rows.length) return null;
  const isNumber = heads.map((head) => head.startsWith("#"));
  const head = el("tr", null, heads.map((text, column) => el("th", { scope: "col", class: isNumber[column] ? "number" : "", text: text.replace("#", "") })));
  const cell = (/** @type {any} */ value, /** @type {number} */ column) => {
    if (!column) return el("th", { scope: "row" }, value);
    return isNumber[column] ? el("td", { class: "number", text: number(value) }) : el("td", null, value);
  };
  return el(
    "section",
    { class: "card" },
    el("h3", { text: title }),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, el("table", { class: "table" }, el("thead", null, head), el("tbody", null, rows.map((row) => el("tr", null, row.map(cell)))))),
  );
}

/**
 * Load the files, and show their number by day.
 * @param {HTMLElement} chart
 * @param {Context} context
 */
async function showChart(chart, context) {
  const { agentId } = context;
  const counts = new Map();
  const progress = el("p", { class: "muted" });
  if (chart.children.length < 2) chart.append(progress);
  let read = 0;
  const more = await eachFile(context, (files) => {
    read += files.length;
    progress.textContent = `${count(read, "file")} so far…`;
    for (const file of files) {
      if ((file.source ?? "") !== "SOURCE_MEMORY") continue;
      const date = dateOf(file);
      counts.set(date, (counts.get(date) ?? 0) + 1);
    }
  });
  replace(
    chart,
    el("h3", { text: "Notes by day" }),
    dayChart(counts, { href: (from, to) => viewHref(agentId, "timeline", { source: "SOURCE_MEMORY", from, to }) }),
    more && el("p", { class: "muted", text: `Only the first ${count(read, "file")} are counted.` }),
  );
}
