// The commands `openclaw memory ...`.

import { type Agent, CitationMode, OnConflict, type StatusResponse, SyncMode, SyncTrigger } from "@memoryd/client/v1";

import { ACTION, type Connection, reasonOf, runSync } from "./connection.js";
import { findConflicts } from "./conflicts.js";
import { toHit } from "./hits.js";
import type { CliContext } from "./host.js";
import { toMemoryStatus } from "./status.js";

/** Where a command writes. */
export interface Output {
  readonly write: (text: string) => void;
  readonly writeError: (text: string) => void;
  /** Whether progress can be shown by rewriting a line. */
  readonly terminal: boolean;
}

const CONSOLE: Output = {
  write: (text) => process.stdout.write(text),
  writeError: (text) => process.stderr.write(text),
  terminal: process.stderr.isTTY,
};

interface Flags {
  readonly agent?: string;
  readonly query?: string;
  readonly json?: boolean;
  readonly deep?: boolean;
  readonly force?: boolean;
  readonly maxResults?: number;
  readonly minScore?: number;
  readonly from?: number;
  readonly lines?: number;
}

/** Registers the commands. Each closes the connection, so that the process can end. */
export function registerCommands({ program, config }: CliContext, connection: Connection, output = CONSOLE): void {
  const run = async (flags: Flags, command: () => Promise<boolean>): Promise<void> => {
    try {
      if (!(await command())) {
        process.exitCode = 1;
      }
    } catch (error) {
      if (flags.json) {
        const failure = { message: reasonOf(error), action: ACTION };
        output.write(`${JSON.stringify({ ok: false, error: failure, agentId: flags.agent ?? null }, null, 2)}\n`);
      } else {
        output.writeError(`${printable(reasonOf(error))}\n${ACTION}\n`);
      }
      process.exitCode = 1;
    } finally {
      await connection.close();
    }
  };
  const memory = program.command("memory").description("Search, inspect and index memory with memoryd");
  memory
    .command("status")
    .description("Show the status of the daemon and of the agents' indexes")
    .option("--agent <id>", "agent (default: all agents)")
    .option("--json", "print JSON")
    .option("--deep", "also call the embedding provider once")
    .action((flags: Flags) => run(flags, () => showStatus(connection, flags, findConflicts(config), output)));
  memory
    .command("index")
    .description("Update the index and show the progress")
    .option("--agent <id>", "agent (default: all agents)")
    .option("--force", "read all files again")
    .option("--json", "print JSON")
    .action((flags: Flags) => run(flags, () => index(connection, flags, output)));
  memory
    .command("search")
    .description("Search memory")
    .argument("[query]", "question in plain words")
    .option("--query <text>", "the question, instead of the argument")
    .option("--agent <id>", "agent (default: the default agent)")
    .option("--max-results <n>", "maximum number of results", positive)
    .option("--min-score <n>", "minimum score, 0 to 1", share)
    .option("--json", "print JSON")
    .action((query: string | undefined, flags: Flags) =>
      run(flags, () => search(connection, flags.query ?? query ?? "", flags, output)),
    );
  memory
    .command("get")
    .description("Print lines of a memory file")
    .argument("<path>", "path as in a search result")
    .option("--agent <id>", "agent (default: the default agent)")
    .option("--from <n>", "first line", positive)
    .option("--lines <n>", "number of lines (default: 120)", positive)
    .option("--json", "print JSON")
    .action((path: string, flags: Flags) => run(flags, () => get(connection, path, flags, output)));
}

async function showStatus(connection: Connection, flags: Flags, warnings: string[], output: Output): Promise<boolean> {
  const probe = flags.deep === true;
  const reports = await Promise.all(
    (await agentIds(connection, flags)).map(async (agentId): Promise<AgentReport> => {
      try {
        return { agentId, status: await connection.call((client) => client.status({ agentId, probe })) };
      } catch (error) {
        return { agentId, error: reasonOf(error) };
      }
    }),
  );
  for (const warning of warnings) {
    output.writeError(`Warning: ${warning}\n`);
  }
  if (flags.json) {
    const shown = reports.map(({ status, ...rest }) => ({
      ...rest,
      ...(status && { status: toMemoryStatus(status) }),
    }));
    output.write(`${JSON.stringify(shown, null, 2)}\n`);
  } else {
    for (const { agentId, status, error } of reports) {
      output.write(status ? statusText(status) : `Agent: ${agentId}\n  Failed:     ${printable(error ?? "")}\n`);
    }
  }
  return reports.every(({ status }) => status !== undefined && (!probe || status.embedding?.probe?.ok !== false));
}

/** The status of one agent, or why it cannot be read. */
interface AgentReport {
  readonly agentId: string;
  readonly status?: StatusResponse;
  readonly error?: string;
}

function statusText(status: StatusResponse): string {
  const { files, chunks, dirty, dbPath, lastSyncError, model, provider, sourceCounts, custom } = toMemoryStatus(status);
  const degradations = (custom?.degradations ?? []) as string[];
  const probe = status.embedding?.probe;
  const lines = [
    `Agent: ${status.agentId} (memoryd ${status.service?.version ?? ""})`,
    `  Workspace:  ${status.workspace}`,
    `  Index:      ${files ?? 0} files, ${chunks ?? 0} chunks${dirty ? ", not up to date" : ""}`,
    `  Index file: ${dbPath ?? ""}`,
    `  Sources:    ${(sourceCounts ?? []).map((each) => `${each.source} (${each.files} files)`).join(", ")}`,
    `  Embeddings: ${provider === "none" ? "none (keyword search only)" : `${provider} ${model ?? ""}`.trim()}`,
    ...(probe ? [`  Probe:      ${probe.ok ? "ok" : probe.error}`] : []),
    ...(lastSyncError ? [`  Failed:     ${lastSyncError}`] : []),
    ...[...degradations, ...status.sourceIssues].map((each) => `  Issue:      ${each}`),
    "",
  ];
  return printable(lines.join("\n"));
}

async function index(connection: Connection, flags: Flags, output: Output): Promise<boolean> {
  const reports = [];
  for (const agentId of await agentIds(connection, flags)) {
    const report = await syncAgent(connection, agentId, flags.force === true, output);
    reports.push(report);
    if (!flags.json) {
      const { indexedFiles, unchangedFiles, removedFiles, failedFiles, chunks, vectorsMissing } = report;
      output.write(
        `${agentId}: ${indexedFiles} files indexed, ${unchangedFiles} unchanged, ${removedFiles} removed, ` +
          `${failedFiles} failed, ${chunks} chunks${vectorsMissing ? ", vectors are missing (see status)" : ""}\n`,
      );
    }
  }
  if (flags.json) {
    output.write(`${JSON.stringify(reports, null, 2)}\n`);
  }
  return reports.every(({ failedFiles, vectorsMissing }) => failedFiles === 0 && !vectorsMissing);
}

interface SyncReport {
  readonly agentId: string;
  readonly indexedFiles: number;
  readonly unchangedFiles: number;
  readonly removedFiles: number;
  readonly failedFiles: number;
  readonly chunks: number;
  readonly vectorsMissing: boolean;
}

async function syncAgent(connection: Connection, agentId: string, full: boolean, output: Output): Promise<SyncReport> {
  const mode = full ? SyncMode.FULL : SyncMode.INCREMENTAL;
  const request = { agentId, mode, trigger: SyncTrigger.MANUAL, onConflict: OnConflict.WAIT };
  const clear = output.terminal ? "\r\u001b[K" : "";
  let report: SyncReport | undefined;
  await connection.call((client) =>
    runSync(client, request, (event) => {
      if (event.case === "progress" && output.terminal) {
        output.writeError(`${clear}${agentId}: ${event.value.completedFiles} of ${event.value.totalFiles} files`);
      } else if (event.case === "fileFailed") {
        output.writeError(`${clear}${printable(event.value.path)}: ${printable(event.value.error)}\n`);
      } else if (event.case === "completed") {
        output.writeError(clear);
        const { indexedFiles, unchangedFiles, removedFiles, failedFiles, chunks, vectorsMissing } = event.value;
        report = { agentId, indexedFiles, unchangedFiles, removedFiles, failedFiles, chunks, vectorsMissing };
      }
    }),
  );
  if (report === undefined) {
    throw new Error("the sync ended without a result");
  }
  return report;
}

async function search(connection: Connection, query: string, flags: Flags, output: Output): Promise<boolean> {
  const { results, info } = await connection.call((client) =>
    client.search({
      agentId: flags.agent ?? "",
      query,
      ...(flags.maxResults !== undefined && { maxResults: flags.maxResults }),
      ...(flags.minScore !== undefined && { minScore: flags.minScore }),
      citations: CitationMode.OFF,
      explain: true,
    }),
  );
  if (flags.json) {
    output.write(`${JSON.stringify({ results: results.map(toHit) }, null, 2)}\n`);
  } else {
    for (const { score, citation, snippet } of results) {
      output.write(`${score.toFixed(3)}  ${printable(citation)}\n${printable(snippet).replace(/^/gm, "       ")}\n\n`);
    }
  }
  if (results.length === 0 && info) {
    output.writeError(`No results: ${printable(info.emptyExplanation)}\n`);
  }
  return true;
}

async function get(connection: Connection, path: string, flags: Flags, output: Output): Promise<boolean> {
  const read = await connection.call((client) =>
    client.get({
      agentId: flags.agent ?? "",
      path,
      ...(flags.from !== undefined && { startLine: flags.from }),
      ...(flags.lines !== undefined && { lineCount: flags.lines }),
    }),
  );
  const { text, startLine, endLine, totalLines, nextStartLine } = read;
  output.write(
    flags.json
      ? `${JSON.stringify({ path: read.path, text, startLine, endLine, totalLines, nextStartLine }, null, 2)}\n`
      : printable(text).replace(/\n?$/, "\n"),
  );
  if (nextStartLine > 0) {
    output.writeError(`Lines ${startLine} to ${endLine} of ${totalLines}; continue with --from ${nextStartLine}.\n`);
  }
  return true;
}

async function agentIds(connection: Connection, { agent }: Flags): Promise<string[]> {
  if (agent !== undefined) {
    return [agent];
  }
  const agents: Agent[] = [];
  let pageToken = "";
  do {
    const page = await connection.call((client) => client.listAgents({ pageToken }));
    agents.push(...page.agents);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return agents.filter(({ enabled }) => enabled).map(({ agentId }) => agentId);
}

// Memory can contain other people's text, which must not control the terminal.
function printable(text: string): string {
  return text.replace(/[^\P{Cc}\n\t]/gu, "\ufffd");
}

function positive(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) {
    throw invalidArgument(`"${text}" is not a number from 1 on.`);
  }
  return value;
}

function share(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value >= 0 && value <= 1)) {
    throw invalidArgument(`"${text}" is not a number from 0 to 1.`);
  }
  return value;
}

// The host's commander recognizes the error by its code.
function invalidArgument(message: string): Error {
  return Object.assign(new Error(message), { code: "commander.invalidArgument", exitCode: 1 });
}
