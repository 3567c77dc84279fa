// @ts-check
/** Search results, dropped candidates and the report on a search, as elements. */

import { el, marked, viewHref } from "./dom.js";
import { ago, duration, enumWords, number } from "./format.js";
import { gained, scoreBar, scoreFacts } from "./score_bar.js";

/** @typedef {import("./score_bar.js").ScoreDetail} ScoreDetail */
/** @typedef {{agentId: string}} Place */
/**
 * SearchResult in proto3 JSON. Missing fields have their defaults.
 * @typedef {object} Result
 * @property {string} [path]
 * @property {number} [startLine]
 * @property {number} [endLine]
 * @property {number} [score]
 * @property {string} [snippet]
 * @property {string} [source]
 * @property {string} [modifiedTime]
 * @property {string} [origin]
 * @property {ScoreDetail} [scoreDetail]
 * @property {number} [importance]
 */
/**
 * DroppedCandidate in proto3 JSON.
 * @typedef {object} Dropped
 * @property {string} [path]
 * @property {number} [startLine]
 * @property {number} [endLine]
 * @property {number} [score]
 * @property {string} [reason]
 * @property {string} [explanation]
 */
/** @typedef {{kind?: string, wanted?: string, used?: string, reason?: string}} Degradation */
/** @typedef {{leg?: string, ran?: boolean, candidates?: number, terms?: string[], note?: string}} Leg */
/**
 * SearchInfo in proto3 JSON.
 * @typedef {object} Info
 * @property {string} [backend]
 * @property {string} [servedMode]
 * @property {{provider?: string, model?: string}} [embedding]
 * @property {Degradation[]} [degradations]
 * @property {string} [indexRevision]
 * @property {boolean} [stale]
 * @property {number} [keywordCandidates]
 * @property {number} [vectorCandidates]
 * @property {number} [droppedByMinScore]
 * @property {string} [elapsed]
 * @property {string} [emptyReason]
 * @property {string} [emptyExplanation]
 * @property {Leg[]} [legs]
 * @property {number} [confidence]
 */

const TRUSTED_ORIGINS = new Set(["ORIGIN_UNSPECIFIED", "ORIGIN_OWNER", "ORIGIN_AGENT"]);
const ENTRY = /^entries\//;

/**
 * Return a link to the first of these lines, or text for an entry, which has no file.
 * @param {string} agentId
 * @param {{path?: string, startLine?: number, endLine?: number}} place
 * @param {Record<string, unknown>} [props] Further attributes of the link.
 */
export function placeLink(agentId, place, props = {}) {
  const { path = "", startLine = 0, endLine = startLine } = place;
  const lines = endLine > startLine ? `:${startLine}–${endLine}` : startLine ? `:${startLine}` : "";
  // <bdi> keeps a path in Hebrew or Arabic from changing the order of the text around it.
  const shown = [el("bdi", {}, visible(path)), lines];
  if (ENTRY.test(path)) return el("span", { class: "path" }, shown);
  return el("a", { class: "path", ...props, href: viewHref(agentId, "files", { path, line: startLine || "" }) }, shown);
}

/**
 * Return a path with an escape in place of each character that is invisible or changes the direction of the text.
 * @param {string} path
 */
export function visible(path) {
  return path.replace(/[\p{Cc}\p{Bidi_C}\u2028\u2029]/gu, (char) => `\\u{${char.codePointAt(0)?.toString(16)}}`);
}

/**
 * Return the words to mark: the indexed terms, which are beginnings of words, and the words of the query that they
 * come from. Words that are too common to be terms are left out. Without terms, all words of the query.
 * @param {string} query
 * @param {Info | undefined} info
 * @returns {string[]}
 */
export function wordsToMark(query, info) {
  const terms = (info?.legs ?? []).flatMap((leg) => leg.terms ?? []);
  const words = query.match(/[\p{L}\p{N}][\p{L}\p{M}\p{N}]*/gu) ?? [];
  if (terms.length === 0) return words.filter((word) => word.length > 2);
  const folded = (/** @type {string} */ word) => word.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const kept = words.filter((word) => terms.some((term) => folded(word).startsWith(folded(term).slice(0, 4))));
  return [...new Set([...terms, ...kept])];
}

/** @param {Result[]} results Return the amount that is as wide as a bar: 1, or more if a result has more. */
export function barScale(results) {
  return Math.max(1, ...results.map((result) => gained(result.scoreDetail)));
}

/** @param {string | undefined} text Return a text of the daemon, which is often a part of a sentence, as a sentence. */
export function sentence(text = "") {
  return text && text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?:]$/.test(text) ? "" : ".");
}

/** @param {number | undefined} score */
export function shownScore(score) {
  return (score ?? 0).toFixed(3);
}

/** @param {Result} result */
function badges(result) {
  const { origin = "ORIGIN_UNSPECIFIED", source, importance, modifiedTime } = result;
  return [
    !TRUSTED_ORIGINS.has(origin) && el("span", { class: "badge badge-warn" }, `origin: ${enumWords(origin)}`),
    source && source !== "SOURCE_MEMORY" && el("span", { class: "badge" }, enumWords(source)),
    importance && el("span", { class: "badge" }, `importance ${importance}`),
    modifiedTime && el("span", { class: "muted", title: modifiedTime }, ago(modifiedTime)),
  ];
}

/**
 * Return the content of a result: its place, score, snippet and the parts of its score.
 * @param {Place} context
 * @param {Result} result
 * @param {{rank?: number, words: string[], scale?: number}} options
 */
export function resultCard(context, result, { rank, words, scale }) {
  const facts = scoreFacts(result.scoreDetail);
  return el(
    "article",
    { class: "card result" },
    el(
      "div",
      { class: "row result-head" },
      el(
        "span",
        {},
        rank !== undefined && el("span", { class: "result-rank" }, `${rank}. `),
        placeLink(context.agentId, result, { class: "path result-link" }),
      ),
      el("span", { class: "result-score" }, "score ", el("strong", {}, shownScore(result.score))),
      badges(result),
    ),
    result.snippet && el("pre", { class: "code snippet", dir: "auto" }, marked(result.snippet, words)),
    scoreBar(result.scoreDetail, scale),
    facts && el("p", { class: "muted score-facts" }, facts),
  );
}

/**
 * Return a table of candidates that are not results. `explain` is called with the place of one.
 * @param {Place} context
 * @param {Dropped[]} dropped
 * @param {(candidate: Dropped) => void} explain
 */
export function droppedTable(context, dropped, explain) {
  const row = (/** @type {Dropped} */ candidate) =>
    el(
      "tr",
      {},
      el("td", {}, placeLink(context.agentId, candidate)),
      el("td", { class: "number" }, shownScore(candidate.score)),
      el("td", {}, el("strong", {}, enumWords(candidate.reason ?? "")), el("br"), sentence(candidate.explanation)),
      el(
        "td",
        {},
        el(
          "button",
          {
            type: "button",
            class: "button",
            "aria-label": `Why? ${candidate.path}, line ${candidate.startLine ?? 1}`,
            on: { click: () => explain(candidate) },
          },
          "why?",
        ),
      ),
    );
  const heads = ["Candidate", "Score", "Why it is not a result", "Steps"];
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Dropped candidates" },
    el(
      "table",
      { class: "table dropped" },
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, dropped.map(row)),
    ),
  );
}

/** @param {Degradation} degradation */
function degradationLine(degradation) {
  const { kind = "", wanted, used, reason } = degradation;
  const instead = used ? ` (used: ${used}${wanted ? `; configured: ${wanted}` : ""})` : "";
  return el("li", {}, el("strong", {}, `${enumWords(kind)}.`), ` ${sentence(`${reason ?? ""}${instead}`)}`);
}

/**
 * Return the report on a search: what ran, how long it took, how fresh the index is, and what did not work.
 * @param {Info | undefined} info
 * @param {string} count For example "8 results".
 */
export function infoReport(info = {}, count = "") {
  const facts = [
    count,
    info.servedMode ? `${enumWords(info.servedMode).toLowerCase()} search` : "",
    info.backend === "BACKEND_QMD" ? "by qmd" : "",
    `${number(info.keywordCandidates ?? 0)} keyword and ${number(info.vectorCandidates ?? 0)} vector candidates`,
    info.droppedByMinScore ? `${number(info.droppedByMinScore)} below the minimum score` : "",
    info.elapsed ? duration(info.elapsed) : "",
    `revision ${info.indexRevision ?? 0}`,
    info.confidence === undefined ? "" : `confidence ${info.confidence.toFixed(2)}`,
    info.embedding?.model ? `model ${info.embedding.model}` : "",
  ];
  const notes = (info.legs ?? []).filter((leg) => leg.note);
  return el(
    "div",
    { class: "search-info" },
    el("p", { class: "muted" }, facts.filter(Boolean).join(" · ")),
    info.stale && el("p", {}, el("span", { class: "badge badge-warn" }, "stale"), " Files have changed since this revision."),
    (info.degradations ?? []).length + notes.length > 0 &&
      el(
        "ul",
        {},
        (info.degradations ?? []).map(degradationLine),
        notes.map((leg) => el("li", { class: "muted" }, `${enumWords(leg.leg ?? "")} search: ${leg.note}`)),
      ),
  );
}
