import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { type TestContext, test } from "node:test";

import { Command } from "commander";

import { registerCommands } from "../src/cli.js";
import type { CliContext } from "../src/host.js";
import { readSettings } from "../src/settings.js";
import { Home, connectionTo } from "./daemon.js";

const SETTINGS = { plugins: { slots: { memory: "memoryd" }, entries: { "memory-core": { enabled: false } } } };

interface Result {
  readonly out: string;
  readonly error: string;
  readonly exitCode: number;
}

/** Runs `openclaw memory` with these arguments. */
async function run(t: TestContext, home: Home, args: string[], config: object = SETTINGS): Promise<Result> {
  let out = "";
  let error = "";
  const output = {
    write: (text: string) => ((out += text), true),
    writeError: (text: string) => ((error += text), true),
    terminal: false,
  };
  const program = new Command().exitOverride().configureOutput({ writeErr: () => undefined });
  registerCommands({ program, config } as unknown as CliContext, connectionTo(t, home), output);
  for (const command of program.commands[0]?.commands ?? []) {
    command.exitOverride().configureOutput({ writeErr: () => undefined });
  }
  process.exitCode = undefined;
  await program.parseAsync(["node", "openclaw", "memory", ...args]);
  const { exitCode = 0 } = process as { exitCode?: number };
  process.exitCode = undefined;
  return { out, error, exitCode };
}

test("the commands search, read, index and show the status", async (t) => {
  const home = new Home(t);
  await home.start();
  const found = await run(t, home, ["search", "staging database", "--max-results", "1"]);
  assert.match(found.out, /^\d\.\d{3}  MEMORY\.md#L\d+(-L\d+)?\n[^]*quokka/);
  const json = JSON.parse((await run(t, home, ["search", "staging database", "--json"])).out) as {
    results: { path: string }[];
  };
  assert.equal(json.results[0]?.path, "MEMORY.md");
  assert.match((await run(t, home, ["search", "--query", "staging database"])).out, /quokka/);
  const none = await run(t, home, ["search", "zygomorphic"]);
  assert.deepEqual([none.out, none.exitCode], ["", 0]);
  assert.match(none.error, /^No results: .+\n$/);
  assert.deepEqual(await run(t, home, ["get", "USER.md"]), {
    out: "The user prefers short answers.\n",
    error: "",
    exitCode: 0,
  });
  const part = await run(t, home, ["get", "MEMORY.md", "--from", "1", "--lines", "1", "--json"]);
  assert.deepEqual((JSON.parse(part.out) as { nextStartLine: number }).nextStartLine, 2);
  home.write("memory/new.md", "The dingo queue. \u001b[31m\n");
  assert.equal((await run(t, home, ["get", "memory/new.md"])).out, "The dingo queue. \ufffd[31m\n");
  const indexed = await run(t, home, ["index", "--force"]);
  assert.match(indexed.out, /^main: 4 files indexed, 0 unchanged, 0 removed, 0 failed, \d+ chunks\n$/);
  const status = await run(t, home, ["status"]);
  assert.match(status.out, /^Agent: main \(memoryd .*\)\n[^]*Index: +4 files[^]*none \(keyword search only\)/);
  const report = JSON.parse((await run(t, home, ["status", "--json"])).out) as { status: { files: number } }[];
  assert.equal(report[0]?.status.files, 4);
});

test("status warns if another plugin would answer", async (t) => {
  const home = new Home(t);
  await home.start();
  const { out, error } = await run(t, home, ["status", "--json"], {});
  assert.match(error, /^Warning: MEMORYD DOES NOT ANSWER/);
  assert.doesNotThrow(() => JSON.parse(out) as unknown);
});

test("an agent whose status cannot be read does not hide the others", async (t) => {
  const home = new Home(t);
  await home.start();
  const text = await run(t, home, ["status", "--agent", "nobody"]);
  assert.match(text.out, /^Agent: nobody\n {2}Failed: {5}memoryd: AGENT_NOT_FOUND: /);
  assert.equal(text.exitCode, 1);
  const json = await run(t, home, ["status", "--agent", "nobody", "--json"]);
  assert.match((JSON.parse(json.out) as { error: string }[])[0]?.error ?? "", /AGENT_NOT_FOUND/);
});

test("a failure has a reason and an action, and the exit status 1", async (t) => {
  const home = new Home(t);
  const { out, error, exitCode } = await run(t, home, ["search", "x"]);
  assert.deepEqual([out, exitCode], ["", 1]);
  assert.match(error, /^memoryd: UNAVAILABLE: .*\nCheck that the daemon runs/);
  const json = await run(t, home, ["status", "--json"]);
  assert.match((JSON.parse(json.out) as { error: { message: string } }).error.message, /UNAVAILABLE/);
  assert.deepEqual([json.error.includes("UNAVAILABLE"), json.exitCode], [false, 1]);
  await home.start();
  const refused = await run(t, home, ["get", "../../etc/passwd"]);
  assert.deepEqual([refused.out, refused.exitCode], ["", 1]);
  assert.match(refused.error, /PATH_NOT_ALLOWED/);
});

test("a number that is out of range is refused", async (t) => {
  const home = new Home(t);
  for (const args of [
    ["--max-results", "0"],
    ["--max-results", "1.5"],
    ["--min-score", "2"],
    ["--min-score", ""],
  ]) {
    await assert.rejects(run(t, home, ["search", "x", ...args]), { code: "commander.invalidArgument" });
  }
});

test("the manifest describes the settings and tools of the code", () => {
  const folder = resolve(import.meta.dirname, "../..");
  const read = (name: string): Record<string, unknown> =>
    JSON.parse(readFileSync(resolve(folder, name), "utf8")) as Record<string, unknown>;
  const manifest = read("openclaw.plugin.json");
  const properties = (manifest.configSchema as { properties: Record<string, { default?: unknown }> }).properties;
  const defaults: object = readSettings({});
  for (const [name, value] of Object.entries(defaults)) {
    assert.equal(properties[name]?.default, value, name);
  }
  assert.deepEqual(Object.keys(properties).sort(), [...Object.keys(defaults), "dreaming"].sort());
  assert.equal(manifest.version, read("package.json").version);
  assert.deepEqual((manifest.contracts as { tools: string[] }).tools, ["memory_search", "memory_get", "memory_append"]);
});

test("a setting of another type counts as not set", () => {
  const wrong = {
    address: 7,
    tokenFile: "",
    caFile: null,
    timeoutMs: -1,
    autostart: "yes",
    command: " ",
    archiveSessions: 0,
  };
  assert.deepEqual({ ...readSettings(wrong), archiveSessions: true }, readSettings());
  assert.equal(readSettings({ tokenFile: "~/t" }).tokenFile, `${process.env.HOME ?? ""}/t`);
});
