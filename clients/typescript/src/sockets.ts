// Knows the sockets of a connection, so that closing it can wait until they are given back. gRPC's own close returns
// before that.

import type { Socket } from "node:net";

import type { ChannelCredentials } from "@grpc/grpc-js";

// A daemon that answers closes its side at once.
const GRACE_MS = 1_000;

/** The open sockets of one channel. */
export class Sockets {
  readonly #open = new Set<Socket>();

  /** The same credentials; the sockets they are used on are noted here. */
  noteThoseOf(credentials: ChannelCredentials): ChannelCredentials {
    const own: Partial<Pick<ChannelCredentials, "_createSecureConnector">> = credentials;
    const create = own._createSecureConnector?.bind(credentials);
    if (create === undefined) {
      // A later gRPC may name it otherwise; closing then does not wait.
      return credentials;
    }
    credentials._createSecureConnector = (...given) => {
      const connector = create(...given);
      const connect = connector.connect.bind(connector);
      connector.connect = (socket) => {
        this.#note(socket);
        return connect(socket);
      };
      return connector;
    };
    return credentials;
  }

  /** Resolves when all are closed; one whose other side does not close it is closed by force after a second. */
  async closed(): Promise<void> {
    if (this.#open.size === 0) {
      return;
    }
    const open = [...this.#open];
    // The timer also keeps the process alive meanwhile, which the sockets do not.
    const timer = setTimeout(() => {
      for (const socket of open) {
        socket.destroy();
      }
    }, GRACE_MS);
    await Promise.all(open.map((socket) => new Promise((resolve) => socket.once("close", resolve))));
    clearTimeout(timer);
  }

  #note(socket: Socket): void {
    this.#open.add(socket);
    socket.once("close", () => {
      this.#open.delete(socket);
    });
  }
}
