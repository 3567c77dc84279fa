// The plugin's settings, `plugins.entries.memoryd.config` in OpenClaw's settings file.

import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";

import type { ConnectOptions } from "@memoryd/client";

/** The settings with their defaults. `undefined` means that the client looks the value up, like the memoryd command. */
export interface Settings {
  readonly address: string | undefined;
  readonly tokenFile: string | undefined;
  readonly caFile: string | undefined;
  readonly timeoutMs: number | undefined;
  readonly autostart: boolean;
  readonly command: string;
  readonly archiveSessions: boolean;
}

/**
 * Returns the settings in `config`. OpenClaw has validated them with the schema in the manifest when they were written;
 * a value of another type is treated as not set.
 */
export function readSettings(config: Readonly<Record<string, unknown>> = {}): Settings {
  const { timeoutMs } = config;
  return {
    address: text(config.address),
    tokenFile: path(config.tokenFile),
    caFile: path(config.caFile),
    timeoutMs: typeof timeoutMs === "number" && timeoutMs > 0 ? timeoutMs : undefined,
    autostart: config.autostart === true,
    command: text(config.command) ?? "memoryd",
    archiveSessions: config.archiveSessions !== false,
  };
}

/**
 * Returns the options of the client.
 *
 * @throws {@link Error} if the token file cannot be read or contains no token.
 */
export function connectOptions(settings: Settings): ConnectOptions {
  return {
    address: settings.address,
    token: settings.tokenFile === undefined ? undefined : readToken(settings.tokenFile),
    tls: settings.caFile === undefined ? undefined : { caFile: settings.caFile },
    timeoutMs: settings.timeoutMs,
  };
}

function readToken(file: string): string {
  let lines: string[];
  try {
    lines = readFileSync(file, "utf8").split(/\r\n|\r|\n/);
  } catch (error) {
    throw new Error(`the token file ${file} cannot be read: ${(error as Error).message}`, { cause: error });
  }
  const token = lines.map((line) => line.trim()).find((line) => line !== "" && !line.startsWith("#"));
  if (token === undefined) {
    throw new Error(`the token file ${file} contains no token`);
  }
  return token;
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value.trim() !== "" ? value.trim() : undefined;
}

function path(value: unknown): string | undefined {
  const given = text(value);
  return given?.startsWith("~/") ? join(homedir(), given.slice(2)) : given && resolve(given);
}
