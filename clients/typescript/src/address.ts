// Addresses of daemons, parsed from strings.

import { BlockList, isIP, isIPv4, isIPv6 } from "node:net";
import { resolve } from "node:path";

import { ConnectError } from "./connect_error.js";

/** An address to connect to. */
export interface Address {
  /** The original text. */
  readonly text: string;
  /** The gRPC target. */
  readonly target: string;
  /** The absolute path of the Unix socket; empty over TCP. */
  readonly socketPath: string;
  /** Whether the host is a name, which has to be resolved. */
  readonly named: boolean;
  /** Whether the address is on this machine. */
  readonly loopback: boolean;
}

// `sockaddr_un` holds 108 bytes, including the final NUL.
const MOST_SOCKET_PATH_BYTES = 107;
const LAST_PORT = 65_535;
const MOST_ADDRESSES = 64;

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

/**
 *
 * Parses one address, or several TCP addresses that are separated by commas. A Unix socket is always the only address,
 * also if there is a comma in its path.
 *
 * @throws {@link ConnectError} if an address is malformed, empty or repeated, or there are more than 64.
 *
 */
export function parseAddresses(text: string): readonly [Address, ...Address[]] {
  if (text.startsWith("unix:") || !text.includes(",")) {
    return [parseAddress(text)];
  }
  const [first = "", ...others] = text.split(",").map((each) => each.trim());
  if (others.length >= MOST_ADDRESSES) {
    throw new ConnectError(`a list has at most ${MOST_ADDRESSES} addresses, not ${others.length + 1}`);
  }
  const element = (each: string): Address => {
    if (each === "" || each.startsWith("unix:")) {
      const found = each === "" ? "an empty address" : `"${each}"`;
      throw new ConnectError(`"${text}" contains ${found}: write a list as HOST:PORT,HOST:PORT`);
    }
    return parseAddress(each);
  };
  const addresses: [Address, ...Address[]] = [element(first), ...others.map(element)];
  const names = addresses.map((each) => each.text.toLowerCase());
  const repeated = names.find((name, index) => names.indexOf(name) !== index);
  if (repeated !== undefined) {
    throw new ConnectError(`"${text}" contains "${repeated}" more than once`);
  }
  return addresses;
}

/**
 *
 * Parses `unix:PATH`, `HOST:PORT` or `[::1]:PORT`.
 *
 * @throws {@link ConnectError} if the address is malformed.
 *
 */
export function parseAddress(text: string): Address {
  return text.startsWith("unix:") ? socket(text) : tcp(text);
}

function socket(text: string): Address {
  const written = text.slice("unix:".length);
  const path = written.startsWith("//") ? written.slice(2) : written;
  if (path === "") {
    throw new ConnectError(`the address "${text}" has no socket path: write unix:PATH`);
  }
  const socketPath = resolve(path);
  const size = Buffer.byteLength(socketPath);
  if (size > MOST_SOCKET_PATH_BYTES) {
    throw new ConnectError(
      `the socket path ${socketPath} is ${size} bytes long; the system allows ${MOST_SOCKET_PATH_BYTES}`,
    );
  }
  return { text, target: `unix:${socketPath}`, socketPath, named: false, loopback: true };
}

function tcp(text: string): Address {
  const parts = /^(?:\[([^[\]]+)\]|([^:[\]/\s]+)):(\d{1,5})$/.exec(text);
  const port = Number(parts?.[3]);
  const [bracketed, plain] = [parts?.[1], parts?.[2]];
  if (parts === null || port < 1 || port > LAST_PORT || (bracketed !== undefined && !isIPv6(bracketed))) {
    throw new ConnectError(
      `"${text}" is not an address: write unix:PATH, HOST:PORT or [IPV6]:PORT, for example 127.0.0.1:7627`,
    );
  }
  const host = bracketed ?? plain ?? "";
  return { text, target: `dns:${text}`, socketPath: "", named: isIP(host) === 0, loopback: isLoopback(host) };
}

function isLoopback(host: string): boolean {
  if (isIPv4(host)) {
    return LOOPBACK.check(host, "ipv4");
  }
  return isIPv6(host) ? LOOPBACK.check(host, "ipv6") : host.toLowerCase() === "localhost";
}
