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
export function targetOf(addresses: readonly Address[]): string {
  const [first, ...others] = addresses;
  if (first !== undefined && others.length === 0) {
    return first.target;
  }
  experimental.registerResolver(SCHEME, ListResolver);
  return `${SCHEME}:${addresses.map(({ text }) => text).join(",")}`;
}

/** Resolves each address of a list with the DNS resolver of gRPC, and reports what is found for all of them. */
class ListResolver implements experimental.Resolver {
  readonly #listener: Listener;
  readonly #resolvers: readonly experimental.Resolver[];
  readonly #results = new Map<number, Result>();
  readonly #retries = new Set<NodeJS.Timeout>();
  #report: NodeJS.Immediate | undefined;

  constructor(target: Uri, listener: Listener, options: ChannelOptions) {
    this.#listener = listener;
    this.#resolvers = listOf(target).map((path, index) =>
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
    for (const retry of this.#retries) {
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
    // The addresses of a name that cannot be resolved any more are kept: they may still be connected.
    if (result.ok || this.#results.get(index)?.ok !== true) {
      this.#results.set(index, result);
    }
    this.#report ??= setImmediate(() => {
      this.#report = undefined;
      this.#reportAll();
    });
    return true;
  }

  #retryLater(index: number): void {
    const retry = setTimeout(() => {
      this.#retries.delete(retry);
      this.#resolvers[index]?.updateResolution();
    }, RETRY_MS).unref();
    this.#retries.add(retry);
  }

  // A name whose lookup takes long does not delay the calls to the other addresses.
  #reportAll(): void {
    const results = [...this.#results.values()];
    const endpoints = results.flatMap((result) => (result.ok ? result.value : []));
    const failure = results.find((result) => !result.ok);
    if (endpoints.length > 0) {
      const distinct = new Map(endpoints.map((each) => [experimental.endpointToString(each), each]));
      this.#listener(experimental.statusOrFromValue([...distinct.values()]), {}, null, "");
    } else if (failure !== undefined && results.length === this.#resolvers.length) {
      this.#listener(failure, {}, null, "");
    }
  }
}

function listOf(target: Uri): string[] {
  return target.path.split(",");
}
