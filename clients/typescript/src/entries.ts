// The calls of the EntryService: short entries that an agent stores and finds by their meaning.

import type { MessageInitShape } from "@bufbuild/protobuf";

import type { CallOptions, Calls } from "./calls.js";
import {
  EntryService,
  type ForgetRequestSchema,
  type ForgetResponse,
  type ListEntriesRequestSchema,
  type ListEntriesResponse,
  type RecallBlockRequestSchema,
  type RecallBlockResponse,
  type RecallRequestSchema,
  type RecallResponse,
  RememberRequestSchema,
  type RememberResponse,
  type SuggestCaptureRequestSchema,
  type SuggestCaptureResponse,
} from "./gen/memoryd/v1/entry_service_pb.js";
import { withKey } from "./idempotency.js";

// Default deadlines in milliseconds, as in the protos.
const REMEMBER = 10_000;
const LOOK_UP = 5_000;
const SUGGEST = 1_000;

const method = EntryService.method;

/**
 * The calls of the entry service, returned by {@link MemorydClient.entries}. If the service is disabled, each call
 * rejects with UNIMPLEMENTED.
 */
export class EntryClient {
  readonly #calls: Calls;

  /** @internal */
  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /**
   * Stores `text`, unless an equivalent entry exists. If the request has no `idempotencyKey`, a random one is sent, so
   * that retries of the client store nothing twice.
   */
  remember(request: MessageInitShape<typeof RememberRequestSchema>, options?: CallOptions): Promise<RememberResponse> {
    return this.#calls.unary(method.remember, withKey(RememberRequestSchema, request), REMEMBER, options);
  }

  /** Returns the entries that are most similar to `query`, best first. */
  recall(request: MessageInitShape<typeof RecallRequestSchema>, options?: CallOptions): Promise<RecallResponse> {
    return this.#calls.unary(method.recall, request, LOOK_UP, options);
  }

  /** Deletes one entry, given its ID or a text that clearly matches it in `target`. */
  forget(request: MessageInitShape<typeof ForgetRequestSchema>, options?: CallOptions): Promise<ForgetResponse> {
    return this.#calls.unary(method.forget, request, LOOK_UP, options);
  }

  /** Returns one page of an agent's entries, newest first. */
  list(
    request: MessageInitShape<typeof ListEntriesRequestSchema> = {},
    options?: CallOptions,
  ): Promise<ListEntriesResponse> {
    return this.#calls.unary(method.listEntries, request, LOOK_UP, options);
  }

  /** Returns which of a turn's `userMessages` are worth storing; stores nothing. */
  suggestCapture(
    request: MessageInitShape<typeof SuggestCaptureRequestSchema>,
    options?: CallOptions,
  ): Promise<SuggestCaptureResponse> {
    return this.#calls.unary(method.suggestCapture, request, SUGGEST, options);
  }

  /** Returns the entries that are relevant to `prompt`, as a text to insert before it. */
  recallBlock(
    request: MessageInitShape<typeof RecallBlockRequestSchema>,
    options?: CallOptions,
  ): Promise<RecallBlockResponse> {
    return this.#calls.unary(method.recallBlock, request, LOOK_UP, options);
  }
}
