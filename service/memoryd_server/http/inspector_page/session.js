// @ts-check
/** The view of sessions: what a session loads when it starts, and what recall injects before a turn. */

import { call } from "./api.js";
import { announce, el, emptyBox, errorBox, loading, replace } from "./dom.js";
import { count, day, enumWords, number } from "./format.js";
import { latestOnly } from "./latest.js";
import { infoReport, placeLink, sentence, shownScore, visible } from "./results.js";
import { choice, field } from "./search_form.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {{path?: string, text?: string, truncated?: boolean, exists?: boolean, startLine?: number, endLine?: number, problem?: string}} LoadedFile */
/** @typedef {{name?: string, description?: string, parametersJson?: string}} ToolSchema */
/** @typedef {{files?: LoadedFile[], recallPrompt?: string, toolSchemas?: ToolSchema[], mainSession?: boolean}} Start */
/** @typedef {{path?: string, startLine?: number, endLine?: number, date?: string, score?: number, why?: string, origin?: string}} Item */
/** @typedef {{block?: string, items?: Item[], silentReason?: string, silentExplanation?: string, info?: import("./results.js").Info, tokensUsed?: number}} Recalled */

/** Longer texts are not kept in the address of the page. */
const MOST_TEXT_IN_ADDRESS = 2000;
const TRUSTED_ORIGINS = new Set(["ORIGIN_OWNER", "ORIGIN_AGENT"]);

/**
 * @param {HTMLElement} root
 * @param {Context} context
 * @returns {() => void} Stops what runs.
 */
export function render(root, context) {
  const save = () => context.replaceParams({ ...start.params(), ...recall.params() });
  const start = startSection(context, save);
  const recall = recallSection(context, save);
  replace(root, el("h2", { tabindex: "-1" }, "Session"), start.section, recall.section);
  return () => {
    start.stop();
    recall.stop();
  };
}

/**
 * Return the key of a session that is private like the main session, or "" for one that is not. It is the key of a
 * thread of its own: the daemon records what it returns for a key, and the real sessions must not be affected.
 * @param {string} agentId
 * @param {string} kind
 */
function sessionKey(agentId, kind) {
  return kind === "main" ? `agent:${agentId}:main:thread:inspector` : "";
}

/** @param {Context} context @param {() => void} save Called if the values of `params` change. */
function startSection(context, save) {
  const runner = latestOnly(context.signal);
  const answer = el("div", { class: "start-answer" }, loading("Loading"));
  const kind = choice(
    [
      ["main", "private main session"],
      ["other", "any other session (group, sub-agent)"],
    ],
    context.params.get("kind") ?? "main",
  );
  function load() {
    const request = {
      agentId: context.agentId,
      sessionKey: sessionKey(context.agentId, kind.value),
      includeRecallPrompt: true,
      promptMode: "PROMPT_MODE_FULL",
    };
    runner.run(
      (signal) => call("SessionContext", request, { signal }),
      (/** @type {Start} */ response) => replace(answer, startOf(context, response)),
      (error) => replace(answer, errorBox(error)),
    );
  }
  kind.addEventListener("change", () => {
    save();
    load();
  });
  load();
  const section = el(
    "section",
    { class: "card session", "aria-labelledby": "start-title" },
    el("h3", { id: "start-title" }, "What a session start loads"),
    field("session-kind", "Session", kind),
    answer,
  );
  return { section, stop: runner.cancel, params: () => ({ kind: kind.value === "main" ? "" : kind.value }) };
}

/** @param {Context} context @param {Start} response */
function startOf(context, { files = [], recallPrompt = "", toolSchemas = [] }) {
  const chars = files.reduce((total, file) => total + [...(file.text ?? "")].length, 0);
  return [
    el("p", {}, `${count(files.length, "file")}, ${count(chars, "character")}, in this order:`),
    files.length > 0
      ? el("ol", { class: "loaded" }, files.map((file) => el("li", {}, loadedFile(context, file))))
      : emptyBox("A session of this kind loads no file."),
    el("h4", {}, "Instructions for the model"),
    textDetails(`Section of the system prompt (${count([...recallPrompt].length, "character")})`, recallPrompt, "Empty: memory search is not available to this agent."),
    el(
      "details",
      {},
      el("summary", {}, `Tool definitions (${toolSchemas.length})`),
      toolSchemas.map((tool) => [
        el("h5", {}, el("code", {}, tool.name ?? "")),
        el("p", {}, tool.description ?? ""),
        textBlock(indented(tool.parametersJson ?? ""), `Parameters of ${tool.name}`),
      ]),
    ),
  ];
}

/** @param {Context} context @param {LoadedFile} file */
function loadedFile(context, file) {
  const { path = "", text = "", exists, truncated, problem, startLine, endLine } = file;
  return [
    el(
      "div",
      { class: "row" },
      exists ? placeLink(context.agentId, { path, startLine, endLine }) : el("bdi", { class: "path muted" }, visible(path)),
      !exists && el("span", { class: "badge" }, "does not exist"),
      truncated && el("span", { class: "badge badge-warn" }, "cut to fit the limit"),
      problem && el("span", { class: "badge badge-bad" }, "cannot be read"),
      exists && !problem && el("span", { class: "muted" }, count([...text].length, "character")),
    ),
    problem && el("p", {}, sentence(problem)),
    text && textDetails("Text", text, ""),
  ];
}

/** @param {string} title @param {string} text @param {string} ifEmpty */
function textDetails(title, text, ifEmpty) {
  return el("details", {}, el("summary", {}, title), text ? textBlock(text, title) : el("p", { class: "muted" }, ifEmpty));
}

/** @param {string} text @param {string} label Return a text that can be scrolled by keyboard. */
function textBlock(text, label) {
  return el("pre", { class: "code text-block", dir: "auto", tabindex: "0", role: "group", "aria-label": label }, text);
}

/** @param {string} json */
function indented(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** @param {Context} context @param {() => void} save Called if the values of `params` change. */
function recallSection(context, save) {
  const runner = latestOnly(context.signal);
  const answer = el("div", { class: "recall-answer" });
  const text = el("textarea", { rows: "3", placeholder: "For example: where do we keep the backups?" });
  text.value = context.params.get("text") ?? "";
  const tokens = el("input", { type: "number", min: "1", step: "1", placeholder: "setting", value: context.params.get("tokens") ?? "" });
  const button = el("button", { type: "submit", class: "button primary" }, "Recall");

  async function run() {
    if (!text.value.trim()) {
      runner.cancel();
      replace(answer, emptyBox("Type what a user would say."));
      return;
    }
    replace(answer, loading("Recalling"));
    const request = {
      agentId: context.agentId,
      text: text.value,
      explain: true,
      ...(tokens.value ? { maxTokens: Number(tokens.value) } : {}),
    };
    await runner.run(
      (signal) => call("MemoryRecall", request, { signal }),
      (/** @type {Recalled} */ response) => {
        announce(count(response.items?.length ?? 0, "recalled passage"));
        replace(answer, recalled(context, response));
      },
      (error) => replace(answer, errorBox(error)),
    );
  }
  const form = el(
    "form",
    {
      class: "recall-form",
      on: {
        submit: (event) => {
          event.preventDefault();
          save();
          run();
        },
        keydown: (event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
        },
      },
    },
    field("recall-text", "Message of the user", text),
    el("div", { class: "search-main" }, field("recall-tokens", "Token budget", tokens), button),
  );
  if (text.value) run();
  const section = el(
    "section",
    { class: "card session", "aria-labelledby": "recall-title" },
    el("h3", { id: "recall-title" }, "What recall would inject before a turn"),
    el("p", { class: "muted" }, "Nothing is recorded as shown: a session that gets the same block later is not affected."),
    form,
    answer,
  );
  const params = () => ({ text: text.value.length > MOST_TEXT_IN_ADDRESS ? "" : text.value, tokens: tokens.value });
  return { section, stop: runner.cancel, params };
}

/** @param {Context} context @param {Recalled} response */
function recalled(context, { block = "", items = [], silentReason, silentExplanation, info, tokensUsed = 0 }) {
  if (!block) {
    const reason = el("p", {}, el("strong", {}, `${enumWords(silentReason)}.`));
    return [
      el("div", { class: "empty-box" }, reason, el("p", {}, sentence(silentExplanation))),
      info?.servedMode && infoReport(info),
    ];
  }
  return [
    infoReport(info, `${count(items.length, "passage")} · ${number(tokensUsed)} tokens`),
    el("h4", {}, "Passages"),
    el("ol", { class: "recalled" }, items.map((item) => el("li", {}, recalledItem(context, item)))),
    el("h4", {}, "The block, exactly as it is injected"),
    textBlock(block, "The block"),
  ];
}

/** @param {Context} context @param {Item} item */
function recalledItem(context, item) {
  const { date, score, why, origin = "ORIGIN_AGENT" } = item;
  return [
    el(
      "div",
      { class: "row" },
      placeLink(context.agentId, item),
      el("span", { class: "result-score" }, "score ", el("strong", {}, shownScore(score))),
      date && el("span", { class: "muted" }, day(date)),
      !TRUSTED_ORIGINS.has(origin) && el("span", { class: "badge badge-warn" }, `origin: ${enumWords(origin)}`),
    ),
    why && el("div", { class: "muted" }, why),
  ];
}
