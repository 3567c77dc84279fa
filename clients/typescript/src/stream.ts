// The events of a streaming call.

import type { ClientReadableStream } from "@grpc/grpc-js";

import { type MemorydError, cancelled, decode } from "./error.js";

// Maximum number of events to buffer before they are requested; the daemon then keeps only the latest. Events that are
// not buffered when a call fails are lost, so the number is large.
const MOST_WAITING = 1_000;

interface Asked<Event> {
  readonly resolve: (result: IteratorResult<Event, undefined>) => void;
  readonly reject: (error: MemorydError) => void;
}

/**
 * The events of a streaming call. Leaving a `for await` loop, `await using` and {@link cancel} end the call. After the
 * call has failed, every `next` rejects with the same {@link MemorydError}.
 */
export class EventStream<Event> implements AsyncIterableIterator<Event> {
  readonly #call: ClientReadableStream<Event>;
  readonly #onEnd: () => void;
  readonly #waiting: Event[] = [];
  readonly #asked: Asked<Event>[] = [];
  #end: { readonly failure?: MemorydError } | undefined;
  // Whether the end was already reported; until then the stream can still be cancelled.
  #endReported = false;

  /** @internal */
  constructor(call: ClientReadableStream<Event>, onEnd: () => void, addresses: readonly string[] = []) {
    this.#call = call;
    this.#onEnd = onEnd;
    call.on("data", (event: Event) => {
      this.#take(event);
    });
    call.on("end", () => {
      this.#finish({});
    });
    call.on("error", (error: Parameters<typeof decode>[0]) => {
      // Events that were received before the failure are returned first.
      while (call.read() !== null);
      this.#finish({ failure: decode(error, addresses) });
    });
  }

  /** Returns the stream itself: it can be iterated once. */
  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next event. */
  async next(): Promise<IteratorResult<Event, undefined>> {
    if (this.#waiting.length > 0) {
      const value = this.#waiting.shift() as Event;
      if (this.#waiting.length === 0) {
        this.#call.resume();
      }
      return { value, done: false };
    }
    if (this.#end) {
      this.#endReported = true;
      if (this.#end.failure) {
        throw this.#end.failure;
      }
      return { value: undefined, done: true };
    }
    return new Promise((resolve, reject) => this.#asked.push({ resolve, reject }));
  }

  /** Ends the call; called when a `for await` loop is left. */
  async return(): Promise<IteratorResult<Event, undefined>> {
    this.#stop({});
    return Promise.resolve({ value: undefined, done: true });
  }

  /**
   * Ends the call: `next` then rejects with CANCELLED, or with the given failure. A sync run continues unless its
   * request says otherwise. Does nothing if the end of the stream was already reported.
   */
  cancel(failure: MemorydError = cancelled("the stream was cancelled")): void {
    this.#stop({ failure });
  }

  /** Ends the call at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  #take(event: Event): void {
    if (this.#end) {
      return;
    }
    const asked = this.#asked.shift();
    if (asked) {
      asked.resolve({ value: event, done: false });
    } else if (this.#waiting.push(event) >= MOST_WAITING) {
      this.#call.pause();
    }
  }

  #stop(end: { readonly failure?: MemorydError }): void {
    if (this.#endReported) {
      return;
    }
    // Events that were received but not requested are discarded, and with them the end of the stream.
    this.#waiting.length = 0;
    this.#finish(end);
    this.#end = end;
    this.#call.cancel();
  }

  #finish(end: { readonly failure?: MemorydError }): void {
    if (this.#end) {
      return;
    }
    this.#end = end;
    this.#onEnd();
    for (const { resolve, reject } of this.#asked.splice(0)) {
      this.#endReported = true;
      if (end.failure) {
        reject(end.failure);
      } else {
        resolve({ value: undefined, done: true });
      }
    }
  }
}
