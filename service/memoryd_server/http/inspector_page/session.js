/** The view of sessions: what a session loads when it starts, and what recall injects before a turn. */

import { call, latestOnly } from "./api.js";
import { announce, breakable, el, emptyBox, errorBox, loading, replace, visible } from "./dom.js";
import { count, day, enumWords } from "./format.js";
import { infoReport, placeLink, scoreAndOrigin, sentence } from "./results.js";
import { choice, field, input } from "./search_form.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./results.js").Passage & Record<string, any>} Item A passage, or a file that is loaded. */

const MAIN = "main";
/** Longer texts are not kept in the address of the page. */
const MOST_TEXT_IN_ADDRESS = 2000;

/** @param {HTMLElement} root @param {Context} context */
export function render(root, context) {
  const save = () => context.replaceParams({ ...start.params(), ...recall.params() });
  const start = startSection(context, save);
  const recall = recallSection(context, save);
  replace(root, el("h2", { tabindex: "-1" }, "Session"), start.section, recall.section);
}

/** @param {string} title @param {...import("./dom.js").Child} children Return a section with this title. */
function titled(title, ...children) {
  return el("section", { class: "card", "aria-label": title }, el("h3", {}, title), children);
}

/** @param {Context} context @param {() => void} save Called if the values of `params` change. */
function startSection({ agentId, params, signal: left }, save) {
  const runner = latestOnly(left);
  const answer = el("div", { class: "session-answer" }, loading("Loading"));
  const kind = choice([[MAIN, "private main session"], ["other", "any other session (group, sub-agent)"]], params.get("kind") ?? MAIN);
  function load() {
    const request = {
      agentId,
      // The key names a private session, as the main session is, that does not exist: the daemon records what it
      // returns for a key. Without a key, the session is not private.
      sessionKey: kind.value === MAIN ? `agent:${agentId}:main:thread:inspector` : "",
      includeRecallPrompt: true,
      promptMode: "PROMPT_MODE_FULL",
    };
    runner.run(
      (signal) => call("SessionContext", request, { signal }),
      (response) => replace(answer, startOf(agentId, response)),
      (error) => replace(answer, errorBox(error)),
    );
  }
  kind.addEventListener("change", () => {
    save();
    load();
  });
  load();
  const section = titled("What a session start loads", field("session-kind", "Session", kind), answer);
  return { section, params: () => ({ kind: kind.value === MAIN ? "" : kind.value }) };
}

/** @param {string} agentId @param {{files?: Item[], items?: Item[]} & Record<string, any>} response */
function startOf(agentId, { files = [], recallPrompt = "", toolSchemas = [] }) {
  const chars = files.reduce((total, file) => total + length(file.text), 0);
  return [
    el("p", {}, `${count(files.length, "file")}, ${count(chars, "character")}, in this order:`),
    el("ol", { class: "session-list" }, files.map((file) => el("li", {}, loadedFile(agentId, file)))),
    el("h4", {}, "Instructions for the model"),
    el(
      "details",
      {},
      el("summary", {}, `Section of the system prompt (${count(length(recallPrompt), "character")})`),
      recallPrompt ? textBlock(recallPrompt, "Section of the system prompt") : emptyBox("Memory search is disabled for the agent."),
    ),
    el(
      "details",
      {},
      el("summary", {}, `Tool definitions (${toolSchemas.length})`),
      toolSchemas.map(({ name = "", description = "", parametersJson = "{}" }) => [
        el("h5", {}, el("code", {}, name)),
        el("p", {}, description),
        textBlock(JSON.stringify(JSON.parse(parametersJson), null, 2), `Parameters of ${name}`),
      ]),
    ),
  ];
}

/** @param {string | undefined} text Return the number of code points, in which the daemon counts. */
function length(text = "") {
  return [...text].length;
}

/** @param {string} agentId @param {Item} file */
function loadedFile(agentId, file) {
  const { path = "", text, exists, truncated, problem } = file;
  return [
    el(
      "div",
      { class: "row" },
      exists ? placeLink(agentId, file) : el("bdi", { class: "path muted" }, visible(path)),
      !exists && el("span", { class: "badge" }, "does not exist"),
      truncated && el("span", { class: "badge badge-warn" }, "cut to fit the limit"),
      problem && el("span", { class: "badge badge-bad" }, "cannot be read"),
      exists && !problem && el("span", { class: "muted" }, count(length(text), "character")),
    ),
    problem && el("p", {}, sentence(problem)),
    text && el("details", {}, el("summary", {}, "Text"), textBlock(text, `Text of ${path}`)),
  ];
}

/** @param {string} text @param {string} label Return a text that can be scrolled by keyboard. */
function textBlock(text, label) {
  return el("pre", { class: "code text-block", dir: "auto", tabindex: "0", role: "group", "aria-label": label }, breakable(text));
}

/** @param {Context} context @param {() => void} save Called if the values of `params` change. */
function recallSection({ agentId, params, signal: left }, save) {
  const runner = latestOnly(left);
  const answer = el("div", { class: "session-answer" });
  const text = el("textarea", { rows: "3", placeholder: "For example: where do we keep the backups?" });
  text.value = params.get("text") ?? "";
  const tokens = input("number", params.get("tokens"), { min: "1", placeholder: "default" });

  function run() {
    if (!text.value.trim()) {
      runner.cancel();
      replace(answer, emptyBox("Type what a user would say."));
      return;
    }
    replace(answer, loading("Recalling"));
    const request = { agentId, text: text.value, explain: true, ...(tokens.value && { maxTokens: Number(tokens.value) }) };
    runner.run(
      (signal) => call("MemoryRecall", request, { signal }),
      (response) => {
        announce(count(response.items?.length, "recalled passage"));
        replace(answer, recalled(agentId, response));
      },
      (error) => replace(answer, errorBox(error)),
    );
  }
  const form = el(
    "form",
    { class: "session-answer" },
    field("recall-text", "Message of the user", text),
    el("div", { class: "fields" }, field("recall-tokens", "Token budget", tokens), el("button", { class: "button primary" }, "Recall")),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    save();
    run();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  if (text.value) run();
  const section = titled(
    "What recall would inject before a turn",
    el("p", { class: "muted" }, "The passages are not recorded as shown to a session, so the recall of real turns does not change."),
    form,
    answer,
  );
  return { section, params: () => ({ text: text.value.length > MOST_TEXT_IN_ADDRESS ? "" : text.value, tokens: tokens.value }) };
}

/** @param {string} agentId @param {{files?: Item[], items?: Item[]} & Record<string, any>} response */
function recalled(agentId, { block, items = [], silentReason, silentExplanation, info = {}, tokensUsed }) {
  if (!block) {
    const reason = el("p", {}, el("strong", {}, `${enumWords(silentReason)}.`));
    return [el("div", { class: "empty-box" }, reason, el("p", {}, sentence(silentExplanation))), info.servedMode && infoReport(info)];
  }
  return [
    infoReport(info, `${count(items.length, "passage")} · ${count(tokensUsed, "token")}`),
    el("h4", {}, "Passages"),
    el("ol", { class: "session-list" }, items.map((item) => el("li", {}, recalledItem(agentId, item)))),
    el("h4", {}, "The block, exactly as it is injected"),
    textBlock(block, "The block"),
  ];
}

/** @param {string} agentId @param {Item} item */
function recalledItem(agentId, item) {
  const date = item.date && el("span", { class: "muted" }, day(item.date));
  return [el("div", { class: "row" }, placeLink(agentId, item), scoreAndOrigin(item), date), el("div", { class: "muted" }, item.why)];
}
