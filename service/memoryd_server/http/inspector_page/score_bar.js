/** The parts of a score, as a bar and as a list. */

import { el } from "./dom.js";

/** @typedef {{vector?: number, coverage?: number, decay?: number, rerank?: number, keywordRank?: number, vectorRank?: number, parts?: Array<{kind?: string, amount?: number}>}} ScoreDetail */
/** @typedef {{name: string, amount: number, meaning: string}} Part */

/** The kinds of parts with their meaning, in the order in which they are drawn. */
const KINDS = Object.entries({
  keyword: "words of the query in the chunk (BM25)",
  window: "words of the query that are close together",
  vector: "similar meaning (cosine)",
  date: "the query names a date near that of the chunk",
  annotations: "importance and projects",
  decay: "age of the chunk",
  adjacent: "better results are adjacent chunks; lowers the rank, not the score",
  diversity: "better results are similar; lowers the rank, not the score",
});

/** @param {ScoreDetail | undefined} detail @returns {Part[]} */
function partsOf(detail) {
  const amounts = new Map((detail?.parts ?? []).map(({ kind, amount }) => [kind, amount ?? 0]));
  return KINDS.flatMap(([name, meaning]) => {
    const amount = amounts.get(`SCORE_PART_KIND_${name.toUpperCase()}`);
    return amount ? [{ name, amount, meaning }] : [];
  });
}

/** @param {Array<ScoreDetail | undefined>} details Return the amount that fills a bar: 1, or the largest sum of gains if it is larger. */
export function barScale(details) {
  return Math.max(1, ...details.map((detail) => sum(partsOf(detail).filter((part) => part.amount > 0))));
}

/** @param {Part[]} parts */
function sum(parts) {
  return parts.reduce((total, part) => total + Math.abs(part.amount), 0);
}

/** @param {string} className @param {number} share Return a segment that has this share of the bar's width. */
function segment(className, share) {
  const drawn = el("span", { class: className });
  drawn.style.width = `${(share * 100).toFixed(2)}%`;
  return drawn;
}

/** @param {Part} part */
function classOf({ name, amount }) {
  return `score-part part-${name}${amount < 0 ? " score-loss" : ""}`;
}

/** @param {Part[]} parts @param {number} scale */
function drawnBar(parts, scale) {
  const gains = parts.filter((part) => part.amount > 0);
  const losses = parts.filter((part) => part.amount < 0);
  // Diversity is relative to the range of the scores and can exceed the score.
  const shrink = Math.min(1, sum(gains) / sum(losses));
  const rest = Math.max(0, sum(gains) - sum(losses));
  // The first loss is taken from the end of the gains, so the losses are drawn in reverse.
  const drawnLosses = losses.reverse().map((part) => segment(classOf(part), (-part.amount * shrink) / scale));
  return el(
    "div",
    { class: "score-bar", "aria-hidden": "true" },
    el("div", { class: "score-row" }, gains.map((part) => segment(classOf(part), part.amount / scale))),
    losses.length > 0 && el("div", { class: "score-row score-row-losses" }, segment("", rest / scale), drawnLosses),
  );
}

/** @param {Part} part */
function listed(part) {
  const size = Math.abs(part.amount);
  const shown = size < 0.005 ? size.toPrecision(1) : size.toFixed(2);
  const swatch = el("span", { class: `score-swatch ${classOf(part)}`, "aria-hidden": "true" });
  return el("li", { title: part.meaning }, swatch, `${part.name} ${part.amount < 0 ? "−" : ""}${shown}`);
}

/**
 * Return a bar of the parts of a score with a list of their amounts, or null if the parts are not known.
 * @param {ScoreDetail | undefined} detail
 * @param {number} [scale] The amount that fills the bar.
 */
export function scoreBar(detail, scale = barScale([detail])) {
  const parts = partsOf(detail);
  if (parts.length === 0) return null;
  const list = el("ul", { class: "score-list small", "aria-label": "Parts of the score" }, parts.map(listed));
  return el("div", { class: "score" }, drawnBar(parts, scale), list);
}

/** @param {ScoreDetail} [detail] Return the ranks and factors of a score in words. */
export function scoreFacts({ keywordRank, vectorRank, vector, coverage, decay, rerank } = {}) {
  const facts = [
    keywordRank && `rank ${keywordRank} in keyword search`,
    vectorRank && `rank ${vectorRank} in vector search`,
    vector !== undefined && `cosine ${vector.toFixed(3)}`,
    coverage && `${Math.round(coverage * 100)} % of the words of the query`,
    decay !== undefined && `decay × ${decay.toFixed(2)}`,
    rerank !== undefined && `reranker ${rerank.toFixed(3)}`,
  ];
  return facts.filter(Boolean).join(" · ");
}
