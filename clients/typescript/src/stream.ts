// The events of a streaming call, one after the other.

import type { ClientReadableStream } from "@grpc/grpc-js";

import { type MemorydError, cancelled, decode } from "./error.js";

// More than these are not taken off the wire before somebody asks for them; the daemon then keeps the latest. What is
// still on the wire when a call fails is lost, so that they are many.
const MOST_WAITING = 1_000;

interface Asked<Event> {
  readonly resolve: (result: IteratorResult<Event, undefined>) => void;
  readonly reject: (error: MemorydError) => void;
}

/**
 * The events of a streaming call, as they come. Leaving a `for await` loop, `await using` and {@link cancel} end the
 * call. Once the call has failed, every `next` rejects with the same {@link MemorydError}.
 */
export class EventStream<Event> implements AsyncIterableIterator<Event> {
  readonly #call: ClientReadableStream<Event>;
  readonly #onEnd: () => void;
  readonly #waiting: Event[] = [];
  readonly #asked: Asked<Event>[] = [];
  #end: { readonly failure?: MemorydError } | undefined;
  // Whether somebody has been told of the end; until then the stream can still be left.
  #told = false;

  /** @internal */
  constructor(call: ClientReadableStream<Event>, onEnd: () => void) {
    this.#call = call;
    this.#onEnd = onEnd;
    call.on("data", (event: Event) => {
      this.#take(event);
    });
    call.on("end", () => {
      this.#finish({});
    });
    call.on("error", (error: Parameters<typeof decode>[0]) => {
      // What was read before the call failed comes before the failure.
      while (call.read() !== null);
      this.#finish({ failure: decode(error) });
    });
  }

  /** The stream itself: it can be gone through once. */
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
      this.#told = true;
      if (this.#end.failure) {
        throw this.#end.failure;
      }
      return { value: undefined, done: true };
    }
    return new Promise((resolve, reject) => this.#asked.push({ resolve, reject }));
  }

  /** Ends the call as nobody wants its further events; `for await` calls it when it is left. */
  async return(): Promise<IteratorResult<Event, undefined>> {
    this.#stop({});
    return Promise.resolve({ value: undefined, done: true });
  }

  /**
   * Ends the call: `next` then rejects with CANCELLED, or with what is given. What a stream follows goes on: a sync run
   * unless its request asked otherwise. Does nothing when the end of the stream has been told.
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
    if (this.#told) {
      return;
    }
    // What has arrived and was not taken goes, and with it the end that it led to.
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
      this.#told = true;
      if (end.failure) {
        reject(end.failure);
      } else {
        resolve({ value: undefined, done: true });
      }
    }
  }
}
