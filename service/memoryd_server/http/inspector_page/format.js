/** Numbers, times and enum values as text. */

const NUMBER = new Intl.NumberFormat("en");
const DAY = new Intl.DateTimeFormat("en", { weekday: "short", day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
const UNITS = ["B", "kB", "MB", "GB", "TB"];
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY_SECONDS = 24 * HOUR;

/**
 * Words for enum values by the prefix of the enum. Other values are shown by name.
 * @type {Record<string, Record<string, string>>}
 */
const WORDS = {
  INDEX_STATE_: {
    READY: "Up to date",
    STALE: "Changes not indexed yet",
    BUILDING: "Being built",
  },
  FILE_STATE_: {
    PENDING: "Not indexed yet",
    STALE: "Changed since indexed",
    GONE: "No longer on disk",
  },
  DEGRADATION_KIND_: {
    VECTOR_LEG_SKIPPED: "Vector search does not run",
    EMBEDDING_FALLBACK: "The fallback embedding provider is in use",
    BACKEND_FALLBACK: "The builtin backend is in use instead of the configured one",
    VECTOR_EXTENSION_MISSING: "sqlite-vec is not loaded; vectors are compared without it",
    FULLTEXT_MISSING: "Keyword search does not work",
    IDENTITY_MISMATCH: "The stored vectors do not match the settings",
    INDEX_IMPAIRED: "The index cannot be fully used",
    SOURCE_SKIPPED: "A configured source is not searched",
    WATCHER_IMPAIRED: "File events do not arrive",
    VECTORS_PENDING: "Some chunks have no vector yet",
    RERANKING_SKIPPED: "The reranker did not score the results",
  },
  MISS_REASON_: {
    NOT_MEMORY: "Not a memory file",
    LINK: "Symbolic link or not a regular file",
    PENDING: "Not indexed yet",
    FILTERED: "Excluded by the filter",
    NOT_RETRIEVED: "Not among the candidates",
    BELOW_MIN_SCORE: "Below the minimum score",
    BELOW_CUTOFF: "Below the minimum similarity",
    DIVERSITY: "Similar to better results",
    ADJACENT: "Adjacent to better results",
    RESERVED: "Place reserved for other results",
    BELOW_MAX_RESULTS: "Ranked after the last result",
    RERANKED: "Moved down by the reranker",
    ABSTAINED: "Confidence too low",
    TEXT_LIMIT: "No room for the snippet",
  },
  WATCHER_MODE_: {
    NATIVE: "File events",
    DEAD: "Not watched",
  },
  SYNC_PHASE_: {
    PLANNING: "Comparing the files with the index",
    INDEXING: "Indexing files",
    EMBEDDING: "Computing vectors",
    SWAPPING: "Replacing the old index",
  },
  EMPTY_REASON_: {
    ABSTAINED: "The confidence is too low",
  },
  RECALL_SILENT_REASON_: {
    NO_QUERY: "The text has nothing to search for",
    BUDGET_TOO_SMALL: "No passage fits the budget",
  },
};
const OTHER_ENUM = /^(SOURCE|ORIGIN|SEARCH_MODE|SYNC_MODE|BACKEND|SYNC_TRIGGER|SCORE_PART_KIND|WRITE_KIND)_/;

/**
 * Return the words for an enum value by its full name.
 * @param {string | undefined} value
 */
export function enumWords(value) {
  if (!value || value.endsWith("_UNSPECIFIED")) return "Unknown";
  const prefix = Object.keys(WORDS).find((each) => value.startsWith(each)) ?? OTHER_ENUM.exec(value)?.[0] ?? "";
  const name = value.slice(prefix.length);
  if (Object.hasOwn(WORDS[prefix] ?? {}, name)) return WORDS[prefix][name];
  const words = name.replaceAll("_", " ").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Return a number with separators. int64 values of proto3 JSON are strings. @param {number | string} [n] */
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
  if (seconds < MINUTE) return `${Math.floor(seconds)} s`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min`;
  if (seconds >= DAY_SECONDS) return `${Math.floor(seconds / DAY_SECONDS)} d`;
  const minutes = Math.floor((seconds % HOUR) / MINUTE);
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
