// Reacts to events of a session: a turn, a compaction and the end of the session.

import { Code, MemorydError } from "@memoryd/client";
import { OnDisconnect, SyncTrigger } from "@memoryd/client/v1";

import { type Connection, keyFor, reasonOf, runSync } from "./connection.js";
import { type Logger, type OpenClawPluginApi, agentOf, isMainSession, valueAt } from "./host.js";
import { TurnRecall } from "./recall.js";

const ARCHIVE_TIMEOUT_MS = 15_000;

// The user ended these sessions or stopped using them. A session that was deleted is not kept.
const ARCHIVED_REASONS: ReadonlySet<string | undefined> = new Set(["new", "reset", "idle", "daily"]);

/** Registers the hooks. */
export function registerHooks(api: OpenClawPluginApi, connection: Connection): void {
  const config = (): unknown => api.runtime.config.current();
  // OpenClaw reports a hook that its settings do not allow, so this one is registered only if it is wanted.
  if (connection.settings.recall) {
    const recall = new TurnRecall(connection, api.logger, config);
    // With this option, OpenClaw tells the hook which tools the turn may call.
    api.on("before_prompt_build", (event, context) => recall.run(event, context), { requiresToolAuthority: true });
  }
  api.on("after_compaction", async (_event, { agentId, sessionKey, sessionId }) => {
    const mode = valueAt(config(), "agents", "defaults", "compaction", "postIndexSync");
    if (mode === "off") {
      return;
    }
    const done = syncAfterCompaction(connection, api.logger, { agentId, sessionKey, sessionId });
    // The default is to let the session continue while the index is updated.
    await (mode === "await" ? done : undefined);
  });
  api.on("session_end", async (event, context) => {
    const sessionKey = event.sessionKey ?? context.sessionKey ?? "";
    const agentId = context.agentId ?? agentOf(sessionKey) ?? "";
    // What others wrote in a group must not become the agent's own notes.
    const isArchived = ARCHIVED_REASONS.has(event.reason) && isMainSession(sessionKey, agentId);
    if (connection.settings.archiveSessions && isArchived && !hostArchives(config())) {
      await archive(connection, api.logger, agentId, event.sessionId, sessionKey);
    }
  });
}

/** Returns whether OpenClaw's own hook writes the session to memory, so that a second note would be a duplicate. */
export function hostArchives(cfg: unknown): boolean {
  const internal = (...keys: string[]): unknown => valueAt(cfg, "hooks", "internal", ...keys);
  if (internal("enabled") === false) {
    return false;
  }
  const entry = internal("entries", "session-memory");
  if (entry !== undefined) {
    return valueAt(entry, "enabled") !== false;
  }
  // Without entries, all of OpenClaw's hooks are on.
  return internal("enabled") === true && Object.keys(internal("entries") ?? {}).length === 0;
}

async function syncAfterCompaction(
  connection: Connection,
  logger: Logger,
  session: Readonly<Record<"agentId" | "sessionKey" | "sessionId", string | undefined>>,
): Promise<void> {
  const agentId = session.agentId ?? "";
  const sync = (transcript: string): Promise<void> =>
    connection.call((client) =>
      runSync(client, {
        agentId,
        sessionKey: keyFor(agentId, session.sessionKey),
        trigger: SyncTrigger.POST_COMPACTION,
        onDisconnect: OnDisconnect.CONTINUE,
        transcript,
      }),
    );
  try {
    try {
      await sync(session.sessionId === undefined ? "" : `${session.sessionId}.jsonl`);
    } catch (error) {
      // Transcripts are not a source of this agent, or this one is not stored.
      if (!(error instanceof MemorydError) || !NO_TRANSCRIPT.has(error.code)) {
        throw error;
      }
      await sync("");
    }
  } catch (error) {
    logger.warn(`memoryd: the index was not updated after a compaction: ${reasonOf(error)}`);
  }
}

const NO_TRANSCRIPT: ReadonlySet<Code> = new Set([Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.PERMISSION_DENIED]);

async function archive(
  connection: Connection,
  logger: Logger,
  agentId: string,
  sessionId: string,
  sessionKey: string,
): Promise<void> {
  try {
    const { path, alreadyArchived } = await connection.call((client) =>
      client.sessionArchive({ agentId, transcript: sessionId, sessionKey }, { timeoutMs: ARCHIVE_TIMEOUT_MS }),
    );
    if (path !== "" && !alreadyArchived) {
      logger.info(`memoryd: session ${sessionId} was written to ${path}`);
    }
  } catch (error) {
    logger.warn(`memoryd: session ${sessionId} was not archived: ${reasonOf(error)}`);
  }
}
