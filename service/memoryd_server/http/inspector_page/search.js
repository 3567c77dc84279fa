/** The view of searches: results as you type, the parts of their scores, and the dropped candidates. */

import { call, latestOnly } from "./api.js";
import { announce, debounce, el, emptyBox, errorBox, loading, replace } from "./dom.js";
import { count, enumWords } from "./format.js";
import { missForm } from "./miss.js";
import { droppedTable, infoReport, resultCard, sentence, wordsToMark } from "./results.js";
import { barScale } from "./score_bar.js";
import { requestOf, searchForm, searchOf } from "./search_form.js";

/** @typedef {import("./results.js").Dropped} Dropped */
/** @typedef {import("./results.js").Info} Info */
/** @typedef {{results?: import("./results.js").Result[], info?: Info, dropped?: Dropped[]}} Response */

const TYPING_PAUSE_MS = 150;
const LINKS = ".results .result-link";

/** @param {HTMLElement} root @param {import("./main.js").Context} context @returns {() => void} Stops the view. */
export function render(root, context) {
  const answer = el("div", { class: "search-answer" });
  const notice = el("div", {});
  const runner = latestOnly(context.signal);
  const later = debounce(run, TYPING_PAUSE_MS);
  let revision = 0;
  const { form, read } = searchForm(searchOf(context.params), {
    typed: () => later(),
    changed: run,
    down: () => focusLink(answer, 0),
  });
  const miss = missForm(context, () => requestOf(read()), save);

  function save() {
    context.replaceParams({ ...read(), ...miss.params() });
  }

  function run() {
    later.cancel();
    save();
    replace(notice);
    const search = read();
    if (!search.q.trim()) {
      runner.cancel();
      show(emptyBox("Type a question or some words of a note. Results appear as you type."));
      return;
    }
    miss.refresh();
    if (!answer.querySelector(".results")) replace(answer, loading("Searching"));
    answer.setAttribute("aria-busy", "true");
    runner.run(
      (signal) => call("MemorySearch", { agentId: context.agentId, ...requestOf(search) }, { signal }),
      (/** @type {Response} */ response) => {
        const found = count(response.results?.length, "result");
        revision = Number(response.info?.indexRevision ?? 0);
        announce(found);
        show(answerOf(context.agentId, response, wordsToMark(search.q, response.info), found, miss.explain));
      },
      (error) => show(errorBox(error)),
    );
  }

  /** @param {import("./dom.js").Child} content */
  function show(content) {
    answer.removeAttribute("aria-busy");
    replace(answer, content);
  }

  /** @param {any} event Offer a new search if the index has changed since the last one. */
  function onIndex({ detail }) {
    if (!revision || Number(detail?.indexRevision ?? 0) <= revision || notice.firstChild) return;
    const again = el("button", { type: "button", class: "button", on: { click: run } }, "Search again");
    replace(notice, el("p", { class: "row" }, "The index has changed since this search. ", again));
  }

  answer.addEventListener("keydown", (event) => moveAmongLinks(answer, form, event));
  context.watch.addEventListener("index", onIndex);
  replace(root, el("h2", { tabindex: "-1" }, "Search"), form, miss.section, notice, answer);
  run();
  return () => {
    later.cancel();
    miss.stop();
    context.watch.removeEventListener("index", onIndex);
  };
}

/**
 * @param {string} agentId
 * @param {Response} response
 * @param {string[]} words The words to mark.
 * @param {string} found
 * @param {(candidate: Dropped) => void} explain
 */
function answerOf(agentId, { results = [], info = {}, dropped = [] }, words, found, explain) {
  const scale = barScale(results.map((result) => result.scoreDetail));
  const cards = results.map((result, index) => el("li", {}, resultCard(agentId, result, words, { rank: index + 1, scale })));
  return [
    infoReport(info, found),
    cards.length > 0 ? el("ol", { class: "results" }, cards) : emptyAnswer(info),
    dropped.length > 0 && [
      el("h3", {}, `Dropped: ${count(dropped.length, "candidate")}`),
      droppedTable(agentId, dropped, explain),
    ],
  ];
}

/** @param {Info} info */
function emptyAnswer({ emptyReason, emptyExplanation }) {
  const reason = emptyReason ? `${enumWords(emptyReason)}.` : "No results.";
  return el("div", { class: "empty-box" }, el("p", {}, el("strong", {}, reason)), el("p", {}, sentence(emptyExplanation)));
}

/** @param {HTMLElement} answer @param {number} index */
function focusLink(answer, index) {
  const links = /** @type {NodeListOf<HTMLElement>} */ (answer.querySelectorAll(LINKS));
  links[index]?.focus();
}

/** @param {HTMLElement} answer @param {HTMLElement} form @param {KeyboardEvent} event Move between the results by arrow keys. */
function moveAmongLinks(answer, form, event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const index = [...answer.querySelectorAll(LINKS)].indexOf(/** @type {Element} */ (event.target));
  if (!step || index < 0) return;
  event.preventDefault();
  if (index + step < 0) /** @type {HTMLElement} */ (form.querySelector("input[type=search]")).focus();
  else focusLink(answer, index + step);
}
