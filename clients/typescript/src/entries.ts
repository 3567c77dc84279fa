// The calls of the EntryService: short entries that an agent stores and recalls by meaning.

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

// The documented deadlines of the service, in milliseconds.
const REMEMBER = 10_000;
const LOOK_UP = 5_000;
const SUGGEST = 1_000;

const method = EntryService.method;

/**
 * The calls that concern entries, as {@link MemorydClient.entries} has them. Where entries are off in the daemon, each
 * rejects with UNIMPLEMENTED.
 */
export class EntryClient {
  readonly #calls: Calls;

  /** @internal */
  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /**
   * Stores `text` unless an entry says the same. Where the request has no `idempotencyKey`, a random one is filled in,
   * so that the client's own retries store nothing twice.
   */
  remember(request: MessageInitShape<typeof RememberRequestSchema>, options?: CallOptions): Promise<RememberResponse> {
    return this.#calls.unary(method.remember, withKey(RememberRequestSchema, request), REMEMBER, options);
  }

  /** Finds the entries nearest to `query`, best first. */
  recall(request: MessageInitShape<typeof RecallRequestSchema>, options?: CallOptions): Promise<RecallResponse> {
    return this.#calls.unary(method.recall, request, LOOK_UP, options);
  }

  /** Deletes the entry of an id, or the one that a text clearly means, as `target` says. */
  forget(request: MessageInitShape<typeof ForgetRequestSchema>, options?: CallOptions): Promise<ForgetResponse> {
    return this.#calls.unary(method.forget, request, LOOK_UP, options);
  }

  /** Lists a page of an agent's entries, newest first. */
  list(
    request: MessageInitShape<typeof ListEntriesRequestSchema> = {},
    options?: CallOptions,
  ): Promise<ListEntriesResponse> {
    return this.#calls.unary(method.listEntries, request, LOOK_UP, options);
  }

  /** Tells which of a turn's `userMessages` would be worth storing; stores nothing. */
  suggestCapture(
    request: MessageInitShape<typeof SuggestCaptureRequestSchema>,
    options?: CallOptions,
  ): Promise<SuggestCaptureResponse> {
    return this.#calls.unary(method.suggestCapture, request, SUGGEST, options);
  }

  /** Recalls what concerns `prompt`, as a block to put before it. */
  recallBlock(
    request: MessageInitShape<typeof RecallBlockRequestSchema>,
    options?: CallOptions,
  ): Promise<RecallBlockResponse> {
    return this.#calls.unary(method.recallBlock, request, LOOK_UP, options);
  }
}
