// The tools of the model. The parameters and results of `memory_search` and `memory_get` are those of OpenClaw's own
// tools, so that prompts and other features of OpenClaw work with them.

import { posix } from "node:path";

import { Code, MemorydError } from "@memoryd/client";
import {
  CitationMode,
  DegradationKind,
  IndexState,
  type MemoryGetResponse,
  type MemorySearchResponse,
  Source,
} from "@memoryd/client/v1";

import { ACTION, type Connection, keyFor, reasonOf } from "./connection.js";
import { type Requester, canSeeSessions, isMarkdown, toHit } from "./hits.js";
import { type AnyAgentTool, type HostConfig, type ToolContext, agentOf, valueAt } from "./host.js";
import { describe } from "./status.js";

const MOST_RESULTS = 50;
const MOST_GET_CHARS = 12_000;
const GET_LINES = 120;
const MOST_LINES = 1_999;

/** An argument that the tool does not accept. OpenClaw reports the message to the caller because of the name. */
export class ToolInputError extends Error {
  override readonly name = "ToolInputError";
}

type Details = Readonly<Record<string, unknown>>;
type Run = (params: Readonly<Record<string, unknown>>, signal?: AbortSignal) => Promise<Details>;
type Schema = Readonly<Record<string, unknown>>;

/** A session's context, with the values that every tool needs. */
export interface Session extends Requester {
  readonly cfg: HostConfig | undefined;
  readonly activeProjects: readonly string[];
}

/** Returns the session of a tool, or undefined if memory search is disabled for its agent. */
export function sessionOf(context: ToolContext): Session | undefined {
  const cfg = context.getRuntimeConfig?.() ?? context.runtimeConfig ?? context.config;
  const agentId = context.agentId ?? agentOf(context.sessionKey) ?? "";
  const enabled =
    valueAt(cfg, "agents", "entries", agentId, "memory", "search", "enabled") ??
    valueAt(cfg, "memory", "search", "enabled");
  if (enabled === false) {
    return undefined;
  }
  return {
    cfg,
    agentId,
    sessionKey: context.sessionKey,
    sandboxed: context.sandboxed === true,
    senderIsOwner: context.senderIsOwner,
    activeProjects: context.activeProjectKeys ?? [],
  };
}

const SEARCH_SCHEMA: Schema = {
  type: "object",
  properties: {
    query: { type: "string" },
    maxResults: { type: "integer", minimum: 1 },
    minScore: { type: "number" },
    corpus: { type: "string", enum: ["memory", "wiki", "all", "sessions"] },
  },
  required: ["query"],
  additionalProperties: false,
};

/** Returns `memory_search`. */
export function searchTool(connection: Connection, session: Session): AnyAgentTool {
  return tool(
    "memory_search",
    "Memory Search",
    "Search MEMORY.md, USER.md, the Markdown files below memory/ and the configured extra paths. Use it before you " +
      'answer about earlier work, decisions, dates, people, preferences or open tasks. `corpus: "memory"` searches ' +
      'only memory files, and `corpus: "sessions"` only session transcripts, if they are indexed and the session is ' +
      "allowed to see them. The lines of a transcript cannot be read with memory_get. If the response has " +
      "`disabled`, `stale` or a `warning`, tell the user, with the given action.",
    SEARCH_SCHEMA,
    async (params, signal) => {
      const { query, maxResults, minScore, corpus } = params;
      if (typeof query !== "string" || query.trim() === "") {
        throw new ToolInputError("query required");
      }
      const sources = sourcesOf(corpus, session);
      if (typeof sources === "string") {
        return unavailable(sources, "Search with another corpus, or without one.");
      }
      try {
        const response = await connection.call((client) =>
          client.search(
            {
              agentId: session.agentId,
              query,
              ...(isNumber(maxResults) && { maxResults: Math.max(1, Math.min(MOST_RESULTS, Math.floor(maxResults))) }),
              ...(isNumber(minScore) && { minScore: Math.max(0, Math.min(1, minScore)) }),
              sources,
              sessionKey: keyFor(session.agentId, session.sessionKey),
              citations: citationMode(session.cfg),
              activeProjects: session.activeProjects.slice(0, 16),
              explain: true,
            },
            { signal },
          ),
        );
        if (corpus === "sessions" && response.results.length === 0 && !(await hasSessions(connection, session))) {
          return unavailable("session transcripts are not indexed", "Search without `corpus`, or with `memory`.");
        }
        return searchDetails(response, session);
      } catch (error) {
        if (error instanceof MemorydError && error.reason === "INVALID_REQUEST") {
          throw new ToolInputError(error.message, { cause: error });
        }
        return unavailable(reasonOf(error), ACTION);
      }
    },
  );
}

// Unauthorized sessions get memory files only. Returns a reason if the corpus cannot be searched.
function sourcesOf(corpus: unknown, session: Session): Source[] | string {
  const authorized = canSeeSessions(session);
  switch (corpus) {
    case "wiki":
      return "memoryd has no wiki corpus";
    case "sessions":
      return authorized ? [Source.SESSIONS] : "this session is not allowed to search the transcripts of other sessions";
    case "memory":
      return [Source.MEMORY];
    default:
      return authorized ? [] : [Source.MEMORY];
  }
}

async function hasSessions(connection: Connection, { agentId }: Session): Promise<boolean> {
  const { index } = await connection.call((client) => client.status({ agentId }));
  return index?.sources.some((each) => each.source === Source.SESSIONS && each.filesIndexed > 0) ?? false;
}

const QUIET: ReadonlySet<DegradationKind> = new Set([
  DegradationKind.VECTOR_EXTENSION_MISSING,
  DegradationKind.WATCHER_IMPAIRED,
]);

function searchDetails({ results, info }: MemorySearchResponse, session: Session): Details {
  const allowed = canSeeSessions(session) ? results : results.filter(({ source }) => source !== Source.SESSIONS);
  const fallback = info?.degradations.find(({ kind }) => kind === DegradationKind.EMBEDDING_FALLBACK);
  const stale =
    info?.indexState === IndexState.BUILDING ||
    info?.degradations.some(({ kind }) => kind === DegradationKind.INDEX_IMPAIRED) === true;
  const warnings = [
    ...(allowed.length === 0 && info?.emptyExplanation ? [info.emptyExplanation] : []),
    ...(info?.indexState === IndexState.BUILDING ? ["The index is being built; results can be missing."] : []),
    ...(info?.degradations ?? []).filter(({ kind }) => !QUIET.has(kind)).map(describe),
  ];
  return {
    results: allowed.map((result) => ({ ...toHit(result), corpus: toHit(result).source })),
    provider: info?.embedding?.provider ?? "none",
    ...(info?.embedding?.model && { model: info.embedding.model }),
    ...(fallback && { fallback: { from: fallback.wanted, reason: fallback.reason } }),
    citations: valueAt(session.cfg, "memory", "citations") ?? "auto",
    ...(stale && { stale: true }),
    ...(warnings.length > 0 && { warning: warnings.join("\n") }),
  };
}

function citationMode(cfg: HostConfig | undefined): CitationMode {
  switch (valueAt(cfg, "memory", "citations")) {
    case "on":
      return CitationMode.ON;
    case "off":
      return CitationMode.OFF;
    default:
      return CitationMode.AUTO;
  }
}

function unavailable(error: string, action: string): Details {
  const warning = "Memory search is unavailable.";
  return { results: [], disabled: true, unavailable: true, error, warning, action };
}

const GET_SCHEMA: Schema = {
  type: "object",
  properties: {
    path: { type: "string" },
    from: { type: "integer", minimum: 1 },
    lines: { type: "integer", minimum: 1 },
    corpus: { type: "string", enum: ["memory", "wiki", "all"] },
  },
  required: ["path"],
  additionalProperties: false,
};

/** Returns `memory_get`. */
export function getTool(connection: Connection, session: Session): AnyAgentTool {
  return tool(
    "memory_get",
    "Memory Get",
    `Read lines of a memory file: \`path\` as in a search result, \`from\` the first line, \`lines\` how many (default ` +
      `${GET_LINES}). \`status\` is "ok"; "not_found" if the file does not exist; or "error" with the reason, which does ` +
      "not mean that memory is disabled. If `nextFrom` is set, there is more text: continue from that line.",
    GET_SCHEMA,
    async ({ path, from, lines, corpus }, signal) => {
      if (typeof path !== "string" || path.trim() === "") {
        throw new ToolInputError("path required");
      }
      if (corpus === "wiki") {
        return failed(path, "memoryd has no wiki corpus");
      }
      if (!isMarkdown(path)) {
        return failed(path, "memory_get reads Markdown files of the memory only", "MEMORY_PATH_NOT_ALLOWED");
      }
      const wanted = isNumber(lines) ? Math.min(clampLine(lines), MOST_LINES) : GET_LINES;
      try {
        const read = await connection.call((client) =>
          client.get(
            {
              agentId: session.agentId,
              path: posix.normalize(path.trim()),
              startLine: isNumber(from) ? clampLine(from) : 1,
              // One more tells whether there is more.
              lineCount: wanted + 1,
            },
            { signal },
          ),
        );
        return { status: "ok", path: read.path, from: read.startLine, ...excerptOf(read, wanted, mostChars(session)) };
      } catch (error) {
        if (error instanceof MemorydError && error.reason === "FILE_NOT_FOUND") {
          return { status: "not_found", text: "", path };
        }
        const refused = error instanceof MemorydError && error.code === Code.PERMISSION_DENIED;
        return failed(path, reasonOf(error), refused ? "MEMORY_PATH_NOT_ALLOWED" : undefined);
      }
    },
  );
}

function failed(path: string, error: string, code?: string): Details {
  return { status: "error", ...(code !== undefined && { code }), error, path, text: "" };
}

function mostChars({ cfg, agentId }: Session): number {
  const limit =
    valueAt(cfg, "agents", "entries", agentId, "contextLimits", "memoryGetMaxChars") ??
    valueAt(cfg, "agents", "defaults", "contextLimits", "memoryGetMaxChars");
  return isNumber(limit) && limit >= 1 ? Math.floor(limit) : MOST_GET_CHARS;
}

type Lines = Pick<MemoryGetResponse, "text" | "startLine" | "endLine" | "nextStartLine" | "truncated">;

/**
 * Returns the first `wanted` lines of `read`, at most `most` UTF-16 units, with notices if there is more. A first line
 * that is longer is cut; the rest of that line cannot be read.
 */
export function excerptOf(read: Lines, wanted: number, most: number): Details {
  const rows = read.endLine < read.startLine ? [] : read.text.split("\n");
  const atEnd = read.nextStartLine === 0;
  // The line feed at the end of a file begins no line.
  const hasFinalFeed = atEnd && rows.at(-1) === "";
  if (hasFinalFeed) {
    rows.pop();
  }
  let size = 0;
  const fitting = rows.slice(0, wanted).findIndex((row) => (size += row.length + 1) > most + 1);
  const kept = rows.slice(0, fitting === -1 ? wanted : Math.max(1, fitting));
  let isCut = read.truncated && kept.length === rows.length;
  if (fitting === 0) {
    isCut = true;
    kept[0] = (kept[0] ?? "").slice(0, most).replace(/[\uD800-\uDBFF]$/, "");
  }
  const hasMore = kept.length < rows.length || !atEnd;
  const nextFrom = hasMore ? read.startLine + kept.length : 0;
  const notices = [
    ...(isCut ? [`[Line ${read.startLine + kept.length - 1} was cut.]`] : []),
    ...(hasMore ? [`[More text follows. Continue with from=${nextFrom}.]`] : []),
  ];
  const text = kept.join("\n") + (hasFinalFeed && !hasMore && !isCut && kept.length > 0 ? "\n" : "");
  return {
    text: [text, ...notices].join("\n\n"),
    lines: kept.length,
    ...(notices.length > 0 && { truncated: true }),
    ...(hasMore && { nextFrom }),
  };
}

const APPEND_SCHEMA: Schema = {
  type: "object",
  properties: {
    text: { type: "string", description: "Markdown to append." },
    path: { type: "string", description: "MEMORY.md, USER.md or a .md file below memory/. Default: today's log." },
    heading: { type: "string", description: "A heading above the text, in one line." },
  },
  required: ["text"],
  additionalProperties: false,
};

/** Returns `memory_append`, which OpenClaw gives to an agent only if the settings allow the tool by name. */
export function appendTool(connection: Connection, session: Session): AnyAgentTool {
  return tool(
    "memory_append",
    "Memory Append",
    "Append text to today's log, memory/YYYY-MM-DD.md, or to another memory file. Existing text is not changed. Use it " +
      'when you are asked to remember something. `status` is "ok" with the lines of the text, or "error".',
    APPEND_SCHEMA,
    async ({ text, path, heading }, signal) => {
      if (typeof text !== "string" || text.trim() === "") {
        throw new ToolInputError("text required");
      }
      const target = typeof path === "string" && path.trim() !== "" ? posix.normalize(path.trim()) : "";
      const refused = refusalOf(target, session);
      if (refused !== undefined) {
        return { status: "error", error: refused, path: target };
      }
      try {
        const { agentId } = session;
        const title = typeof heading === "string" ? heading : "";
        const done = await connection.call((client) =>
          client.append({ agentId, text, path: target, heading: title }, { signal }),
        );
        return { status: "ok", path: done.path, startLine: done.startLine, endLine: done.endLine };
      } catch (error) {
        return { status: "error", error: reasonOf(error), ...(typeof path === "string" && { path }) };
      }
    },
  );
}

// A sandbox may not write to the workspace. MEMORY.md and USER.md are loaded in the private main session only, so that
// no other session may write what that session will read.
function refusalOf(path: string, session: Session): string | undefined {
  if (session.sandboxed) {
    return "this session runs in a sandbox and cannot append to the agent's memory";
  }
  const isLog = path === "" || path.startsWith("memory/");
  return isLog || canSeeSessions(session) ? undefined : `only the agent's main session can append to ${path}`;
}

function tool(name: string, label: string, description: string, parameters: Schema, run: Run): AnyAgentTool {
  return {
    name,
    label,
    description,
    parameters,
    async execute(_callId: string, params: unknown, signal?: AbortSignal) {
      const details = await run((params ?? {}) as Record<string, unknown>, signal);
      return { content: [{ type: "text", text: JSON.stringify(details, null, 2) }], details };
    },
  };
}

// The numbers of the contract have 32 bits.
function clampLine(value: number): number {
  return Math.max(1, Math.min(2 ** 31 - 1, Math.floor(value)));
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}
