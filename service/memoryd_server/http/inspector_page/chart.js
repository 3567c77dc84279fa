// @ts-check
/** Bar charts. The bars are hidden from screen readers, which get the same numbers as a table. */

import { el, replace, svg } from "./dom.js";
import { count, day, number } from "./format.js";

const DAY_MS = 86400000;
const FEWEST_BARS = 30;
const MOST_BARS = 366;
const HEIGHT = 100;

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

/** @param {Bar} item @param {number} index @param {number} most */
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

/** @param {Bar[]} items @param {string} label @param {string} heading */
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
 * Return a chart of counts by day; of more than a year by week, or by several weeks.
 * @param {Map<string, number>} counts By `YYYY-MM-DD`.
 * @param {{label?: string, noun?: string, href?: (first: string, last: string) => string}} [options]
 */
export function dayChart(counts, { label = "Notes by day", noun = "note", href } = {}) {
  const times = [...counts.keys()].map((date) => Date.parse(date)).filter((time) => !Number.isNaN(time));
  if (!times.length) return el("p", { class: "muted", text: "There are no dates." });
  const end = times.reduce((a, b) => Math.max(a, b));
  const days = (end - times.reduce((a, b) => Math.min(a, b))) / DAY_MS + 1;
  const weeks = days > MOST_BARS ? Math.ceil(days / MOST_BARS / 7) : 0;
  const unit = weeks > 1 ? `${weeks} weeks` : weeks ? "week" : "day";
  const span = (weeks ? weeks * 7 : 1) * DAY_MS;
  const values = new Array(Math.max(FEWEST_BARS, Math.ceil((days * DAY_MS) / span))).fill(0);
  for (const time of times) values[values.length - 1 - Math.floor((end - time) / span)] += counts.get(isoDay(time)) ?? 0;
  const items = values.map((value, index) => {
    const time = end - (values.length - 1 - index) * span;
    const [first, last] = [isoDay(time - span + DAY_MS), isoDay(time)];
    const text = weeks ? `${day(first)} to ${day(last)}` : day(last);
    return { label: text, value, title: `${text}: ${count(value, noun)}`, href: href?.(first, last) };
  });
  return bars(items, { label: label.replace(/\bday\b/, unit), heading: "Date" });
}

/** @param {number} time */
function isoDay(time) {
  return new Date(time).toISOString().slice(0, 10);
}
