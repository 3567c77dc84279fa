/** The lines of a file, with its chunks as bars next to them. */

import { call } from "./api.js";
import { announce, breakable, el, errorBox, replace } from "./dom.js";
import { count, number } from "./format.js";

/**
 * A bar has all chunks of the same lines; a long line has several. `index` is that of the first chunk.
 * @typedef {{start: number, end: number, index: number, size: number, lane: number}} Bar
 * @typedef {{startLine?: number, endLine?: number}} LineRange
 */

const LINES_AT_A_TIME = 2000;
/** A block of lines is laid out only when it is near the visible part of the page. */
const LINES_IN_BLOCK = 100;
/** Lines of a long file that are shown before the wanted line. */
const LINES_BEFORE = 200;
const MOST_LANES = 6;
const HINT = "Each bar is a chunk. Point at a bar, or use the arrow keys on it, to highlight its lines.";

/** The lines `first` to `last` of a file. `element` has the text, and `details` the list of chunks. */
export class FileText {
  first = 1;
  last = 0;
  total = 0;
  /** @type {LineRange[]} */
  chunks = [];
  /** @type {Bar[]} */
  bars = [];
  /** @type {HTMLElement[]} */
  lines = [];
  /** @type {number | undefined} */
  marked;
  note = el("div", { class: "muted", text: "Loading the text" });
  caption = el("p", { class: "file-caption" });
  body = el("div", {
    class: "file-lines",
    on: {
      pointerover: (event) => this.mark(barOf(event.target) ?? barOf(document.activeElement)),
      pointerleave: () => this.mark(barOf(document.activeElement)),
      focusin: (event) => this.mark(barOf(event.target)),
      focusout: () => this.mark(undefined),
      keydown: (event) => this.onKey(event),
    },
  });
  earlier = this.button(() => this.loadFrom(Math.max(1, this.first - LINES_AT_A_TIME)));
  later = this.button(() => this.loadFrom(this.last + 1));
  element = el("div", { class: "file-text" }, this.note, this.caption, this.earlier, this.body, this.later);
  summary = el("summary");
  list = el("ol", { class: "chunk-list" });
  details = el("details", { class: "file-details", hidden: true, on: { toggle: () => this.listChunks() } }, this.summary, this.list);

  /**
   * @param {import("./main.js").Context} context
   * @param {string} path
   * @param {{noun: string, isIndexed: boolean, wanted: number}} options `wanted` is a line, or 0.
   */
  constructor({ agentId, signal }, path, { noun, isIndexed, wanted }) {
    this.request = { agentId, path, includeChunks: true, lineCount: LINES_AT_A_TIME };
    this.signal = signal;
    this.noun = noun;
    this.isIndexed = isIndexed;
    this.wanted = wanted;
  }

  /** @param {() => Promise<void>} load */
  button(load) {
    return el("button", { type: "button", class: "button", hidden: true, on: { click: () => this.run(load) } });
  }

  /** Load the first part of the file, or the part with the wanted line, and scroll to this line. */
  async open() {
    const { wanted } = this;
    await this.run(async () => {
      await this.loadFrom(wanted > LINES_AT_A_TIME / 2 ? wanted - LINES_BEFORE : 1);
      // The file can have fewer lines.
      if (!this.lines.length && this.total) await this.loadFrom(1);
      // The lines before the wanted one can be longer than a response, and than many responses together.
      if (this.last < wanted && wanted <= this.total) await this.loadFrom(wanted);
    });
    const line = this.lines[wanted - this.first];
    if (!line?.parentElement) return;
    // The height of a block that is not laid out is an estimate.
    line.parentElement.style.contentVisibility = "visible";
    line.scrollIntoView({ block: "center" });
  }

  /** @param {() => Promise<void>} load */
  async run(load) {
    this.earlier.disabled = this.later.disabled = true;
    try {
      await load();
      announce(this.note.textContent ?? "");
    } catch (error) {
      if (!this.signal.aborted) replace(this.note, errorBox(error));
    }
    this.earlier.disabled = this.later.disabled = false;
  }

  /**
   * Load lines, and show them after the lines before them, or in place of other lines.
   * @param {number} startLine
   */
  async loadFrom(startLine) {
    const reply = await call("MemoryGet", { ...this.request, startLine }, { signal: this.signal });
    const { text = "", endLine = 0, totalLines = 0, chunks = [], truncated } = reply;
    const texts = endLine < startLine ? [] : text.split("\n");
    if (startLine !== this.last + 1) {
      replace(this.body);
      this.first = startLine;
      this.lines = [];
      this.chunks = [];
    }
    // A chunk that begins before these lines was in the response with the lines before.
    this.chunks.push(...chunks.filter((/** @type {LineRange} */ { startLine: start = 1 }) => !this.lines.length || start >= startLine));
    this.addLines(startLine, texts);
    this.last = startLine + texts.length - 1;
    this.total = totalLines;
    this.drawChunks();
    this.describe(truncated);
  }

  /** @param {number} first @param {string[]} texts */
  addLines(first, texts) {
    for (let from = 0; from < texts.length; from += LINES_IN_BLOCK) {
      const lines = texts.slice(from, from + LINES_IN_BLOCK).map((text, row) => this.line(first + from + row, row, text));
      const block = el("div", { class: "line-block" }, lines);
      block.style.containIntrinsicBlockSize = `auto ${lines.length * 1.3}rem`;
      this.body.append(block);
      this.lines.push(...lines);
    }
  }

  /** @param {number} n @param {number} row @param {string} text */
  line(n, row, text) {
    const isWanted = n === this.wanted;
    const line = el(
      "div",
      { class: `line${this.isIndexed ? " no-chunk" : ""}`, "aria-current": isWanted && "location" },
      // The number is generated content, which is not copied with the text.
      el("span", { class: "line-number", dataset: { line: String(n) } }),
      el("span", { class: "line-text", dir: "auto" }, breakable(text.replace(/\r$/, ""))),
    );
    line.style.gridRow = String(row + 1);
    return line;
  }

  /** @param {boolean} [isCut] */
  describe(isCut) {
    const { first, last, total, noun } = this;
    const shown = first > 1 || last < total ? `, ${rangeText(first, last)} shown` : "";
    const cut = isCut ? `. The last ${noun} is longer than 256 KiB and was cut.` : "";
    this.note.textContent = total ? count(total, noun) + shown + cut : "The file is empty.";
    this.earlier.hidden = first === 1;
    this.earlier.textContent = `Earlier ${noun}s`;
    this.later.hidden = last >= total || this.lines.length === 0;
    this.later.textContent = `More ${noun}s`;
  }

  drawChunks() {
    for (const bar of this.body.querySelectorAll("[data-bar]")) bar.remove();
    this.bars = barsOf(this.chunks);
    this.body.style.setProperty("--lanes", String(Math.max(1, ...this.bars.map(({ lane }) => lane + 1))));
    this.bars.forEach((bar, index) => this.drawBar(bar, index));
    this.marked = -1;
    this.mark(undefined);
    this.details.hidden = this.bars.length === 0;
    this.summary.textContent = `Chunks (${number(this.chunks.length)})`;
    this.listChunks();
  }

  /**
   * Draw a bar: a button, and elements for its parts in further blocks.
   * @param {Bar} bar
   * @param {number} index
   */
  drawBar(bar, index) {
    const lines = this.linesOf(bar);
    const title = this.words(bar);
    for (let from = 0; from < lines.length; ) {
      const block = lines[from].parentElement;
      const rows = lines.filter((line) => line.parentElement === block).length;
      const ends = `${from === 0 ? " chunk-start" : ""}${from + rows === lines.length ? " chunk-end" : ""}`;
      const part = el(from === 0 ? "button" : "div", { class: `chunk-bar${ends}`, title, dataset: { bar: String(index) } });
      if (from === 0) {
        part.setAttribute("aria-label", title);
        part.tabIndex = index === 0 ? 0 : -1;
        // Safari does not focus a button that is clicked.
        part.addEventListener("click", () => part.focus());
      }
      part.style.gridArea = `${lines[from].style.gridRowStart} / ${bar.lane + 1} / span ${rows}`;
      block?.append(part);
      from += rows;
    }
    for (const line of lines) line.classList.remove("no-chunk");
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

  /** Write the chunks as a list, if it is open. */
  listChunks() {
    if (!this.details.open) return;
    const item = (/** @type {Bar} */ bar, /** @type {number} */ index) =>
      el("li", null, el("button", { class: "button", text: this.words(bar), on: { click: () => this.focusBar(index) } }));
    const outside = this.lines.filter((line) => line.matches(".no-chunk")).length;
    replace(this.list, this.bars.map(item), outside > 0 && el("li", { class: "muted", text: `${count(outside, this.noun)} in no chunk` }));
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const index = barOf(event.target);
    if (!step || index === undefined) return;
    event.preventDefault();
    this.focusBar(index + step);
  }

  /** @param {number} index */
  focusBar(index) {
    const buttons = [...this.body.querySelectorAll("button")];
    const next = buttons.find((button) => barOf(button) === index);
    if (!next) return;
    for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  }

  /**
   * Highlight the lines of a bar instead of those of the last one.
   * @param {number | undefined} index
   */
  mark(index) {
    if (index === this.marked) return;
    this.marked = index;
    for (const marked of this.body.querySelectorAll(".marked")) marked.classList.remove("marked");
    const bar = this.bars[index ?? -1];
    this.caption.textContent = bar ? this.words(bar) : this.bars.length ? HINT : this.isIndexed && this.lines.length ? "No chunk has these lines." : "";
    if (!bar) return;
    for (const part of [...this.linesOf(bar), ...this.body.querySelectorAll(`[data-bar="${index}"]`)]) part.classList.add("marked");
  }
}

/** @param {EventTarget | null} element */
function barOf(element) {
  return element instanceof HTMLElement && element.dataset.bar ? Number(element.dataset.bar) : undefined;
}

/**
 * Return the bars of chunks that are in their order. Each is in the first lane that is free.
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

/** @param {number} start @param {number} end */
function rangeText(start, end) {
  return start === end ? number(start) : `${number(start)}–${number(end)}`;
}
