// @ts-check
/** Numbers, times and enum values as text. */

const NUMBER = new Intl.NumberFormat("en");
const DAY = new Intl.DateTimeFormat("en", { weekday: "short", day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
const UNITS = ["B", "kB", "MB", "GB", "TB"];
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY_SECONDS = 24 * HOUR;

/** @type {Record<string, string>} */
export const INDEX_STATE = {
  INDEX_STATE_UNSPECIFIED: "Unknown",
  INDEX_STATE_EMPTY: "Empty",
  INDEX_STATE_READY: "Up to date",
  INDEX_STATE_STALE: "Changes not indexed yet",
  INDEX_STATE_BUILDING: "Being built",
  INDEX_STATE_UNAVAILABLE: "Unavailable",
};

/** @type {Record<string, string>} */
export const FILE_STATE = {
  FILE_STATE_UNSPECIFIED: "Unknown",
  FILE_STATE_INDEXED: "Indexed",
  FILE_STATE_PENDING: "Not indexed yet",
  FILE_STATE_STALE: "Changed since indexed",
  FILE_STATE_FAILED: "Failed",
  FILE_STATE_GONE: "Deleted on disk",
  FILE_STATE_FORGOTTEN: "Forgotten",
  FILE_STATE_EXCLUDED: "Excluded",
};

/** @type {Record<string, string>} */
export const DEGRADATION_KIND = {
  DEGRADATION_KIND_UNSPECIFIED: "Degraded",
  DEGRADATION_KIND_VECTOR_LEG_SKIPPED: "Vector search does not run",
  DEGRADATION_KIND_EMBEDDING_FALLBACK: "The fallback embedding provider is in use",
  DEGRADATION_KIND_BACKEND_FALLBACK: "The builtin backend is in use instead of the configured one",
  DEGRADATION_KIND_VECTOR_EXTENSION_MISSING: "sqlite-vec is not loaded; vectors are compared without it",
  DEGRADATION_KIND_FULLTEXT_MISSING: "Keyword search does not work",
  DEGRADATION_KIND_IDENTITY_MISMATCH: "The stored vectors do not match the settings",
  DEGRADATION_KIND_INDEX_IMPAIRED: "The index cannot be fully used",
  DEGRADATION_KIND_SOURCE_SKIPPED: "A configured source is not searched",
  DEGRADATION_KIND_DEADLINE_CUT: "The search reached its deadline",
  DEGRADATION_KIND_WATCHER_IMPAIRED: "File events do not arrive",
  DEGRADATION_KIND_VECTORS_PENDING: "Some chunks have no vector yet",
  DEGRADATION_KIND_RERANKING_SKIPPED: "The reranker did not score the results",
};

/** @type {Record<string, string>} */
export const MISS_REASON = {
  MISS_REASON_UNSPECIFIED: "Unknown",
  MISS_REASON_FOUND: "Found",
  MISS_REASON_NOT_MEMORY: "Not a memory file",
  MISS_REASON_LINK: "Symbolic link or no regular file",
  MISS_REASON_EXCLUDED: "Excluded by a rule",
  MISS_REASON_NOT_ON_DISK: "Does not exist",
  MISS_REASON_FORGOTTEN: "Forgotten",
  MISS_REASON_PENDING: "Not indexed yet",
  MISS_REASON_FAILED: "Cannot be indexed",
  MISS_REASON_NO_TEXT: "No text",
  MISS_REASON_SOURCE_NOT_CONFIGURED: "Source not configured",
  MISS_REASON_SOURCE_NOT_SEARCHED: "Source not searched",
  MISS_REASON_FILTERED: "Excluded by the filter",
  MISS_REASON_NO_MATCH: "No match",
  MISS_REASON_NOT_RETRIEVED: "Not among the candidates",
  MISS_REASON_BELOW_MIN_SCORE: "Below the minimum score",
  MISS_REASON_BELOW_CUTOFF: "Below the minimum similarity",
  MISS_REASON_DIVERSITY: "Similar to better results",
  MISS_REASON_ADJACENT: "Adjacent to better results",
  MISS_REASON_RESERVED: "Place reserved for other results",
  MISS_REASON_BELOW_MAX_RESULTS: "Enough better results",
  MISS_REASON_RERANKED: "Moved down by the reranker",
  MISS_REASON_ABSTAINED: "Confidence too low",
  MISS_REASON_TEXT_LIMIT: "No room for the snippet",
};

/** @type {Record<string, string>} */
export const WATCHER_MODE = {
  WATCHER_MODE_UNSPECIFIED: "Unknown",
  WATCHER_MODE_NATIVE: "File events",
  WATCHER_MODE_POLLING: "Polling",
  WATCHER_MODE_DEAD: "Not watched",
  WATCHER_MODE_OFF: "Off",
};

/** @type {Record<string, string>} */
export const SYNC_MODE = {
  SYNC_MODE_UNSPECIFIED: "Incremental",
  SYNC_MODE_INCREMENTAL: "Incremental",
  SYNC_MODE_FULL: "Full",
};

/** @type {Record<string, string>} */
export const EMPTY_REASON = {
  EMPTY_REASON_UNSPECIFIED: "There are results",
  EMPTY_REASON_EMPTY_INDEX: "Nothing is indexed yet",
  EMPTY_REASON_NO_MATCH: "No indexed text matches",
  EMPTY_REASON_FILTERED_BY_SCORE: "All matches are below the minimum score",
  EMPTY_REASON_SCOPE_DENIED: "The session may not search this memory",
  EMPTY_REASON_FILES_GONE: "The files of all matches were deleted",
  EMPTY_REASON_ABSTAINED: "The confidence is too low",
};

/** @type {Record<string, string>} */
export const RECALL_SILENT_REASON = {
  RECALL_SILENT_REASON_UNSPECIFIED: "The block is not empty",
  RECALL_SILENT_REASON_NO_QUERY: "The text has nothing to search for",
  RECALL_SILENT_REASON_EMPTY_INDEX: "Nothing is indexed yet",
  RECALL_SILENT_REASON_NOTHING_RELEVANT: "Nothing in the memory is relevant enough",
  RECALL_SILENT_REASON_ALREADY_SEEN: "The session has seen everything that is relevant",
  RECALL_SILENT_REASON_BUDGET_TOO_SMALL: "No passage fits the budget",
  RECALL_SILENT_REASON_SCOPE_DENIED: "The session may not search this memory",
};

/** Prefixes of the names of other enums. */
const PREFIX = /^(SOURCE|ORIGIN|SEARCH_MODE|BACKEND|SYNC_TRIGGER|SYNC_PHASE|SCORE_PART_KIND|WRITE_KIND|TURN_KIND|PROMPT_MODE|CITATION_MODE)_/;

const WORDS = {
  ...INDEX_STATE, ...FILE_STATE, ...DEGRADATION_KIND, ...MISS_REASON, ...WATCHER_MODE, ...SYNC_MODE, ...EMPTY_REASON, ...RECALL_SILENT_REASON,
};

/**
 * Return the words for an enum value by its full name, for example "Up to date" for INDEX_STATE_READY.
 * @param {string | undefined} value
 */
export function enumWords(value) {
  if (!value) return "Unknown";
  if (Object.hasOwn(WORDS, value)) return WORDS[value];
  const words = value.replace(PREFIX, "").replaceAll("_", " ").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/**
 * Return a number with separators. int64 values of proto3 JSON are strings.
 * @param {number | string | undefined} n
 */
export function number(n) {
  return NUMBER.format(Number(n ?? 0));
}

/**
 * Return a count with its noun, for example "1 file" or "2 files".
 * @param {number | string | undefined} n
 * @param {string} noun
 */
export function count(n, noun) {
  return `${number(n)} ${noun}${Number(n ?? 0) === 1 ? "" : "s"}`;
}

/** @param {number | string | undefined} n */
export function bytes(n) {
  let value = Number(n ?? 0);
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/**
 * Return a time relative to now, for example "5 min ago".
 * @param {string | undefined} timestamp
 * @param {number} [now] Milliseconds.
 */
export function ago(timestamp, now = Date.now()) {
  if (!timestamp) return "never";
  const seconds = (now - Date.parse(timestamp)) / 1000;
  if (seconds < 5) return "just now";
  return seconds > 30 * DAY_SECONDS ? day(timestamp.slice(0, 10)) : `${spoken(seconds)} ago`;
}

/**
 * Return a Duration of proto3 JSON in words: "1.5s" as "1.5 s", "5400s" as "1 h 30 min".
 * @param {string | undefined} value
 */
export function duration(value) {
  const seconds = Number.parseFloat(value ?? "0") || 0;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 10 ? `${Number(seconds.toFixed(1))} s` : spoken(seconds);
}

/** @param {number} seconds */
function spoken(seconds) {
  if (seconds < MINUTE) return `${Math.round(seconds)} s`;
  if (seconds < HOUR) return `${Math.round(seconds / MINUTE)} min`;
  if (seconds >= DAY_SECONDS) return `${Math.floor(seconds / DAY_SECONDS)} d`;
  const minutes = Math.round((seconds % HOUR) / MINUTE);
  return `${Math.floor(seconds / HOUR)} h${minutes ? ` ${minutes} min` : ""}`;
}

/**
 * Return a date, for example "Fri, May 1, 2026".
 * @param {string | Date} date A Date, or `YYYY-MM-DD`.
 */
export function day(date) {
  const parsed = typeof date === "string" ? new Date(`${date}T00:00:00Z`) : date;
  return Number.isNaN(parsed.getTime()) ? String(date) : DAY.format(parsed);
}
