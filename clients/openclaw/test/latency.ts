// Prints how long tool calls take inside `execute`, and how long the same searches take over gRPC, alternately in one
// process. Usage: node latency.js ADDRESS

import { connect } from "@memoryd/client";
import { CitationMode, Source } from "@memoryd/client/v1";

import { FakeHost } from "./daemon.js";

const PAIRS = 60;
const QUERY = "what is the staging database called";

async function timed(call: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await call();
  return performance.now() - start;
}

const [address] = process.argv.slice(2);
const host = new FakeHost({ plugins: { entries: { memoryd: { config: { address } } } } }, "/nonexistent");
const tool = (): Promise<unknown> => host.runTool("memory_search", { query: QUERY }, { sessionKey: "agent:main:x" });
const firstMs = await timed(tool);
await using client = connect({ address });
const grpc = (): Promise<unknown> =>
  client.search({
    agentId: "main",
    query: QUERY,
    sources: [Source.MEMORY],
    sessionKey: "agent:main:x",
    citations: CitationMode.AUTO,
    explain: true,
  });
await grpc();
const toolMs: number[] = [];
const grpcMs: number[] = [];
for (let pair = 0; pair < PAIRS; pair += 1) {
  toolMs.push(await timed(tool));
  grpcMs.push(await timed(grpc));
}
console.log(JSON.stringify({ firstMs, toolMs, grpcMs }));
await host.capability?.runtime?.closeAllMemorySearchManagers?.();
