/** A bar chart of counts by day. The bars are hidden from screen readers, which get the same numbers as a table. */

import { el, replace, svg } from "./dom.js";
import { count, day, number } from "./format.js";

const DAY_MS = 86400000;
const FEWEST_BARS = 30;
const MOST_BARS = 366;
const HEIGHT = 100;
const LEAST_HEIGHT = 6;

/** @typedef {{text: string, value: number, title: string, href: string}} Bar */

/**
 * Return a chart of counts by day. More than a year is shown by week, or by several weeks.
 * @param {Map<string, number>} counts By `YYYY-MM-DD`.
 * @param {string} noun What is counted, for example "note".
 * @param {(first: string, last: string) => string} href The address of a range of days.
 */
export function dayChart(counts, noun, href) {
  const times = [...counts.keys()].map((date) => Date.parse(date)).filter((time) => !Number.isNaN(time));
  if (!times.length) return el("p", { class: "muted", text: "There are no dates." });
  const end = times.reduce((a, b) => Math.max(a, b));
  const days = (end - times.reduce((a, b) => Math.min(a, b))) / DAY_MS + 1;
  const weeks = days > MOST_BARS ? Math.ceil(days / MOST_BARS / 7) : 0;
  const span = (weeks * 7 || 1) * DAY_MS;
  const values = new Array(Math.max(FEWEST_BARS, Math.ceil((days * DAY_MS) / span))).fill(0);
  for (const time of times) values[values.length - 1 - Math.floor((end - time) / span)] += counts.get(isoDay(time)) ?? 0;
  const bars = values.map((value, index) => {
    const time = end - (values.length - 1 - index) * span;
    const [first, last] = [isoDay(time - span + DAY_MS), isoDay(time)];
    const text = weeks ? `${day(first)} to ${day(last)}` : day(last);
    return { text, value, title: `${text}: ${count(value, noun)}`, href: href(first, last) };
  });
  return figure(bars, `${noun.charAt(0).toUpperCase()}${noun.slice(1)}s by ${weeks > 1 ? `${weeks} weeks` : weeks ? "week" : "day"}`);
}

/** @param {Bar[]} bars @param {string} label */
function figure(bars, label) {
  const most = bars.reduce((sum, { value }) => Math.max(sum, value), 0);
  const table = el("div", { class: "scroll" });
  const details = el("details", null, el("summary", { text: "As a table" }), table);
  details.addEventListener("toggle", () => replace(table, details.open && tableOf(bars, label)));
  const places = [bars[0], bars[bars.length >> 1], bars[bars.length - 1]];
  return el(
    "figure",
    { class: "bars", "aria-label": label },
    el("div", { class: "muted", "aria-hidden": "true", text: `Highest bar: ${number(most)}` }),
    svg(
      "svg",
      { class: "chart", viewBox: `0 0 ${bars.length} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("path", { class: "axis", d: `M0 ${HEIGHT}H${bars.length}`, "vector-effect": "non-scaling-stroke" }),
      bars.map(({ value, title, href }, x) => {
        const height = Math.max(LEAST_HEIGHT, (HEIGHT * value) / most);
        const hit = svg("rect", { class: "hit", x, width: 1, height: HEIGHT });
        const bar = svg("rect", { class: "bar", x: x + 0.1, y: HEIGHT - height, width: 0.8, height });
        return value > 0 && svg("a", { href, tabindex: -1 }, svg("title", { text: title }), hit, bar);
      }),
    ),
    el("div", { class: "bars-labels muted", "aria-hidden": "true" }, places.map(({ text }) => el("span", { text }))),
    details,
  );
}

/** @param {Bar[]} bars @param {string} label */
function tableOf(bars, label) {
  const rows = bars.filter(({ value }) => value).reverse();
  return el(
    "table",
    { class: "table narrow" },
    el("caption", { class: "visually-hidden", text: label }),
    el("thead", null, el("tr", null, el("th", { scope: "col", text: "Date" }), el("th", { scope: "col", class: "number", text: "Number" }))),
    el("tbody", null, rows.map(({ text, value, href }) => el("tr", null, el("th", { scope: "row" }, el("a", { href, text })), el("td", { class: "number", text: number(value) })))),
  );
}

/** @param {number} time */
function isoDay(time) {
  return new Date(time).toISOString().slice(0, 10);
}
