// Appends messages with the functions of OpenClaw's SDK. Each line of the input is the text of a message; the reply is
// the duration of the append in milliseconds. Usage: OPENCLAW_STATE_DIR=... node write.mjs <session key> <session id>
import readline from "node:readline";
import { performance } from "node:perf_hooks";

const sdk = (name) => import(`openclaw/plugin-sdk/${name}`);
const { upsertSessionEntry } = await sdk("session-store-runtime");
const { appendSessionTranscriptMessageByIdentity } = await sdk("session-transcript-runtime");

const [sessionKey, sessionId] = process.argv.slice(2);
const target = { agentId: "main", sessionKey, sessionId };
const now = Date.now();
await upsertSessionEntry({ agentId: "main", sessionKey, entry: { sessionId, updatedAt: now, sessionStartedAt: now } });
console.log("ready");
for await (const text of readline.createInterface({ input: process.stdin })) {
  const message = { role: "user", content: text, timestamp: Date.now(), __openclaw: { senderIsOwner: true } };
  const began = performance.now();
  await appendSessionTranscriptMessageByIdentity({ ...target, cwd: "/", now: Date.now(), message });
  console.log(performance.now() - began);
}
process.exit(0);
