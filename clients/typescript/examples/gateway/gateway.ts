// Shows one turn of a gateway that uses memoryd. The environment determines which daemon is used.
//
//     node build/examples/gateway/gateway.js "how do we roll back a release?"

import { Code, ConnectError, type MemorydClient, MemorydError, connect } from "@memoryd/client";
import { EmptyReason, FlushReason, type SearchResult, type SyncProgress } from "@memoryd/client/v1";

import { Bar } from "./bar.js";

const QUESTION = "what was decided lately?";
// Values that a host would count during its last turn.
const CONTEXT_TOKENS = 178_500n;

/** Syncs the index and shows the progress. */
async function ensureSync(client: MemorydClient): Promise<void> {
  const bar = new Bar("indexing");
  try {
    for await (const { event } of client.sync()) {
      if (event.case === "progress") {
        bar.show(doneShare(event.value), event.value.currentPath);
      } else if (event.case === "fileFailed") {
        bar.note(`cannot index ${event.value.path}: ${event.value.error}`);
      } else if (event.case === "completed") {
        bar.show(1, `${event.value.indexedFiles} files indexed`);
      }
    }
  } finally {
    bar.end();
  }
}

function doneShare({ completedFiles, totalFiles }: SyncProgress): number {
  return totalFiles === 0 ? 0 : completedFiles / totalFiles;
}

/** Searches, prints the results, and returns the best one. */
async function recall(client: MemorydClient, query: string): Promise<SearchResult | undefined> {
  const { results, info } = await client.search({ query, maxResults: 3 });
  for (const { path, startLine, snippet } of results) {
    console.log(`found   ${path}:${startLine}  ${firstLine(snippet)}`);
  }
  if (results.length === 0) {
    console.log(`found   nothing: ${EmptyReason[info?.emptyReason ?? EmptyReason.UNSPECIFIED]}`);
  }
  return results[0];
}

/** Reads the lines of a result. */
async function read(client: MemorydClient, { path, startLine, endLine }: SearchResult): Promise<void> {
  const found = await client.get({ path, startLine, lineCount: endLine - startLine + 1 });
  console.log(`read    ${found.path}, lines ${found.startLine} to ${found.endLine} of ${found.totalLines}`);
}

/** Asks whether the agent should write notes before its context is compacted. */
async function decideFlush(client: MemorydClient): Promise<void> {
  const { flush, reason, remainingTokens } = await client.flushDecision({ totalTokens: CONTEXT_TOKENS });
  console.log(`flush   ${flush ? "yes" : "no"}, ${FlushReason[reason]}: ${String(remainingTokens)} tokens to go`);
}

/** Appends a line to today's log and returns the index revision that contains it. */
async function remember(client: MemorydClient, text: string): Promise<bigint | undefined> {
  const { path, endLine, indexRevision } = await client.append({ text: `- ${text}` });
  console.log(`wrote   ${path}, line ${endLine}`);
  return indexRevision;
}

/** Searches for the appended line, in an index that contains it. */
async function findAgain(client: MemorydClient, text: string, revision: bigint | undefined): Promise<boolean> {
  const { results, info } = await client.search({
    query: text,
    ...(revision !== undefined && { minRevision: revision }),
  });
  const found = results.some(({ snippet }) => snippet.includes(text));
  console.log(`again   ${found ? "found" : "not found"} at revision ${String(info?.indexRevision)}`);
  return found;
}

/** The first line of a snippet that is not a heading, or else its heading. */
function firstLine(snippet: string): string {
  const lines = snippet.split("\n").filter((line) => line.trim() !== "");
  return lines.find((line) => !line.startsWith("#")) ?? lines[0] ?? "";
}

/** Runs one turn; returns whether the appended line was found. */
async function turn(question: string): Promise<boolean> {
  await using client = connect();
  await ensureSync(client);
  const best = await recall(client, question);
  if (best) {
    await read(client, best);
  }
  await decideFlush(client);
  const text = `somebody asked: ${question}`;
  return await findAgain(client, text, await remember(client, text));
}

try {
  process.exitCode = (await turn(process.argv[2] ?? QUESTION)) ? 0 : 1;
} catch (error) {
  if (error instanceof MemorydError) {
    console.error(`memoryd: ${error.reason || Code[error.code]}: ${error.message}`);
  } else if (error instanceof ConnectError) {
    console.error(`memoryd: ${error.message}`);
  } else {
    throw error;
  }
  process.exitCode = 1;
}
