// Makes a client: finds the daemon, and sets the connection up as every client of memoryd does.

import { homedir } from "node:os";

import { type ChannelCredentials, type ChannelOptions, Client, Metadata, credentials } from "@grpc/grpc-js";

import { Calls, checkedTimeout } from "./calls.js";
import { MemorydClient } from "./client.js";
import { ConnectError } from "./connect_error.js";
import { type Endpoint, type TlsOptions, discover } from "./discovery.js";
import { contentOf, reasonOf } from "./files.js";
import { serviceConfig } from "./gen/service_config.js";
import { Sockets } from "./sockets.js";

/** How to connect. What is not given is looked for where the daemon's own command looks. */
export interface ConnectOptions {
  /**
   * `unix:PATH`, `HOST:PORT` or `[::1]:PORT`. Else `MEMORYD_ADDRESS`; else what the daemon noted in its state directory;
   * else its socket's usual place.
   */
  readonly address?: string | undefined;
  /**
   * The bearer token, over TCP. Else the first line of the file that `MEMORYD_TOKEN_FILE` names; else, for an address on
   * loopback, the daemon's own token file. Empty means none.
   */
  readonly token?: string | undefined;
  /**
   * Speak TLS over TCP; `{}` trusts the public authorities, and `false` means in the clear. Else as `MEMORYD_TLS` says, and
   * where it says nothing, when `MEMORYD_TLS_CA`, `_CERT` or `_KEY` names a file.
   */
  readonly tls?: TlsOptions | false | undefined;
  /** Replaces the documented deadline, in milliseconds, of each call that has one. */
  readonly timeoutMs?: number | undefined;
  /** Pings the daemon this often, in milliseconds, also without a call under way; it allows 10,000. Else never. */
  readonly keepaliveMs?: number | undefined;
}

const LARGEST_MESSAGE = 4 * 1024 * 1024;

/**
 * Returns a client. The connection is made by its first call.
 *
 * @throws {@link ConnectError} when a file cannot be read, or a token would travel in the clear beyond this machine.
 */
export function connect(options: ConnectOptions = {}): MemorydClient {
  const endpoint = discover(options, { env: process.env, home: homedir() });
  const timeoutMs = options.timeoutMs === undefined ? undefined : checkedTimeout(options.timeoutMs);
  checkToken(endpoint.token);
  const sockets = new Sockets();
  const secured = sockets.noteThoseOf(credentialsOf(endpoint.tls));
  const client = new Client(endpoint.address.target, secured, channelOptions(endpoint, options));
  const calls = new Calls(client, { token: endpoint.token, timeoutMs });
  return new MemorydClient(calls, async () => {
    client.close();
    await sockets.closed();
  });
}

function channelOptions({ tls }: Endpoint, { keepaliveMs }: ConnectOptions): ChannelOptions {
  return {
    "grpc.service_config": JSON.stringify(serviceConfig),
    "grpc.service_config_disable_resolution": 1,
    // A daemon that restarts is found by the retries of the call that meets it.
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 250,
    // A large append is tried again, too.
    "grpc.per_rpc_retry_buffer_size": LARGEST_MESSAGE,
    // A connection is its client's own, and goes with it.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_channelz": 0,
    // A proxy from the environment is for the web, not for a daemon on this machine.
    "grpc.enable_http_proxy": 0,
    ...(tls?.serverName && {
      "grpc.ssl_target_name_override": tls.serverName,
      "grpc.default_authority": tls.serverName,
    }),
    ...(keepaliveMs !== undefined && {
      "grpc.keepalive_time_ms": keepaliveMs,
      "grpc.keepalive_permit_without_calls": 1,
    }),
  };
}

function credentialsOf(tls: TlsOptions | undefined): ChannelCredentials {
  if (tls === undefined) {
    return credentials.createInsecure();
  }
  if ((tls.certFile === undefined) !== (tls.keyFile === undefined)) {
    throw new ConnectError("a client's certificate and its key are needed together");
  }
  const ca = tls.caFile === undefined ? null : contentOf(tls.caFile, "the CA file");
  const cert = tls.certFile === undefined ? null : contentOf(tls.certFile, "the certificate file");
  const key = tls.keyFile === undefined ? null : contentOf(tls.keyFile, "the key file");
  try {
    return credentials.createSsl(ca, key, cert);
  } catch (error) {
    const files = [tls.caFile, tls.certFile, tls.keyFile].filter((file) => file !== undefined);
    throw new ConnectError(`cannot use ${files.join(", ")} for TLS: ${reasonOf(error)}`, { cause: error });
  }
}

function checkToken(token: string): void {
  try {
    new Metadata().set("authorization", `Bearer ${token}`);
  } catch (error) {
    throw new ConnectError("the token holds characters that no header can carry", { cause: error });
  }
}
