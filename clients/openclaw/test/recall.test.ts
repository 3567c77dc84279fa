import assert from "node:assert/strict";
import { cpSync } from "node:fs";
import { join, resolve } from "node:path";
import { type TestContext, test } from "node:test";

import { connect } from "@memoryd/client";

import { findConflicts } from "../src/conflicts.js";
import { TurnRecall } from "../src/recall.js";
import { Home, Log, connectionTo, hostOf } from "./daemon.js";

const QUESTION = "When does the billing deployment take place?";
const NOTE = "The billing deployment takes place on Thursday, because of the audit.\n";
const MAIN = "agent:main:main";
const FIXTURE = resolve(import.meta.dirname, "../../../../tests/openclaw/state");
const ON = { plugin: { recall: true } };
const SEARCH_IS_ALLOWED = { toolAuthority: { allows: (name: string) => name === "memory_search" } };

/** Other notes, so that the words of the question are rare. */
function write(home: Home): void {
  for (let day = 10; day < 30; day++) {
    home.write(`memory/2026-03-${day}.md`, `# Log\n\nWe watered the plants and sorted box ${day}.\n`);
  }
  home.write("memory/2026-04-02.md", NOTE);
  home.write("MEMORY.md", "# Long-term memory\n\n- The staging database is called quokka.\n");
}

/** Returns the recall of a plugin that is connected to the daemon of `home`, with a time limit for a busy machine. */
function recallOf(t: TestContext, home: Home, settings: object = {}, log = new Log(), timeoutMs = 30_000): TurnRecall {
  return new TurnRecall(connectionTo(t, home), log, () => settings, timeoutMs);
}

/** A daemon whose index has the notes, and the recall of the plugin. */
async function recalling(t: TestContext, settings: object = {}) {
  const home = new Home(t, settings);
  write(home);
  await home.start();
  const client = connect({ address: home.address });
  t.after(() => client.close());
  for await (const { event } of client.sync({ agentId: "main" })) {
    assert.notEqual(event.case, "fileFailed");
  }
  const log = new Log();
  return { home, log, recall: recallOf(t, home, {}, log) };
}

/** Makes the prompt of a turn, and returns the inserted text; empty if there is none. */
async function turn(recall: TurnRecall, prompt: string, context: object = {}, event: object = {}): Promise<string> {
  const made = await recall.run(
    { prompt, messages: [], ...event },
    { agentId: "main", sessionKey: MAIN, trigger: "user", ...SEARCH_IS_ALLOWED, ...context },
  );
  return made?.prependContext ?? "";
}

test("recall is off by default", (t) => {
  const home = new Home(t);
  assert.equal(hostOf(t, home).hooks.has("before_prompt_build"), false);
  assert.equal(hostOf(t, home, ON).hooks.has("before_prompt_build"), true);
});

test("while the daemon runs,", async (t) => {
  const { home, recall, log } = await recalling(t);

  await t.test("a turn of a user gets a block if something relevant is known", async () => {
    const block = await turn(recall, QUESTION);
    assert.match(
      block,
      /^<relevant-memories>\n.*\n\[1\] memory\/2026-04-02\.md.*\n {2}The billing deployment.*Thursday/,
    );
    assert.match(block, /\n<\/relevant-memories>$/);
    for (const prompt of ["thanks!", "hi", "", "/reset", "What is the capital of Portugal?"]) {
      assert.equal(await turn(recall, prompt), "", prompt);
    }
    // The message of the user, and not the history that the prompt contains.
    assert.equal(await turn(recall, QUESTION, {}, { currentUserMessage: "thanks!" }), "");
    assert.equal(await turn(recall, "thanks!", {}, { currentUserMessage: QUESTION }), block);
    assert.equal(await turn(recall, `${"x".repeat(2 ** 22)}\n\n${QUESTION}`), block);
    assert.deepEqual(log.lines, []);
  });

  await t.test("a short question is understood with the message before it", async () => {
    const messages = [
      { role: "user", content: [{ type: "text", text: "I have to plan the billing deployment." }] },
      { role: "toolResult", content: "watered the plants" },
      { role: "user", content: "And when is it?" },
    ];
    assert.match(await turn(recall, "And when is it?", {}, { messages }), /Thursday/);
    assert.equal(await turn(recall, "And when is it?"), "");
  });

  await t.test("only turns of a user that may search the memory get a block", async () => {
    for (const context of [
      ...["heartbeat", "cron", "memory", "overflow", "manual", undefined].map((trigger) => ({ trigger })),
      ...["inter_session", "internal_system"].map((kind) => ({ inputProvenance: { kind } })),
      ...["agent:main:subagent:1", "agent:main:cron:job:run:1", "agent:main:main:heartbeat"].map((sessionKey) => ({
        sessionKey,
      })),
      { toolAuthority: { allows: () => false } },
      { toolAuthority: undefined },
    ]) {
      assert.equal(await turn(recall, QUESTION, context), "", JSON.stringify(context));
    }
    assert.notEqual(await turn(recall, QUESTION, { inputProvenance: { kind: "external_user" } }), "");
  });

  await t.test("files that OpenClaw has put into the prompt are not recalled", async () => {
    const question = "What is the staging database called?";
    const inWorkspace = { workspaceDir: home.workspace };
    assert.match(await turn(recall, question), /quokka/);
    assert.equal(await turn(recall, question, inWorkspace), "");
    assert.match(await turn(recall, QUESTION, inWorkspace), /Thursday/);
    for (const defaults of [{ bootstrapMaxChars: 20 }, { contextInjection: "never" }]) {
      const other = recallOf(t, home, { agents: { defaults } });
      assert.match(await turn(other, question, inWorkspace), /quokka/, JSON.stringify(defaults));
    }
  });

  await t.test("sessions other than the main one get nothing of MEMORY.md", async () => {
    const group = { sessionKey: "agent:main:telegram:group:1" };
    assert.equal(await turn(recall, "What is the staging database called?", group), "");
    assert.match(await turn(recall, QUESTION, group), /Thursday/);
  });
});

test("a turn whose prompt is made again gets the same block, also without the daemon, and never two", async (t) => {
  const { home, recall, log } = await recalling(t);
  const block = await turn(recall, QUESTION, { runId: "r1" });
  assert.notEqual(block, "");
  const prompt = `${block}\n\n${QUESTION}`;
  const event = { currentUserMessage: QUESTION };
  assert.equal(await turn(recall, prompt, { runId: "r1" }, event), "", "the prompt has it");
  assert.equal(await turn(recall, QUESTION, { runId: "r1" }, { messages: [{ role: "user", content: prompt }] }), "");
  await home.kill();
  assert.equal(await turn(recall, QUESTION, { runId: "r1" }), block);
  assert.equal(await turn(recall, QUESTION, { runId: "r2" }), "", "another turn asks the daemon");
  assert.equal(await turn(recall, QUESTION), "");
  assert.equal(log.lines.length, 1, "one line, and not one per turn");
  assert.match(log.lines[0] ?? "", /^warn memoryd: turns continue without recall: memoryd: /);
  await home.start();
  assert.equal(await turn(recall, QUESTION, { runId: "r2" }), block);
});

test("a turn does not wait for a daemon that does not answer, and the next attempt uses its reply", async (t) => {
  const { home } = await recalling(t);
  const log = new Log();
  const recall = recallOf(t, home, {}, log, 50);
  const run = { runId: "r1" };
  home.signal("SIGSTOP");
  assert.equal(await turn(recall, QUESTION, run), "");
  assert.match(log.lines.join("\n"), /^warn .*no answer within 50 ms$/);
  home.signal("SIGCONT");
  let block = "";
  while (block === "") {
    block = await turn(recall, QUESTION, run);
  }
  assert.match(block, /Thursday/);
});

test("transcripts are recalled only for the operator's own turns in the main session", async (t) => {
  const home = new Home(t, {
    memory: { search: { provider: "none", experimental: { sessionMemory: true }, sources: ["memory", "sessions"] } },
    memoryd: { recall: { includeUntrusted: true } },
  });
  cpSync(join(FIXTURE, "agents"), join(home.state, "agents"), { recursive: true });
  write(home);
  await home.start();
  const client = connect({ address: home.address });
  t.after(() => client.close());
  for await (const { event } of client.sync({ agentId: "main" })) {
    assert.notEqual(event.case, "fileFailed");
  }
  const question = "What is the staging database orion called?";
  const recall = recallOf(t, home);
  const block = await turn(recall, question);
  const sessions = [...block.matchAll(/sessions\/main\/([^/.]+)\.jsonl/g)].map(([, id]) => id);
  const [sessionId] = sessions;
  assert.ok(sessionId);
  // The running session contains its own messages.
  const inSession = await turn(recall, question, { sessionId });
  assert.ok(!inSession.includes(sessionId), inSession);
  assert.doesNotMatch(await turn(recall, question, { senderId: "42" }), /sessions\//);
  assert.doesNotMatch(await turn(recall, question, { sessionKey: "agent:main:webchat:direct:1" }), /sessions\//);
  const sandboxed = recallOf(t, home, { agents: { defaults: { sandbox: { mode: "all" } } } });
  assert.doesNotMatch(await turn(sandboxed, question), /sessions\//);
});

test("a recall that OpenClaw does not allow is a warning in the log and in the status", () => {
  const owner = { slots: { memory: "memoryd" } };
  const conflicts = (memoryd: object): string[] =>
    findConflicts({ plugins: { ...owner, entries: { memoryd, "memory-core": { enabled: false } } } });
  const config = { recall: true };
  assert.deepEqual(conflicts({}), []);
  assert.deepEqual(conflicts({ config, hooks: { allowConversationAccess: true } }), []);
  const [warning, ...others] = conflicts({ config });
  assert.match(warning ?? "", /^RECALL DOES NOT RUN: .*hooks\.allowConversationAccess true --strict-json`\.$/);
  assert.deepEqual(others, []);
  const refused = conflicts({ config, hooks: { allowConversationAccess: true, allowPromptInjection: false } });
  assert.match(refused.join("\n"), /^RECALL DOES NOT RUN: .*hooks\.allowPromptInjection true --strict-json`\.$/);
});
