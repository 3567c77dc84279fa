// The daemon's status in OpenClaw's form.

import { type Degradation, DegradationKind, Source, type SourceStatus, type StatusResponse } from "@memoryd/client/v1";

import type { MemoryStatus } from "./host.js";

/** Converts a status. */
export function toMemoryStatus(status: StatusResponse): MemoryStatus {
  const { index, embedding, vector, fulltext, cache, batch } = status;
  const provider = embedding?.provider === "" ? undefined : embedding?.provider;
  // The daemon also counts a source that is not configured.
  const used = (each: SourceStatus): boolean =>
    each.source === Source.MEMORY || each.filesOnDisk + each.filesIndexed > 0;
  const sources = (index?.sources ?? []).filter(used);
  const error = syncError(status);
  return {
    backend: "builtin",
    // OpenClaw shows "none" as keyword search only.
    provider: provider ?? "none",
    ...(embedding?.model && { model: embedding.model }),
    ...(embedding?.requestedProvider && { requestedProvider: embedding.requestedProvider }),
    files: index?.files ?? 0,
    chunks: index?.chunks ?? 0,
    dirty: index?.dirty ?? false,
    ...(error !== undefined && { lastSyncError: error }),
    workspaceDir: status.workspace,
    ...(index?.path && { dbPath: index.path }),
    sources: sources.map(sourceName),
    sourceCounts: sources.map((source) => ({
      source: sourceName(source),
      files: source.filesIndexed,
      chunks: source.chunks,
      eligible: source.filesOnDisk,
      ...(source.filesFailed > 0 && { issues: [`${source.filesFailed} files could not be indexed`] }),
    })),
    cache: {
      enabled: cache?.enabled ?? false,
      entries: Number(cache?.entries ?? 0n),
      maxEntries: Number(cache?.maxEntries ?? 0n),
    },
    fts: {
      enabled: true,
      available: fulltext?.available ?? false,
      ...(fulltext?.error && { error: fulltext.error }),
    },
    ...(embedding?.fallbackFrom && { fallback: { from: embedding.fallbackFrom, reason: embedding.reason } }),
    vector: {
      enabled: vector?.enabled ?? false,
      storeAvailable: vector?.enabled ?? false,
      semanticAvailable: provider !== undefined,
      available: (vector?.enabled ?? false) && provider !== undefined,
      ...(vector?.loadError && { loadError: vector.loadError }),
      ...(vector?.dimensions && { dims: vector.dimensions }),
    },
    batch: {
      enabled: batch?.enabled ?? false,
      failures: batch?.failures ?? 0,
      limit: 0,
      wait: false,
      concurrency: 0,
      pollIntervalMs: 0,
      timeoutMs: 0,
      ...(batch?.lastError && { lastError: batch.lastError }),
    },
    custom: {
      searchMode: provider === undefined ? "fts-only" : "hybrid",
      engine: "memoryd",
      version: status.service?.version ?? "",
      degradations: status.degradations.map(describe),
      sourceIssues: status.sourceIssues,
    },
  };
}

/** Returns a degradation as one line of text. */
export function describe({ kind, reason }: Degradation): string {
  // A newer daemon can have other kinds.
  const name = (DegradationKind[kind] as string | undefined) ?? "DEGRADED";
  return reason === "" ? name : `${name}: ${reason}`;
}

function sourceName({ source }: SourceStatus): "memory" | "sessions" {
  return source === Source.SESSIONS ? "sessions" : "memory";
}

// OpenClaw adds "stale" and a warning to the results if there is an error.
function syncError({ failedFiles, index }: StatusResponse): string | undefined {
  const [first] = failedFiles;
  if (first === undefined) {
    return undefined;
  }
  const failed = index?.sources.reduce((sum, source) => sum + source.filesFailed, 0) ?? 0;
  return `${Math.max(failed, failedFiles.length)} files could not be indexed, for example ${first.path}: ${first.error}`;
}
