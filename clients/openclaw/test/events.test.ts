import assert from "node:assert/strict";
import { cpSync, existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";

import { connect } from "@memoryd/client";

import { findConflicts } from "../src/conflicts.js";
import { Connection, keyFor, runSync } from "../src/connection.js";
import { hostArchives } from "../src/hooks.js";
import { addressOf, readSettings } from "../src/settings.js";
import { COMMAND, Home, Log, connectionTo, hostOf } from "./daemon.js";

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
  for (const sessionKey of ["agent:main:cron:job:run:1", "agent:main:telegram:group:1", "agent:other:main", ""]) {
    await end({ reason: "reset", sessionKey });
  }
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
    await host.hooks.get("session_end")?.(
      { sessionId: "s", reason: "reset", sessionKey: "agent:main:main" },
      { agentId: "main" },
    );
    assert.deepEqual(host.log.lines, []);
  }
});

test("OpenClaw's own hook is recognized in each way in which it can be on", () => {
  const internal = (value: object): boolean => hostArchives({ hooks: { internal: value } });
  assert.equal(internal({ entries: { "session-memory": { messages: 30 } } }), true);
  assert.equal(internal({ enabled: true }), true);
  assert.equal(internal({ enabled: true, entries: { other: {} } }), false);
  assert.equal(internal({ entries: { "session-memory": { enabled: false } } }), false);
  assert.equal(internal({ enabled: false, entries: { "session-memory": { enabled: true } } }), false);
  assert.equal(hostArchives({}), false);
});

test("a reload lets calls under way end", async (t) => {
  const home = new Home(t);
  await home.start();
  const connection = connectionTo(t, home);
  const append = (text: string): Promise<unknown> =>
    connection.call((client) => client.append({ agentId: "main", text, path: "memory/reload.md" }));
  await append("first");
  const appends = Array.from({ length: 20 }, (_, number) => append(`text ${number}`));
  await connection.close();
  await Promise.all(appends);
  await append("last");
});

test("a failure to archive is a warning and does not reach OpenClaw", async (t) => {
  const host = hostOf(t, new Home(t));
  await host.hooks.get("session_end")?.(
    { sessionId: "s", reason: "reset", sessionKey: "agent:main:main" },
    { agentId: "main" },
  );
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
  const gateways = [1, 2].map(() => new Connection(settings, new Log(), () => home.state));
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
  let now = 0;
  const call = async (connection: Connection): Promise<unknown> => connection.call((client) => client.status());
  const missing = readSettings({ address: home.address, autostart: true, command: join(home.folder, "none") });
  const connection = new Connection(
    missing,
    new Log(),
    () => home.state,
    () => now,
  );
  t.after(() => connection.close());
  await assert.rejects(call(connection), /none serve --listen unix:.*did not start a daemon: .*ENOENT/);
  await assert.rejects(call(connection), { name: "MemorydError" });
  now += 30_000;
  await assert.rejects(call(connection), { name: "StartError" });
  const remote = readSettings({ address: "127.0.0.1:9", autostart: true });
  const other = new Connection(remote, new Log(), () => home.state);
  t.after(() => other.close());
  await assert.rejects(call(other), /autostart needs a Unix socket, but the address is 127\.0\.0\.1:9/);
});

test("a daemon that does not answer ends a sync", async (t) => {
  const home = new Home(t);
  await home.start();
  const connection = connectionTo(t, home);
  await connection.call((client) => client.status());
  home.signal("SIGSTOP");
  const sync = connection.call((client) => runSync(client, { agentId: "main" }, undefined, 300));
  await assert.rejects(sync, /the daemon sent nothing for 300 ms/);
});

test("the daemon of another home is not used", async (t) => {
  const [own, other] = [new Home(t), new Home(t)];
  const environment = { ...process.env };
  t.after(() => (process.env = environment));
  // The place where the client would search.
  process.env.XDG_RUNTIME_DIR = other.folder;
  const settings = readSettings();
  const inside = `unix:${own.state}/run/memoryd.sock`;
  assert.equal(addressOf(settings, own.state), inside);
  const note = (addresses: unknown): void => {
    writeFileSync(join(own.state, "memoryd.endpoint.json"), JSON.stringify({ addresses }));
  };
  for (const stale of ["unix:/nonexistent/m.sock", 7, null, [], ["unix:/nonexistent/m.sock", 7]]) {
    note(stale);
    assert.equal(addressOf(settings, own.state), inside);
  }
  const connection = new Connection(settings, new Log(), () => own.state);
  t.after(() => connection.close());
  await assert.rejects(connection.call((client) => client.status()));
  // A daemon of this home listens elsewhere: its address is found at the next call.
  await own.start();
  const { workspace } = await connection.call((client) => client.status());
  assert.equal(workspace, own.workspace);
  assert.equal(addressOf(readSettings({ address: "unix:/x" }), own.state), "unix:/x");
  process.env.MEMORYD_ADDRESS = "127.0.0.1:7";
  assert.equal(addressOf(settings, own.state), "127.0.0.1:7");
});

test("a list of addresses is used as a whole, and a daemon is not started for it", async (t) => {
  const home = new Home(t);
  const addresses = "127.0.0.1:1, [::1]:1";
  const calls = (autostart: boolean): Promise<unknown> => {
    const connection = new Connection(readSettings({ address: addresses, autostart }), new Log(), () => home.state);
    t.after(() => connection.close());
    return connection.call((client) => client.status());
  };
  await assert.rejects(calls(false), /addresses: 127\.0\.0\.1:1, \[::1\]:1/);
  await assert.rejects(calls(true), /autostart needs a Unix socket, but the address is 127\.0\.0\.1:1, \[::1\]:1/);
});

test("a key of another agent's session is not sent", () => {
  assert.equal(keyFor("main", "agent:main:x"), "agent:main:x");
  assert.equal(keyFor("", "agent:other:x"), "agent:other:x");
  assert.equal(keyFor("main", "global"), "global");
  assert.equal(keyFor("main", "agent:other:x"), "");
  assert.equal(keyFor("main", undefined), "");
});
