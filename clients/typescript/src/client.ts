// The calls of the MemoryService, with deadlines and typed errors.

import type { MessageInitShape } from "@bufbuild/protobuf";

import type { CallOptions, Calls } from "./calls.js";
import { EntryClient } from "./entries.js";
import {
  type ExplainMissRequestSchema,
  type ExplainMissResponse,
  type FlushDecisionRequestSchema,
  type FlushDecisionResponse,
  type ListAgentsRequestSchema,
  type ListAgentsResponse,
  type ListFilesRequestSchema,
  type ListFilesResponse,
  MemoryAppendRequestSchema,
  type MemoryAppendResponse,
  type MemoryForgetRequestSchema,
  type MemoryForgetResponse,
  type MemoryGetRequestSchema,
  type MemoryGetResponse,
  type MemoryHistoryRequestSchema,
  type MemoryHistoryResponse,
  MemoryMoveRequestSchema,
  type MemoryMoveResponse,
  type MemoryRecallRequestSchema,
  type MemoryRecallResponse,
  MemoryRestoreRequestSchema,
  type MemoryRestoreResponse,
  type MemorySearchRequestSchema,
  type MemorySearchResponse,
  MemoryService,
  MemoryWriteRequestSchema,
  type MemoryWriteResponse,
  type SessionAppendRequestSchema,
  type SessionAppendResponse,
  type SessionArchiveRequestSchema,
  type SessionArchiveResponse,
  type SessionContextRequestSchema,
  type SessionContextResponse,
  type StatusRequestSchema,
  type StatusResponse,
  type SyncRequestSchema,
  type SyncResponse,
  type WatchIndexRequestSchema,
  type WatchIndexResponse,
} from "./gen/memoryd/v1/memory_service_pb.js";
import { withKey } from "./idempotency.js";
import type { EventStream } from "./stream.js";

// Default deadlines in milliseconds, as in the protos.
const SEARCH = 5_000;
const EXPLAIN = 10_000;
const RECALL = 2_000;
const GET = 2_000;
const STATUS = 2_000;
const STATUS_WITH_PROBE = 10_000;
const FLUSH = 1_000;
const APPEND = 5_000;
const EDIT = 5_000;
const FORGET = 10_000;
const CONTEXT = 2_000;
const ARCHIVE = 10_000;
const LIST = 2_000;

const method = MemoryService.method;

/**
 * Calls one daemon. A client can make any number of concurrent calls. Every method accepts the fields of its request,
 * or a message of `@memoryd/client/v1`, and rejects with a {@link MemorydError} if the status is not OK.
 */
export class MemorydClient {
  /** The calls of the entry service. */
  readonly entries: EntryClient;
  readonly #calls: Calls;
  readonly #disconnect: () => Promise<void>;
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(calls: Calls, disconnect: () => Promise<void>) {
    this.#calls = calls;
    this.#disconnect = disconnect;
    this.entries = new EntryClient(calls);
  }

  /** Ends running calls as CANCELLED, closes the connection, and waits until it is closed. */
  async close(): Promise<void> {
    this.#calls.end();
    this.#closing ??= this.#disconnect();
    await this.#closing;
  }

  /** Closes the client at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Searches an agent's memory for `query` and returns the results, best first. */
  search(
    request: MessageInitShape<typeof MemorySearchRequestSchema>,
    options?: CallOptions,
  ): Promise<MemorySearchResponse> {
    return this.#calls.unary(method.memorySearch, request, SEARCH, options);
  }

  /** Runs a search and returns the step that leaves out a file or a line, or its rank if the search finds it. */
  explainMiss(
    request: MessageInitShape<typeof ExplainMissRequestSchema>,
    options?: CallOptions,
  ): Promise<ExplainMissResponse> {
    return this.#calls.unary(method.explainMiss, request, EXPLAIN, options);
  }

  /**
   * Returns what an agent's memory contains about a turn's `text`, as a text to insert before the turn. If a reply is
   * lost while `rememberShown` is set, its items count as shown, and a retry does not return them.
   */
  recall(
    request: MessageInitShape<typeof MemoryRecallRequestSchema>,
    options?: CallOptions,
  ): Promise<MemoryRecallResponse> {
    return this.#calls.unary(method.memoryRecall, request, RECALL, options);
  }

  /** Reads a range of lines of the memory file `path`. */
  get(request: MessageInitShape<typeof MemoryGetRequestSchema>, options?: CallOptions): Promise<MemoryGetResponse> {
    return this.#calls.unary(method.memoryGet, request, GET, options);
  }

  /** Returns the status of the daemon and of one agent. */
  status(request: MessageInitShape<typeof StatusRequestSchema> = {}, options?: CallOptions): Promise<StatusResponse> {
    return this.#calls.unary(method.status, request, request.probe ? STATUS_WITH_PROBE : STATUS, options);
  }

  /** Starts a sync run, or joins the current one, and returns its events; the last one is `completed`. */
  sync(request: MessageInitShape<typeof SyncRequestSchema> = {}, options?: CallOptions): EventStream<SyncResponse> {
    return this.#calls.stream(method.sync, request, options);
  }

  /** Returns the state of an agent's index: the current state first, then each change, until the stream is ended. */
  watch(
    request: MessageInitShape<typeof WatchIndexRequestSchema> = {},
    options?: CallOptions,
  ): EventStream<WatchIndexResponse> {
    return this.#calls.stream(method.watchIndex, request, options);
  }

  /** Decides whether the agent should write notes before its context is compacted. */
  flushDecision(
    request: MessageInitShape<typeof FlushDecisionRequestSchema>,
    options?: CallOptions,
  ): Promise<FlushDecisionResponse> {
    return this.#calls.unary(method.flushDecision, request, FLUSH, options);
  }

  /**
   * Appends `text` to today's log, or to `path`. If the request has no `idempotencyKey`, a random one is sent, so that
   * retries of the client append nothing twice.
   */
  append(
    request: MessageInitShape<typeof MemoryAppendRequestSchema>,
    options?: CallOptions,
  ): Promise<MemoryAppendResponse> {
    return this.#calls.unary(method.memoryAppend, withKey(MemoryAppendRequestSchema, request), APPEND, options);
  }

  /**
   * Creates, replaces, edits or deletes the file `path`, if it still has the content of `expectedSha256`. If it has
   * another content, the call fails with the reason `CONTENT_CHANGED`. If the request has no `idempotencyKey`, a random
   * one is sent, so that retries of the client write nothing twice.
   */
  write(
    request: MessageInitShape<typeof MemoryWriteRequestSchema>,
    options?: CallOptions,
  ): Promise<MemoryWriteResponse> {
    return this.#calls.unary(method.memoryWrite, withKey(MemoryWriteRequestSchema, request), EDIT, options);
  }

  /** Renames the file `path` to `newPath`, if it still has the content of `expectedSha256`; a key is sent as for `write`. */
  move(request: MessageInitShape<typeof MemoryMoveRequestSchema>, options?: CallOptions): Promise<MemoryMoveResponse> {
    return this.#calls.unary(method.memoryMove, withKey(MemoryMoveRequestSchema, request), EDIT, options);
  }

  /** Returns one page of the writes of the file `path`, or of all files of an agent, newest first. */
  history(
    request: MessageInitShape<typeof MemoryHistoryRequestSchema> = {},
    options?: CallOptions,
  ): Promise<MemoryHistoryResponse> {
    return this.#calls.unary(method.memoryHistory, request, EDIT, options);
  }

  /** Restores the content that the write `versionId` replaced or deleted; itself a write, with a key as for `write`. */
  restore(
    request: MessageInitShape<typeof MemoryRestoreRequestSchema>,
    options?: CallOptions,
  ): Promise<MemoryRestoreResponse> {
    return this.#calls.unary(method.memoryRestore, withKey(MemoryRestoreRequestSchema, request), EDIT, options);
  }

  /** Removes the file, session or text in `target` from all derived data, and returns the number of removed items. */
  forget(
    request: MessageInitShape<typeof MemoryForgetRequestSchema>,
    options?: CallOptions,
  ): Promise<MemoryForgetResponse> {
    return this.#calls.unary(method.memoryForget, request, FORGET, options);
  }

  /** Returns the memory files that a session loads at its start, and the recall section of its prompt. */
  sessionContext(
    request: MessageInitShape<typeof SessionContextRequestSchema>,
    options?: CallOptions,
  ): Promise<SessionContextResponse> {
    return this.#calls.unary(method.sessionContext, request, CONTEXT, options);
  }

  /** Writes the last messages of `transcript` to a new memory file. Retries are safe. */
  sessionArchive(
    request: MessageInitShape<typeof SessionArchiveRequestSchema>,
    options?: CallOptions,
  ): Promise<SessionArchiveResponse> {
    return this.#calls.unary(method.sessionArchive, request, ARCHIVE, options);
  }

  /**
   * Appends `records` to the transcript of `sessionId`. It is not retried after UNAVAILABLE. Repeat it with
   * `expectedRecords`; without it, a repeated call can append the records twice.
   */
  sessionAppend(
    request: MessageInitShape<typeof SessionAppendRequestSchema>,
    options?: CallOptions,
  ): Promise<SessionAppendResponse> {
    return this.#calls.unary(method.sessionAppend, request, APPEND, options);
  }

  /** Returns one page of the agents that the caller is allowed to use. */
  listAgents(
    request: MessageInitShape<typeof ListAgentsRequestSchema> = {},
    options?: CallOptions,
  ): Promise<ListAgentsResponse> {
    return this.#calls.unary(method.listAgents, request, LIST, options);
  }

  /** Returns one page of an agent's memory files. */
  listFiles(
    request: MessageInitShape<typeof ListFilesRequestSchema> = {},
    options?: CallOptions,
  ): Promise<ListFilesResponse> {
    return this.#calls.unary(method.listFiles, request, LIST, options);
  }
}
