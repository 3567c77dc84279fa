/** Notes and sessions by day, newest first. */

import { eachPage } from "./api.js";
import { dayChart } from "./chart.js";
import { announce, el, emptyBox, errorBox, loading, replace, viewHref } from "./dom.js";
import { count, enumWords, number } from "./format.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {{path: string, source?: string, state?: string, chunks?: number, date?: string}} Entry */

const MOST_FILES = 20000;
const ROWS_AT_ONCE = 150;
const MONTH = new Intl.DateTimeFormat("en", { month: "long", year: "numeric", timeZone: "UTC" });
const DAY = new Intl.DateTimeFormat("en", { weekday: "short", month: "short", day: "numeric", timeZone: "UTC" });

/**
 * Call `onFiles` with each page of an agent's files. Return whether there are more files.
 * @param {Context} context
 * @param {(files: any[]) => void} onFiles
 */
export function eachFile({ agentId, signal }, onFiles) {
  return eachPage("ListFiles", { agentId }, "files", onFiles, { signal, limit: MOST_FILES });
}

/** @param {HTMLElement} root @param {Context} context */
export function render(root, context) {
  const { agentId, params, signal } = context;
  const chart = el("section", { class: "card" }, el("h3", { text: "Files by day" }));
  const summary = el("p", { class: "muted" });
  const reload = el("button", { class: "button", text: "The index has changed: list the files again", hidden: true });
  const list = el("div", { class: "timeline" });
  const form = filterForm(params, () => {
    context.replaceParams(form.values());
    show();
    announce(summary.textContent ?? "");
  });
  replace(root, el("h2", { tabindex: -1, text: "Timeline" }), chart, form.element, el("div", { class: "row" }, summary, reload), list);

  /** @type {Entry[]} */
  let entries = [];
  let hasMore = false;
  let revision = context.index?.indexRevision;

  function show() {
    const { source, from, to } = form.values();
    const ofSource = entries.filter((entry) => !source || entry.source === source);
    const shown = ofSource.filter(({ date = "" }) => (!from || date >= from) && (!to || (date && date <= to)));
    const counts = new Map();
    for (const { date } of ofSource) if (date) counts.set(date, (counts.get(date) ?? 0) + 1);
    const href = (/** @type {string} */ first, /** @type {string} */ last) => viewHref(agentId, "timeline", { source, from: first, to: last });
    replace(chart, el("h3", { text: "Files by day" }), dayChart(counts, "file", href));
    const days = count(new Set(shown.map(({ date }) => date)).size, "day");
    summary.textContent = `${count(shown.length, "file")} on ${days}${hasMore ? `; only the first ${number(MOST_FILES)} files are listed` : ""}`;
    if (shown.length) showRows(list, shown, agentId);
    else replace(list, emptyBox(entries.length ? "No file matches the filter." : "There are no files yet."));
  }

  async function load() {
    reload.hidden = true;
    revision = context.index?.indexRevision;
    replace(list, loading("Loading the files…"));
    entries = [];
    try {
      hasMore = await eachFile(context, (files) => {
        for (const { path, source, state, chunks, date } of files) entries.push({ path, source, state, chunks, date });
        summary.textContent = `${count(entries.length, "file")} so far…`;
      });
    } catch (error) {
      if (!signal.aborted) replace(list, errorBox(error));
      return;
    }
    // The sort is stable: files of the same day stay in the order of their paths.
    entries.sort(({ date: a = "" }, { date: b = "" }) => (a === b ? 0 : a < b ? 1 : -1));
    form.offer([...new Set(entries.map(({ source = "" }) => source))].sort());
    show();
  }

  const onIndex = (/** @type {any} */ { detail: { indexRevision } }) => {
    revision ??= indexRevision;
    reload.hidden = revision === indexRevision;
  };
  context.watch.addEventListener("index", onIndex, { signal });
  reload.addEventListener("click", load);
  load();
}

/** @param {URLSearchParams} params @param {() => void} onChange */
function filterForm(params, onChange) {
  const value = (/** @type {string} */ name) => params.get(name) ?? "";
  const source = el("select", { id: "timeline-source" });
  const from = el("input", { id: "timeline-from", type: "date", value: value("from") });
  const to = el("input", { id: "timeline-to", type: "date", value: value("to") });
  const clear = el("button", { type: "button", class: "button", text: "Clear the filter" });
  const offer = (/** @type {string[]} */ sources, wanted = source.value) => {
    replace(source, el("option", { value: "", text: "All" }), sources.map((name) => el("option", { value: name, text: enumWords(name) })));
    source.value = sources.includes(wanted) ? wanted : "";
    clear.hidden = !(source.value || from.value || to.value);
  };
  const changed = () => {
    clear.hidden = !(source.value || from.value || to.value);
    onChange();
  };
  offer([value("source")].filter(Boolean), value("source"));
  for (const field of [source, from, to]) field.addEventListener("change", changed);
  clear.addEventListener("click", () => {
    source.value = from.value = to.value = "";
    changed();
    source.focus();
  });
  const field = (/** @type {string} */ label, /** @type {HTMLElement} */ input) => el("div", { class: "field" }, el("label", { for: input.id, text: label }), input);
  return {
    element: el("form", { class: "row filter", on: { submit: (event) => event.preventDefault() } }, field("Source", source), field("From", from), field("To", to), clear),
    values: () => ({ source: source.value, from: from.value, to: to.value }),
    offer,
  };
}

/**
 * Show the first files in a card for each month, and a button for more.
 * @param {HTMLElement} list
 * @param {Entry[]} entries Newest first.
 * @param {string} agentId
 */
function showRows(list, entries, agentId) {
  let shown = 0;
  let shownDate = "-";
  let month = el("section");
  let day = el("ul");
  const button = el("button", { class: "button", text: "Show more files", on: { click: () => append()?.querySelector("a")?.focus() } });
  replace(list, button);
  append();

  /** Append rows, and return the first. */
  function append() {
    let first;
    for (const entry of entries.slice(shown, shown + ROWS_AT_ONCE)) {
      const { date = "" } = entry;
      if (date.slice(0, 7) !== shownDate.slice(0, 7)) {
        month = el("section", { class: "card" }, el("h3", { text: date ? MONTH.format(new Date(date)) : "No date" }));
        button.before(month);
      }
      if (date !== shownDate) {
        day = el("ul", { class: "plain" });
        month.append(el("div", { class: "day" }, el("h4", { text: date && DAY.format(new Date(date)) }), day));
        shownDate = date;
      }
      const row = rowOf(entry, agentId);
      first ??= row;
      day.append(row);
    }
    shown += ROWS_AT_ONCE;
    button.hidden = shown >= entries.length;
    return first;
  }
}

/** @param {Entry} entry @param {string} agentId */
function rowOf({ path, source, state, chunks }, agentId) {
  return el(
    "li",
    { class: "row" },
    el("a", { class: "path", href: viewHref(agentId, "files", { path }), text: path }),
    el("span", { class: "muted", text: `${enumWords(source)}, ${count(chunks, "chunk")}` }),
    state !== "FILE_STATE_INDEXED" && el("span", { class: `badge ${state === "FILE_STATE_FAILED" ? "badge-bad" : "badge-warn"}`, text: enumWords(state) }),
  );
}
