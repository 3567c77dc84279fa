// Resolves the host names of one or several addresses for one channel. gRPC itself resolves one host name, and only after
// it has lost a connection, so that it does not find a replica that was added.

import { type ChannelOptions, experimental } from "@grpc/grpc-js";

import type { Address } from "./address.js";

const SCHEME = "memoryd";
// The time after which host names are looked up again; and a host name that could not be resolved.
const REFRESH_MS = 30_000;
const RETRY_MS = 5_000;

type Uri = experimental.GrpcUri;
type Listener = experimental.ResolverListener;
type Result = Parameters<Listener>[0];

/** Returns the gRPC target of a channel to all these addresses. */
export function targetOf(addresses: readonly [Address, ...Address[]]): string {
  const [first, ...others] = addresses;
  if (others.length === 0 && !first.named) {
    return first.target;
  }
  experimental.registerResolver(SCHEME, ListResolver);
  return `${SCHEME}:${addresses.map(({ text }) => text).join(",")}`;
}

/** Resolves each address with the DNS resolver of gRPC, now and then again, and reports what is found for all of them. */
class ListResolver implements experimental.Resolver {
  readonly #listener: Listener;
  readonly #addresses: readonly string[];
  readonly #resolvers: readonly experimental.Resolver[];
  readonly #results = new Map<number, Result>();
  readonly #timers = new Map<number, NodeJS.Timeout>();
  #report: NodeJS.Immediate | undefined;
  #reported = "";

  constructor(target: Uri, listener: Listener, options: ChannelOptions) {
    this.#listener = listener;
    this.#addresses = listOf(target);
    this.#resolvers = this.#addresses.map((path, index) =>
      experimental.createResolver({ scheme: "dns", path }, (result) => this.#take(index, result), options),
    );
  }

  /** Returns the first address, for which the daemons' certificates are verified if no server name is set. */
  static getDefaultAuthority(target: Uri): string {
    return listOf(target)[0] ?? "";
  }

  updateResolution(): void {
    for (const resolver of this.#resolvers) {
      resolver.updateResolution();
    }
  }

  destroy(): void {
    for (const resolver of this.#resolvers) {
      resolver.destroy();
    }
    for (const timer of this.#timers.values()) {
      clearTimeout(timer);
    }
    this.#timers.clear();
    clearImmediate(this.#report);
    this.#report = undefined;
    this.#reported = "";
    this.#results.clear();
  }

  #take(index: number, result: Result): boolean {
    this.#resolveLater(index, result.ok ? REFRESH_MS : RETRY_MS);
    // The IP addresses of a name that cannot be resolved any more are kept: they may still be connected.
    if (result.ok || this.#results.get(index)?.ok !== true) {
      this.#results.set(index, result);
    }
    this.#report ??= setImmediate(() => {
      this.#report = undefined;
      this.#reportAll();
    });
    return true;
  }

  // Each IP address of a host name is one replica, except that all those of localhost are the same one.
  #replicas(index: number, found: experimental.Endpoint[]): experimental.Endpoint[] {
    return isLocalhost(this.#addresses[index] ?? "")
      ? [{ addresses: found.flatMap(({ addresses }) => addresses) }]
      : found;
  }

  #resolveLater(index: number, delayMs: number): void {
    clearTimeout(this.#timers.get(index));
    const timer = setTimeout(() => {
      this.#resolvers[index]?.updateResolution();
    }, delayMs);
    this.#timers.set(index, timer.unref());
  }

  // A name whose lookup takes long does not delay the calls to the other addresses.
  #reportAll(): void {
    const results = [...this.#results.values()];
    const endpoints = [...this.#results].flatMap(([index, result]) =>
      result.ok ? this.#replicas(index, result.value) : [],
    );
    const failure = results.find((result) => !result.ok);
    if (endpoints.length > 0) {
      const distinct = new Map(endpoints.map((each) => [experimental.endpointToString(each), each]));
      const report = [...distinct.keys()].sort().join();
      if (report !== this.#reported) {
        this.#reported = report;
        this.#listener(experimental.statusOrFromValue([...distinct.values()]), {}, null, "");
      }
    } else if (failure !== undefined && results.length === this.#resolvers.length) {
      this.#listener(failure, {}, null, "");
    }
  }
}

// A daemon can listen at one of the IP addresses of localhost. The others would be tried again and again.
function isLocalhost(address: string): boolean {
  return address.toLowerCase().startsWith("localhost:");
}

function listOf(target: Uri): string[] {
  return target.path.split(",");
}
