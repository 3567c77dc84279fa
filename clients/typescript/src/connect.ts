// Creates clients: finds the daemon and configures the connection like all clients of memoryd.

import { homedir } from "node:os";

import { type ChannelCredentials, type ChannelOptions, Client, Metadata, credentials } from "@grpc/grpc-js";

import { Calls, checkedTimeout } from "./calls.js";
import { MemorydClient } from "./client.js";
import { ConnectError } from "./connect_error.js";
import { type Endpoint, type TlsOptions, discover } from "./discovery.js";
import { contentOf, reasonOf } from "./files.js";
import { serviceConfig } from "./gen/service_config.js";
import { targetOf } from "./resolver.js";
import { Sockets } from "./sockets.js";

/** Connection options. Values that are not set are looked up in the same places as by the memoryd command. */
export interface ConnectOptions {
  /**
   * `unix:PATH`, `HOST:PORT` or `[::1]:PORT`, or a list of the replicas of one fleet, `HOST:PORT,HOST:PORT`, over which
   * calls are distributed. Default: `MEMORYD_ADDRESS`; else the endpoint file in the daemon's state
   * directory; else the default path of its socket.
   */
  readonly address?: string | undefined;
  /**
   * The bearer token, for TCP. Default: the first line of the file in `MEMORYD_TOKEN_FILE`; else, for an address on
   * loopback, the daemon's own token file. Empty means none.
   */
  readonly token?: string | undefined;
  /**
   * TLS over TCP; `{}` trusts the public authorities, and `false` disables TLS. Default: as set by `MEMORYD_TLS`; if
   * that is not set, enabled if `MEMORYD_TLS_CA`, `_CERT` or `_KEY` names a file.
   */
  readonly tls?: TlsOptions | false | undefined;
  /** Replaces the default deadline, in milliseconds, of each call that has one. */
  readonly timeoutMs?: number | undefined;
  /**
   * The interval of keepalive pings in milliseconds, also when no call is active; at least 10,000. Default: no pings.
   */
  readonly keepaliveMs?: number | undefined;
}

const LARGEST_MESSAGE = 4 * 1024 * 1024;

/**
 *
 * Returns a client. The first call opens the connection.
 *
 * @throws {@link ConnectError} if a file cannot be read, or the token would be sent to another machine without TLS.
 *
 */
export function connect(options: ConnectOptions = {}): MemorydClient {
  const endpoint = discover(options, { env: process.env, home: homedir() });
  const timeoutMs = options.timeoutMs === undefined ? undefined : checkedTimeout(options.timeoutMs);
  checkToken(endpoint.token);
  const sockets = new Sockets();
  const secured = sockets.noteThoseOf(credentialsOf(endpoint.tls));
  const client = new Client(targetOf(endpoint.addresses), secured, channelOptions(endpoint, options));
  const addresses = endpoint.addresses.map(({ text }) => text);
  const calls = new Calls(client, { token: endpoint.token, timeoutMs, addresses });
  return new MemorydClient(calls, async () => {
    client.close();
    await sockets.closed();
  });
}

function channelOptions({ tls }: Endpoint, { keepaliveMs }: ConnectOptions): ChannelOptions {
  return {
    "grpc.service_config": JSON.stringify(serviceConfig),
    "grpc.service_config_disable_resolution": 1,
    // Reconnects fast enough that the retries of a call succeed after a restart of the daemon.
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 250,
    // Large appends are retried, too.
    "grpc.per_rpc_retry_buffer_size": LARGEST_MESSAGE,
    // Each client has its own connection and closes it.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_channelz": 0,
    // Proxies in the environment are for web addresses, not for the daemon.
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
    throw new ConnectError("the token contains characters that are not allowed in a header", { cause: error });
  }
}
