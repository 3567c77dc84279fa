/** The fields of a search, and their values in the address of the page and in a request. */

import { el } from "./dom.js";

/** @typedef {{q: string, n: string, sources: string, since: string, until: string, prefix: string, mode: string, min: string}} Search As in the address: "" if unset. */

const SOURCES = ["memory", "sessions"];
const MODES = ["", "keyword", "vector", "hybrid"];
const COUNTS = ["6", "10", "20"];
const DEFAULT_COUNT = "10";

/** @param {URLSearchParams} params @returns {Search} */
export function searchOf(params) {
  const text = (/** @type {string} */ key) => params.get(key) ?? "";
  const among = (/** @type {string} */ key, /** @type {string[]} */ values) => (values.includes(text(key)) ? text(key) : "");
  return {
    q: text("q"),
    n: among("n", COUNTS),
    sources: SOURCES.filter((source) => text("sources").split(",").includes(source)).join(","),
    since: text("since"),
    until: text("until"),
    prefix: text("prefix"),
    mode: among("mode", MODES),
    min: text("min"),
  };
}

/** @param {Search} search Return a MemorySearchRequest without an agent. */
export function requestOf({ q, n, sources, since, until, prefix, mode, min }) {
  const filter = { since, until, pathPrefixes: prefix ? [prefix] : [] };
  return {
    query: q,
    maxResults: Number(n || DEFAULT_COUNT),
    explain: true,
    citations: "CITATION_MODE_OFF",
    sources: sources ? sources.split(",").map((source) => `SOURCE_${source.toUpperCase()}`) : [],
    ...(mode && { mode: `SEARCH_MODE_${mode.toUpperCase()}` }),
    ...(min && { minScore: Number(min) }),
    ...((since || until || prefix) && { filter }),
  };
}

/** @param {string} type @param {string | null} value @param {import("./dom.js").Props} [props] */
export function input(type, value, props) {
  return el("input", { type, value, autocomplete: "off", spellcheck: "false", ...props });
}

/** @param {string} id @param {string} label @param {HTMLElement} control */
export function field(id, label, control) {
  control.id = id;
  return el("div", { class: "field" }, el("label", { for: id }, label), control);
}

/** @param {Array<[string, string]>} options Values with their labels. @param {string} value */
export function choice(options, value) {
  return el("select", {}, options.map(([each, label]) => el("option", { value: each, selected: each === value }, label)));
}

/**
 * Return the form of a search.
 * @param {Search} search The first values.
 * @param {{typed: () => void, changed: () => void, down: () => void}} on `typed` is called while a text is typed,
 *   `changed` if the search should run immediately, and `down` for the arrow key to the results.
 */
export function searchForm(search, on) {
  const query = input("search", search.q, { maxlength: "1000", placeholder: "A question, or words of a note" });
  const count = choice(COUNTS.map((each) => [each, each]), search.n || DEFAULT_COUNT);
  const chosen = search.sources.split(",");
  const boxes = SOURCES.map((source) => input("checkbox", source, { checked: chosen.includes(source) }));
  const since = input("date", search.since);
  const until = input("date", search.until);
  const prefix = input("text", search.prefix, { placeholder: "memory/projects/" });
  const mode = choice(MODES.map((each) => [each, each || "default"]), search.mode);
  const min = input("number", search.min, { min: "0", max: "1", step: "any", placeholder: "none" });
  const summary = el("summary", {});

  const read = () => ({
    q: query.value,
    n: count.value === DEFAULT_COUNT ? "" : count.value,
    sources: boxes.filter((box) => box.checked).map((box) => box.value).join(","),
    since: since.value,
    until: until.value,
    prefix: prefix.value.trim(),
    mode: mode.value,
    min: min.value,
  });
  const showFilters = () => {
    const { q, n, ...filters } = read();
    const set = Object.values(filters).filter(Boolean).length;
    summary.textContent = set ? `Filters (${set})` : "Filters";
    return set > 0;
  };
  const listeners = {
    submit: (/** @type {Event} */ event) => {
      event.preventDefault();
      on.changed();
    },
    input: (/** @type {InputEvent} */ event) => {
      showFilters();
      if (!event.isComposing) on.typed();
    },
    compositionend: on.typed,
  };
  query.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" || event.isComposing) return;
    event.preventDefault();
    on.down();
  });
  const form = el(
    "form",
    { class: "card", role: "search", on: listeners },
    el(
      "div",
      { class: "fields" },
      field("search-query", "Search the memory", query),
      field("search-count", "Results", count),
      el("button", { class: "button primary" }, "Search"),
    ),
    el(
      "details",
      { open: showFilters() },
      summary,
      el(
        "div",
        { class: "search-filters" },
        el(
          "fieldset",
          { class: "field" },
          el("legend", {}, "Sources"),
          boxes.map((box) => el("label", {}, box, ` ${box.value}`)),
        ),
        field("search-mode", "Mode", mode),
        field("search-since", "Since", since),
        field("search-until", "Until", until),
        field("search-prefix", "Path begins with", prefix),
        field("search-min", "Minimum score", min),
      ),
    ),
  );
  return { form, read };
}
