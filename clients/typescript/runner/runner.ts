// Executes the requests on standard input, one JSON object per line, with the client. tests/clients/README.md describes
// the protocol.

import { createInterface } from "node:readline";

import { type DescMessage, type JsonValue, fromJson, toJson } from "@bufbuild/protobuf";
import {
  Code,
  type CallOptions,
  ConnectError,
  type EventStream,
  MemorydClient,
  MemorydError,
  MemoryTool,
  connect,
} from "@memoryd/client";

import { STREAMS, UNARY } from "./methods.js";

interface Request {
  readonly id: number;
  readonly op: string;
  readonly method?: string;
  readonly stream?: string;
  readonly request?: JsonValue;
  readonly timeout_ms?: number;
  readonly address?: string;
  readonly token?: string;
  readonly tls?: { ca_file?: string; cert_file?: string; key_file?: string; server_name?: string };
  readonly keepalive_ms?: number;
}

interface Open {
  readonly events: EventStream<never>;
  readonly schema: DescMessage;
}

/** An invalid request. */
class Bad extends Error {}

let client: MemorydClient | undefined;
const streams = new Map<string, Open>();

const OPERATIONS: Readonly<Record<string, (request: Request) => Promise<object>>> = {
  async connect(request) {
    await client?.close();
    const tls = request.tls && {
      caFile: request.tls.ca_file,
      certFile: request.tls.cert_file,
      keyFile: request.tls.key_file,
      serverName: request.tls.server_name,
    };
    const { address, token, timeout_ms: timeoutMs, keepalive_ms: keepaliveMs } = request;
    client = connect({ address, token, tls, timeoutMs, keepaliveMs });
    return { ok: {} };
  },

  async call(request) {
    const method = known(UNARY, request.method);
    const answer = await method.call(connected(), read(method.input, request), options(request));
    return { ok: toJson(method.output, answer) };
  },

  async memory_tool(request) {
    return { ok: { text: await new MemoryTool(connected()).execute(request.request) } };
  },

  async open(request) {
    const method = known(STREAMS, request.method);
    const events = method.open(connected(), read(method.input, request), options(request));
    streams.set(request.stream ?? "", { events: events as EventStream<never>, schema: method.output });
    return Promise.resolve({ ok: {} });
  },

  async next(request) {
    const { events, schema } = opened(request);
    const { done, value } = await events.next();
    return done ? { end: true } : { ok: toJson(schema, value) };
  },

  async cancel(request) {
    opened(request).events.cancel();
    return Promise.resolve({ ok: {} });
  },

  async close() {
    await client?.close();
    client = undefined;
    streams.clear();
    return { ok: {} };
  },
};

function known<Value>(table: Readonly<Record<string, Value>>, name: string | undefined): Value {
  const found = name === undefined ? undefined : table[name];
  if (found === undefined) {
    throw new Bad(`there is no ${String(name)}`);
  }
  return found;
}

function connected(): MemorydClient {
  if (client === undefined) {
    throw new Bad("there is no client: connect first");
  }
  return client;
}

function opened(request: Request): Open {
  return known(Object.fromEntries(streams), request.stream);
}

function options(request: Request): CallOptions {
  return { timeoutMs: request.timeout_ms };
}

function read(schema: DescMessage, request: Request): never {
  try {
    return fromJson(schema, request.request ?? {}) as never;
  } catch (error) {
    throw new Bad(String(error));
  }
}

function failureOf(error: unknown): object {
  if (error instanceof Bad) {
    return { bad: error.message };
  }
  if (error instanceof ConnectError) {
    return { refused: error.message };
  }
  if (!(error instanceof MemorydError)) {
    throw error;
  }
  const { reason, message, metadata, violations, retryAfterMs } = error;
  return { error: { code: Code[error.code], reason, message, metadata, violations, retry_after_ms: retryAfterMs } };
}

async function answer(request: Request): Promise<object> {
  try {
    return await known(OPERATIONS, request.op)(request);
  } catch (error) {
    return failureOf(error);
  }
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const request = JSON.parse(line) as Request;
  process.stdout.write(`${JSON.stringify({ id: request.id, ...(await answer(request)) })}\n`);
}
await client?.close();
