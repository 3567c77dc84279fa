// @ts-check
/** "Why is it not found?": a form for a file or a line, and the step of indexing or searching that left it out. */

import { call } from "./api.js";
import { announce, debounce, el, errorBox, loading, replace } from "./dom.js";
import { enumWords } from "./format.js";
import { latestOnly } from "./latest.js";
import { placeLink, resultCard, sentence, wordsToMark } from "./results.js";
import { field } from "./search_form.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./results.js").Result} Result */
/** @typedef {import("./results.js").Info} Info */
/** @typedef {import("./results.js").Dropped} Dropped */
/**
 * ExplainMissResponse in proto3 JSON.
 * @typedef {object} Miss
 * @property {string} [path]
 * @property {string} [reason]
 * @property {string} [explanation]
 * @property {number} [rank]
 * @property {number} [maxRank]
 * @property {number} [value]
 * @property {number} [limit]
 * @property {string} [rule]
 * @property {Result} [chunk]
 * @property {Info} [info]
 */
/** @typedef {{name: string, reasons: string[]}} Step */

const TYPING_PAUSE_MS = 200;
const MOST_PATHS = 200;

/** The steps in the order in which they are checked, each with the reasons for which it leaves out a file. */
const STEPS = [
  { name: "Is a memory file", reasons: ["NOT_MEMORY", "SOURCE_NOT_CONFIGURED"] },
  { name: "Is of a source that is searched", reasons: ["SOURCE_NOT_SEARCHED"] },
  { name: "Is on disk", reasons: ["NOT_ON_DISK", "LINK"] },
  { name: "Is not excluded", reasons: ["EXCLUDED", "FORGOTTEN"] },
  { name: "Is indexed", reasons: ["PENDING", "FAILED", "NO_TEXT"] },
  { name: "Matches the filter", reasons: ["FILTERED"] },
  { name: "Is retrieved by keyword or vector search", reasons: ["NO_MATCH", "NOT_RETRIEVED"] },
  { name: "Passes the minimum score", reasons: ["BELOW_MIN_SCORE", "BELOW_CUTOFF"] },
  {
    name: "Ranks within the limit of results",
    reasons: ["BELOW_MAX_RESULTS", "DIVERSITY", "ADJACENT", "RESERVED", "RERANKED"],
  },
  { name: "Is in the answer", reasons: ["ABSTAINED", "TEXT_LIMIT"] },
];
/** What `value` and `limit` are for each reason that does not compare scores. */
const VALUE_NAMES = new Map([
  ["MISS_REASON_BELOW_CUTOFF", "cosine"],
  ["MISS_REASON_ABSTAINED", "confidence"],
]);
const FOUND = "FOUND";
/** These can be decided without a look at the disk, so the steps before them are not known to be passed. */
const DECIDED_EARLY = new Set(["EXCLUDED", "FORGOTTEN"]);
const STATE_WORDS = { passed: "passed", failed: "left out here", unknown: "not checked" };

/**
 * Return the form and what it needs from the view of searches.
 * @param {Context} context
 * @param {() => {query: string}} search Returns the current MemorySearchRequest.
 * @param {() => void} changed Called if the values of `params` change.
 */
export function missForm(context, search, changed) {
  const paths = el("datalist", { id: "miss-paths" });
  const path = el("input", {
    type: "text",
    list: "miss-paths",
    value: context.params.get("why") ?? "",
    placeholder: "memory/2026-05-01.md",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
  });
  const line = el("input", { type: "number", min: "1", step: "1", value: context.params.get("at") ?? "", placeholder: "any" });
  const answer = el("div", { class: "miss-answer" });
  const explainer = latestOnly(context.signal);
  const lister = latestOnly(context.signal);

  const suggest = debounce(() => {
    const prefix = path.value.trim();
    const request = {
      agentId: context.agentId,
      pageSize: MOST_PATHS,
      includeExcluded: true,
      ...(prefix ? { filter: { pathPrefixes: [prefix] } } : {}),
    };
    const fill = (/** @type {{files?: Array<{path?: string}>}} */ { files = [] }) => {
      // A text that begins no path keeps the earlier list, in which the browser finds it inside of paths.
      if (files.length > 0) replace(paths, files.map((file) => el("option", { value: file.path })));
    };
    // The list is an aid for typing, so an error is not shown.
    lister.run((signal) => call("ListFiles", request, { signal }), fill, () => {});
  }, TYPING_PAUSE_MS);

  /** @param {boolean} [aloud] Whether screen readers read the outcome out. */
  async function ask(aloud = true) {
    if (!path.value.trim()) {
      explainer.cancel();
      replace(answer);
      return;
    }
    const request = search();
    if (!request.query.trim()) {
      replace(answer, el("p", { class: "muted" }, "Type a search first. The explanation is for a file and a search."));
      return;
    }
    if (!answer.firstChild) replace(answer, loading("Explaining"));
    const question = {
      agentId: context.agentId,
      search: request,
      path: path.value.trim(),
      ...(line.value ? { line: Number(line.value) } : {}),
    };
    await explainer.run(
      (signal) => call("ExplainMiss", question, { signal }),
      (/** @type {Miss} */ miss) => {
        replace(answer, explanation(context, miss, request.query));
        if (aloud) announce(`${enumWords(miss.reason)}: ${miss.explanation ?? ""}`);
      },
      (error) => replace(answer, errorBox(error)),
    );
  }

  const form = el(
    "form",
    {
      class: "miss-form",
      on: {
        submit: (event) => {
          event.preventDefault();
          changed();
          ask();
        },
      },
    },
    field("miss-path", "File", path),
    field("miss-line", "Line (optional)", line),
    el("button", { type: "submit", class: "button primary" }, "Explain"),
    paths,
  );
  const section = el(
    "details",
    { class: "card miss", open: Boolean(path.value) },
    el("summary", {}, "Why is a file not found?"),
    el("p", { class: "muted" }, "Name a file, and a line if you like, to see the step at which the search above leaves it out."),
    form,
    answer,
  );
  path.addEventListener("input", suggest);
  path.addEventListener("focus", suggest);

  return {
    section,
    params: () => ({ why: path.value.trim(), at: line.value }),
    /** Explain again, after the search has changed. */
    refresh: () => {
      if (section.open) ask(false);
    },
    /** @param {Dropped} candidate */
    explain: (candidate) => {
      path.value = candidate.path ?? "";
      line.value = candidate.startLine ? String(candidate.startLine) : "";
      section.open = true;
      changed();
      ask();
      section.scrollIntoView({ block: "nearest" });
      path.focus();
    },
    stop: () => {
      suggest.cancel();
      explainer.cancel();
      lister.cancel();
    },
  };
}

/** @param {Context} context @param {Miss} miss @param {string} query */
function explanation(context, miss, query) {
  const reason = (miss.reason ?? "").replace("MISS_REASON_", "");
  const at = STEPS.findIndex((step) => step.reasons.includes(reason));
  return [
    el("h3", { class: "miss-title" }, "Steps for ", placeLink(context.agentId, { path: miss.path })),
    at < 0 && reason !== FOUND
      ? el("p", {}, details(miss))
      : el("ol", { class: "steps" }, STEPS.map((step, index) => shownStep(step, stateOf(index, at, reason), miss, index === at))),
    reason === FOUND && el("p", {}, el("span", { class: "badge badge-ok" }, "found"), " ", details(miss)),
    miss.chunk && el("h4", {}, reason === FOUND ? "The result" : "The chunk that came furthest"),
    miss.chunk && resultCard(context, miss.chunk, { words: wordsToMark(query, miss.info) }),
  ];
}

/** @param {number} index @param {number} at @param {string} reason @returns {keyof typeof STATE_WORDS} */
function stateOf(index, at, reason) {
  if (reason === FOUND) return "passed";
  if (index === at) return "failed";
  const isKnown = index < at && !(DECIDED_EARLY.has(reason) && STEPS[index].reasons.includes("NOT_ON_DISK"));
  return isKnown ? "passed" : "unknown";
}

/** @param {Step} step @param {keyof typeof STATE_WORDS} state @param {Miss} miss @param {boolean} isLast */
function shownStep(step, state, miss, isLast) {
  return el(
    "li",
    { class: `step step-${state}`, "aria-current": isLast ? "step" : null },
    el("span", { class: "step-name" }, step.name),
    el("span", { class: "step-state" }, STATE_WORDS[state]),
    state === "failed" && el("div", { class: "step-why" }, el("strong", {}, `${enumWords(miss.reason)}. `), details(miss)),
  );
}

/** @param {Miss} miss */
function details({ reason = "", explanation: text = "", rank, maxRank, value, limit, rule }) {
  const name = VALUE_NAMES.get(reason) ?? "score";
  const figures = [
    rank === undefined ? "" : `rank ${rank}`,
    maxRank === undefined ? "" : `largest rank that is enough: ${maxRank}`,
    value === undefined ? "" : `${name} ${value.toFixed(3)}`,
    limit === undefined ? "" : `least ${name} that is enough: ${limit.toFixed(3)}`,
  ].filter(Boolean);
  return [
    sentence(text),
    figures.length > 0 && el("div", { class: "muted" }, figures.join(" · ")),
    rule && el("div", {}, "Rule: ", el("code", {}, rule)),
  ];
}
