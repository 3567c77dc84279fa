import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";

import { connect } from "@memoryd/client";

import { WorkspaceCheck } from "../src/capability.js";
import { cut } from "../src/tools.js";
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
  for (const path of ["sessions/a.jsonl", "./sessions/main/a.jsonl", "memory/../sessions/a.jsonl", "x.jsonl.reset.1"]) {
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

test("an excerpt is cut to whole lines, and never inside a character", () => {
  assert.deepEqual(cut("", 5, 4, 0, 10), { text: "", lines: 0 });
  assert.deepEqual(cut("ab\ncd", 1, 2, 0, 5), { text: "ab\ncd", lines: 2 });
  assert.deepEqual(cut("ab\ncd", 1, 2, 0, 4), {
    text: "ab\n\n[More text follows. Continue with from=2.]",
    lines: 1,
    truncated: true,
    nextFrom: 2,
  });
  const { text } = cut("a😀", 1, 1, 0, 2);
  assert.equal(text, "a\n\n[The line was cut.]");
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
