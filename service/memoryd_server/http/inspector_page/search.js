// @ts-check
/** The view of searches: results as you type, what their scores are made of, and what was dropped. */

import { call } from "./api.js";
import { announce, debounce, el, emptyBox, errorBox, loading, replace } from "./dom.js";
import { count, enumWords } from "./format.js";
import { latestOnly } from "./latest.js";
import { missForm } from "./miss.js";
import { barScale, droppedTable, infoReport, resultCard, sentence, wordsToMark } from "./results.js";
import { requestOf, searchForm, searchOf } from "./search_form.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./results.js").Result} Result */
/** @typedef {import("./results.js").Dropped} Dropped */
/** @typedef {import("./results.js").Info} Info */
/** @typedef {{results?: Result[], info?: Info, dropped?: Dropped[]}} Response */
/** @typedef {import("./search_form.js").Search} Search */

const TYPING_PAUSE_MS = 150;

/**
 * @param {HTMLElement} root
 * @param {Context} context
 * @returns {() => void} Stops what runs.
 */
export function render(root, context) {
  const answer = el("div", { class: "search-answer" });
  const notice = el("div", {});
  const runner = latestOnly(context.signal);
  let revision = "";

  const { form, read } = searchForm(searchOf(context.params), {
    typed: () => later(),
    changed: () => run(),
    down: () => focusLink(answer, 0),
  });
  const miss = missForm(context, () => requestOf(read()), save);
  const later = debounce(run, TYPING_PAUSE_MS);

  function save() {
    context.replaceParams({ ...read(), ...miss.params() });
  }

  async function run() {
    later.cancel();
    save();
    replace(notice);
    const search = read();
    if (!search.q.trim()) {
      runner.cancel();
      showIdle(emptyBox("Type a question or some words of a note. Results appear as you type."));
      return;
    }
    miss.refresh();
    if (!answer.querySelector(".results")) replace(answer, loading("Searching"));
    answer.setAttribute("aria-busy", "true");
    const request = { agentId: context.agentId, ...requestOf(search) };
    await runner.run(
      (signal) => call("MemorySearch", request, { signal }),
      (response) => show(response, search),
      (error) => showIdle(errorBox(error)),
    );
  }

  /** @param {...import("./dom.js").Child} content */
  function showIdle(...content) {
    answer.removeAttribute("aria-busy");
    replace(answer, ...content);
  }

  /** @param {Response} response @param {Search} search */
  function show(response, search) {
    revision = response.info?.indexRevision ?? "";
    const found = count(response.results?.length ?? 0, "result");
    announce(found);
    showIdle(answerOf(context, response, search, found, miss.explain));
  }

  function onIndex(/** @type {Event} */ event) {
    const current = /** @type {CustomEvent} */ (event).detail?.indexRevision ?? "";
    if (!revision || !current || Number(current) <= Number(revision) || notice.firstChild) return;
    const again = el("button", { type: "button", class: "button", on: { click: () => run() } }, "Search again");
    replace(notice, el("p", { class: "row" }, "The index has changed since this search. ", again));
  }

  answer.addEventListener("keydown", (event) => moveAmongResults(answer, form, event));
  context.watch.addEventListener("index", onIndex);
  replace(root, el("h2", { tabindex: "-1" }, "Search"), form, miss.section, notice, answer);
  run();
  return () => {
    later.cancel();
    runner.cancel();
    miss.stop();
    context.watch.removeEventListener("index", onIndex);
  };
}

/**
 * @param {Context} context
 * @param {Response} response
 * @param {Search} search
 * @param {string} found
 * @param {(candidate: Dropped) => void} explain
 */
function answerOf(context, { results = [], info = {}, dropped = [] }, search, found, explain) {
  const words = wordsToMark(search.q, info);
  const scale = barScale(results);
  const cards = results.map((result, index) => el("li", {}, resultCard(context, result, { rank: index + 1, words, scale })));
  return [
    infoReport(info, found),
    results.length > 0 ? el("ol", { class: "results" }, cards) : emptyAnswer(info),
    dropped.length > 0 &&
      el(
        "section",
        { "aria-labelledby": "dropped-title" },
        el("h3", { id: "dropped-title" }, `Dropped (${dropped.length})`),
        el("p", { class: "muted" }, "The best candidates that are not results."),
        droppedTable(context, dropped, explain),
      ),
  ];
}

/** @param {Info} info */
function emptyAnswer(info) {
  return el(
    "div",
    { class: "empty-box" },
    el("p", {}, el("strong", {}, info.emptyReason ? `${enumWords(info.emptyReason)}.` : "No results.")),
    info.emptyExplanation && el("p", {}, sentence(info.emptyExplanation)),
  );
}

/** @param {HTMLElement} answer @param {number} index */
function focusLink(answer, index) {
  const links = /** @type {NodeListOf<HTMLElement>} */ (answer.querySelectorAll(".results .result-link"));
  links[index]?.focus();
  return links[index];
}

/**
 * Move between the links of the results by the arrow keys, and back to the field from the first one.
 * @param {HTMLElement} answer
 * @param {HTMLFormElement} form
 * @param {KeyboardEvent} event
 */
function moveAmongResults(answer, form, event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const links = [...answer.querySelectorAll(".results .result-link")];
  const index = links.indexOf(/** @type {Element} */ (event.target));
  if (!step || index < 0) return;
  event.preventDefault();
  if (index + step < 0) /** @type {HTMLElement} */ (form.querySelector("input[type=search]")).focus();
  else focusLink(answer, index + step);
}
