import assert from "node:assert/strict";
import { test } from "node:test";

import { Code } from "@memoryd/client";

import { type Streaming, type Unary, served } from "./daemon.js";

/** Sends `count` events and then the end or failure of the stream. */
function sending(count: number, end: (call: Parameters<Streaming>[0]) => void): Streaming {
  return (call) => {
    for (let sequence = 1n; sequence <= BigInt(count); sequence += 1n) {
      call.write({ sequence });
    }
    end(call);
  };
}

/** Resolves when the server's stream was cancelled. */
function leaving(count: number): { answer: Streaming; left: Promise<void> } {
  let done = (): void => undefined;
  const left = new Promise<void>((resolve) => (done = resolve));
  return { answer: sending(count, (call) => call.on("cancelled", done)), left };
}

test("a stream gives every event in order, however slowly they are taken, and ends", async (context) => {
  const client = await served(context, { Sync: sending(3_000, (call) => call.end()) });
  const seen: bigint[] = [];
  for await (const { sequence } of client.sync()) {
    seen.push(sequence);
    if (sequence % 500n === 0n) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  assert.deepEqual(
    seen,
    Array.from({ length: 3_000 }, (_, index) => BigInt(index + 1)),
  );
});

test("a stream that fails gives what came before, and then the same error as often as it is asked", async (context) => {
  let fail = (): void => undefined;
  const answer = sending(40, (call) => {
    fail = () => call.emit("error", { code: Code.ABORTED, details: "no more" });
  });
  const done: Unary = (_, reply) => {
    reply(null, {});
  };
  const client = await served(context, { Sync: answer, Status: done });
  const events = client.sync();
  await events.next();
  // A later response on the same connection arrives after the events, so the failure does not overtake them.
  await client.status({}, { timeoutMs: 30_000 });
  fail();
  await client.status({}, { timeoutMs: 30_000 });
  for (let sequence = 2n; sequence <= 40n; sequence += 1n) {
    assert.equal((await events.next()).value?.sequence, sequence);
  }
  const failed = { name: "MemorydError", code: Code.ABORTED, message: "no more" };
  await assert.rejects(events.next(), failed);
  await assert.rejects(events.next(), failed);
});

test("leaving the loop cancels the call", async (context) => {
  const { answer, left } = leaving(3);
  const client = await served(context, { WatchIndex: answer });
  const events = client.watch();
  for await (const event of events) {
    assert.ok(event);
    break;
  }
  await left;
  assert.deepEqual(await events.next(), { value: undefined, done: true });
});

test("await using cancels the call", async (context) => {
  const { answer, left } = leaving(3);
  const client = await served(context, { WatchIndex: answer });
  {
    await using events = client.watch();
    await events.next();
  }
  await left;
});

test("after cancel, next and pending calls of next reject with CANCELLED", async (context) => {
  const { answer, left } = leaving(1);
  const client = await served(context, { WatchIndex: answer });
  const events = client.watch();
  await events.next();
  const waiting = assert.rejects(events.next(), { code: Code.CANCELLED });
  events.cancel();
  await waiting;
  await assert.rejects(events.next(), { code: Code.CANCELLED, message: "the stream was cancelled" });
  await left;
});

test("a stream that is cancelled is CANCELLED, also when all of it had arrived; one that has ended is not", async (context) => {
  const client = await served(context, {
    Sync: sending(3, (call) => call.end()),
    Status: (_, reply) => {
      reply(null, {});
    },
  });
  const events = client.sync();
  await events.next();
  await client.status({}, { timeoutMs: 30_000 });
  events.cancel();
  await assert.rejects(events.next(), { code: Code.CANCELLED });
  await assert.rejects(events.next(), { code: Code.CANCELLED });
  const whole = client.sync();
  for await (const event of whole) {
    assert.ok(event);
  }
  whole.cancel();
  assert.deepEqual(await whole.next(), { value: undefined, done: true });
});

test("a signal and closing the client end a stream", async (context) => {
  const client = await served(context, { WatchIndex: sending(1, () => undefined) });
  const stop = new AbortController();
  const events = client.watch({}, { signal: stop.signal });
  await events.next();
  stop.abort("enough");
  await assert.rejects(events.next(), { code: Code.CANCELLED, cause: "enough" });
  const others = client.watch();
  await others.next();
  await client.close();
  await assert.rejects(others.next(), { code: Code.CANCELLED, message: "the client is closed" });
});

test("a stream has a deadline only when its caller names one", async (context) => {
  const left: unknown[] = [];
  const note: Streaming = (call) => left.push(call.getDeadline());
  const client = await served(context, { Sync: note }, { timeoutMs: 60_000 });
  const endless = client.sync();
  const waiting = assert.rejects(endless.next(), { code: Code.CANCELLED });
  await assert.rejects(client.sync({}, { timeoutMs: 300 }).next(), { code: Code.DEADLINE_EXCEEDED });
  endless.cancel();
  await waiting;
  assert.equal(left[0], Infinity);
});
