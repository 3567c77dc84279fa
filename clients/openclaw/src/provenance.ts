// Who wrote a memory file, as OpenClaw has recorded it when one of its agents wrote it.

import type { OriginClass } from "./hits.js";

/** Returns the recorded origin of a file, or undefined if none is recorded. */
export type ReadOrigin = (workspaceDir: string, relativePath: string) => Promise<OriginClass | undefined>;

// Part of OpenClaw's SDK, but without published types.
const MODULE = "openclaw/plugin-sdk/memory-core-host-runtime-core";

interface HostRuntime {
  readonly readMemoryArtifactProvenance?: (file: {
    workspaceDir: string;
    relativePath: string;
  }) => Promise<{ readonly originClass: OriginClass } | undefined>;
}

/**
 * Reads OpenClaw's records. Without such a function in the SDK, there are none, so that a change of the SDK does not
 * remove MEMORY.md from all prompts.
 *
 * @throws {@link Error} if the records cannot be read.
 */
export const readRecordedOrigin: ReadOrigin = async (workspaceDir, relativePath) => {
  let host: HostRuntime;
  try {
    host = (await import(MODULE)) as HostRuntime;
  } catch {
    return undefined;
  }
  return (await host.readMemoryArtifactProvenance?.({ workspaceDir, relativePath }))?.originClass;
};
