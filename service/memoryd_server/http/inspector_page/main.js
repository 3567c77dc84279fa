/** The frame of the page: sign-in, agents, routes, keys and the stream of index states. */

import { ApiError, eachPage, events, isSignedIn, signIn, signOut, watch } from "./api.js";
import { announce, el, emptyBox, errorBox, loading, replace, viewHref } from "./dom.js";
import * as files from "./files.js";
import * as overview from "./overview.js";
import * as search from "./search.js";
import * as session from "./session.js";
import * as timeline from "./timeline.js";

/** @typedef {{agentId: string, workspace?: string, default?: boolean, enabled?: boolean, indexState?: string, mayEdit?: boolean}} Agent */
/** @typedef {Record<string, string | number | null | undefined>} Params */
/**
 * The context of a view. `watch` dispatches CustomEvent `index` with a WatchIndexResponse as detail; `index` is the last one.
 * `signal` is aborted when the view is left.
 * @typedef {{agentId: string, agent: Agent, params: URLSearchParams, go: (view: string, params?: Params) => void, replaceParams: (params: Params) => void, signal: AbortSignal, watch: EventTarget, readonly index: any}} Context
 */
/** @typedef {{agentId: string, view: string, params: URLSearchParams}} Route */

/** @type {Record<string, {title: string, key: string, render: (root: HTMLElement, context: any) => void | (() => void)}>} */
const VIEWS = {
  overview: { title: "Overview", key: "o", render: overview.render },
  search: { title: "Search", key: "s", render: search.render },
  files: { title: "Files", key: "f", render: files.render },
  timeline: { title: "Timeline", key: "t", render: timeline.render },
  session: { title: "Session", key: "n", render: session.render },
};
const FIRST_VIEW = "overview";
/** Views that also work for an agent whose memory search is disabled. */
const WORKS_DISABLED = new Set(["session"]);
const PREFIX_KEY_MS = 1500;
/** A hidden page keeps its stream for this time. Browsers limit the connections to one host to six. */
const HIDDEN_MS = 30000;

const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const view = $("view");
const agentSelect = /** @type {HTMLSelectElement} */ ($("agent"));

/** @type {Agent[]} */
let agents = [];
/** @type {(() => void)} Stops the current view. */
let stopView = () => {};
/** @type {{agentId: string, view: string} | null} */
let shown = null;
let indexEvents = new EventTarget();
/** @type {{agentId: string, last: any, controller: AbortController} | null} */
let stream = null;
let keysEnabled = true;
let prefixTime = -Infinity;

/** Load the agents, and show the view of the hash. @param {boolean} [hasSignedIn] */
async function start(hasSignedIn = false) {
  replace(view, loading("Loading…"));
  try {
    if (!(await isSignedIn())) {
      showSignIn(hasSignedIn ? "The browser did not keep the session cookie. Allow cookies for this page." : "");
      return;
    }
    agents = [];
    await eachPage("ListAgents", {}, "agents", (page) => void agents.push(...page));
  } catch (error) {
    if (isSignedOut(error)) showSignIn("");
    else replace(view, errorBox(error), el("button", { class: "button", text: "Try again", on: { click: () => start() } }));
    return;
  }
  showAccount(true);
  replace(agentSelect, agents.map(({ agentId, enabled }) => el("option", { value: agentId, text: enabled ? agentId : `${agentId} (disabled)` })));
  $("agent-label").hidden = agents.length < 2;
  showRoute(hasSignedIn);
}

/** @param {unknown} error */
function isSignedOut(error) {
  return error instanceof ApiError && error.reason === "SIGN_IN_REQUIRED";
}

/** @param {boolean} signedIn */
function showAccount(signedIn) {
  $("account").hidden = $("tabs").hidden = !signedIn;
}

/** @param {string} note */
function showSignIn(note) {
  leaveView();
  setStream(null);
  agents = [];
  shown = null;
  showAccount(false);
  document.title = "Sign in – memoryd inspector";
  const field = el("input", { id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
  const button = el("button", { class: "button primary", text: "Sign in" });
  const problem = el("div");
  const form = el(
    "form",
    { class: "card sign-in" },
    el("input", { autocomplete: "username", value: "memoryd", hidden: true }),
    el("h2", { tabindex: -1, text: "Sign in" }),
    note && el("p", { role: "status", text: note }),
    el("div", { class: "field" }, el("label", { for: "token", text: "Token" }), field),
    button,
    problem,
    el("p", { class: "muted" }, el("code", { text: "memoryd token new" }), " creates a token, and ", el("code", { text: "memoryd token list" }), " lists the tokens. The session ends after 12 hours, or when the token is revoked."),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = field.value.trim();
    field.value = "";
    button.disabled = true;
    replace(problem);
    try {
      await signIn(token);
      await start(true);
    } catch (error) {
      replace(problem, errorBox(error));
      button.disabled = false;
      field.focus();
    }
  });
  replace(view, form);
  field.focus();
}

/** @returns {Route} */
function currentRoute() {
  const [, path = "", query = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(location.hash) ?? [];
  const [agentId = "", name = ""] = path.split("/").map(decoded);
  return { agentId: agentId || ((agents.find((agent) => agent.default) ?? agents[0])?.agentId ?? ""), view: Object.hasOwn(VIEWS, name) ? name : FIRST_VIEW, params: new URLSearchParams(query) };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function leaveView() {
  const stop = stopView;
  stopView = () => {};
  stop();
}

/** @param {boolean} focus Whether to move the focus to the heading if this is another view than before. */
function showRoute(focus) {
  if ($("account").hidden) return;
  const route = currentRoute();
  const agent = agents.find(({ agentId }) => agentId === route.agentId);
  const changed = shown?.agentId !== route.agentId || shown.view !== route.view;
  leaveView();
  shown = { agentId: route.agentId, view: route.view };
  replace($("tabs"), Object.entries(VIEWS).map(([name, { title }]) => el("a", { href: viewHref(route.agentId, name), "aria-current": name === route.view && "page", text: title })));
  agentSelect.value = agent ? agent.agentId : "";
  document.title = `${VIEWS[route.view].title} – ${route.agentId} – memoryd inspector`;
  setStream(agent?.enabled ? agent.agentId : null);
  renderView(route, agent);
  if (!changed) return;
  window.scrollTo(0, 0);
  if (focus) /** @type {HTMLElement | null} */ (view.querySelector("h2[tabindex]"))?.focus({ preventScroll: true });
}

/** @param {Route} route @param {Agent | undefined} agent */
function renderView({ agentId, view: name, params }, agent) {
  const { title, render } = VIEWS[name];
  if (!agent || !(agent.enabled || WORKS_DISABLED.has(name))) {
    const missing = agents.length ? `There is no agent ${agentId}, or the token may not read it.` : "The token may not read any agent.";
    const problem = agent ? `Memory search is disabled for the agent ${agentId}, so it has no index.` : missing;
    replace(view, el("h2", { tabindex: -1, text: title }), emptyBox(problem));
    return;
  }
  const controller = new AbortController();
  const root = el("div", { class: `view-${name}` });
  indexEvents = new EventTarget();
  replace(view, root);
  /** @type {Context} */
  const context = {
    agentId,
    agent,
    params,
    go: (other, its) => void (location.hash = viewHref(agentId, other, its)),
    replaceParams: (its) => history.replaceState(null, "", viewHref(agentId, name, its)),
    signal: controller.signal,
    watch: indexEvents,
    get index() {
      return stream?.last ?? null;
    },
  };
  const stop = render(root, context);
  stopView = () => {
    controller.abort();
    stop?.();
  };
}

/** @param {string | null} agentId The agent to follow, or null for none. */
function setStream(agentId) {
  if (stream?.agentId === agentId) return;
  stream?.controller.abort();
  stream = null;
  $("connection").textContent = "";
  if (agentId === null) return;
  const opened = { agentId, last: /** @type {any} */ (null), controller: new AbortController() };
  stream = opened;
  const receive = (/** @type {any} */ state) => {
    if (stream !== opened) return;
    opened.last = state;
    indexEvents.dispatchEvent(new CustomEvent("index", { detail: state }));
  };
  watch(agentId, receive, { signal: opened.controller.signal });
}

/** Close the stream of a page that stays hidden, and open it again when the page is shown. */
function followVisibility() {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => setStream(null), HIDDEN_MS);
    else if (shown && agents.some(({ agentId, enabled }) => enabled && agentId === shown?.agentId)) setStream(shown.agentId);
  });
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const { key, target, timeStamp } = event;
  const isTyping = target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
  if (!keysEnabled || isTyping || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if ($("account").hidden || document.querySelector("dialog[open]")) return;
  const name = timeStamp - prefixTime < PREFIX_KEY_MS && Object.keys(VIEWS).find((each) => VIEWS[each].key === key);
  prefixTime = key === "g" ? timeStamp : -Infinity;
  if (key === "/") focusSearch();
  else if (key === "?") showKeys();
  else if (name) location.hash = viewHref(currentRoute().agentId, name);
  else return;
  event.preventDefault();
}

function focusSearch() {
  const field = () => /** @type {HTMLElement | null} */ (view.querySelector("input[type=search]"));
  if (shown?.view === "search") field()?.focus();
  else {
    window.addEventListener("hashchange", () => field()?.focus(), { once: true });
    location.hash = viewHref(currentRoute().agentId, "search");
  }
}

function showKeys() {
  const rows = [["/", "Focus the search field"], ...Object.values(VIEWS).map(({ key, title }) => [`g ${key}`, title]), ["?", "Show the keys"], ["Esc", "Close this window"]];
  const enabled = el("input", { type: "checkbox", checked: keysEnabled, on: { change: () => (keysEnabled = enabled.checked) } });
  const dialog = el(
    "dialog",
    { "aria-labelledby": "keys-title", on: { close: () => dialog.remove() } },
    el("h2", { id: "keys-title", text: "Keys" }),
    el("dl", { class: "keys" }, rows.map(([keys, text]) => [el("dt", null, keys.split(" ").map((key) => el("kbd", { text: key }))), el("dd", { text })])),
    el("p", null, el("label", null, enabled, " Enable these keys")),
    el("form", { method: "dialog" }, el("button", { class: "button", text: "Close" })),
  );
  document.body.append(dialog);
  dialog.showModal();
}

async function leave() {
  try {
    await signOut();
    showSignIn("You are signed out.");
  } catch (error) {
    if (!isSignedOut(error)) $("connection").textContent = "Not signed out: the daemon does not answer.";
  }
}

window.addEventListener("hashchange", () => showRoute(true));
document.addEventListener("keydown", onKey);
agentSelect.addEventListener("change", () => (location.hash = viewHref(agentSelect.value, currentRoute().view)));
$("sign-out").addEventListener("click", leave);
$("keys-button").addEventListener("click", showKeys);
// `#view` is not a route.
$("skip").addEventListener("click", (event) => (event.preventDefault(), view.focus()));
events.addEventListener("signed-out", () => $("account").hidden || showSignIn("Your session has ended. Sign in to continue."));
events.addEventListener("connection", (/** @type {any} */ { detail }) => ($("connection").textContent = detail.connected ? "" : "Reconnecting…"));
followVisibility();
start();
