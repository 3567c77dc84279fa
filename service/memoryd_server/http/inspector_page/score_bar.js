// @ts-check
/** What a score is made of, as a bar and as a list. */

import { el } from "./dom.js";

/** @typedef {{kind?: string, amount?: number}} ScorePart */
/**
 * ScoreDetail in proto3 JSON. Missing fields are unset.
 * @typedef {object} ScoreDetail
 * @property {number} [vector]
 * @property {number} [coverage]
 * @property {number} [decay]
 * @property {number} [annotations]
 * @property {number} [rerank]
 * @property {number} [keywordRank]
 * @property {number} [vectorRank]
 * @property {ScorePart[]} [parts]
 */
/** @typedef {{name: string, amount: number, meaning: string}} NamedPart */

/** Name and meaning of each kind, in the order in which parts are drawn. */
const KINDS = new Map([
  ["SCORE_PART_KIND_KEYWORD", ["keyword", "words of the query in the chunk (BM25)"]],
  ["SCORE_PART_KIND_WINDOW", ["window", "words of the query that are close together"]],
  ["SCORE_PART_KIND_VECTOR", ["vector", "similar meaning (cosine of the embeddings)"]],
  ["SCORE_PART_KIND_DATE", ["date", "the query names a date of this chunk or one near it"]],
  ["SCORE_PART_KIND_ANNOTATIONS", ["annotations", "importance and projects in the chunk's annotations"]],
  ["SCORE_PART_KIND_DECAY", ["decay", "the chunk is old"]],
  ["SCORE_PART_KIND_ADJACENT", ["adjacent", "better results are adjacent chunks; lowers the rank, not the score"]],
  ["SCORE_PART_KIND_DIVERSITY", ["diversity", "better results are similar; lowers the rank, not the score"]],
]);

/** @param {ScoreDetail | undefined} detail @returns {NamedPart[]} */
function namedParts(detail) {
  const amounts = new Map((detail?.parts ?? []).map((part) => [part.kind, part.amount ?? 0]));
  return [...KINDS].flatMap(([kind, [name, meaning]]) => {
    const amount = amounts.get(kind) ?? 0;
    return amount ? [{ name, amount, meaning }] : [];
  });
}

/** @param {ScoreDetail | undefined} detail Return the sum of the positive parts. */
export function gained(detail) {
  return sum(namedParts(detail).filter((part) => part.amount > 0));
}

/** @param {NamedPart[]} parts */
function sum(parts) {
  return parts.reduce((total, part) => total + Math.abs(part.amount), 0);
}

/** @param {number} amount */
function signed(amount) {
  const digits = Math.abs(amount) < 0.005 ? Math.abs(amount).toPrecision(1) : Math.abs(amount).toFixed(2);
  return (amount < 0 ? "−" : "") + digits;
}

/** @param {string} name @param {number} share Return a segment that has this share of the bar's width. */
function segment(name, share) {
  const drawn = el("span", { class: name ? `score-part part-${name}` : "" });
  drawn.style.width = `${(share * 100).toFixed(2)}%`;
  return drawn;
}

/** @param {NamedPart[]} parts @param {number} scale */
function drawBar(parts, scale) {
  const gains = parts.filter((part) => part.amount > 0);
  const losses = parts.filter((part) => part.amount < 0);
  const left = Math.max(0, sum(gains) - sum(losses));
  // Diversity is relative to the range of the scores and can exceed the score.
  const shrink = Math.min(1, sum(gains) / (sum(losses) || 1));
  return el(
    "div",
    { class: "score-bar", "aria-hidden": "true" },
    el("div", { class: "score-row" }, gains.map((part) => segment(part.name, part.amount / scale))),
    losses.length > 0 &&
      el(
        "div",
        { class: "score-row score-row-losses" },
        segment("", left / scale),
        // The first loss is applied to the end of the gains, so it is drawn last.
        losses.reverse().map((part) => segment(`${part.name} score-loss`, (-part.amount * shrink) / scale)),
      ),
  );
}

/** @param {NamedPart} part */
function listed(part) {
  const swatch = `score-part score-swatch part-${part.name}${part.amount < 0 ? " score-loss" : ""}`;
  const label = `${part.name} ${signed(part.amount)}`;
  return el("li", { title: part.meaning }, el("span", { class: swatch, "aria-hidden": "true" }), label);
}

/**
 * Return a bar of the parts of a score with a list of their amounts, or null if the parts are not known.
 * @param {ScoreDetail | undefined} detail
 * @param {number} [scale] The amount that is as wide as the bar.
 */
export function scoreBar(detail, scale = 1) {
  const parts = namedParts(detail);
  if (parts.length === 0) return null;
  return el(
    "div",
    { class: "score" },
    drawBar(parts, Math.max(scale, gained(detail))),
    el("ul", { class: "score-list", "aria-label": "Parts of the score" }, parts.map(listed)),
  );
}

/** @param {ScoreDetail | undefined} detail Return the ranks and factors of a score in words. */
export function scoreFacts(detail) {
  if (!detail) return "";
  const facts = [
    detail.keywordRank ? `rank ${detail.keywordRank} in keyword search` : "",
    detail.vectorRank ? `rank ${detail.vectorRank} in vector search` : "",
    detail.vector === undefined ? "" : `cosine ${detail.vector.toFixed(3)}`,
    detail.coverage ? `${Math.round(detail.coverage * 100)} % of the words` : "",
    detail.annotations === undefined ? "" : `annotations × ${detail.annotations.toFixed(2)}`,
    detail.decay === undefined ? "" : `decay × ${detail.decay.toFixed(2)}`,
    detail.rerank === undefined ? "" : `reranker ${detail.rerank.toFixed(3)}`,
  ];
  return facts.filter(Boolean).join(" · ");
}
