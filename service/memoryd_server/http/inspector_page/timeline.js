// @ts-check
import { el, replace } from "./dom.js";

/**
 * @param {HTMLElement} root
 * @param {import("./main.js").Context} context
 * @returns {void | (() => void)}
 */
export function render(root, context) {
  replace(root, el("h2", { tabindex: -1, text: "Timeline" }));
}
