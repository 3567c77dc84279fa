import assert from "node:assert/strict";
import { cpSync, existsSync, readFileSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";

import { connect } from "@memoryd/client";

import { findConflicts } from "../src/conflicts.js";
import { Connection } from "../src/connection.js";
import { readSettings } from "../src/settings.js";
import { COMMAND, Home, Log, hostOf } from "./daemon.js";

const FIXTURE = resolve(import.meta.dirname, "../../../../tests/openclaw/state");
const SESSIONS = {
  memory: { search: { provider: "none", experimental: { sessionMemory: true }, sources: ["memory", "sessions"] } },
};

/** A daemon that serves sessions written by OpenClaw, and a host. */
async function withSessions(...[t, plugin = {}, settings = {}]: [Parameters<typeof hostOf>[0], object?, object?]) {
  const home = new Home(t, SESSIONS);
  cpSync(join(FIXTURE, "agents"), join(home.state, "agents"), { recursive: true });
  await home.start();
  const host = hostOf(t, home, { plugin, settings });
  const client = connect({ address: home.address });
  t.after(() => client.close());
  return { home, host, client };
}

test("a session that ends is archived, unless its reason, its kind or the settings say otherwise", async (t) => {
  const { home, host, client } = await withSessions(t);
  const { files } = await client.listFiles({ agentId: "main", pageSize: 1_000 });
  const sessionId = files.map(({ path }) => /^sessions\/main\/([^/.]+)\.jsonl$/.exec(path)?.[1]).find(Boolean);
  assert.ok(sessionId, "the fixture has a session");
  const end = (event: object): Promise<unknown> | undefined =>
    host.hooks.get("session_end")?.({ sessionId, messageCount: 2, ...event }, { agentId: "main", sessionId });
  const notes = (): string[] => readdirSync(join(home.workspace, "memory")).sort();
  const before = notes();
  for (const reason of ["compaction", "deleted", "shutdown", "restart", "unknown", undefined]) {
    await end({ reason });
  }
  await end({ reason: "reset", sessionKey: "agent:main:cron:job:run:1" });
  assert.deepEqual(notes(), before);
  await end({ reason: "reset", sessionKey: "agent:main:main" });
  const [added, ...others] = notes().filter((name) => !before.includes(name));
  assert.deepEqual(others, []);
  assert.match(added ?? "", /^\d{4}-\d\d-\d\d-.+\.md$/);
  assert.match(readFileSync(join(home.workspace, "memory", added ?? ""), "utf8"), /agent:main:main/);
  await end({ reason: "new", sessionKey: "agent:main:main" });
  assert.deepEqual(notes().length, before.length + 1, "the same messages are archived once");
});

test("a session is not archived if the settings say so, or OpenClaw's own hook does it", async (t) => {
  const ownHook = { hooks: { internal: { entries: { "session-memory": { enabled: true } } } } };
  const home = new Home(t);
  for (const host of [
    hostOf(t, home, { plugin: { archiveSessions: false } }),
    hostOf(t, home, { settings: ownHook }),
  ]) {
    // There is no daemon, so a call would be a warning.
    await host.hooks.get("session_end")?.({ sessionId: "s", reason: "reset" }, { agentId: "main" });
    assert.deepEqual(host.log.lines, []);
  }
});

test("a failure to archive is a warning and does not reach OpenClaw", async (t) => {
  const host = hostOf(t, new Home(t));
  await host.hooks.get("session_end")?.({ sessionId: "s", reason: "reset" }, { agentId: "main" });
  assert.match(host.log.lines.join("\n"), /^warn memoryd: session s was not archived: memoryd: UNAVAILABLE/);
});

test("after a compaction the daemon syncs", async (t) => {
  const settings = { agents: { defaults: { compaction: { postIndexSync: "await" } } } };
  const { home, host, client } = await withSessions(t, {}, settings);
  home.write("memory/2026-02-10.md", "The bilby queue is full.\n");
  const compact = (sessionId: string | undefined): Promise<unknown> | undefined =>
    host.hooks.get("after_compaction")?.(
      { messageCount: 3, compactedCount: 9 },
      { agentId: "main", sessionKey: "agent:main:main", sessionId },
    );
  await compact("no-such-session");
  const { results } = await client.search({ agentId: "main", query: "bilby queue" });
  assert.equal(results[0]?.path, "memory/2026-02-10.md");
  await compact(undefined);
  assert.deepEqual(
    host.log.lines.filter((line) => line.startsWith("warn")),
    [],
  );
});

test("a failed sync after a compaction is a warning", async (t) => {
  const compaction = (postIndexSync: string): object => ({ agents: { defaults: { compaction: { postIndexSync } } } });
  const home = new Home(t);
  const host = hostOf(t, home, { settings: compaction("await") });
  await host.hooks.get("after_compaction")?.({}, { agentId: "main" });
  assert.match(host.log.lines.join("\n"), /warn memoryd: the index was not updated after a compaction: .*UNAVAILABLE/);
  const off = hostOf(t, home, { settings: compaction("off") });
  await off.hooks.get("after_compaction")?.({}, { agentId: "main" });
  assert.deepEqual(off.log.lines, []);
});

test("transcripts are searched for the main session only", async (t) => {
  const { host, client } = await withSessions(t);
  for await (const { event } of client.sync({ agentId: "main" })) {
    assert.notEqual(event.case, "fileFailed");
  }
  const query = "staging database orion";
  const sources = async (sessionKey: string, corpus?: string): Promise<unknown[]> => {
    const { results: hits } = await host.runTool("memory_search", { query, corpus }, { sessionKey });
    return [...new Set((hits as { source: string }[]).map(({ source }) => source))];
  };
  assert.ok((await sources("agent:main:main")).includes("sessions"));
  assert.deepEqual(await sources("agent:main:main", "sessions"), ["sessions"]);
  assert.ok(!(await sources("agent:main:telegram:group:1")).includes("sessions"));
  assert.ok(!(await sources("agent:main:main", "memory")).includes("sessions"));
});

test("another plugin that would answer is a loud warning at the start", (t) => {
  const owner = { slots: { memory: "memoryd" } };
  assert.match(findConflicts({ plugins: owner })[0] ?? "", /^ANOTHER MEMORY MAY ANSWER/);
  assert.match(findConflicts({})[0] ?? "", /^MEMORYD DOES NOT ANSWER: the memory slot has "memory-core"/);
  const off = { "memory-core": { enabled: false } };
  const asleep = { memoryd: { config: { dreaming: { enabled: false } } } };
  for (const entries of [off, asleep]) {
    assert.deepEqual(findConflicts({ plugins: { ...owner, entries } }), []);
  }
  const host = hostOf(t, new Home(t), { settings: { plugins: owner } });
  host.service?.start({ config: host.config, logger: host.log });
  assert.match(host.log.lines[0] ?? "", /^warn memoryd: ANOTHER MEMORY MAY ANSWER.*memory-core\.enabled false/);
});

test("two gateways that start at the same time end with one daemon", async (t) => {
  const home = new Home(t);
  const environment = { ...process.env };
  Object.assign(process.env, home.environment);
  t.after(() => (process.env = environment));
  const settings = readSettings({ address: home.address, autostart: true, command: COMMAND });
  const logFile = join(home.state, "logs", "memoryd.log");
  const gateways = [1, 2].map(() => new Connection(settings, new Log(), () => logFile));
  t.after(() => Promise.all(gateways.map((each) => each.close())));
  // Each connection also joins its own concurrent calls into one start.
  const statuses = await Promise.all(
    [...gateways, ...gateways].map((each) => each.call((client) => client.status({ agentId: "main" }))),
  );
  const starts = new Set(statuses.map(({ service }) => service?.startTime?.seconds));
  assert.equal(starts.size, 1);
  // The second process waits for the first one for a moment, and then ends.
  const log = (): string => readFileSync(logFile, "utf8");
  while (!log().includes("another memoryd")) {
    await setTimeout(20);
  }
  assert.equal(log().match(/^listening on/gm)?.length, 1);
  const pid = Number(/"pid":\s*(\d+)/.exec(readFileSync(join(home.state, "memoryd.endpoint.json"), "utf8"))?.[1]);
  process.kill(pid, "SIGTERM");
  while (existsSync(join(home.folder, "m.sock"))) {
    await setTimeout(20);
  }
});

test("a daemon that cannot be started is reported, and tried again after a pause", async (t) => {
  const home = new Home(t);
  const logFile = join(home.state, "logs", "memoryd.log");
  let now = 0;
  const call = async (connection: Connection): Promise<unknown> => connection.call((client) => client.status());
  const missing = readSettings({ address: home.address, autostart: true, command: join(home.folder, "none") });
  const connection = new Connection(
    missing,
    new Log(),
    () => logFile,
    () => now,
  );
  t.after(() => connection.close());
  await assert.rejects(call(connection), /none serve --listen unix:.*did not start a daemon: .*ENOENT/);
  await assert.rejects(call(connection), { name: "MemorydError" });
  now += 30_000;
  await assert.rejects(call(connection), { name: "StartError" });
  const remote = readSettings({ address: "127.0.0.1:9", autostart: true });
  const other = new Connection(remote, new Log(), () => logFile);
  t.after(() => other.close());
  await assert.rejects(call(other), /autostart needs a Unix socket, but the address is 127\.0\.0\.1:9/);
});
