/** Calls to the daemon: each is a POST to the origin of the page. The session is an HttpOnly cookie. */

/** @typedef {{field?: string, description?: string}} Violation */

/** Events of the connection: `signed-out`, and `connection` with the detail {connected: boolean}. */
export const events = new EventTarget();

const SIGN_IN_REQUIRED = "SIGN_IN_REQUIRED";
const PAGE_SIZE = 1000;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 15000;

/** An error reply of the daemon, or `UNREACHABLE` with status 0 if there was no reply. */
export class ApiError extends Error {
  /** @param {{reason?: string, message?: string, status: number, retryAfterSeconds?: number, violations?: Violation[]}} reply */
  constructor({ reason = "", message = "", status, retryAfterSeconds, violations = [] }) {
    super(message || reason || `HTTP status ${status}`);
    this.name = "ApiError";
    this.reason = reason;
    this.status = status;
    this.retryAfterSeconds = retryAfterSeconds;
    this.violations = violations;
  }
}

/**
 * Return the response of a method, in proto3 JSON: fields with default values are missing.
 * @param {string} method
 * @param {object} request
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function call(method, request, { signal } = {}) {
  const response = await post(`call/${method}`, request, signal);
  return response.json();
}

/**
 * Call `onItems` with the items of each page of a list until `limit` of them were read. Return whether there are more.
 * @param {string} method
 * @param {object} request
 * @param {string} field The field of the response that has the items.
 * @param {(items: any[]) => void} onItems
 * @param {{signal?: AbortSignal, limit?: number}} [options]
 */
export async function eachPage(method, request, field, onItems, { signal, limit = Infinity } = {}) {
  let left = limit;
  let pageToken = "";
  do {
    const page = await call(method, { ...request, pageSize: PAGE_SIZE, pageToken }, { signal });
    const items = page[field] ?? [];
    onItems(items.slice(0, left));
    left -= items.length;
    pageToken = page.nextPageToken ?? "";
  } while (pageToken && left > 0);
  return pageToken !== "" || left < 0;
}

/**
 * Return a runner: each call aborts the one before it, and only the outcome of the last one is shown.
 * @param {AbortSignal} outer Aborts all calls.
 */
export function latestOnly(outer) {
  let controller = new AbortController();
  return {
    cancel: () => controller.abort(),
    /**
     * @param {(signal: AbortSignal) => Promise<any>} ask
     * @param {(value: any) => void} show
     * @param {(error: unknown) => void} fail
     */
    async run(ask, show, fail) {
      controller.abort();
      controller = new AbortController();
      const signal = AbortSignal.any([controller.signal, outer]);
      const outcome = await ask(signal).then(
        (value) => () => show(value),
        (error) => () => fail(error),
      );
      if (!signal.aborted) outcome();
    },
  };
}

/** Exchange a token for a session cookie. @param {string} token */
export async function signIn(token) {
  await post("sign-in", { token });
}

/** Return whether there is a session. @returns {Promise<boolean>} */
export async function isSignedIn() {
  const { signedIn } = await (await post("session", {})).json();
  return signedIn === true;
}

/** End the session. */
export async function signOut() {
  await post("sign-out", {});
}

/**
 * Follow the state of an agent's index until `signal` is aborted or the session ends. Reconnects with backoff.
 * @param {string} agentId
 * @param {(event: any) => void} onEvent Called with each WatchIndexResponse.
 * @param {{signal: AbortSignal}} options
 */
export async function watch(agentId, onEvent, { signal }) {
  let delay = FIRST_DELAY_MS;
  while (!signal.aborted) {
    try {
      const response = await post("watch", { agentId }, signal);
      setConnected(true);
      for await (const event of streamedEvents(response)) {
        delay = FIRST_DELAY_MS;
        onEvent(event);
      }
    } catch (error) {
      if (signal.aborted || isFinal(error)) return;
      if (error instanceof ApiError) delay = Math.max(delay, (error.retryAfterSeconds ?? 0) * 1000);
    }
    if (signal.aborted) return;
    setConnected(false);
    await pause(delay * (0.75 + Math.random() / 2), signal);
    delay = Math.min(delay * 2, LONGEST_DELAY_MS);
  }
}

/** @param {unknown} error */
function isFinal(error) {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
}

/** @param {boolean} connected */
function setConnected(connected) {
  events.dispatchEvent(new CustomEvent("connection", { detail: { connected } }));
}

/** Yield the JSON values of an event stream. @param {Response} response */
async function* streamedEvents(response) {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const complete = text.split("\n\n");
      text = complete.pop() ?? "";
      for (const event of complete) {
        const data = event.split("\n").filter((line) => line.startsWith("data:"));
        if (data.length) yield JSON.parse(data.map((line) => line.slice(5)).join("\n"));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Resolve after some time, or when `signal` is aborted. @param {number} ms @param {AbortSignal} signal */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve(undefined)), { once: true });
  });
}

/** @param {string} path @param {object} body @param {AbortSignal} [signal] @returns {Promise<Response>} */
async function post(path, body, signal) {
  let response;
  try {
    response = await fetch(`/inspector/${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError({ reason: "UNREACHABLE", message: "The daemon does not answer. Check that it is running.", status: 0 });
  }
  if (response.ok) return response;
  const error = await errorOf(response);
  if (error.status === 401 && error.reason === SIGN_IN_REQUIRED) events.dispatchEvent(new Event("signed-out"));
  throw error;
}

/** @param {Response} response @returns {Promise<ApiError>} */
async function errorOf(response) {
  const { error = {} } = await response.json().catch(() => ({}));
  const header = Number(response.headers.get("retry-after")) || undefined;
  return new ApiError({ ...error, status: response.status, retryAfterSeconds: error.retryAfterSeconds ?? header });
}
