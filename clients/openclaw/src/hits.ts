// Search results in OpenClaw's form, and which of them a session is allowed to see.

import { realpath } from "node:fs/promises";
import { isAbsolute, join, posix, relative, sep } from "node:path";

import { Origin, type SearchResult, Source } from "@memoryd/client/v1";

import { type Hit, isMainSession } from "./host.js";
import { type ReadOrigin, readRecordedOrigin } from "./provenance.js";

/** Who wrote a text, in OpenClaw's terms. */
export type OriginClass = NonNullable<Hit["provenance"]>["originClass"];

// A newer daemon can have other origins.
const ORIGINS: Readonly<Record<number, OriginClass | undefined>> = {
  [Origin.UNSPECIFIED]: "untrusted",
  [Origin.OWNER]: "owner",
  [Origin.AGENT]: "agent",
  [Origin.UNTRUSTED]: "untrusted",
  [Origin.SYSTEM]: "system",
};

/** Converts a search result. `vectorScore` and `textScore` are set if the search was made with `explain`. */
export function toHit(result: SearchResult): Hit {
  const { scoreDetail, importance, triggers, projects } = result;
  return {
    path: result.path,
    startLine: result.startLine,
    endLine: result.endLine,
    score: result.score,
    ...(scoreDetail?.vector !== undefined && { vectorScore: scoreDetail.vector }),
    ...(scoreDetail?.text !== undefined && { textScore: scoreDetail.text }),
    snippet: result.snippet,
    source: result.source === Source.SESSIONS ? "sessions" : "memory",
    citation: result.citation,
    ...(importance !== undefined && { importance }),
    ...(triggers.length > 0 && { triggers: triggers.join(", ") }),
    ...(projects.length > 0 && { projectKey: projects.join("; ") }),
    provenance: {
      originClass: ORIGINS[result.origin] ?? "untrusted",
      sessionKind: "unknown",
      observedAt: Number(result.modifiedTime?.seconds ?? 0n) * 1_000,
    },
  };
}

/** The session on whose behalf memory is searched. */
export interface Requester {
  readonly agentId: string;
  readonly sessionKey: string | undefined;
  readonly sandboxed: boolean;
  /** Whether the owner sent the message; undefined if OpenClaw does not know. */
  readonly senderIsOwner?: boolean | undefined;
}

/**
 * Returns whether a session is allowed to see transcripts of other sessions: only the agent's private main session is,
 * since a transcript can contain what one person wrote in private.
 */
export function canSeeSessions({ agentId, sessionKey, sandboxed, senderIsOwner }: Requester): boolean {
  return !sandboxed && senderIsOwner !== false && isMainSession(sessionKey, agentId);
}

/** Returns whether the path can be that of a memory file. Transcripts and their archives have other suffixes. */
export function isMarkdown(path: string): boolean {
  return path.trim().toLowerCase().endsWith(".md");
}

/** A memory file of a workspace on another host, whose real path OpenClaw has determined. */
interface ReadSource {
  readonly relativePath: string;
  readonly canonicalRelativePath?: string;
}

/**
 * Returns who wrote the files at `relativePaths` of a workspace: as `readOrigin` says, else the agent. OpenClaw includes
 * only files of the classes `owner` and `agent` in a prompt. Never rejects, since OpenClaw then includes none of them.
 */
export async function classifyPaths(
  workspace: string,
  relativePaths: readonly string[],
  readSources?: readonly ReadSource[],
  readOrigin: ReadOrigin = readRecordedOrigin,
): Promise<{ relativePath: string; originClass: OriginClass }[]> {
  return Promise.all(
    relativePaths.map(async (relativePath) => {
      const real =
        readSources === undefined
          ? await realRelativePath(workspace, relativePath)
          : readSources.find((each) => each.relativePath === relativePath)?.canonicalRelativePath;
      const originClass = classOf(real);
      if (real === undefined || originClass !== "agent") {
        return { relativePath, originClass };
      }
      const recorded = await readOrigin(workspace, real).catch((): OriginClass => "untrusted");
      return { relativePath, originClass: recorded ?? originClass };
    }),
  );
}

const AGENT_FILE = /^(MEMORY\.md|memory\.md|USER\.md|users\/[a-zA-Z0-9][\w-]{0,127}\/USER\.md|memory\/.+\.md)$/;

function classOf(path: string | undefined): OriginClass {
  if (path === undefined || posix.normalize(path) !== path || path.includes("\\") || !AGENT_FILE.test(path)) {
    return "untrusted";
  }
  return /^memory\/(dreaming|\.dreams)\//.test(path) ? "system" : "agent";
}

// The path with links resolved, relative to the workspace; undefined if it is outside or does not exist.
async function realRelativePath(workspace: string, path: string): Promise<string | undefined> {
  try {
    const inside = relative(await realpath(workspace), await realpath(join(workspace, path)));
    return inside.startsWith("..") || isAbsolute(inside) ? undefined : inside.split(sep).join("/");
  } catch {
    return undefined;
  }
}
