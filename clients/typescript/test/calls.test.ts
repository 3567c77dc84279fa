import assert from "node:assert/strict";
import { test } from "node:test";

import { create } from "@bufbuild/protobuf";
import { Code, MemorydError } from "@memoryd/client";
import {
  type ListFilesRequest,
  type MemoryAppendRequest,
  MemoryAppendRequestSchema,
  type MemoryFilter,
  MemoryFilterSchema,
  type MemoryRecallRequest,
  type MemorySearchRequest,
  type RememberRequest,
} from "@memoryd/client/v1";

import { type Unary, served } from "./daemon.js";

const unavailable = { code: Code.UNAVAILABLE, details: "come back" };

test("a call takes fields or a message, and 64-bit numbers are exact", async (context) => {
  const minRevision = 9_007_199_254_740_993n;
  const seen: MemorySearchRequest[] = [];
  const client = await served(context, {
    MemorySearch: (call, answer) => {
      seen.push(call.request);
      answer(null, { info: { indexRevision: minRevision } });
    },
  });
  const { info } = await client.search({ query: "日本語 😀", minRevision });
  assert.equal(info?.indexRevision, minRevision);
  assert.equal(seen[0]?.query, "日本語 😀");
  assert.equal(seen[0].minRevision, minRevision);
  assert.equal(seen[0].minScore, undefined);
});

test("every call has its documented deadline, unless the client or the call names another", async (context) => {
  const left: number[] = [];
  const note: Unary = (call, answer) => {
    left.push(Number(call.getDeadline()) - Date.now());
    answer(null, {});
  };
  const answers = { Status: note, MemoryForget: note, MemoryRecall: note, Recall: note };
  const client = await served(context, answers);
  await client.status();
  await client.status({ probe: true });
  await client.forget({ target: { case: "path", value: "a.md" } });
  await client.recall({ text: "x" });
  await client.entries.recall({ query: "x" });
  await client.status({}, { timeoutMs: 30_000 });
  const patient = await served(context, answers, { timeoutMs: 60_000 });
  await patient.status();
  await patient.status({}, { timeoutMs: Infinity });
  const wanted = [2_000, 10_000, 10_000, 2_000, 5_000, 30_000, 60_000, Infinity];
  assert.equal(left.length, wanted.length);
  for (const [index, most] of wanted.entries()) {
    const found = left[index] ?? NaN;
    // On a slow machine less time is left, never more.
    assert.ok(
      found <= most && (most === Infinity ? found === most : found > most / 10),
      `${index}: ${found} of ${most}`,
    );
  }
});

test("a filter is written as plain fields, with search, recall and the list of files", async (context) => {
  const seen: (MemoryFilter | undefined)[] = [];
  const note: Unary = (call, answer) => {
    seen.push((call.request as MemorySearchRequest | MemoryRecallRequest | ListFilesRequest).filter);
    answer(null, {});
  };
  const client = await served(context, { MemorySearch: note, MemoryRecall: note, ListFiles: note });
  const filter = {
    since: "2026-05",
    pathPrefixes: ["projects/"],
    frontMatter: [{ key: "tags", values: ["billing", "cache"] }],
  };
  await client.search({ query: "herons", filter });
  await client.recall({ text: "herons", sessionKey: "main", rememberShown: true, filter });
  await client.listFiles({ filter });
  assert.deepEqual(seen, Array(3).fill(create(MemoryFilterSchema, filter)));
  await client.listFiles({ pageSize: 1 });
  assert.equal(seen[3], undefined);
});

test("a call that takes too long ends with its deadline", async (context) => {
  const client = await served(context, { MemoryGet: () => undefined });
  await assert.rejects(client.get({ path: "a.md" }, { timeoutMs: 50 }), { code: Code.DEADLINE_EXCEEDED, reason: "" });
  await assert.rejects(client.get({ path: "a.md" }, { timeoutMs: NaN }), RangeError);
  await assert.rejects(client.get({ path: "a.md" }, { timeoutMs: -1 }), RangeError);
});

test("a call that ends UNAVAILABLE is tried again, five times in all, with the same key", async (context) => {
  const keys: string[] = [];
  let failures = 2;
  const note: Unary = (call, answer) => {
    keys.push((call.request as MemoryAppendRequest | RememberRequest).idempotencyKey);
    failures -= 1;
    if (failures >= 0) {
      answer(unavailable);
    } else {
      answer(null, {});
    }
  };
  const client = await served(context, { MemoryAppend: note, Remember: note });
  await client.append({ text: "- x".repeat(80_000) });
  assert.equal(keys.length, 3);
  assert.match(keys[0] ?? "", /^[\x21-\x7e]{16,128}$/);
  assert.equal(new Set(keys.splice(0)).size, 1);
  failures = Infinity;
  await assert.rejects(client.entries.remember({ text: "x" }), { code: Code.UNAVAILABLE, message: "come back" });
  assert.equal(keys.length, 5);
  assert.equal(new Set(keys).size, 1);
});

test("a call with a deadline of a second is tried four times in all", async (context) => {
  let tries = 0;
  const fail: Unary = (_, answer) => {
    tries += 1;
    answer(unavailable);
  };
  const client = await served(context, { FlushDecision: fail, SuggestCapture: fail }, { timeoutMs: 60_000 });
  await assert.rejects(client.flushDecision({}), { code: Code.UNAVAILABLE });
  assert.equal(tries, 4);
  await assert.rejects(client.entries.suggestCapture({}), { code: Code.UNAVAILABLE });
  assert.equal(tries, 8);
});

test("a key that the caller gave is kept, and the caller's message is left as it was", async (context) => {
  const keys: string[] = [];
  const client = await served(context, {
    MemoryAppend: (call, answer) => {
      keys.push((call.request as MemoryAppendRequest).idempotencyKey);
      answer(null, {});
    },
  });
  await client.append({ text: "x", idempotencyKey: "mine" });
  const message = create(MemoryAppendRequestSchema, { text: "x" });
  await client.append(message);
  await client.append(message);
  assert.equal(message.idempotencyKey, "");
  assert.equal(keys[0], "mine");
  assert.equal(new Set(keys).size, 3);
});

test("edits have a key, of the caller or a random one", async (context) => {
  const keys: string[] = [];
  const note: Unary = (call, answer) => {
    keys.push((call.request as MemoryAppendRequest).idempotencyKey);
    answer(null, {});
  };
  const client = await served(context, { MemoryWrite: note, MemoryMove: note, MemoryRestore: note });
  await client.write({ path: "a.md", operation: { case: "content", value: "x" }, idempotencyKey: "mine" });
  await client.write({ path: "a.md", operation: { case: "deleteFile", value: {} } });
  await client.move({ path: "a.md", newPath: "b.md" });
  await client.restore({ versionId: "v" });
  assert.equal(keys[0], "mine");
  assert.equal(new Set(keys).size, 4);
  assert.ok(!keys.includes(""));
});

test("an aborted call is CANCELLED, with the signal's reason as its cause", async (context) => {
  const stop = new AbortController();
  const client = await served(context, {
    MemorySearch: () => {
      stop.abort("enough");
    },
  });
  const ended = { name: "MemorydError", code: Code.CANCELLED, cause: "enough" };
  await assert.rejects(client.search({ query: "x" }, { signal: stop.signal }), ended);
  await assert.rejects(client.search({ query: "x" }, { signal: stop.signal }), ended);
});

test("one signal serves many calls without a warning", async (context) => {
  const warnings: Error[] = [];
  const note = (warning: Error): number => warnings.push(warning);
  process.on("warning", note);
  context.after(() => process.off("warning", note));
  const { signal } = new AbortController();
  const client = await served(context, {
    Status: (_, answer) => {
      answer(null, {});
    },
  });
  await Promise.all(Array.from({ length: 30 }, () => client.status({}, { signal })));
  assert.deepEqual(warnings, []);
});

test("closing ends what is under way; a closed client takes no call and can be closed again", async (context) => {
  let called = (): void => undefined;
  const arrived = new Promise<void>((resolve) => (called = resolve));
  const client = await served(context, {
    MemorySearch: () => {
      called();
    },
  });
  const failed = assert.rejects(client.search({ query: "x" }), { code: Code.CANCELLED });
  await arrived;
  await Promise.all([client.close(), client.close(), failed]);
  await assert.rejects(client.status(), { code: Code.CANCELLED, message: "the client is closed" });
  assert.throws(() => client.watch(), MemorydError);
});
