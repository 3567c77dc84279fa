// Makes the calls of a connection, given the generated method descriptions.

import { setMaxListeners } from "node:events";

import {
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
  create,
  fromBinary,
  toBinary,
} from "@bufbuild/protobuf";
import { type CallOptions as GrpcOptions, type Client, Metadata } from "@grpc/grpc-js";

import { Code, type MemorydError, cancelled, decode } from "./error.js";
import { EventStream } from "./stream.js";

/** Options of one call. */
export interface CallOptions {
  /** The call's deadline in milliseconds, instead of the default deadline. `Infinity` means none. */
  readonly timeoutMs?: number | undefined;
  /** Aborts the call: it fails as CANCELLED, with the signal's reason as its cause. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of all calls of a client. */
export interface CallDefaults {
  /** The bearer token; empty means none. */
  readonly token: string;
  /** Replaces the default deadlines; undefined keeps them. */
  readonly timeoutMs: number | undefined;
  /** The addresses of the connection, for errors. */
  readonly addresses: readonly string[];
}

/** The description of a unary method. */
export type Unary<I extends DescMessage, O extends DescMessage> = DescMethodUnary<I, O>;

/** The description of a streaming method. */
export type Streaming<I extends DescMessage, O extends DescMessage> = DescMethodServerStreaming<I, O>;

const CLOSED = "the client is closed";

/** Makes the calls of one connection, and keeps track of running calls, so that closing ends them. */
export class Calls {
  readonly #client: Client;
  readonly #defaults: CallDefaults;
  readonly #underWay = new Set<{ cancel(): void }>();
  #closed = false;

  constructor(client: Client, defaults: CallDefaults) {
    this.#client = client;
    this.#defaults = defaults;
  }

  /** Calls `method`; `documentedMs` is its default deadline. */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: Unary<I, O>,
    request: MessageInitShape<I>,
    documentedMs: number,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const bytes = encode(method.input, request);
    const { metadata, grpcOptions } = this.#prepare(options, this.#defaults.timeoutMs ?? documentedMs);
    return new Promise((resolve, reject) => {
      const read = decoder(method.output);
      const call = this.#client.makeUnaryRequest(
        pathOf(method),
        same,
        read,
        bytes,
        metadata,
        grpcOptions,
        (error, value) => {
          finish();
          if (error) {
            const isAborted = options.signal?.aborted && error.code === Code.CANCELLED;
            reject(isAborted ? aborted(options.signal) : decode(error, this.#defaults.addresses));
          } else {
            resolve(value as MessageShape<O>);
          }
        },
      );
      const finish = this.#follow(call, options.signal);
    });
  }

  /** Opens a stream of `method`, which has no deadline unless `options` sets one. */
  stream<I extends DescMessage, O extends DescMessage>(
    method: Streaming<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): EventStream<MessageShape<O>> {
    const bytes = encode(method.input, request);
    const { metadata, grpcOptions } = this.#prepare(options, Infinity);
    const read = decoder(method.output);
    const call = this.#client.makeServerStreamRequest(pathOf(method), same, read, bytes, metadata, grpcOptions);
    const { signal } = options;
    const cancel = (): void => {
      stream.cancel(this.#closed ? cancelled(CLOSED) : signal && aborted(signal));
    };
    const onEnd = (): void => {
      finish();
    };
    const stream = new EventStream<MessageShape<O>>(call, onEnd, this.#defaults.addresses);
    const finish = this.#follow({ cancel }, signal);
    return stream;
  }

  /** Ends the running calls and refuses further ones. */
  end(): void {
    this.#closed = true;
    for (const call of this.#underWay) {
      call.cancel();
    }
  }

  #prepare(options: CallOptions, timeoutMs: number): { metadata: Metadata; grpcOptions: GrpcOptions } {
    if (this.#closed) {
      throw cancelled(CLOSED);
    }
    if (options.signal?.aborted) {
      throw aborted(options.signal);
    }
    const metadata = new Metadata();
    if (this.#defaults.token !== "") {
      metadata.set("authorization", `Bearer ${this.#defaults.token}`);
    }
    return { metadata, grpcOptions: { deadline: Date.now() + checkedTimeout(options.timeoutMs ?? timeoutMs) } };
  }

  // Lets the signal and `end` abort a call, until the returned function is called.
  #follow(call: { cancel(): void }, signal: AbortSignal | undefined): () => void {
    const onAbort = (): void => {
      call.cancel();
    };
    this.#underWay.add(call);
    if (signal) {
      // One signal may abort any number of calls; that is not a leak.
      setMaxListeners(0, signal);
    }
    signal?.addEventListener("abort", onAbort, { once: true });
    return () => {
      this.#underWay.delete(call);
      signal?.removeEventListener("abort", onAbort);
    };
  }
}

/** Returns the timeout if it is valid. */
export function checkedTimeout(timeoutMs: number): number {
  if (Number.isNaN(timeoutMs) || timeoutMs < 0) {
    throw new RangeError(`a timeout is a number of milliseconds from 0 on; got ${timeoutMs}`);
  }
  return timeoutMs;
}

function aborted(signal: AbortSignal): MemorydError {
  return cancelled("the call was aborted", signal.reason);
}

function pathOf(method: { readonly parent: { readonly typeName: string }; readonly name: string }): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function encode<I extends DescMessage>(schema: I, request: MessageInitShape<I>): Buffer {
  return Buffer.from(toBinary(schema, create(schema, request)));
}

function decoder<O extends DescMessage>(schema: O): (bytes: Buffer) => MessageShape<O> {
  return (bytes) => fromBinary(schema, bytes);
}

function same(bytes: Buffer): Buffer {
  return bytes;
}
