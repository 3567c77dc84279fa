// @ts-check
/** The lines of a file with its chunks drawn beside them. */

import { call } from "./api.js";
import { announce, el, errorBox, loading, replace } from "./dom.js";
import { count, number } from "./format.js";

/**
 * Chunks of the same lines, which are parts of a long line, are one bar. `index` is that of the first of them.
 * @typedef {{start: number, end: number, index: number, size: number, lane: number}} Bar
 * @typedef {{startLine?: number, endLine?: number}} LineRange
 * @typedef {{first: number, lines: string[], chunks: LineRange[], isCut: boolean}} Part
 * @typedef {{isTranscript: boolean, isIndexed: boolean, line: number}} Options `line` is 0 for none.
 */

const LINES_AT_A_TIME = 2000;
/** A block of lines is laid out only when it is near the visible part of the page. */
const LINES_IN_BLOCK = 100;
/** Lines shown before the wanted line of a long file. */
const LINES_BEFORE = 200;
const MOST_LANES = 6;

/** The shown part of one file: lines `first` to `last`. `element` has the text, and `details` the list of chunks. */
export class FileText {
  /**
   * @param {import("./main.js").Context} context
   * @param {string} path
   * @param {Options} options
   */
  constructor({ agentId, signal }, path, { isTranscript, isIndexed, line }) {
    this.request = { agentId, path, includeChunks: true };
    this.signal = signal;
    this.isIndexed = isIndexed;
    this.wanted = line;
    this.noun = isTranscript ? "message" : "line";
    this.first = 1;
    this.last = 0;
    this.total = 0;
    /** @type {LineRange[]} */
    this.chunks = [];
    /** @type {Bar[]} */
    this.bars = [];
    /** @type {HTMLElement[]} The lines from `first` on. */
    this.lines = [];
    /** @type {HTMLElement[]} */
    this.blocks = [];
    /** @type {number | undefined} Index of the bar whose lines are highlighted. */
    this.marked = undefined;
    this.note = el("p", { class: "muted" }, loading("Loading the text"));
    this.caption = el("p", { class: "file-caption" });
    this.body = el("div", {
      class: "file-lines",
      on: {
        pointerover: (event) => this.mark(barOf(event.target) ?? barOf(document.activeElement)),
        pointerleave: () => this.mark(barOf(document.activeElement)),
        focusin: (event) => this.mark(barOf(event.target)),
        focusout: () => this.mark(undefined),
        keydown: (event) => this.onKey(event),
      },
    });
    const button = (/** @type {() => Promise<void>} */ load) =>
      el("button", { type: "button", class: "button", hidden: true, on: { click: () => this.load(load) } });
    this.earlier = button(() => this.loadFrom(Math.max(1, this.first - LINES_AT_A_TIME)));
    this.later = button(async () => this.append(await this.fetchPart(this.last + 1)));
    this.problem = el("div");
    this.element = el("div", { class: "file-text" }, [this.note, this.caption, this.earlier, this.body, this.later, this.problem]);
    this.list = el("ol", { class: "chunk-list" });
    this.summary = el("summary");
    this.details = el("details", { class: "file-details", hidden: true, on: { toggle: () => this.listChunks() } }, this.summary, this.list);
  }

  /** Load the first part of the file, or the part with the wanted line, and scroll to this line. */
  async open() {
    const { wanted } = this;
    await this.load(async () => {
      await this.loadFrom(wanted > LINES_AT_A_TIME / 2 ? wanted - LINES_BEFORE : 1);
      // The lines before the wanted one can be longer than a response.
      if (this.last < wanted && wanted <= this.total) await this.loadFrom(wanted);
    });
    const line = this.lines[wanted - this.first];
    if (line) requestAnimationFrame(() => line.scrollIntoView({ block: "center" }));
    else if (wanted) announce(`The file has no ${this.noun} ${number(wanted)}.`);
  }

  /** @param {() => Promise<void>} loadPart */
  async load(loadPart) {
    this.earlier.disabled = this.later.disabled = true;
    try {
      await loadPart();
      announce(this.note.textContent ?? "");
    } catch (error) {
      if (!this.signal.aborted) replace(this.problem, errorBox(error));
    }
    this.earlier.disabled = this.later.disabled = false;
  }

  /** @param {number} startLine */
  async loadFrom(startLine) {
    const part = await this.fetchPart(startLine);
    this.first = part.first;
    this.chunks = [];
    this.lines = [];
    this.blocks = [];
    replace(this.body);
    this.append(part);
  }

  /**
   * @param {number} startLine
   * @returns {Promise<Part>}
   */
  async fetchPart(startLine) {
    const reply = await call("MemoryGet", { ...this.request, startLine, lineCount: LINES_AT_A_TIME }, { signal: this.signal });
    const { text = "", startLine: first = startLine, endLine = 0, totalLines = 0, chunks = [], truncated = false } = reply;
    this.total = totalLines;
    return { first, lines: endLine >= first ? text.split("\n") : [], chunks, isCut: truncated };
  }

  /** @param {Part} part */
  append({ first, lines, chunks, isCut }) {
    const blocks = [];
    for (let index = 0; index < lines.length; index += LINES_IN_BLOCK) {
      const rows = lines.slice(index, index + LINES_IN_BLOCK).map((text, row) => this.line(first + index + row, row, text));
      const block = el("div", { class: "line-block" }, rows);
      block.style.containIntrinsicBlockSize = `auto ${rows.length * 1.3}rem`;
      this.lines.push(...rows);
      blocks.push(block);
    }
    // A chunk that begins before this part is known from the part before.
    this.chunks.push(...(first === this.first ? chunks : chunks.filter(({ startLine = 1 }) => startLine >= first)));
    this.blocks.push(...blocks);
    this.body.append(...blocks);
    this.last = first + lines.length - 1;
    this.drawChunks();
    this.describe(lines.length === 0);
    replace(this.problem, isCut && el("p", { class: "muted", text: `The last ${this.noun} is longer than 256 KiB and was cut.` }));
  }

  /**
   * @param {number} n
   * @param {number} row
   * @param {string} text
   */
  line(n, row, text) {
    const isWanted = n === this.wanted;
    const line = el(
      "div",
      { class: isWanted ? "line line-wanted" : "line", "aria-current": isWanted && "location" },
      // The number is generated content, which is not copied with the text.
      el("span", { class: "line-number", dataset: { n: String(n) } }),
      el("span", { class: "line-text", dir: "auto", text: text.replace(/\r$/, "") }),
    );
    line.style.gridRow = String(row + 1);
    return line;
  }

  /** @param {boolean} isEnd */
  describe(isEnd) {
    const { first, last, total, noun } = this;
    const shown = first > 1 || last < total ? `, ${number(first)}–${number(last)} shown` : "";
    this.note.textContent = total ? `${count(total, noun)}${shown}` : "The file is empty.";
    this.earlier.hidden = first <= 1;
    this.earlier.textContent = `Earlier ${noun}s, from ${number(Math.max(1, first - LINES_AT_A_TIME))}`;
    this.later.hidden = last >= total || isEnd;
    this.later.textContent = `More ${noun}s, from ${number(last + 1)}`;
  }

  drawChunks() {
    this.bars = barsOf(this.chunks);
    this.marked = undefined;
    const lanes = String(Math.max(1, ...this.bars.map(({ lane }) => lane + 1)));
    for (const bar of this.body.querySelectorAll(".chunk-bar")) bar.remove();
    for (const block of this.blocks) block.style.setProperty("--lanes", lanes);
    if (this.isIndexed) for (const line of this.lines) line.classList.add("line-no-chunk");
    this.bars.forEach((bar, index) => this.drawBar(bar, index));
    this.caption.textContent = this.captionOf(undefined);
    this.details.hidden = this.bars.length === 0;
    this.summary.textContent = `Chunks (${number(this.chunks.length)})`;
    this.listChunks();
  }

  /**
   * Draw a bar. Its parts in other blocks than the first are not buttons.
   * @param {Bar} bar
   * @param {number} index
   */
  drawBar(bar, index) {
    const label = this.words(bar);
    const lines = this.linesOf(bar);
    for (let row = 0; row < lines.length; ) {
      const block = /** @type {HTMLElement} */ (lines[row].parentElement);
      const rows = lines.filter((line) => line.parentElement === block);
      const ends = `${row === 0 ? " chunk-start" : ""}${row + rows.length === lines.length ? " chunk-end" : ""}`;
      const props = { class: `chunk-bar${ends}`, title: label, dataset: { bar: String(index) } };
      const part = row > 0 ? el("div", props) : el("button", {
        ...props,
        type: "button",
        tabindex: index === 0 ? "0" : "-1",
        "aria-label": label,
        // Safari does not focus a button that is clicked.
        on: { click: (event) => event.target.focus() },
      });
      part.style.gridArea = `${rows[0].style.gridRowStart} / ${bar.lane + 1} / span ${rows.length}`;
      block.append(part);
      row += rows.length;
    }
    for (const line of lines) line.classList.remove("line-no-chunk");
  }

  /** @param {Bar} bar */
  linesOf({ start, end }) {
    return this.lines.slice(Math.max(0, start - this.first), end - this.first + 1);
  }

  /** @param {Bar} bar */
  words({ start, end, index, size }) {
    // Without the first lines, the numbers of the chunks are not known.
    const name = this.first > 1 ? "chunk" : size > 1 ? `chunks ${index + 1}–${index + size}` : `chunk ${index + 1}`;
    return `${name}: ${this.noun}${start === end ? "" : "s"} ${rangeText(start, end)}`;
  }

  /** @param {Bar | undefined} bar */
  captionOf(bar) {
    if (bar) return this.words(bar);
    if (this.bars.length) return "Bars: chunks of the index. Point at a bar, or use the arrow keys on it, to see its lines.";
    return this.isIndexed && this.lines.length ? "The index has no chunk of this text." : "";
  }

  /** Write the chunks as a list, if it is open. */
  listChunks() {
    if (!this.details.open) return;
    const outside = this.lines.flatMap((line, index) => (line.matches(".line-no-chunk") ? [this.first + index] : []));
    replace(
      this.list,
      this.bars.map((bar, index) =>
        el("li", null, el("button", { type: "button", class: "link-button", text: this.words(bar), on: { click: () => this.focusBar(index) } })),
      ),
      outside.length > 0 && el("li", { class: "muted", text: `In no chunk: ${this.noun}s ${rangesText(outside)}` }),
    );
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const current = barOf(event.target);
    if (!step || current === undefined || !this.bars[current + step]) return;
    event.preventDefault();
    this.focusBar(current + step);
  }

  /** @param {number} index */
  focusBar(index) {
    const buttons = this.body.querySelectorAll("button");
    for (const button of buttons) button.tabIndex = button.dataset.bar === String(index) ? 0 : -1;
    [...buttons].find((button) => button.tabIndex === 0)?.focus();
  }

  /**
   * Highlight the lines of a bar instead of those of the last one.
   * @param {number | undefined} index
   */
  mark(index) {
    if (index === this.marked) return;
    for (const marked of this.body.querySelectorAll(".marked")) marked.classList.remove("marked");
    this.marked = index;
    const bar = index === undefined ? undefined : this.bars[index];
    this.caption.textContent = this.captionOf(bar);
    if (!bar) return;
    for (const part of [...this.linesOf(bar), ...this.body.querySelectorAll(`[data-bar="${index}"]`)]) part.classList.add("marked");
  }
}

/**
 * Return the index of a bar by its element.
 * @param {EventTarget | null} element
 */
function barOf(element) {
  return element instanceof HTMLElement && element.dataset.bar ? Number(element.dataset.bar) : undefined;
}

/**
 * Return the bars of chunks, which are in their order. Each is in the first lane that is free.
 * @param {LineRange[]} chunks
 */
function barsOf(chunks) {
  /** @type {Bar[]} */
  const bars = [];
  /** @type {number[]} */
  const ends = [];
  chunks.forEach(({ startLine: start = 1, endLine: end = 1 }, index) => {
    const last = bars.at(-1);
    if (last?.start === start && last.end === end) {
      last.size += 1;
      return;
    }
    const free = ends.findIndex((taken) => taken < start);
    const lane = free >= 0 ? free : Math.min(ends.length, MOST_LANES - 1);
    ends[lane] = end;
    bars.push({ start, end, index, size: 1, lane });
  });
  return bars;
}

/**
 * @param {number} start
 * @param {number} end
 */
function rangeText(start, end) {
  return start === end ? number(start) : `${number(start)}–${number(end)}`;
}

/**
 * Return numbers in ascending order as text, for example `1–3, 7`.
 * @param {number[]} numbers
 */
function rangesText(numbers) {
  /** @type {[number, number][]} */
  const ranges = [];
  for (const n of numbers) {
    const last = ranges.at(-1);
    if (last?.[1] === n - 1) last[1] = n;
    else ranges.push([n, n]);
  }
  return ranges.map(([start, end]) => rangeText(start, end)).join(", ");
}
