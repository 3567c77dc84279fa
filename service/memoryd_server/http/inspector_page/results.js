/** Search results, dropped candidates and the report on a search, as elements. */

import { el, marked, viewHref, visible } from "./dom.js";
import { ago, duration, enumWords, number } from "./format.js";
import { scoreBar, scoreFacts } from "./score_bar.js";

/** @typedef {{path?: string, startLine?: number, endLine?: number, score?: number, origin?: string}} Passage Of a file, or an entry. */
/** @typedef {Passage & {snippet?: string, source?: string, modifiedTime?: string, importance?: number, scoreDetail?: import("./score_bar.js").ScoreDetail}} Result */
/** @typedef {Passage & {reason?: string, explanation?: string}} Dropped */
/** @typedef {Record<string, any> & {legs?: Array<{leg?: string, terms?: string[], note?: string}>}} Info SearchInfo of the protos. */

const TRUSTED_ORIGINS = new Set(["ORIGIN_UNSPECIFIED", "ORIGIN_OWNER", "ORIGIN_AGENT"]);
const ENTRY = /^entries\//;
/** Terms are stems, so the end of a word can differ from its term. */
const STEM_CHARS = 4;

/**
 * Return a link to the first line of a passage, or text for an entry, which has no file.
 * @param {string} agentId
 * @param {Passage} passage
 * @param {string} [className] Another class of the link.
 */
export function placeLink(agentId, { path = "", startLine = 0, endLine = startLine }, className = "") {
  const lines = endLine > startLine ? `:${startLine}–${endLine}` : startLine ? `:${startLine}` : "";
  // <bdi> keeps a path in Hebrew or Arabic from changing the order of the text around it.
  const shown = [el("bdi", {}, visible(path)), lines];
  if (ENTRY.test(path)) return el("span", { class: "path" }, shown);
  return el("a", { class: `path ${className}`, href: viewHref(agentId, "files", { path, line: startLine || "" }) }, shown);
}

/**
 * Return the words to mark: the indexed terms, which are beginnings of words, and the words of the query that they
 * come from. Words that are too common to be terms are left out. Without terms, all words of the query.
 * @param {string} query
 * @param {Info} [info]
 * @returns {string[]}
 */
export function wordsToMark(query, info) {
  const terms = (info?.legs ?? []).flatMap((leg) => leg.terms ?? []);
  const words = query.match(/[\p{L}\p{N}][\p{L}\p{M}\p{N}]*/gu) ?? [];
  if (terms.length === 0) return words.filter((word) => word.length > 2);
  const folded = (/** @type {string} */ word) => word.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const stems = terms.map((term) => folded(term).slice(0, STEM_CHARS));
  return [...terms, ...words.filter((word) => stems.some((stem) => folded(word).startsWith(stem)))];
}

/** @param {string | undefined} text Return a text of the daemon, which is often a part of a sentence, as a sentence. */
export function sentence(text = "") {
  return text && text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?:]$/.test(text) ? "" : ".");
}

/** @param {number | undefined} score */
function shownScore(score = 0) {
  return score.toFixed(3);
}

/** @param {Passage} passage Return its score, and its origin unless that is the owner or the agent. */
export function scoreAndOrigin({ score, origin = "ORIGIN_UNSPECIFIED" }) {
  return [
    el("span", { class: "result-score" }, "score ", el("strong", {}, shownScore(score))),
    !TRUSTED_ORIGINS.has(origin) && el("span", { class: "badge badge-warn" }, `origin: ${enumWords(origin)}`),
  ];
}

/**
 * Return a result: its path and lines, score, snippet and the parts of its score.
 * @param {string} agentId
 * @param {Result} result
 * @param {string[]} words The words to mark.
 * @param {{rank?: number, scale?: number}} [options] `scale` is as for `scoreBar`.
 */
export function resultCard(agentId, result, words, { rank, scale } = {}) {
  const { source, importance, modifiedTime, snippet, scoreDetail } = result;
  const facts = scoreFacts(scoreDetail);
  const place = placeLink(agentId, result, "result-link");
  return el(
    "article",
    { class: "card result" },
    el(
      "div",
      { class: "row" },
      el("span", {}, rank !== undefined && el("span", { class: "muted" }, `${rank}. `), place),
      scoreAndOrigin(result),
      source && source !== "SOURCE_MEMORY" && el("span", { class: "badge" }, enumWords(source)),
      importance && el("span", { class: "badge" }, `importance ${importance}`),
      modifiedTime && el("span", { class: "muted", title: modifiedTime }, ago(modifiedTime)),
    ),
    snippet && el("pre", { class: "code snippet", dir: "auto" }, marked(snippet, words)),
    scoreBar(scoreDetail, scale),
    facts && el("p", { class: "muted small" }, facts),
  );
}

/**
 * Return a table of candidates that are not results. `explain` is called with one of them.
 * @param {string} agentId
 * @param {Dropped[]} dropped
 * @param {(candidate: Dropped) => void} explain
 */
export function droppedTable(agentId, dropped, explain) {
  const button = (/** @type {Dropped} */ candidate) => {
    const label = `Show the steps for ${candidate.path}, line ${candidate.startLine ?? 1}`;
    return el("button", { type: "button", class: "button", "aria-label": label, on: { click: () => explain(candidate) } }, "Show");
  };
  const row = (/** @type {Dropped} */ candidate) =>
    el(
      "tr",
      {},
      el("td", {}, placeLink(agentId, candidate)),
      el("td", { class: "number" }, shownScore(candidate.score)),
      el("td", {}, el("strong", {}, enumWords(candidate.reason)), el("br"), sentence(candidate.explanation)),
      el("td", {}, button(candidate)),
    );
  const heads = ["Candidate", "Score", "Why it is not a result", "Steps"].map((head) => el("th", { scope: "col" }, head));
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Dropped candidates" },
    el("table", { class: "table dropped" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, dropped.map(row))),
  );
}

/** @param {any} degradation */
function degradationLine({ kind, wanted, used, reason = "" }) {
  const instead = used ? ` (used: ${used}${wanted ? `; configured: ${wanted}` : ""})` : "";
  return el("li", {}, el("strong", {}, `${enumWords(kind)}.`), " ", sentence(reason + instead));
}

/**
 * Return the report on a search: what ran, how long it took, how fresh the index is, and what did not work.
 * @param {Info} info
 * @param {string} [found] For example "8 results".
 */
export function infoReport(info, found = "") {
  const facts = [
    found,
    info.servedMode && `${enumWords(info.servedMode).toLowerCase()} search`,
    info.backend === "BACKEND_QMD" && "by qmd",
    `${number(info.keywordCandidates)} keyword and ${number(info.vectorCandidates)} vector candidates`,
    info.droppedByMinScore && `${number(info.droppedByMinScore)} below the minimum score`,
    info.elapsed && duration(info.elapsed),
    `revision ${info.indexRevision ?? 0}`,
    info.confidence !== undefined && `confidence ${info.confidence.toFixed(2)}`,
    info.embedding?.model && `model ${info.embedding.model}`,
  ];
  const notes = [
    ...(info.degradations ?? []).map(degradationLine),
    ...(info.legs ?? []).flatMap(({ leg, note }) => (note ? [el("li", { class: "muted" }, `${enumWords(leg)} search: ${note}`)] : [])),
  ];
  return el(
    "div",
    { class: "search-info" },
    el("p", { class: "muted" }, facts.filter(Boolean).join(" · ")),
    info.stale && el("p", {}, el("span", { class: "badge badge-warn" }, "stale"), " Files have changed since this revision."),
    notes.length > 0 && el("ul", { class: "list" }, notes),
  );
}
