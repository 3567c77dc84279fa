// @ts-check
/** Notes and sessions by day, newest first. */

import { eachPage } from "./api.js";
import { dayChart } from "./chart.js";
import { announce, el, emptyBox, errorBox, loading, replace, viewHref } from "./dom.js";
import { count, enumWords, number } from "./format.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {{path: string, source: string, state: string, chunks: number, date: string}} Entry */

const MOST_FILES = 20000;
const DAYS_AT_ONCE = 60;
const FILES_AT_ONCE = 400;
const MONTH = new Intl.DateTimeFormat("en", { month: "long", year: "numeric", timeZone: "UTC" });
const DAY = new Intl.DateTimeFormat("en", { weekday: "short", month: "short", day: "numeric", timeZone: "UTC" });

/**
 * Call `onFiles` with each page of an agent's files. Return whether there are more than those.
 * @param {Context} context
 * @param {(files: any[]) => void} onFiles
 */
export function eachFile({ agentId, signal }, onFiles) {
  return eachPage("ListFiles", { agentId }, "files", onFiles, { signal, limit: MOST_FILES });
}

/** @param {HTMLElement} root @param {Context} context */
export function render(root, context) {
  const { params, signal } = context;
  const chart = el("section", { class: "card" }, el("h3", { text: "Files by day" }));
  const summary = el("p", { class: "muted" });
  const reload = el("button", { type: "button", class: "button", text: "The index has changed: list the files again", hidden: true });
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
    const days = byDay(ofSource.filter(({ date }) => (!from || date >= from) && (!to || (date && date <= to))));
    const shown = days.reduce((sum, [, files]) => sum + files.length, 0);
    summary.textContent = `${count(shown, "file")} on ${count(days.length, "day")}${hasMore ? `; only the first ${number(MOST_FILES)} files are listed` : ""}`;
    replace(chart, el("h3", { text: "Files by day" }), chartOf(ofSource, (first, last) => viewHref(context.agentId, "timeline", { source, from: first, to: last })));
    if (days.length) showDays(list, days, context.agentId);
    else replace(list, emptyBox(entries.length ? "No file matches the filter." : "There are no files yet."));
  }

  async function load() {
    reload.hidden = true;
    revision = context.index?.indexRevision;
    replace(list, loading("Loading the files…"));
    try {
      entries = [];
      hasMore = await eachFile(context, (files) => {
        for (const file of files) entries.push(entryOf(file));
        summary.textContent = `${count(entries.length, "file")} so far…`;
      });
    } catch (error) {
      if (!signal.aborted) replace(list, errorBox(error));
      return;
    }
    entries.sort((a, b) => (a.date === b.date ? (a.path < b.path ? -1 : 1) : a.date < b.date ? 1 : -1));
    form.offer([...new Set(entries.map(({ source }) => source))].sort());
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

/** @param {any} file @returns {Entry} */
function entryOf(file) {
  const { path, source = "", state = "", chunks = 0, date = "" } = file;
  return { path, source, state, chunks, date };
}

/** @param {Entry[]} entries Newest first. @returns {[string, Entry[]][]} */
function byDay(entries) {
  /** @type {Map<string, Entry[]>} */
  const days = new Map();
  for (const entry of entries) {
    const sameDay = days.get(entry.date);
    if (sameDay) sameDay.push(entry);
    else days.set(entry.date, [entry]);
  }
  return [...days];
}

/** @param {Entry[]} entries @param {(first: string, last: string) => string} href */
function chartOf(entries, href) {
  const counts = new Map();
  for (const { date } of entries) counts.set(date, (counts.get(date) ?? 0) + 1);
  return dayChart(counts, { label: "Files by day", noun: "file", href });
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
  };
  const changed = () => {
    clear.hidden = !(source.value || from.value || to.value);
    onChange();
  };
  offer([value("source")].filter(Boolean), value("source"));
  clear.hidden = !(source.value || from.value || to.value);
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
 * Show the first days in a card for each month, and a button for more.
 * @param {HTMLElement} list
 * @param {[string, Entry[]][]} days
 * @param {string} agentId
 */
function showDays(list, days, agentId) {
  let shown = 0;
  let month = "-";
  let card = el("section");
  const button = el("button", { type: "button", class: "button", text: "Show more days", on: { click: () => append()?.querySelector("a")?.focus() } });
  replace(list, button);
  append();

  /** Append days, and return the first. */
  function append() {
    let first;
    for (let added = 0, files = 0; shown < days.length && added < DAYS_AT_ONCE && files < FILES_AT_ONCE; added += 1, shown += 1) {
      const [date, entries] = days[shown];
      if (date.slice(0, 7) !== month) {
        month = date.slice(0, 7);
        card = el("section", { class: "card" }, el("h3", { text: date ? MONTH.format(new Date(`${month}-01`)) : "No date" }));
        button.before(card);
      }
      const section = dayOf(date, entries, agentId);
      card.append(section);
      first ??= section;
      files += entries.length;
    }
    button.hidden = shown === days.length;
    return first;
  }
}

/** @param {string} date @param {Entry[]} entries @param {string} agentId */
function dayOf(date, entries, agentId) {
  const rows = (/** @type {Entry[]} */ some) => some.map((entry) => entryRow(entry, agentId));
  const rest = entries.slice(FILES_AT_ONCE);
  const list = el("ul", { class: "plain" }, rows(entries.slice(0, FILES_AT_ONCE)));
  const button = el("button", { type: "button", class: "button", text: `Show ${number(rest.length)} more of this day` });
  button.addEventListener("click", () => {
    list.append(...rows(rest));
    button.remove();
  });
  return el("div", { class: "day" }, el("h4", { text: date && DAY.format(new Date(date)) }), el("div", null, list, rest.length > 0 && button));
}

/** @param {Entry} entry @param {string} agentId */
function entryRow({ path, source, state, chunks }, agentId) {
  return el(
    "li",
    { class: "row" },
    el("a", { class: "path", href: viewHref(agentId, "files", { path }), text: path }),
    el("span", { class: "muted", text: `${enumWords(source)}, ${count(chunks, "chunk")}` }),
    state !== "FILE_STATE_INDEXED" && el("span", { class: `badge ${state === "FILE_STATE_FAILED" ? "badge-bad" : "badge-warn"}`, text: enumWords(state) }),
  );
}
