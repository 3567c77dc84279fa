import assert from "node:assert/strict";
import { symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { connect } from "@memoryd/client";

import { classifyPaths } from "../src/hits.js";
import type { Hit, MemoryManager } from "../src/host.js";
import type { ReadOrigin } from "../src/provenance.js";
import { FakeHost, Home, hostOf, serving } from "./daemon.js";

const QUERY = "what is the staging database called";

async function managerOf(host: FakeHost): Promise<MemoryManager> {
  const { manager, error } = await host.runtime.getMemorySearchManager({ cfg: {}, agentId: "main", purpose: "cli" });
  assert.ok(manager, error);
  return manager;
}

test("registration opens no connection, and needs no runtime for the metadata of commands", (t) => {
  const { state } = new Home(t);
  const host = new FakeHost({}, state);
  assert.deepEqual([...host.tools.keys()], ["memory_search", "memory_get", "memory_append"]);
  assert.deepEqual([...host.hooks.keys()], ["after_compaction", "session_end"]);
  const metadata = new FakeHost({}, state, "cli-metadata");
  assert.equal(metadata.capability, undefined);
  assert.equal(metadata.commands.length, 1);
});

test("the manager searches, reads, syncs and shows the status", async (t) => {
  const { home, host } = await serving(t);
  const manager = await managerOf(host);
  const debug: object[] = [];
  const hits = await manager.search(QUERY, { maxResults: 99, minScore: 0, onDebug: (each) => debug.push(each) });
  assert.equal(hits[0]?.path, "MEMORY.md");
  assert.equal(hits[0].textScore, 1);
  assert.deepEqual(debug, [{ backend: "builtin", effectiveMode: "keyword" }]);
  const read = await manager.readFile({ relPath: "MEMORY.md", from: 3, lines: 1 });
  assert.deepEqual([read.status, read.from, read.lines, read.nextFrom], ["ok", 3, 1, 4]);
  assert.deepEqual(await manager.readFile({ relPath: "memory/none.md" }), {
    status: "not_found",
    text: "",
    path: "memory/none.md",
  });
  await assert.rejects(manager.readFile({ relPath: "../x.md" }), { reason: "PATH_NOT_ALLOWED" });
  await assert.rejects(manager.readFile({ relPath: "sessions/main/a.jsonl" }), /is not a memory file/);
  assert.equal(manager.status().files, 3);
  home.write("memory/2026-02-09.md", "The numbat cluster is new.\n");
  const progress: { completed: number; total: number }[] = [];
  await manager.sync?.({ force: true, progress: (update) => progress.push(update) });
  const status = manager.status();
  assert.deepEqual([status.files, status.dirty, status.provider, status.backend], [4, false, "none", "builtin"]);
  assert.equal(status.custom?.searchMode, "fts-only");
  assert.deepEqual(status.sources, ["memory"]);
  assert.equal(progress.at(-1)?.completed, progress.at(-1)?.total);
  assert.equal(manager.getCachedEmbeddingAvailability?.(), null);
  assert.equal((await manager.probeEmbeddingAvailability()).ok, false);
  assert.equal(await manager.probeVectorAvailability(), false);
  await manager.close?.();
  assert.equal((await manager.search(QUERY)).length > 0, true);
});

test("a sync of the manager is a sync of the daemon", async (t) => {
  const { home, host } = await serving(t);
  const manager = await managerOf(host);
  home.write("memory/2026-02-09.md", "The numbat cluster is new.\n");
  await manager.sync?.({});
  await using client = connect({ address: home.address });
  const { index } = await client.status({ agentId: "main" });
  assert.deepEqual([index?.files, index?.dirty], [4, false]);
});

test("a search of the manager can be aborted", async (t) => {
  const { host } = await serving(t);
  const manager = await managerOf(host);
  await assert.rejects(manager.search(QUERY, { signal: AbortSignal.abort() }), /aborted/);
});

test("without a daemon there is no manager, but a reason", async (t) => {
  const home = new Home(t);
  const host = hostOf(t, home);
  const missing = await host.runtime.getMemorySearchManager({ cfg: {}, agentId: "main" });
  assert.equal(missing.manager, null);
  assert.match(missing.error ?? "", /^memoryd: UNAVAILABLE: /);
  await home.start();
  await managerOf(host);
});

test("an unusable setting is the reason, too", async (t) => {
  const home = new Home(t);
  const host = hostOf(t, home, { plugin: { address: "127.0.0.1:1", tokenFile: join(home.folder, "none") } });
  const { error } = await host.runtime.getMemorySearchManager({ cfg: {}, agentId: "main" });
  assert.match(error ?? "", /the token file .*none cannot be read/);
});

test("files that the agent wrote can enter a prompt, all others cannot", async (t) => {
  const home = new Home(t);
  for (const path of ["users/ana/USER.md", "users/ana/NOTES.md", "AGENTS.md"]) {
    home.write(path, "x");
  }
  for (const path of ["memory/dreaming/rem/2026-02-08.md", "memory/.dreams/x.md"]) {
    home.write(path, "x");
  }
  writeFileSync(join(home.folder, "outside.md"), "x");
  symlinkSync(join(home.folder, "outside.md"), join(home.workspace, "memory/link.md"));
  symlinkSync(join(home.workspace, "MEMORY.md"), join(home.workspace, "memory/inside.md"));
  const expected = {
    "MEMORY.md": "agent",
    "USER.md": "agent",
    "users/ana/USER.md": "agent",
    "users/ana/NOTES.md": "untrusted",
    "users/../USER.md": "agent",
    "memory\\2026-02-08.md": "untrusted",
    "memory/2026-02-08.md": "agent",
    "memory/not-yet.md": "untrusted",
    "memory/inside.md": "agent",
    "memory/link.md": "untrusted",
    "memory/../AGENTS.md": "untrusted",
    "../outside.md": "untrusted",
    "AGENTS.md": "untrusted",
    "memory/dreaming/rem/2026-02-08.md": "system",
    "memory/.dreams/x.md": "system",
  };
  const host = hostOf(t, home);
  const classified = await host.runtime.classifyWorkspaceMemoryPaths?.({
    cfg: {},
    agentId: "main",
    workspaceDir: home.workspace,
    relativePaths: Object.keys(expected),
  });
  assert.deepEqual(
    Object.fromEntries(classified?.map((each) => [each.relativePath, each.originClass]) ?? []),
    expected,
  );
});

test("a file that somebody else wrote does not enter a prompt", async (t) => {
  const { workspace } = new Home(t);
  const classOf = async (read: ReadOrigin): Promise<string | undefined> =>
    (await classifyPaths(workspace, ["MEMORY.md"], undefined, read))[0]?.originClass;
  assert.equal(await classOf(() => Promise.resolve("untrusted")), "untrusted");
  assert.equal(await classOf(() => Promise.resolve("owner")), "owner");
  assert.equal(await classOf(() => Promise.resolve(undefined)), "agent");
  assert.equal(await classOf(() => Promise.reject(new Error("the records cannot be read"))), "untrusted");
});

test("files of another host are classified by the path that the host found", async () => {
  const sources = [{ relativePath: "MEMORY.md", canonicalRelativePath: "MEMORY.md" }, { relativePath: "USER.md" }];
  assert.deepEqual(await classifyPaths("/nowhere", ["MEMORY.md", "USER.md"], sources), [
    { relativePath: "MEMORY.md", originClass: "agent" },
    { relativePath: "USER.md", originClass: "untrusted" },
  ]);
});

test("only the private main session sees hits in transcripts", async (t) => {
  const host = hostOf(t, new Home(t));
  const hits = [{ source: "memory" }, { source: "sessions" }] as Hit[];
  const seen = async (requesterSessionKey: string | undefined, sandboxed = false): Promise<number | undefined> =>
    (await host.runtime.authorizeSearchHits?.({ cfg: {}, agentId: "main", requesterSessionKey, sandboxed, hits }))
      ?.length;
  assert.equal(await seen("agent:main:main"), 2);
  assert.equal(await seen("agent:main:main:thread:7"), 2);
  assert.equal(await seen("agent:main:main", true), 1);
  for (const key of [undefined, "", "main", "agent:other:main", "agent:main:telegram:group:1", "agent:main:mainly"]) {
    assert.equal(await seen(key), 1, key);
  }
});

test("the prompt section depends on the tools, and the flush plan on the settings", (t) => {
  const { capability } = hostOf(t, new Home(t));
  const prompt = (...tools: string[]): string =>
    capability?.promptBuilder?.({ availableTools: new Set(tools) }).join("\n") ?? "";
  assert.equal(prompt("exec"), "");
  assert.match(prompt("memory_search", "memory_get"), /memory_search[^]*memory_get[^]*MEMORY\.md[^]*path#line/);
  assert.doesNotMatch(prompt("memory_search"), /memory_get/);
  const group = {
    availableTools: new Set(["memory_search"]),
    agentSessionKey: "agent:main:x:group:1",
    agentId: "main",
  };
  assert.doesNotMatch(
    capability?.promptBuilder?.({ ...group, citationsMode: "off" }).join("\n") ?? "",
    /MEMORY\.md|#line/,
  );

  const nowMs = Date.UTC(2026, 1, 8, 20);
  const plan = (memoryFlush: object, contextWindowTokens?: number, userTimezone = "UTC"): object | null | undefined =>
    capability?.flushPlanResolver?.({
      cfg: { agents: { defaults: { userTimezone, compaction: { memoryFlush } } } },
      nowMs,
      ...(contextWindowTokens && { contextWindowTokens }),
    });
  const numbers = (each: object | null | undefined): unknown[] => Object.values(each ?? {}).slice(0, 3);
  assert.equal(plan({ enabled: false }), null);
  assert.deepEqual(numbers(plan({})), [4_000, 2 * 1024 * 1024, 20_000]);
  assert.deepEqual(numbers(plan({ softThresholdTokens: 9_000, forceFlushTranscriptBytes: "1mb" }, 200_000)), [
    9_000,
    1024 * 1024,
    20_000,
  ]);
  // The threshold of a window of 32,768 tokens is 20,576.
  assert.deepEqual(numbers(plan({}, 32_768)), [4_000, 2 * 1024 * 1024, 8_192]);
  assert.deepEqual(numbers(plan({}, 8_000)), [3_000, 2 * 1024 * 1024, 2_000]);
  assert.equal((plan({ model: "m" }) as { model: string }).model, "m");
  assert.equal((plan({}) as { relativePath: string }).relativePath, "memory/2026-02-08.md");
  assert.equal((plan({}, 0, "Asia/Tokyo") as { relativePath: string }).relativePath, "memory/2026-02-09.md");
  assert.match((plan({}, 0, "Nowhere/X") as { relativePath: string }).relativePath, /^memory\/2026-02-0[789]\.md$/);
});
