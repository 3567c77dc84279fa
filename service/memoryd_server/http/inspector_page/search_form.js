// @ts-check
/** The fields of a search, and their values in the address of the page and in a request. */

import { el } from "./dom.js";

/**
 * A search as it is in the address: texts, "" if unset. `sources` are names separated by commas.
 * @typedef {{q: string, n: string, sources: string, since: string, until: string, prefix: string, mode: string, min: string}} Search
 */

const SOURCES = ["memory", "sessions"];
const MODES = ["keyword", "vector", "hybrid"];
const RESULT_COUNTS = ["6", "10", "20"];
const DEFAULT_COUNT = "10";
const SHOWN_CHARS = 700;

/** @param {URLSearchParams} params @returns {Search} */
export function searchOf(params) {
  const text = (/** @type {string} */ key) => params.get(key) ?? "";
  const among = (/** @type {string} */ key, /** @type {string[]} */ values) => values.find((value) => value === text(key)) ?? "";
  const sources = text("sources").split(",").filter((source) => SOURCES.includes(source));
  return {
    q: text("q"),
    n: among("n", RESULT_COUNTS),
    sources: sources.join(","),
    since: text("since"),
    until: text("until"),
    prefix: text("prefix"),
    mode: among("mode", MODES),
    min: text("min"),
  };
}

/**
 * Return a MemorySearchRequest without an agent.
 * @param {Search} search
 */
export function requestOf(search) {
  const { since, until, prefix } = search;
  const filter = { since, until, pathPrefixes: prefix ? [prefix] : [] };
  return {
    query: search.q,
    maxResults: Number(search.n || DEFAULT_COUNT),
    maxSnippetChars: SHOWN_CHARS,
    explain: true,
    citations: "CITATION_MODE_OFF",
    ...(search.sources ? { sources: search.sources.split(",").map((source) => `SOURCE_${source.toUpperCase()}`) } : {}),
    ...(search.mode ? { mode: `SEARCH_MODE_${search.mode.toUpperCase()}` } : {}),
    ...(search.min ? { minScore: Number(search.min) } : {}),
    ...(since || until || prefix ? { filter } : {}),
  };
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

/** @param {Search} search The number of the conditions that are set. */
function conditions({ sources, since, until, prefix, mode, min }) {
  return [sources, since, until, prefix, mode, min].filter(Boolean).length;
}

/**
 * Return the form of a search.
 * @param {Search} search The first values.
 * @param {{typed: () => void, changed: () => void, down: () => void}} on `typed` is called while a text is typed,
 *   `changed` if the search should run immediately, and `down` for the key that leads to the results.
 * @returns {{form: HTMLFormElement, read: () => Search}}
 */
export function searchForm(search, on) {
  const query = el("input", {
    type: "search",
    value: search.q,
    maxlength: "1000",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "A question, or words of a note",
  });
  const count = choice(RESULT_COUNTS.map((each) => [each, each]), search.n || DEFAULT_COUNT);
  const chosen = search.sources.split(",");
  const boxes = SOURCES.map((source) => el("input", { type: "checkbox", value: source, checked: chosen.includes(source) }));
  const since = el("input", { type: "date", value: search.since });
  const until = el("input", { type: "date", value: search.until });
  const prefix = el("input", { type: "text", value: search.prefix, placeholder: "memory/projects/", spellcheck: "false" });
  const mode = choice([["", "default"], ...MODES.map((each) => /** @type {[string, string]} */ ([each, each]))], search.mode);
  const min = el("input", { type: "number", min: "0", max: "1", step: "any", value: search.min, placeholder: "none" });
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
  const showCount = () => {
    const set = conditions(read());
    summary.textContent = set ? `Filters (${set})` : "Filters";
  };
  showCount();

  const form = el(
    "form",
    {
      class: "search-form card",
      role: "search",
      on: {
        submit: (event) => {
          event.preventDefault();
          on.changed();
        },
        input: (event) => {
          showCount();
          if (!event.isComposing) on.typed();
        },
        compositionend: on.typed,
      },
    },
    el(
      "div",
      { class: "search-main" },
      field("search-query", "Search the memory", query),
      field("search-count", "Results", count),
      el("button", { type: "submit", class: "button primary" }, "Search"),
    ),
    el(
      "details",
      { open: conditions(search) > 0 },
      summary,
      el(
        "div",
        { class: "search-filters" },
        el(
          "fieldset",
          { class: "field" },
          el("legend", {}, "Sources"),
          boxes.map((box) => el("label", { class: "search-check" }, box, ` ${box.value}`)),
        ),
        field("search-mode", "Mode", mode),
        field("search-since", "Since", since),
        field("search-until", "Until", until),
        field("search-prefix", "Path begins with", prefix),
        field("search-min", "Minimum score", min),
      ),
    ),
  );
  query.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" || event.isComposing) return;
    event.preventDefault();
    on.down();
  });
  return { form, read };
}
