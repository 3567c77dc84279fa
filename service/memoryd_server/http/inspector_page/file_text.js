// @ts-check
/** The lines of a file with its chunks drawn beside them. */

import { call } from "./api.js";
import { announce, el, errorBox, loading, replace } from "./dom.js";
import { count, number } from "./format.js";

/** @typedef {{start: number, end: number, lane: number}} Chunk */
/** @typedef {{first: number, element: HTMLElement, size: number}} Block */
/**
 * @typedef {{first: number, last: number, lines: string[], chunks: {startLine?: number, endLine?: number}[], next: number,
 *   isCut: boolean}} Part
 */

const LINES_AT_A_TIME = 2000;
/** A block of lines is laid out only when it is near the visible part of the page. */
const LINES_IN_BLOCK = 100;
/** Lines shown before the line that the address names, if the file is long. */
const LINES_BEFORE = 200;
const MOST_LANES = 6;
const MOST_CHUNKS_LISTED = 500;

/** The shown part of one file: lines `first` to `last`, without gaps. */
export class FileText {
  /**
   * @param {import("./main.js").Context} context
   * @param {string} path
   * @param {{isTranscript: boolean, isIndexed: boolean, line: number}} options `line` is 0 for none.
   */
  constructor(context, path, { isTranscript, isIndexed, line }) {
    this.request = { agentId: context.agentId, path, includeChunks: true };
    this.signal = context.signal;
    this.isIndexed = isIndexed;
    this.target = line;
    this.noun = isTranscript ? "message" : "line";
    this.first = 0;
    this.last = 0;
    this.total = 0;
    /** @type {Chunk[]} */
    this.chunks = [];
    /** Keys of the chunks: parts of the file can contain the same chunk. */
    this.known = new Set();
    /** @type {Map<number, HTMLElement>} */
    this.lines = new Map();
    /** @type {Block[]} */
    this.blocks = [];
    /** @type {HTMLElement[]} The first bar of each chunk. */
    this.bars = [];
    /** @type {Chunk | null} */
    this.current = null;
    this.uncovered = "";
    this.caption = el("p", { class: "file-caption" });
    this.note = el("p", { class: "muted" });
    this.body = el("div", { class: "file-lines" });
    this.earlier = el("button", { type: "button", class: "button", on: { click: () => this.loadEarlier() } });
    this.later = el("button", { type: "button", class: "button", on: { click: () => this.loadLater() } });
    this.earlier.hidden = this.later.hidden = true;
    this.problem = el("div");
    this.chunkList = el("ol", { class: "chunk-list" });
    this.chunkSummary = el("summary", { text: "Chunks" });
    this.chunkDetails = el("details", { class: "file-details" }, this.chunkSummary, this.chunkList);
    this.chunkDetails.addEventListener("toggle", () => this.listChunks());
    this.element = el("div", { class: "file-text" }, this.note, this.caption, this.earlier, this.body, this.later, this.problem);
    this.follow();
  }

  /** Follow the pointer and the keys on the bars. */
  follow() {
    this.body.addEventListener("pointerover", (event) => this.onPoint(event));
    this.body.addEventListener("pointerleave", () => this.mark(this.focusedChunk()));
    this.body.addEventListener("focusin", () => this.mark(this.focusedChunk()));
    this.body.addEventListener("focusout", () => this.mark(null));
    this.body.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** Load the first part of the file, or the part with the wanted line. */
  async load() {
    replace(this.body, loading("Loading the text"));
    const start = this.target > LINES_AT_A_TIME / 2 ? this.target - LINES_BEFORE : 1;
    let part = await this.fetchPart(start, LINES_AT_A_TIME);
    // The lines before the wanted one can be longer than a response.
    if (part.last < this.target && part.next) part = await this.fetchPart(this.target, LINES_AT_A_TIME);
    this.show(part);
    this.showTarget();
  }

  /**
   * Show only this part of the file.
   * @param {Part} part
   */
  show(part) {
    replace(this.body);
    this.first = part.first;
    this.blocks = [];
    this.lines.clear();
    this.known.clear();
    this.chunks = [];
    this.append(part);
  }

  /**
   * @param {number} startLine
   * @param {number} lineCount
   * @returns {Promise<Part>}
   */
  async fetchPart(startLine, lineCount) {
    const reply = await call("MemoryGet", { ...this.request, startLine, lineCount }, { signal: this.signal });
    this.total = reply.totalLines ?? 0;
    const first = reply.startLine ?? startLine;
    const last = reply.endLine ?? 0;
    const lines = last >= first ? (reply.text ?? "").split("\n") : [];
    const chunks = reply.chunks ?? [];
    return { first, last: first + lines.length - 1, lines, chunks, next: reply.nextStartLine ?? 0, isCut: reply.truncated ?? false };
  }

  /**
   * @param {number} start
   * @param {number} end
   */
  addChunk(start, end) {
    const key = `${start}-${end}`;
    if (this.known.has(key)) return;
    this.known.add(key);
    this.chunks.push({ start, end, lane: 0 });
  }

  /** @param {Part} part */
  append(part) {
    const blocks = this.createBlocks(part);
    this.blocks.push(...blocks);
    this.body.append(...blocks.map((block) => block.element));
    for (const { startLine = 1, endLine = 1 } of part.chunks) this.addChunk(startLine, endLine);
    this.last = part.last;
    this.finishPart(part);
  }

  /** @param {Part} part */
  createBlocks({ first, lines }) {
    /** @type {Block[]} */
    const blocks = [];
    for (let index = 0; index < lines.length; index += LINES_IN_BLOCK) {
      const texts = lines.slice(index, index + LINES_IN_BLOCK);
      const element = el("div", { class: "line-block" });
      texts.forEach((text, row) => element.append(this.createLine(first + index + row, row, text)));
      element.style.containIntrinsicBlockSize = `auto ${texts.length * 1.5}em`;
      blocks.push({ first: first + index, element, size: texts.length });
    }
    return blocks;
  }

  /**
   * @param {number} n
   * @param {number} row
   * @param {string} text
   */
  createLine(n, row, text) {
    const isTarget = n === this.target;
    const line = el(
      "div",
      { class: isTarget ? "line line-target" : "line", "aria-current": isTarget ? "location" : null },
      // The number is in a pseudo-element: it is not copied with the text.
      el("span", { class: "line-number", dataset: { n: String(n) } }),
      el("span", { class: "line-text", dir: "auto", text: text.replace(/\r$/, "") }),
    );
    line.style.gridRow = String(row + 1);
    this.lines.set(n, line);
    return line;
  }

  /** @param {Part} part */
  finishPart(part) {
    this.drawChunks();
    const { first, last, total } = this;
    this.earlier.hidden = first <= 1;
    this.earlier.textContent = `Earlier ${this.noun}s (${number(Math.max(1, first - LINES_AT_A_TIME))}–${number(first - 1)})`;
    this.later.hidden = last >= total || part.lines.length === 0;
    this.later.textContent = `More ${this.noun}s (from ${number(last + 1)} of ${number(total)})`;
    replace(this.problem, part.isCut && el("p", { class: "muted", text: `The last ${this.noun} is longer than 256 KiB and was cut.` }));
    const shown = first > 1 || last < total ? `, ${number(first)}–${number(last)} shown` : "";
    this.note.textContent = total ? `${count(total, this.noun)}${shown}` : "The file is empty.";
  }

  async loadLater() {
    await this.loadMore(async () => this.append(await this.fetchPart(this.last + 1, LINES_AT_A_TIME)));
  }

  async loadEarlier() {
    const start = Math.max(1, this.first - LINES_AT_A_TIME);
    await this.loadMore(async () => this.show(await this.fetchPart(start, LINES_AT_A_TIME)));
  }

  /** @param {() => Promise<void>} loadPart */
  async loadMore(loadPart) {
    this.earlier.disabled = this.later.disabled = true;
    try {
      await loadPart();
      announce(this.note.textContent ?? "");
    } catch (error) {
      if (!this.signal.aborted) replace(this.problem, errorBox(error));
    } finally {
      this.earlier.disabled = this.later.disabled = false;
    }
  }

  /** Draw each chunk as bars, one in each block that it is in. Chunks that overlap are in different lanes. */
  drawChunks() {
    const lanes = assignLanes(this.chunks);
    this.bars = [];
    for (const block of this.blocks) {
      for (const bar of block.element.querySelectorAll(".chunk-bar")) bar.remove();
      block.element.style.setProperty("--lanes", String(lanes));
    }
    this.chunks.forEach((chunk, index) => this.drawChunk(chunk, index));
    this.bars.forEach((bar, index) => (bar.tabIndex = index === 0 ? 0 : -1));
    const inChunk = new Set();
    for (const { start, end } of this.chunks) for (let n = start; n <= end; n++) inChunk.add(n);
    const marks = this.isIndexed;
    for (const [n, line] of this.lines) line.classList.toggle("line-no-chunk", marks && !inChunk.has(n));
    this.uncovered = marks ? ranges([...this.lines.keys()].filter((n) => !inChunk.has(n))) : "";
    this.caption.textContent = this.captionOf(null);
    this.listChunks();
  }

  /**
   * @param {Chunk} chunk
   * @param {number} index
   */
  drawChunk(chunk, index) {
    let isFirst = true;
    for (const { first, element, size } of this.blocks) {
      const from = Math.max(chunk.start, first);
      const to = Math.min(chunk.end, first + size - 1);
      if (from > to) continue;
      const kinds = [from === chunk.start ? "chunk-start" : "", to === chunk.end ? "chunk-end" : ""].join(" ");
      const bar = el("button", {
        type: "button",
        class: `chunk-bar ${kinds}`,
        tabindex: "-1",
        "aria-hidden": isFirst ? null : "true",
        "aria-label": this.chunkWords(index),
        dataset: { chunk: String(index) },
        on: { click: () => bar.focus() },
      });
      bar.style.gridRow = `${from - first + 1} / ${to - first + 2}`;
      bar.style.gridColumn = String(chunk.lane + 1);
      element.append(bar);
      if (isFirst) this.bars.push(bar);
      isFirst = false;
    }
  }

  /** @param {number} index */
  chunkWords(index) {
    const { start, end } = this.chunks[index];
    const name = this.first === 1 ? `chunk ${number(index + 1)}` : "chunk";
    const lines = start === end ? `${this.noun} ${number(start)}` : `${this.noun}s ${number(start)}–${number(end)}`;
    return `${name}: ${lines}`;
  }

  /** @param {Chunk | null} chunk */
  captionOf(chunk) {
    if (chunk) return this.chunkWords(this.chunks.indexOf(chunk));
    if (!this.chunks.length) return this.isIndexed && this.lines.size ? "The index has no chunk of this text." : "";
    return "Bars: chunks of the index. Point at a bar, or use the arrow keys on it, to see its lines.";
  }

  /** Write the chunks as a list, if it is open. */
  listChunks() {
    this.chunkDetails.hidden = !this.chunks.length;
    this.chunkSummary.textContent = `Chunks of the text below (${number(this.chunks.length)})`;
    if (!this.chunkDetails.open) return;
    const items = this.chunks.slice(0, MOST_CHUNKS_LISTED).map((_, index) => {
      const show = () => this.bars[index]?.focus();
      return el("li", {}, el("button", { type: "button", class: "link-button", on: { click: show }, text: this.chunkWords(index) }));
    });
    const left = this.chunks.length - items.length;
    replace(
      this.chunkList,
      items,
      left > 0 && el("li", { text: `${number(left)} more` }),
      this.uncovered && el("li", { class: "muted", text: `In no chunk: ${this.noun}s ${this.uncovered}` }),
    );
  }

  showTarget() {
    const line = this.lines.get(this.target);
    if (line) requestAnimationFrame(() => line.scrollIntoView({ block: "center" }));
    else if (this.target) announce(`The file has no ${this.noun} ${number(this.target)}.`);
  }

  focusedChunk() {
    const bar = document.activeElement;
    return bar instanceof HTMLElement && this.body.contains(bar) ? this.chunks[Number(bar.dataset.chunk)] ?? null : null;
  }

  /** @param {PointerEvent} event */
  onPoint(event) {
    const bar = event.target instanceof HTMLElement ? event.target.dataset.chunk : undefined;
    this.mark(bar === undefined ? this.focusedChunk() : this.chunks[Number(bar)]);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const index = this.bars.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const bar = step && index >= 0 ? this.bars[index + step] : undefined;
    if (!bar) return;
    event.preventDefault();
    this.bars[index].tabIndex = -1;
    bar.tabIndex = 0;
    bar.focus();
  }

  /**
   * Highlight the lines of a chunk instead of those of the last one.
   * @param {Chunk | null} chunk
   */
  mark(chunk) {
    if (chunk === this.current) return;
    for (const [old, isOn] of /** @type {[Chunk | null, boolean][]} */ ([[this.current, false], [chunk, true]])) {
      if (!old) continue;
      for (let n = old.start; n <= old.end; n++) this.lines.get(n)?.classList.toggle("line-in-chunk", isOn);
      const bars = this.body.querySelectorAll(`[data-chunk="${this.chunks.indexOf(old)}"]`);
      for (const bar of bars) bar.classList.toggle("chunk-current", isOn);
    }
    this.current = chunk;
    this.caption.textContent = this.captionOf(chunk);
  }
}

/**
 * Sort the chunks, give each the first lane that is free, and return the number of lanes.
 * @param {Chunk[]} chunks
 */
function assignLanes(chunks) {
  /** @type {number[]} */
  const ends = [];
  chunks.sort((a, b) => a.start - b.start || a.end - b.end);
  for (const chunk of chunks) {
    const free = ends.findIndex((end) => end < chunk.start);
    chunk.lane = free >= 0 ? free : Math.min(ends.length, MOST_LANES - 1);
    ends[chunk.lane] = chunk.end;
  }
  return Math.max(1, ends.length);
}

/**
 * Return numbers in order as text, for example `1–3, 7`.
 * @param {number[]} numbers
 */
function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  /** @type {[number, number][]} */
  const found = [];
  for (const n of sorted) {
    const last = found.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else found.push([n, n]);
  }
  const words = found.slice(0, 20).map(([from, to]) => (from === to ? number(from) : `${number(from)}–${number(to)}`));
  return words.join(", ") + (found.length > 20 ? ", …" : "");
}
