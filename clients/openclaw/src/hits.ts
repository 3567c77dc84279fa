// Search results in OpenClaw's form, and which of them a session is allowed to see.

import { realpath } from "node:fs/promises";
import { isAbsolute, join, posix, relative, sep } from "node:path";

import { Origin, type SearchResult, Source } from "@memoryd/client/v1";

import { type Hit, isMainSession } from "./host.js";

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

/** Returns whether the path is that of a transcript rather than of a memory file. */
export function isTranscriptPath(path: string): boolean {
  const normal = posix.normalize(path.replaceAll("\\", "/"));
  return normal.startsWith("sessions/") || /\.jsonl(\.|$)/i.test(normal);
}

/** A memory file of a workspace on another host, whose real path OpenClaw has determined. */
interface ReadSource {
  readonly relativePath: string;
  readonly canonicalRelativePath?: string;
}

/**
 * Returns who wrote the files at `relativePaths` of a workspace. OpenClaw includes only files of the classes `owner` and
 * `agent` in a prompt. Never rejects, since OpenClaw then includes none of them.
 */
export async function classifyPaths(
  workspace: string,
  relativePaths: readonly string[],
  readSources?: readonly ReadSource[],
): Promise<{ relativePath: string; originClass: OriginClass }[]> {
  return Promise.all(
    relativePaths.map(async (relativePath) => {
      const real =
        readSources === undefined
          ? await realRelativePath(workspace, relativePath)
          : readSources.find((each) => each.relativePath === relativePath)?.canonicalRelativePath;
      return { relativePath, originClass: classOf(real) };
    }),
  );
}

function classOf(path: string | undefined): OriginClass {
  if (path === undefined || isAbsolute(path)) {
    return "untrusted";
  }
  const parts = path.split(/[/\\]/).filter((part) => part !== ".");
  if (parts.length === 1) {
    return ["MEMORY.md", "memory.md", "USER.md"].includes(parts[0] ?? "") ? "agent" : "untrusted";
  }
  if (parts[0] !== "memory" || parts.includes("..")) {
    return "untrusted";
  }
  return parts[1] === "dreaming" || parts[1] === ".dreams" ? "system" : "agent";
}

// The path with links resolved, relative to the workspace; undefined if it is outside. A file that does not exist has
// the path that its name says.
async function realRelativePath(workspace: string, path: string): Promise<string | undefined> {
  try {
    const inside = relative(await realpath(workspace), await realpath(join(workspace, path)));
    return inside === ".." || inside.startsWith(`..${sep}`) || isAbsolute(inside) ? undefined : inside;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT" ? path : undefined;
  }
}
