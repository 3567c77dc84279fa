/** Elements of the page. Text becomes text nodes only, so text of notes cannot become markup. */

import { ApiError } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";
/** Attributes with an address. Only places of this page are allowed. */
const ADDRESSES = new Set(["href", "src", "action", "formaction", "data", "xlink:href"]);
/** Control characters, and those that have no width or change the direction of text. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
/** Shorter words are marked only where they are a complete word of the text. */
const SHORTEST_PREFIX = 3;

/** @typedef {Node | string | number | null | undefined | false | any[]} Child */
/** @typedef {{class?: string, text?: string | number, on?: Record<string, (event: any) => void>, dataset?: Record<string, string>} & Record<string, any>} Props */

/**
 * Return a new HTML element.
 * @type {<K extends keyof HTMLElementTagNameMap>(tag: K, props?: Props | null, ...children: Child[]) => HTMLElementTagNameMap[K]}
 */
export const el = (tag, props, ...children) => filled(document.createElement(tag), props, children);

/**
 * Return a new SVG element.
 * @type {<K extends keyof SVGElementTagNameMap>(tag: K, props?: Props | null, ...children: Child[]) => SVGElementTagNameMap[K]}
 */
export const svg = (tag, props, ...children) => filled(document.createElementNS(SVG, tag), props, children);

/** @template {HTMLElement | SVGElement} T @param {T} element @param {Props | null | undefined} props @param {Child[]} children @returns {T} */
function filled(element, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (key === "text") element.textContent = String(value ?? "");
    else if (key === "on") for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    else if (key === "dataset") Object.assign(element.dataset, value);
    else setAttribute(element, key, value);
  }
  element.append(...nodes(children));
  return element;
}

/** @param {Element} element @param {string} key @param {unknown} value */
function setAttribute(element, key, value) {
  const name = key.toLowerCase();
  if (name === "style" || name.startsWith("on") || name === "srcdoc") throw new TypeError(`attribute ${key} is not allowed`);
  if (value === false || value === null || value === undefined) return;
  if (ADDRESSES.has(name) && !String(value).startsWith("#")) throw new TypeError(`${key} must begin with "#"`);
  element.setAttribute(key, value === true ? "" : String(value));
}

/** @param {Child[]} children @returns {(Node | string)[]} */
function nodes(children) {
  return children.flatMap((child) => {
    if (Array.isArray(child)) return nodes(child);
    if (child === null || child === undefined || child === false) return [];
    return [child instanceof Node ? child : String(child)];
  });
}

/** Replace the children of a node. @param {Element | DocumentFragment} node @param {...Child} children */
export function replace(node, ...children) {
  node.replaceChildren(...nodes(children));
}

/** Return a path with escapes for hidden characters, so that it is not shown as another path. @param {string} path */
export function visible(path) {
  return path.replace(HIDDEN, (character) => `\\u{${character.charCodeAt(0).toString(16)}}`);
}

/**
 * Return the text with `<mark>` around the words that begin with one of the given words.
 * @param {string} text
 * @param {Iterable<string>} words
 * @returns {DocumentFragment}
 */
export function marked(text, words) {
  const fragment = document.createDocumentFragment();
  const pattern = markPattern(words);
  let end = 0;
  for (const match of pattern ? text.matchAll(pattern) : []) {
    fragment.append(text.slice(end, match.index), el("mark", null, match[0]));
    end = match.index + match[0].length;
  }
  fragment.append(text.slice(end));
  return fragment;
}

/** @param {Iterable<string>} words @returns {RegExp | null} */
function markPattern(words) {
  const longestFirst = [...new Set(words)].filter((word) => word.trim()).sort((a, b) => b.length - a.length);
  if (!longestFirst.length) return null;
  const letter = "[\\p{L}\\p{N}_]";
  const alternatives = longestFirst.map((word) => {
    const literal = word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    if (/[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}\p{sc=Thai}]/u.test(word)) return literal;
    const rest = word.length < SHORTEST_PREFIX ? `(?!${letter})` : `${letter}*`;
    return `(?<!${letter})${literal}${rest}`;
  });
  return new RegExp(alternatives.join("|"), "giu");
}

/**
 * Return a function that calls `fn` once, `ms` after its last call. `cancel()` drops a call that waits.
 * @template {any[]} A
 * @param {(...args: A) => void} fn
 * @param {number} ms
 * @returns {((...args: A) => void) & {cancel: () => void}}
 */
export function debounce(fn, ms) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const later = (/** @type {A} */ ...args) => {
    clearTimeout(timer);
    timer = setTimeout(fn, ms, ...args);
  };
  return Object.assign(later, { cancel: () => clearTimeout(timer) });
}

/** Write a text into the live region, which screen readers read out. @param {string} text */
export function announce(text) {
  const live = document.getElementById("live");
  if (live) live.textContent = text;
}

/**
 * Return the address of a view.
 * @param {string} agentId
 * @param {string} view
 * @param {Record<string, string | number | null | undefined> | URLSearchParams} [params] Empty values are left out.
 */
export function viewHref(agentId, view, params = {}) {
  const pairs = params instanceof URLSearchParams ? [...params] : Object.entries(params);
  const query = new URLSearchParams();
  for (const [key, value] of pairs) if (value !== null && value !== undefined && value !== "") query.set(key, String(value));
  const text = query.toString();
  return `#/${encodeURIComponent(agentId)}/${view}${text ? `?${text}` : ""}`;
}

/**
 * Return a long text in parts between which a line may break. Browsers take minutes to lay out one long run of combining
 * characters.
 * @param {string} text
 * @returns {Child[]}
 */
export function breakable(text) {
  const parts = text.match(/[^]{1,1000}/gu) ?? [];
  return parts.map((part, index) => [index > 0 && el("wbr"), part]);
}

/** Return a box with an error and what can be done about it. @param {unknown} error */
export function errorBox(error) {
  const { message, reason, violations } = error instanceof ApiError ? error : new ApiError({ message: String(error), status: 0 });
  return el(
    "div",
    { class: "error-box", role: "alert" },
    el("p", null, message),
    violations.length > 0 && el("ul", null, violations.map(({ field = "", description = "" }) => el("li", null, field && el("code", null, field), field && ": ", description))),
    reason && el("p", { class: "muted" }, el("code", null, reason)),
  );
}

/** Return a box for a view without content. @param {string} text */
export function emptyBox(text) {
  return el("div", { class: "empty-box" }, el("p", null, text));
}

/** Return a note that something is being loaded. @param {string} text */
export function loading(text) {
  return el("p", { class: "muted loading" }, text);
}
