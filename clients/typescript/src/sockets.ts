// Keeps track of a connection's sockets, so that closing can wait until they are closed. gRPC's own close returns
// before that.

import type { Socket } from "node:net";

import type { ChannelCredentials } from "@grpc/grpc-js";

// A responsive daemon closes its end of the connection immediately.
const GRACE_MS = 1_000;

/** The open sockets of one channel. */
export class Sockets {
  readonly #open = new Set<Socket>();

  /** Returns the same credentials, but records the sockets that use them. */
  noteThoseOf(credentials: ChannelCredentials): ChannelCredentials {
    const own: Partial<Pick<ChannelCredentials, "_createSecureConnector">> = credentials;
    const create = own._createSecureConnector?.bind(credentials);
    if (create === undefined) {
      // A later version of gRPC may use another name; closing then does not wait.
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

  /** Resolves when all sockets are closed. A socket that the daemon does not close is destroyed after a second. */
  async closed(): Promise<void> {
    if (this.#open.size === 0) {
      return;
    }
    const open = [...this.#open];
    // The timer also keeps the process alive until then, which the sockets do not.
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
