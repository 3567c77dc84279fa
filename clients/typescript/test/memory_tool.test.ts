// tests/clients/cases.json tests the results of the memory tool with a real daemon. These tests need a program that
// changes a file between two calls, or a call that fails.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { type TestContext, test } from "node:test";

import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata } from "@grpc/grpc-js";
import { ErrorInfoSchema, StatusSchema } from "#dist/gen/memoryd/client/status_pb.js";
import { listedPath, parsePath } from "#dist/memory_paths.js";
import { humanSize, linesOfOccurrences, listing } from "#dist/memory_texts.js";
import { Code, MemoryTool } from "@memoryd/client";
import type { MemoryGetRequest, MemoryWriteRequest } from "@memoryd/client/v1";

import { type Unary, served } from "./daemon.js";

const REPLACE = { command: "str_replace", path: "/memories/a.md", old_str: "bravo", new_str: "beta" };

function failure(code: Code, reason: string): { code: Code; details: string; metadata: Metadata } {
  const info = anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { reason, domain: "memoryd" }));
  const detail = { ...info, typeUrl: info.typeUrl.replace("memoryd.client", "google.rpc") };
  const metadata = new Metadata();
  metadata.set(
    "grpc-status-details-bin",
    Buffer.from(toBinary(StatusSchema, create(StatusSchema, { details: [detail] }))),
  );
  return { code, details: reason, metadata };
}

/** Returns a tool whose file has these contents, one for each read, and the hashes that its writes expected. */
async function toolFor(
  context: TestContext,
  contents: readonly string[],
  write: Unary,
): Promise<{ tool: MemoryTool; expected: string[] }> {
  const left = [...contents];
  const expected: string[] = [];
  const client = await served(context, {
    MemoryGet: (call, answer) => {
      const { startLine = 1, lineCount = 120 } = call.request as MemoryGetRequest;
      const text = (left.length > 1 ? left.shift() : left[0]) ?? "";
      const lines = text.split("\n");
      const endLine = Math.min(lines.length, startLine + lineCount - 1);
      answer(null, {
        text: lines.slice(startLine - 1, endLine).join("\n"),
        startLine,
        endLine,
        totalLines: lines.length,
        nextStartLine: endLine < lines.length ? endLine + 1 : 0,
        contentSha256: hashOf(text),
      });
    },
    MemoryWrite: (call, answer) => {
      expected.push((call.request as MemoryWriteRequest).expectedSha256);
      write(call, answer);
    },
  });
  return { tool: new MemoryTool(client), expected };
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

test("an edit is repeated on the content that another program saved", async (context) => {
  let failures = 1;
  const { tool, expected } = await toolFor(context, ["alpha\nbravo\n", "zero\nalpha\nbravo\n"], (_, answer) => {
    failures -= 1;
    if (failures >= 0) {
      answer(failure(Code.ABORTED, "CONTENT_CHANGED"));
    } else {
      answer(null, {});
    }
  });
  assert.match(await tool.execute(REPLACE), /\n {5}1\tzero\n {5}2\talpha\n {5}3\tbeta$/);
  assert.deepEqual(expected, [hashOf("alpha\nbravo\n"), hashOf("zero\nalpha\nbravo\n")]);
});

test("an edit of a file that changes each time is given up", async (context) => {
  const { tool, expected } = await toolFor(context, ["bravo\n"], (_, answer) => {
    answer(failure(Code.ABORTED, "CONTENT_CHANGED"));
  });
  assert.match(await tool.execute(REPLACE), /^Error: The file \/memories\/a.md was changed by another program/);
  assert.equal(expected.length, 5);
});

test("a file that changes between two pages is read again", async (context) => {
  const long = "line\n".repeat(2_500);
  const { tool } = await toolFor(context, [long, `first\n${long}`], () => undefined);
  const lines = (await tool.execute({ command: "view", path: "/memories/a.md" })).split("\n");
  assert.equal(lines[1], "     1\tfirst");
  assert.equal(lines.length, 2_502);
});

test("a failure that the model cannot correct is the error of the client, another one is a text", async (context) => {
  const reasons = ["EDITS_DISABLED", "SCOPE_MISSING", "DISK_FULL", "PATH_NOT_ALLOWED", "INVALID_REQUEST"];
  const { tool } = await toolFor(context, ["bravo\n"], (_, answer) => {
    answer(failure(Code.FAILED_PRECONDITION, reasons.shift() ?? ""));
  });
  for (const reason of reasons.slice(0, 3)) {
    await assert.rejects(tool.execute(REPLACE), { name: "MemorydError", reason });
  }
  assert.equal(await tool.execute(REPLACE), "Error: PATH_NOT_ALLOWED");
  assert.equal(await tool.execute(REPLACE), "Error: INVALID_REQUEST");
});

test("a path outside /memories and arguments that are not valid are refused without a call", async () => {
  // The object is no client, so that each call would fail.
  const tool = new MemoryTool({} as never);
  const paths = ["", "/", "/etc", "a.md", "/memoriesx", "//memories/a.md", "/memories/../a.md", "/memories/x/.."];
  for (const path of [...paths, "/memories/./a", "/memories/..%2Fa", "/memories/..\\a", "/memories/a\u0000"]) {
    for (const command of ["view", "delete"]) {
      assert.ok((await tool.execute({ command, path })).startsWith(`Error: The path ${path} is not valid.`), path);
    }
    const renamed = await tool.execute({ command: "rename", old_path: "/memories/a.md", new_path: path });
    assert.ok(renamed.startsWith(`Error: The path ${path} is not valid.`), path);
  }
  const invalid: [unknown, RegExp][] = [
    [{ command: "view", path: 5 }, /`path` must be a string/],
    [{ command: "view", path: "/memories/\ud800.md" }, /not valid Unicode text/],
    [{ command: "view", path: "/memories/a.md", view_range: [1] }, /a list of two integers/],
    [{ command: "view", path: "/memories/a.md", view_range: [3, 2] }, /\[3, 2\]. Its second element/],
    [{ ...REPLACE, old_str: "" }, /must not be empty/],
    [{ command: "insert", path: "/memories/a.md", insert_line: 1.5, insert_text: "" }, /should be an integer/],
    [{ command: "create", path: "/memories/a/", file_text: "" }, /names a directory, not a file/],
    [{ command: "toString" }, /Unknown command: toString/],
    [[], /must be an object/],
  ];
  for (const [input, text] of invalid) {
    assert.match(await tool.execute(input), text);
  }
});

test("the path in a list names the listed file", () => {
  for (const name of ["a.md", "notes.txt.md", "a.md.md", "v1.2.md", ".x.md", "A.MD.md", "été. x.md", "a..md"]) {
    const file = `memory/x/${name}`;
    const { parts } = parsePath(listedPath(file).given);
    const named = ["memory", ...parts].join("/");
    assert.equal(named.endsWith(".md") ? named : `${named}.md`, file);
  }
  assert.equal(listedPath("memory/x/notes.txt.md").given, "/memories/x/notes.txt");
});

test("a name with control characters adds no line to a list", () => {
  const files = [
    { path: "memory/b\n9K\tc.md", size: 1 },
    { path: "memory/d\u001b/e.md", size: 1 },
  ];
  assert.deepEqual(listing(parsePath("/memories"), files).split("\n").slice(1), [
    "2B\t/memories",
    "1B\t/memories/b\ufffd9K\ufffdc.md",
    "1B\t/memories/d\ufffd/",
    "1B\t/memories/d\ufffd/e.md",
  ]);
});

test("sizes and lines of occurrences are texts as in the Python client", () => {
  assert.deepEqual([0, 1023, 1024, 5632, 1_258_291, 3 * 2 ** 30].map(humanSize), [
    "0B",
    "1023B",
    "1K",
    "5.5K",
    "1.2M",
    "3G",
  ]);
  assert.equal(linesOfOccurrences("aaa\nb\na\n", "a"), "1, 3");
  assert.match(linesOfOccurrences("a\n".repeat(200), "a"), /99, 100 and others$/);
});
