// @ts-check
/** Bar charts. The bars are hidden from screen readers, which get the same numbers as a table. */

import { el, replace, svg } from "./dom.js";
import { day, number } from "./format.js";

const DAY_MS = 86400000;
const FEWEST_SLOTS = 30;
const MOST_SLOTS = 366;
const HEIGHT = 100;
const DATE = /^\d{4}-\d{2}-\d{2}$/;

/** @typedef {{label: string, value: number, title: string, href?: string}} Bar */

/**
 * Return a bar chart with a table of its numbers.
 * @param {Bar[]} items
 * @param {{label: string, heading?: string}} options `label` names the chart, `heading` the first column of the table.
 */
export function bars(items, { label, heading = "" }) {
  const most = Math.max(1, ...items.map(({ value }) => value));
  const middle = items[Math.floor(items.length / 2)];
  const table = el("div", { class: "scroll" });
  const details = el("details", null, el("summary", { text: "As a table" }), table);
  details.addEventListener("toggle", () => replace(table, details.open && numbersOf(items, label, heading)));
  return el(
    "figure",
    { class: "bars", "aria-label": label },
    el("div", { class: "bars-most muted", "aria-hidden": "true", text: `Highest bar: ${number(most)}` }),
    svg(
      "svg",
      { class: "chart", viewBox: `0 0 ${Math.max(1, items.length)} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("path", { class: "axis", d: `M0 ${HEIGHT}H${Math.max(1, items.length)}`, "vector-effect": "non-scaling-stroke" }),
      items.map((item, index) => barOf(item, index, most)),
    ),
    el(
      "div",
      { class: "bars-labels muted", "aria-hidden": "true" },
      [items[0], items.length > 2 && middle, items.length > 1 && items[items.length - 1]].map((item) => item && el("span", { text: item.label })),
    ),
    details,
  );
}

/**
 * @param {Bar} item
 * @param {number} index
 * @param {number} most
 */
function barOf({ value, title, href }, index, most) {
  if (!value) return null;
  const height = Math.max(6, (HEIGHT * value) / most);
  const shapes = [
    svg("title", { text: title }),
    svg("rect", { class: "hit", x: index, y: 0, width: 1, height: HEIGHT }),
    svg("rect", { class: "bar", x: index + 0.1, y: HEIGHT - height, width: 0.8, height }),
  ];
  return href ? svg("a", { href, tabindex: -1 }, shapes) : svg("g", null, shapes);
}

/**
 * @param {Bar[]} items
 * @param {string} label
 * @param {string} heading
 */
function numbersOf(items, label, heading) {
  const rows = items.filter(({ value }) => value).reverse();
  return el(
    "table",
    { class: "table narrow" },
    el("caption", { class: "visually-hidden", text: label }),
    el("thead", null, el("tr", null, el("th", { scope: "col", text: heading }), el("th", { scope: "col", class: "number", text: "Number" }))),
    el("tbody", null, rows.map((item) => el("tr", null, el("th", { scope: "row" }, item.href ? el("a", { href: item.href, text: item.label }) : item.label), el("td", { class: "number", text: number(item.value) })))),
  );
}

/**
 * Return a chart of counts by day; of longer times by week, or by month.
 * @param {Map<string, number>} counts By `YYYY-MM-DD`.
 * @param {{label?: string, noun?: string, href?: (first: string, last: string) => string}} [options]
 */
export function dayChart(counts, { label = "Notes by day", noun = "note", href } = {}) {
  const dates = [...counts.keys()].filter((date) => DATE.test(date)).sort();
  if (!dates.length) return el("p", { class: "muted", text: "There are no dates." });
  const slots = slotsOf(dates[0], dates[dates.length - 1]);
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const date of dates) {
    const first = slots.firstOf(date);
    sums.set(first, (sums.get(first) ?? 0) + (counts.get(date) ?? 0));
  }
  const items = slots.firsts.map((first) => {
    const last = slots.lastOf(first);
    const value = sums.get(first) ?? 0;
    const text = first === last ? day(first) : `${day(first)} to ${day(last)}`;
    return { label: text, value, title: `${text}: ${number(value)} ${noun}${value === 1 ? "" : "s"}`, href: href?.(first, last) };
  });
  return bars(items, { label: label.replace(/\bday\b/, slots.unit), heading: slots.unit.charAt(0).toUpperCase() + slots.unit.slice(1) });
}

/**
 * Return the days, weeks or months between two dates, so that there are not too many of them.
 * @param {string} first
 * @param {string} last
 */
function slotsOf(first, last) {
  const days = (Date.parse(last) - Date.parse(first)) / DAY_MS + 1;
  if (days > MOST_SLOTS * 7) return monthSlots(first, last);
  return days > MOST_SLOTS ? spanSlots(first, last, 7, "week") : spanSlots(first, last, 1, "day");
}

/**
 * @param {string} first
 * @param {string} last
 * @param {number} length Days of a slot.
 * @param {string} unit
 */
function spanSlots(first, last, length, unit) {
  const span = length * DAY_MS;
  const end = Date.parse(last);
  const count = Math.max(FEWEST_SLOTS, Math.floor((end - Date.parse(first)) / span) + 1);
  const start = end - (count - 1) * span;
  const firstOf = (/** @type {string} */ date) => isoDay(start + Math.floor((Date.parse(date) - start) / span) * span);
  const lastOf = (/** @type {string} */ date) => isoDay(Date.parse(date) + span - DAY_MS);
  return { unit, firsts: Array.from({ length: count }, (_, index) => isoDay(start + index * span)), firstOf, lastOf };
}

/**
 * @param {string} first
 * @param {string} last
 */
function monthSlots(first, last) {
  const firsts = [];
  const month = new Date(`${first.slice(0, 7)}-01T00:00:00Z`);
  for (const end = Date.parse(last); month.getTime() <= end; month.setUTCMonth(month.getUTCMonth() + 1)) firsts.push(isoDay(month.getTime()));
  const lastOf = (/** @type {string} */ date) => isoDay(Date.UTC(Number(date.slice(0, 4)), Number(date.slice(5, 7)), 0));
  return { unit: "month", firsts, firstOf: (/** @type {string} */ date) => `${date.slice(0, 7)}-01`, lastOf };
}

/** @param {number} time */
function isoDay(time) {
  return new Date(time).toISOString().slice(0, 10);
}
