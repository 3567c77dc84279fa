// Searches, reads and syncs one agent's memory for OpenClaw's own features: its status, doctor and RPC.

import { type CallOptions, type MemorydClient, MemorydError } from "@memoryd/client";
import {
  CitationMode,
  OnConflict,
  SearchMode,
  Source,
  type StatusResponse,
  SyncMode,
  SyncTrigger,
} from "@memoryd/client/v1";

import { type Connection, keyFor, reasonOf, runSync } from "./connection.js";
import { isMarkdown, toHit } from "./hits.js";
import type { Hit, MemoryManager, MemoryStatus } from "./host.js";
import { describe, toMemoryStatus } from "./status.js";

type SearchOptions = NonNullable<Parameters<MemoryManager["search"]>[1]>;
type SyncOptions = NonNullable<Parameters<NonNullable<MemoryManager["sync"]>>[0]>;
type ReadResult = Awaited<ReturnType<MemoryManager["readFile"]>>;
type Probe = Awaited<ReturnType<MemoryManager["probeEmbeddingAvailability"]>>;

const MOST_RESULTS = 50;
// The status compares all files with the index.
const STATUS_TIMEOUT_MS = 5_000;

/** The memory of one agent. It shares the connection, so closing it has no effect. */
export class DaemonManager implements MemoryManager {
  readonly #connection: Connection;
  readonly #agentId: string;
  #status: StatusResponse;
  #probe: Probe | null = null;

  private constructor(connection: Connection, agentId: string, status: StatusResponse) {
    this.#connection = connection;
    this.#agentId = agentId;
    this.#status = status;
  }

  /** Returns the manager of an agent. Fetches the status, since OpenClaw asks for it synchronously. */
  static async open(connection: Connection, agentId: string): Promise<DaemonManager> {
    const status = await connection.call((client) =>
      client.status({ agentId }, { timeoutMs: connection.settings.timeoutMs ?? STATUS_TIMEOUT_MS }),
    );
    return new DaemonManager(connection, agentId, status);
  }

  async search(query: string, options: SearchOptions = {}): Promise<Hit[]> {
    const { maxResults, minScore, sessionKey, lexicalOnly, activeProjectKeys, sources, signal, onDebug } = options;
    const { results, info } = await this.#call(
      (client, callOptions) =>
        client.search(
          {
            agentId: this.#agentId,
            query,
            ...(maxResults !== undefined && {
              maxResults: Math.max(1, Math.min(MOST_RESULTS, Math.floor(maxResults))),
            }),
            ...(minScore !== undefined && { minScore: Math.max(0, Math.min(1, minScore)) }),
            sessionKey: keyFor(this.#agentId, sessionKey),
            mode: lexicalOnly ? SearchMode.KEYWORD : SearchMode.UNSPECIFIED,
            sources: (sources ?? []).map((source) => (source === "sessions" ? Source.SESSIONS : Source.MEMORY)),
            activeProjects: (activeProjectKeys ?? []).slice(0, 16),
            // OpenClaw adds citations itself.
            citations: CitationMode.OFF,
            explain: true,
          },
          callOptions,
        ),
      signal,
    );
    const fallback = info?.degradations.map(describe).join("; ");
    onDebug?.({
      backend: "builtin",
      effectiveMode: SearchMode[info?.servedMode ?? SearchMode.UNSPECIFIED].toLowerCase(),
      ...(fallback && { fallback }),
    });
    return results.map(toHit);
  }

  async readFile({ relPath, from, lines }: Parameters<MemoryManager["readFile"]>[0]): Promise<ReadResult> {
    if (!isMarkdown(relPath)) {
      throw new Error(`${relPath} is not a memory file`);
    }
    try {
      const read = await this.#call((client) =>
        client.get({
          agentId: this.#agentId,
          path: relPath,
          ...(from !== undefined && { startLine: from }),
          ...(lines !== undefined && { lineCount: lines }),
        }),
      );
      return {
        status: "ok",
        text: read.text,
        path: read.path,
        from: read.startLine,
        lines: read.endLine - read.startLine + 1,
        ...((read.truncated || read.nextStartLine > 0) && { truncated: true }),
        ...(read.nextStartLine > 0 && { nextFrom: read.nextStartLine }),
      };
    } catch (error) {
      if (error instanceof MemorydError && error.reason === "FILE_NOT_FOUND") {
        return { status: "not_found", text: "", path: relPath };
      }
      throw error;
    }
  }

  /** The status when the manager was opened, or after the last sync or probe. */
  status(): MemoryStatus {
    return toMemoryStatus(this.#status);
  }

  /** Runs a sync and reports its progress in files. */
  async sync({ force, reason, progress }: SyncOptions = {}): Promise<void> {
    const mode = force ? SyncMode.FULL : SyncMode.INCREMENTAL;
    const trigger = reason === "post-compaction" ? SyncTrigger.POST_COMPACTION : SyncTrigger.MANUAL;
    const request = { agentId: this.#agentId, mode, trigger, onConflict: OnConflict.WAIT };
    await this.#connection.call((client) =>
      runSync(client, request, (event) => {
        if (event.case === "progress") {
          const { completedFiles, totalFiles, currentPath } = event.value;
          progress?.({ completed: completedFiles, total: totalFiles, ...(currentPath && { label: currentPath }) });
        }
      }),
    );
    this.#status = await this.#call((client) => client.status({ agentId: this.#agentId }));
  }

  getCachedEmbeddingAvailability(): Probe | null {
    return this.#probe;
  }

  /** Calls the embedding provider once. */
  async probeEmbeddingAvailability(): Promise<Probe> {
    try {
      this.#status = await this.#call((client) => client.status({ agentId: this.#agentId, probe: true }));
    } catch (error) {
      return { ok: false, error: reasonOf(error) };
    }
    const { provider, reason, probe } = this.#status.embedding ?? {};
    const missing = reason === "" ? undefined : reason;
    const error = provider ? probe?.error : (missing ?? "no embedding provider is configured");
    this.#probe = {
      ok: Boolean(provider) && probe?.ok === true,
      ...(error && { error }),
      checked: true,
      checkedAtMs: Date.now(),
    };
    return this.#probe;
  }

  probeVectorStoreAvailability(): Promise<boolean> {
    return Promise.resolve(this.#status.vector?.enabled ?? false);
  }

  probeVectorAvailability(): Promise<boolean> {
    return Promise.resolve(this.status().vector?.available ?? false);
  }

  // OpenClaw calls it after each use.
  close(): Promise<void> {
    return Promise.resolve();
  }

  #call<T>(use: (client: MemorydClient, options: CallOptions) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#connection.call((client) => use(client, { signal }));
  }
}
