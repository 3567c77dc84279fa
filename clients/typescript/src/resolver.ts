// Resolves several addresses for one channel. gRPC itself resolves the host name of one address only.

import { type ChannelOptions, experimental } from "@grpc/grpc-js";

import type { Address } from "./address.js";

const SCHEME = "memoryd";
// The pause before a host name that could not be resolved is looked up again.
const RETRY_MS = 5_000;

type Uri = experimental.GrpcUri;
type Listener = experimental.ResolverListener;
type Result = Parameters<Listener>[0];

/** Returns the gRPC target of a channel to all these addresses. */
export function targetOf(addresses: readonly [Address, ...Address[]]): string {
  const [first, ...others] = addresses;
  if (others.length === 0 && !isLocalhost(first.text)) {
    return first.target;
  }
  experimental.registerResolver(SCHEME, ListResolver);
  return `${SCHEME}:${addresses.map(({ text }) => text).join(",")}`;
}

/** Resolves each address of a list with the DNS resolver of gRPC, and reports what is found for all of them. */
class ListResolver implements experimental.Resolver {
  readonly #listener: Listener;
  readonly #addresses: readonly string[];
  readonly #resolvers: readonly experimental.Resolver[];
  readonly #results = new Map<number, Result>();
  readonly #retries = new Map<number, NodeJS.Timeout>();
  #report: NodeJS.Immediate | undefined;

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
    for (const retry of this.#retries.values()) {
      clearTimeout(retry);
    }
    this.#retries.clear();
    clearImmediate(this.#report);
    this.#report = undefined;
    this.#results.clear();
  }

  #take(index: number, result: Result): boolean {
    if (!result.ok) {
      this.#retryLater(index);
    }
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

  #retryLater(index: number): void {
    clearTimeout(this.#retries.get(index));
    const retry = setTimeout(() => {
      this.#resolvers[index]?.updateResolution();
    }, RETRY_MS);
    this.#retries.set(index, retry.unref());
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
      this.#listener(experimental.statusOrFromValue([...distinct.values()]), {}, null, "");
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
