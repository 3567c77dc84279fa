// The calls of the MemoryService, with deadlines and typed errors.

import type { MessageInitShape } from "@bufbuild/protobuf";

import type { CallOptions, Calls } from "./calls.js";
import { EntryClient } from "./entries.js";
import {
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
  type MemorySearchRequestSchema,
  type MemorySearchResponse,
  MemoryService,
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

// The documented deadlines of the service, in milliseconds.
const SEARCH = 5_000;
const GET = 2_000;
const STATUS = 2_000;
const STATUS_WITH_PROBE = 10_000;
const FLUSH = 1_000;
const APPEND = 5_000;
const FORGET = 10_000;
const CONTEXT = 2_000;
const ARCHIVE = 10_000;
const LIST = 2_000;

const method = MemoryService.method;

/**
 * Calls one daemon; one client serves any number of calls at once. Every method takes the fields of its request, or a
 * message of `@memoryd/client/v1`, and rejects with a {@link MemorydError} for a status that is not OK.
 */
export class MemorydClient {
  /** The calls that concern entries. */
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

  /** Ends the calls under way as CANCELLED, closes the connection, and waits until it is closed. */
  async close(): Promise<void> {
    this.#calls.end();
    this.#closing ??= this.#disconnect();
    await this.#closing;
  }

  /** Closes the client at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Finds the parts of an agent's memory that answer `query`, best first. */
  search(
    request: MessageInitShape<typeof MemorySearchRequestSchema>,
    options?: CallOptions,
  ): Promise<MemorySearchResponse> {
    return this.#calls.unary(method.memorySearch, request, SEARCH, options);
  }

  /** Reads a line range of the memory file `path`. */
  get(request: MessageInitShape<typeof MemoryGetRequestSchema>, options?: CallOptions): Promise<MemoryGetResponse> {
    return this.#calls.unary(method.memoryGet, request, GET, options);
  }

  /** Tells how an agent's memory is doing. */
  status(request: MessageInitShape<typeof StatusRequestSchema> = {}, options?: CallOptions): Promise<StatusResponse> {
    return this.#calls.unary(method.status, request, request.probe ? STATUS_WITH_PROBE : STATUS, options);
  }

  /** Starts a sync run, or joins the one under way, and returns its events; the last one is `completed`. */
  sync(request: MessageInitShape<typeof SyncRequestSchema> = {}, options?: CallOptions): EventStream<SyncResponse> {
    return this.#calls.stream(method.sync, request, options);
  }

  /** Returns an agent's index state at once and after each change, until the stream is ended. */
  watch(
    request: MessageInitShape<typeof WatchIndexRequestSchema> = {},
    options?: CallOptions,
  ): EventStream<WatchIndexResponse> {
    return this.#calls.stream(method.watchIndex, request, options);
  }

  /** Decides whether the agent should write lasting notes before its context is compacted. */
  flushDecision(
    request: MessageInitShape<typeof FlushDecisionRequestSchema>,
    options?: CallOptions,
  ): Promise<FlushDecisionResponse> {
    return this.#calls.unary(method.flushDecision, request, FLUSH, options);
  }

  /**
   * Appends `text` to today's log, or to `path`. Where the request has no `idempotencyKey`, a random one is filled in,
   * so that the client's own retries write nothing twice.
   */
  append(
    request: MessageInitShape<typeof MemoryAppendRequestSchema>,
    options?: CallOptions,
  ): Promise<MemoryAppendResponse> {
    return this.#calls.unary(method.memoryAppend, withKey(MemoryAppendRequestSchema, request), APPEND, options);
  }

  /** Removes the file, the session or the text of `target` from every derived store, and counts what was removed. */
  forget(
    request: MessageInitShape<typeof MemoryForgetRequestSchema>,
    options?: CallOptions,
  ): Promise<MemoryForgetResponse> {
    return this.#calls.unary(method.memoryForget, request, FORGET, options);
  }

  /** Tells which files a session loads at its start, with their text, and how its agent recalls. */
  sessionContext(
    request: MessageInitShape<typeof SessionContextRequestSchema>,
    options?: CallOptions,
  ): Promise<SessionContextResponse> {
    return this.#calls.unary(method.sessionContext, request, CONTEXT, options);
  }

  /** Turns the last messages of `transcript` into a memory file; trying again is safe. */
  sessionArchive(
    request: MessageInitShape<typeof SessionArchiveRequestSchema>,
    options?: CallOptions,
  ): Promise<SessionArchiveResponse> {
    return this.#calls.unary(method.sessionArchive, request, ARCHIVE, options);
  }

  /** Lists a page of the agents that the caller may use. */
  listAgents(
    request: MessageInitShape<typeof ListAgentsRequestSchema> = {},
    options?: CallOptions,
  ): Promise<ListAgentsResponse> {
    return this.#calls.unary(method.listAgents, request, LIST, options);
  }

  /** Lists a page of an agent's memory files. */
  listFiles(
    request: MessageInitShape<typeof ListFilesRequestSchema> = {},
    options?: CallOptions,
  ): Promise<ListFilesResponse> {
    return this.#calls.unary(method.listFiles, request, LIST, options);
  }
}
