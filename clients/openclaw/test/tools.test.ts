import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";

import { connect } from "@memoryd/client";

import { WorkspaceCheck } from "../src/capability.js";
import { excerptOf } from "../src/tools.js";
import { FakeHost, Home, connectionTo, hostOf, serving } from "./daemon.js";

const QUERY = "what is the staging database called";

test("memory_search returns the results of the daemon in the host's form", async (t) => {
  const { home, host } = await serving(t);
  const details = await host.runTool("memory_search", { query: QUERY, maxResults: 1 });
  await using client = connect({ address: home.address });
  const { results } = await client.search({ agentId: "main", query: QUERY, maxResults: 1 });
  const [hit] = details.results as Record<string, unknown>[];
  assert.equal(hit?.path, "MEMORY.md");
  assert.equal(hit.score, results[0]?.score);
  assert.equal(hit.citation, results[0]?.citation);
  assert.match(String(hit.snippet), /quokka/);
  assert.equal(hit.source, "memory");
  assert.equal(hit.corpus, "memory");
  assert.equal(hit.importance, 8);
  assert.equal((hit.provenance as { originClass: string }).originClass, "agent");
  assert.equal(details.provider, "none");
  assert.equal(details.citations, "auto");
  assert.equal("disabled" in details, false);
});

test("a search without results has the reason as its warning", async (t) => {
  const { host } = await serving(t);
  const details = await host.runTool("memory_search", { query: "zygomorphic" });
  assert.deepEqual(details.results, []);
  assert.match(String(details.warning), /zygomorphic|words occur/);
});

test("an empty query is an error of the arguments", async (t) => {
  const host = new FakeHost({}, new Home(t).state);
  for (const query of ["", "  ", undefined, 7]) {
    await assert.rejects(host.runTool("memory_search", { query }), {
      name: "ToolInputError",
      message: "query required",
    });
  }
});

test("a query that is too long is an error of the arguments", async (t) => {
  const { host } = await serving(t);
  await assert.rejects(host.runTool("memory_search", { query: "x".repeat(5_000) }), { name: "ToolInputError" });
});

test("while the daemon is away, memory is unavailable with the reason, and recovers by itself", async (t) => {
  const { home, host } = await serving(t);
  assert.equal("disabled" in (await host.runTool("memory_search", { query: QUERY })), false);
  await home.kill();
  const details = await host.runTool("memory_search", { query: QUERY });
  assert.deepEqual(details.results, []);
  assert.equal(details.disabled, true);
  assert.equal(details.unavailable, true);
  assert.match(String(details.error), /^memoryd: UNAVAILABLE: .*m\.sock/);
  assert.match(String(details.action), /memoryd status/);
  const read = await host.runTool("memory_get", { path: "MEMORY.md" });
  assert.equal(read.status, "error");
  await home.start();
  const [hit] = (await host.runTool("memory_search", { query: QUERY })).results as { path: string }[];
  assert.equal(hit?.path, "MEMORY.md");
});

test("memory_get returns lines, not_found and errors", async (t) => {
  const { home, host } = await serving(t);
  home.write("memory/long.md", Array.from({ length: 300 }, (_, i) => `line ${i + 1}`).join("\n"));
  const some = await host.runTool("memory_get", { path: "memory/long.md", from: 2, lines: 2 });
  assert.equal(some.status, "ok");
  assert.match(String(some.text), /^line 2\nline 3\n\n\[More text follows\. Continue with from=4\.\]$/);
  assert.deepEqual([some.from, some.lines, some.nextFrom, some.truncated], [2, 2, 4, true]);
  const all = await host.runTool("memory_get", { path: "memory/long.md" });
  assert.deepEqual([all.lines, all.nextFrom], [120, 121]);
  const rest = await host.runTool("memory_get", { path: "memory/long.md", from: 299 });
  assert.deepEqual([rest.text, "truncated" in rest], ["line 299\nline 300", false]);
  const last = await host.runTool("memory_get", { path: "MEMORY.md", from: 1, lines: 4 });
  assert.deepEqual([last.lines, "truncated" in last], [4, false]);
  assert.deepEqual(await host.runTool("memory_get", { path: "memory/missing.md" }), {
    status: "not_found",
    text: "",
    path: "memory/missing.md",
  });
  for (const path of ["../../etc/passwd", "/etc/passwd", "AGENTS.md"]) {
    const refused = await host.runTool("memory_get", { path });
    assert.deepEqual([refused.status, refused.code, refused.text], ["error", "MEMORY_PATH_NOT_ALLOWED", ""]);
  }
});

test("memory_get reads no transcripts", async (t) => {
  const host = hostOf(t, new Home(t));
  for (const path of [
    "sessions/a.jsonl",
    "./sessions/main/a.jsonl",
    "memory/../sessions/a.jsonl",
    "x.jsonl.reset.1",
    "sessions/a.md.zst",
  ]) {
    const refused = await host.runTool("memory_get", { path });
    assert.deepEqual([refused.status, refused.code], ["error", "MEMORY_PATH_NOT_ALLOWED"]);
  }
});

test("memory_get obeys the host's limit of characters", async (t) => {
  const settings = { agents: { defaults: { contextLimits: { memoryGetMaxChars: 20 } } } };
  const { home } = await serving(t);
  const host = hostOf(t, home, { settings });
  const details = await host.runTool("memory_get", { path: "MEMORY.md" });
  assert.deepEqual([details.lines, details.nextFrom], [2, 3]);
});

test("an excerpt has whole lines, and reports what is missing", () => {
  const excerpt = (text: string, wanted: number, most: number, next = 0, truncated = false): unknown[] => {
    const endLine = text === "" ? 4 : 4 + text.split("\n").length;
    const read = { text, startLine: 5, endLine, nextStartLine: next, truncated };
    const details = excerptOf(read, wanted, most);
    return [details.text, details.lines, details.nextFrom];
  };
  const more = (line: number): string => `\n\n[More text follows. Continue with from=${line}.]`;
  assert.deepEqual(excerpt("", 9, 10), ["", 0, undefined]);
  assert.deepEqual(excerpt("ab\ncd", 9, 5), ["ab\ncd", 2, undefined]);
  assert.deepEqual(excerpt("ab\ncd\n", 9, 5), ["ab\ncd\n", 2, undefined]);
  assert.deepEqual(excerpt("ab\ncd\n", 2, 5), ["ab\ncd\n", 2, undefined]);
  assert.deepEqual(excerpt("ab\ncd\nef", 2, 99), [`ab\ncd${more(7)}`, 2, 7]);
  assert.deepEqual(excerpt("ab\ncd", 9, 5, 7), [`ab\ncd${more(7)}`, 2, 7]);
  assert.deepEqual(excerpt("ab\ncd", 9, 4), [`ab${more(6)}`, 1, 6]);
  assert.deepEqual(excerpt("\nabcdef", 9, 4), [more(6), 1, 6]);
  assert.deepEqual(excerpt("abcdef\ngh", 9, 4), [`abcd\n\n[Line 5 was cut.]${more(6)}`, 1, 6]);
  assert.deepEqual(excerpt("a😀", 9, 2), ["a\n\n[Line 5 was cut.]", 1, undefined]);
  assert.deepEqual(excerpt("ab", 9, 99, 0, true), ["ab\n\n[Line 5 was cut.]", 1, undefined]);
});

test("a path is tidied before it is read", async (t) => {
  const { host } = await serving(t);
  for (const path of ["./MEMORY.md", "memory/../MEMORY.md", " MEMORY.md "]) {
    const { status, lines, truncated } = await host.runTool("memory_get", { path, from: 1, lines: 4 });
    assert.deepEqual([status, lines, truncated], ["ok", 4, undefined], path);
  }
  const past = await host.runTool("memory_get", { path: "MEMORY.md", from: 1e12 });
  assert.deepEqual([past.status, past.text, past.lines], ["ok", "", 0]);
});

test("transcripts that are not indexed are reported", async (t) => {
  const { host } = await serving(t);
  const details = await host.runTool("memory_search", { query: QUERY, corpus: "sessions" });
  assert.deepEqual([details.disabled, details.error], [true, "session transcripts are not indexed"]);
});

test("memory_append is optional and appends to the log", async (t) => {
  const { host } = await serving(t);
  assert.deepEqual(host.optionalTools, ["memory_append"]);
  const details = await host.runTool("memory_append", {
    text: "The wombat service moved.",
    path: "memory/2026-03-01.md",
  });
  assert.deepEqual(details, { status: "ok", path: "memory/2026-03-01.md", startLine: 1, endLine: 1 });
  const refused = await host.runTool("memory_append", { text: "x", path: "../outside.md" });
  assert.equal(refused.status, "error");
  const group = { sessionKey: "agent:main:telegram:group:1" };
  for (const [path, context] of [
    ["MEMORY.md", group],
    ["./USER.md", group],
    ["memory/2026-03-01.md", { sandboxed: true }],
  ] as const) {
    const { status, error } = await host.runTool("memory_append", { text: "x", path }, context);
    assert.equal(status, "error");
    assert.match(String(error), /main session can append|in a sandbox/);
  }
  assert.equal((await host.runTool("memory_append", { text: "The emu job failed." }, group)).status, "ok");
  assert.equal((await host.runTool("memory_append", { text: "Ana likes tea.", path: "USER.md" })).path, "USER.md");
});

test("an agent whose memory search is disabled has no tools", (t) => {
  const host = new FakeHost({}, new Home(t).state);
  const disabled = { memory: { search: { enabled: false } } };
  for (const config of [disabled, { agents: { entries: { main: disabled } } }]) {
    assert.equal(host.tools.get("memory_search")?.({ agentId: "main", config }), null);
  }
});

test("a request goes to the agent of the session", async (t) => {
  const { host } = await serving(t);
  const context = { agentId: undefined, sessionKey: "agent:other:main" };
  const details = await host.runTool("memory_search", { query: QUERY }, context);
  assert.match(String(details.error), /AGENT_NOT_FOUND.*other/);
});

test("a corpus that cannot be searched is reported", async (t) => {
  const host = new FakeHost({}, new Home(t).state);
  const wiki = await host.runTool("memory_search", { query: QUERY, corpus: "wiki" });
  assert.deepEqual([wiki.disabled, wiki.error], [true, "memoryd has no wiki corpus"]);
  for (const context of [
    { sessionKey: "agent:main:telegram:group:1" },
    { sandboxed: true },
    { senderIsOwner: false },
  ]) {
    const sessions = await host.runTool("memory_search", { query: QUERY, corpus: "sessions" }, context);
    assert.match(String(sessions.error), /not allowed/);
  }
});

test("another workspace than the daemon's is a warning in the log, once", async (t) => {
  const { home, host } = await serving(t);
  const warnings = (): string[] => host.log.lines.filter((line) => line.startsWith("warn"));
  const wrong = { workspaceDir: home.folder };
  await host.runTool("memory_search", { query: QUERY }, wrong);
  await host.runTool("memory_search", { query: QUERY }, wrong);
  while (warnings().length === 0) {
    await setTimeout(10);
  }
  assert.match(warnings()[0] ?? "", /agent "main" has the workspace .* in OpenClaw, but .*workspace in memoryd/);
  assert.equal(warnings().length, 1);
});

test("the daemon's own workspace is no warning, and a sandbox's copy is not compared", async (t) => {
  const { home, host } = await serving(t);
  const check = new WorkspaceCheck(host.log, connectionTo(t, home));
  await check.run("main", `${home.workspace}/../workspace`);
  await host.runTool("memory_search", { query: QUERY }, { workspaceDir: home.folder, sandboxed: true });
  assert.deepEqual(host.log.lines, []);
});
