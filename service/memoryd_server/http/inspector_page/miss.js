/** "Why is a file not found?": a form for a file or a line, and the step of indexing or searching that leaves it out. */

import { call, latestOnly } from "./api.js";
import { announce, debounce, el, errorBox, loading, replace } from "./dom.js";
import { enumWords } from "./format.js";
import { placeLink, resultCard, sentence, wordsToMark } from "./results.js";
import { field, input } from "./search_form.js";

/** @typedef {any} Miss ExplainMissResponse of the protos. */

const TYPING_PAUSE_MS = 200;
const MOST_PATHS = 200;

/** @type {Array<[string, string[]]>} The steps in their order, each with the reasons why it leaves out a file. */
const STEPS = [
  ["Is a memory file", ["NOT_MEMORY", "SOURCE_NOT_CONFIGURED"]],
  ["Belongs to a searched source", ["SOURCE_NOT_SEARCHED"]],
  ["Is on disk", ["NOT_ON_DISK", "LINK"]],
  ["Is not excluded", ["EXCLUDED", "FORGOTTEN"]],
  ["Is indexed", ["PENDING", "FAILED", "NO_TEXT"]],
  ["Matches the filter", ["FILTERED"]],
  ["Is retrieved by keyword or vector search", ["NO_MATCH", "NOT_RETRIEVED"]],
  ["Passes the minimum score", ["BELOW_MIN_SCORE", "BELOW_CUTOFF"]],
  ["Ranks within the limit of results", ["BELOW_MAX_RESULTS", "DIVERSITY", "ADJACENT", "RESERVED", "RERANKED"]],
  ["Is in the answer", ["ABSTAINED", "TEXT_LIMIT"]],
];
const FOUND = "FOUND";
const ON_DISK = 2;
/** These are decided before the file is looked up on disk. */
const DECIDED_EARLY = ["EXCLUDED", "FORGOTTEN"];
const STATE_WORDS = { passed: "passed", failed: "left out here", unknown: "not checked" };
/** What is compared with a limit, if it is not the score. @type {Record<string, string>} */
const VALUE_NAMES = { BELOW_CUTOFF: "cosine", ABSTAINED: "confidence" };

/**
 * Return the form, and functions for the view of searches.
 * @param {import("./main.js").Context} context
 * @param {() => {query: string}} search Returns the current MemorySearchRequest.
 * @param {() => void} changed Called if the values of `params` change.
 */
export function missForm({ agentId, params, signal: left }, search, changed) {
  const paths = el("datalist", { id: "miss-paths" });
  const path = input("text", params.get("why"), { list: "miss-paths", placeholder: "memory/2026-05-01.md", required: true });
  const line = input("number", params.get("at"), { min: "1", placeholder: "any" });
  const answer = el("div", { class: "miss-answer" });
  const explainer = latestOnly(left);
  const lister = latestOnly(left);

  const suggest = debounce(() => {
    const prefix = path.value.trim();
    const filter = prefix ? { filter: { pathPrefixes: [prefix] } } : {};
    lister.run(
      (signal) => call("ListFiles", { agentId, pageSize: MOST_PATHS, includeExcluded: true, ...filter }, { signal }),
      ({ files = [] }) => {
        // If no path begins with the text, the earlier list stays: the browser also finds the text within paths.
        if (files.length > 0) replace(paths, files.map((/** @type {{path: string}} */ file) => el("option", { value: file.path })));
      },
      // The list is an aid for typing, so an error is not shown.
      () => {},
    );
  }, TYPING_PAUSE_MS);

  /** @param {boolean} aloud Whether to announce the outcome to screen readers. */
  function ask(aloud) {
    const request = search();
    if (!path.value.trim() || !request.query.trim()) {
      explainer.cancel();
      replace(answer, path.value.trim() && el("p", { class: "muted" }, "Type a search above first."));
      return;
    }
    if (!answer.firstChild) replace(answer, loading("Explaining"));
    const question = { agentId, search: request, path: path.value.trim(), ...(line.value && { line: Number(line.value) }) };
    explainer.run(
      (signal) => call("ExplainMiss", question, { signal }),
      (/** @type {Miss} */ miss) => {
        replace(answer, explanation(agentId, miss, request.query));
        if (aloud) announce(`${enumWords(miss.reason)}: ${miss.explanation}`);
      },
      (error) => replace(answer, errorBox(error)),
    );
  }

  function submit() {
    changed();
    ask(true);
  }
  const form = el(
    "form",
    { class: "fields" },
    field("miss-path", "File", path),
    field("miss-line", "Line (optional)", line),
    el("button", { class: "button primary" }, "Explain"),
    paths,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  path.addEventListener("input", suggest);
  path.addEventListener("focus", suggest);
  const section = el(
    "details",
    { class: "card miss", open: Boolean(path.value) },
    el("summary", {}, "Why is a file not found?"),
    el("p", { class: "muted" }, "The step at which the search above leaves out a file or a line of it."),
    form,
    answer,
  );
  return {
    section,
    params: () => ({ why: path.value.trim(), at: line.value }),
    /** Explain again, after the search has changed. */
    refresh: () => section.open && ask(false),
    /** @param {import("./results.js").Dropped} candidate */
    explain: (candidate) => {
      path.value = candidate.path ?? "";
      line.value = String(candidate.startLine || "");
      section.open = true;
      submit();
      section.scrollIntoView({ block: "nearest" });
      path.focus();
    },
    stop: suggest.cancel,
  };
}

/** @param {string} agentId @param {Miss} miss @param {string} query */
function explanation(agentId, miss, query) {
  const reason = miss.reason?.replace("MISS_REASON_", "") ?? "";
  const at = STEPS.findIndex(([, reasons]) => reasons.includes(reason));
  const isFound = reason === FOUND;
  const steps = STEPS.map(([name], index) => shownStep(name, stateOf(index, at, reason), index === at && why(miss, reason)));
  return [
    el("h3", {}, "Steps for ", placeLink(agentId, { path: miss.path })),
    (isFound || at >= 0) && el("ol", { class: "steps" }, steps),
    at < 0 && el("p", {}, el("span", { class: `badge ${isFound ? "badge-ok" : ""}` }, enumWords(miss.reason).toLowerCase()), " ", why(miss, reason)),
    miss.chunk && [
      el("h4", {}, isFound ? "The result" : "The chunk that came furthest"),
      resultCard(agentId, miss.chunk, wordsToMark(query, miss.info)),
    ],
  ];
}

/** @param {number} index @param {number} at @param {string} reason @returns {keyof typeof STATE_WORDS} */
function stateOf(index, at, reason) {
  if (reason === FOUND) return "passed";
  if (index === at) return "failed";
  return index > at || (index === ON_DISK && DECIDED_EARLY.includes(reason)) ? "unknown" : "passed";
}

/** @param {string} name @param {keyof typeof STATE_WORDS} state @param {import("./dom.js").Child} details */
function shownStep(name, state, details) {
  return el(
    "li",
    { class: `step step-${state}`, "aria-current": state === "failed" && "step" },
    el("span", { class: "step-name" }, name),
    el("span", { class: "step-state small" }, STATE_WORDS[state]),
    details && el("div", {}, details),
  );
}

/** @param {Miss} miss @param {string} reason */
function why(miss, reason) {
  const { rank, maxRank, value, limit, rule } = miss;
  const name = VALUE_NAMES[reason] ?? "score";
  const figures = [
    rank !== undefined && `rank ${rank}`,
    maxRank !== undefined && `required rank: at most ${maxRank}`,
    value !== undefined && `${name} ${value.toFixed(3)}`,
    limit !== undefined && `required ${name}: at least ${limit.toFixed(3)}`,
  ].filter(Boolean);
  return [
    reason !== FOUND && el("strong", {}, `${enumWords(miss.reason)}. `),
    sentence(miss.explanation),
    figures.length > 0 && el("div", { class: "muted" }, figures.join(" · ")),
    rule && el("div", {}, "Rule: ", el("code", {}, rule)),
  ];
}
