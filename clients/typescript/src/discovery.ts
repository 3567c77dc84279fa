// Looks up connection options that the caller did not set, in the same places as the memoryd command: environment, then
// files.

import { existsSync, readFileSync, statSync } from "node:fs";
import { isAbsolute, join, resolve } from "node:path";

import { type Address, parseAddress, parseAddresses } from "./address.js";
import { ConnectError } from "./connect_error.js";
import { contentIfAny, contentOf } from "./files.js";

/** PEM files for TLS. They are read when the client is created. */
export interface TlsOptions {
  /** The trusted certificates, or the daemon's own certificate. Default: the public authorities that Node trusts. */
  readonly caFile?: string | undefined;
  /** The client certificate, for a daemon that requires one; needs `keyFile`. */
  readonly certFile?: string | undefined;
  /** The private key of `certFile`. */
  readonly keyFile?: string | undefined;
  /** The name in the daemon's certificate, if it differs from the host in the address. */
  readonly serverName?: string | undefined;
}

/** The environment of a process. */
export interface Surroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The home directory. */
  readonly home: string;
}

/** The options set by the caller; undefined ones are looked up. An empty token means none, and `false` means no TLS. */
export interface Wanted {
  readonly address?: string | undefined;
  readonly token?: string | undefined;
  readonly tls?: TlsOptions | false | undefined;
}

/** A complete endpoint. */
export interface Endpoint {
  /** One address, or those of the replicas of a fleet, which are all TCP addresses. */
  readonly addresses: readonly [Address, ...Address[]];
  /** The bearer token; empty means none. */
  readonly token: string;
  /** Undefined means no TLS. */
  readonly tls: TlsOptions | undefined;
}

/**
 *
 * Completes the requested endpoint from the environment.
 *
 * @throws {@link ConnectError} if an address is malformed, a file cannot be read, a variable is invalid, or the token
 * would be sent to another machine without TLS.
 *
 */
export function discover(wanted: Wanted, surroundings: Surroundings): Endpoint {
  const addresses = parseAddresses(
    given(wanted.address) ?? variable(surroundings, "MEMORYD_ADDRESS") ?? found(surroundings),
  );
  if (addresses[0].socketPath !== "") {
    return { addresses, token: "", tls: undefined };
  }
  const remote = addresses.filter(({ loopback }) => !loopback).map(({ text }) => text);
  const tls = wanted.tls === false ? undefined : (wanted.tls ?? tlsOf(surroundings));
  const token = wanted.token?.trim() ?? tokenOf(surroundings, remote.length === 0);
  if (token !== "" && tls === undefined && remote.length > 0) {
    throw new ConnectError(
      `refusing to send the token to ${remote.join(", ")} in the clear: use TLS (the option tls, or MEMORYD_TLS)`,
    );
  }
  return { addresses, token, tls };
}

/** The daemon's state directory. */
export function stateDir(surroundings: Surroundings): string {
  const named = variable(surroundings, "MEMORYD_STATE_DIR");
  if (named !== undefined) {
    return absolute(named, surroundings);
  }
  const home = openclawPath("OPENCLAW_HOME", surroundings) ?? surroundings.home;
  const theirs = openclawPath("OPENCLAW_STATE_DIR", { ...surroundings, home });
  if (theirs !== undefined) {
    return theirs;
  }
  const usual = join(home, ".openclaw");
  return [usual, join(home, ".clawdbot"), join(home, ".moltbot")].find((folder) => existsSync(folder)) ?? usual;
}

function openclawPath(name: string, surroundings: Surroundings): string | undefined {
  const text = variable(surroundings, name);
  return text === undefined || text === "undefined" || text === "null" ? undefined : absolute(text, surroundings);
}

function found(surroundings: Surroundings): string {
  const state = stateDir(surroundings);
  const noted = notedAddresses(join(state, "memoryd.endpoint.json")).find(isThere);
  if (noted !== undefined) {
    return noted;
  }
  const runtime = variable(surroundings, "XDG_RUNTIME_DIR");
  return runtime === undefined || !isAbsolute(expanded(runtime, surroundings))
    ? `unix:${join(state, "run", "memoryd.sock")}`
    : `unix:${join(absolute(runtime, surroundings), "memoryd", "memoryd.sock")}`;
}

// The endpoint file is written by the daemon, possibly of another version. If it cannot be read, it is ignored.
function notedAddresses(path: string): string[] {
  try {
    const note = JSON.parse(readFileSync(path, "utf8")) as { addresses?: unknown } | null;
    const addresses: unknown = note?.addresses;
    return Array.isArray(addresses) ? addresses.filter((each): each is string => typeof each === "string") : [];
  } catch {
    return [];
  }
}

// The endpoint file may outlive its daemon, so check that the socket exists.
function isThere(address: string): boolean {
  try {
    const { socketPath } = parseAddress(address);
    return socketPath === "" || statSync(socketPath).isSocket();
  } catch {
    return false;
  }
}

function tokenOf(surroundings: Surroundings, loopback: boolean): string {
  const named = variable(surroundings, "MEMORYD_TOKEN_FILE");
  if (named !== undefined) {
    const path = absolute(named, surroundings);
    const token = firstToken(contentOf(path, "the token file"));
    if (token === "") {
      throw new ConnectError(`the token file ${path} contains no token`);
    }
    return token;
  }
  if (!loopback) {
    return "";
  }
  const content = contentIfAny(join(stateDir(surroundings), "memoryd.token"), "the token file");
  return content === undefined ? "" : firstToken(content);
}

function firstToken(content: Buffer): string {
  const lines = content.toString("utf8").split(/\r\n|\r|\n/);
  return lines.map((line) => line.trim()).find((line) => line !== "" && !line.startsWith("#")) ?? "";
}

function tlsOf(surroundings: Surroundings): TlsOptions | undefined {
  const asked = flag(surroundings, "MEMORYD_TLS");
  if (asked === false) {
    return undefined;
  }
  const [caFile, certFile, keyFile] = ["CA", "CERT", "KEY"].map((name) => {
    const path = variable(surroundings, `MEMORYD_TLS_${name}`);
    return path === undefined ? undefined : absolute(path, surroundings);
  });
  if (asked === undefined && caFile === undefined && certFile === undefined && keyFile === undefined) {
    return undefined;
  }
  return { caFile, certFile, keyFile, serverName: variable(surroundings, "MEMORYD_TLS_SERVER_NAME") };
}

function variable(surroundings: Surroundings, name: string): string | undefined {
  return given(surroundings.env[name]);
}

function flag(surroundings: Surroundings, name: string): boolean | undefined {
  const text = variable(surroundings, name);
  if (text === undefined) {
    return undefined;
  }
  const word = text.toLowerCase();
  const isYes = ["1", "true", "yes", "on"].includes(word);
  if (!isYes && !["0", "false", "no", "off"].includes(word)) {
    throw new ConnectError(`${name} is ${JSON.stringify(text)}; write 1 for yes or 0 for no`);
  }
  return isYes;
}

// A blank value counts as not set.
function given(text: string | undefined): string | undefined {
  const trimmed = text?.trim();
  return trimmed === "" ? undefined : trimmed;
}

function absolute(path: string, surroundings: Surroundings): string {
  return resolve(expanded(path, surroundings));
}

function expanded(path: string, { home }: Surroundings): string {
  return path === "~" || path.startsWith("~/") ? join(home, path.slice(1)) : path;
}
