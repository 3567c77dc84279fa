// The plugin's settings, `plugins.entries.memoryd.config` in OpenClaw's settings file.

import { readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";

import type { ConnectOptions } from "@memoryd/client";

import { valueAt } from "./host.js";

/** The settings with their defaults. `undefined` means the value that the client or {@link addressOf} finds. */
export interface Settings {
  readonly address: string | undefined;
  readonly tokenFile: string | undefined;
  readonly caFile: string | undefined;
  readonly timeoutMs: number | undefined;
  readonly autostart: boolean;
  readonly command: string;
  readonly archiveSessions: boolean;
  readonly recall: boolean;
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
    recall: config.recall === true,
  };
}

/**
 * Returns the address of the daemon of the OpenClaw home `stateDir`: the setting; `MEMORYD_ADDRESS`; an address that the
 * daemon of this home has noted; or a socket in this home. Other places are not searched, since with several homes on a
 * machine the daemon that listens there can be that of another one.
 */
export function addressOf({ address }: Settings, stateDir: string): string {
  return address ?? text(process.env.MEMORYD_ADDRESS) ?? notedAddress(stateDir) ?? `unix:${stateDir}/run/memoryd.sock`;
}

// The file can be of another version, and can outlive its daemon.
function notedAddress(stateDir: string): string | undefined {
  try {
    const note: unknown = JSON.parse(readFileSync(join(stateDir, "memoryd.endpoint.json"), "utf8"));
    const addresses = valueAt(note, "addresses");
    return Array.isArray(addresses)
      ? addresses.map(text).find((each) => each !== undefined && isThere(each))
      : undefined;
  } catch {
    return undefined;
  }
}

function isThere(address: string): boolean {
  return (
    !address.startsWith("unix:") ||
    statSync(address.slice("unix:".length), { throwIfNoEntry: false })?.isSocket() === true
  );
}

/**
 * Returns the options of a client of the daemon at `address`.
 *
 * @throws {@link Error} if the token file cannot be read or contains no token.
 */
export function connectOptions(settings: Settings, address: string): ConnectOptions {
  return {
    address,
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
