/**
 * What the client refuses by itself, before anything is sent: an address that is none, a file that cannot be read, a
 * token that would travel in the clear. The message says what is wrong and what to do.
 */
export class ConnectError extends Error {
  override readonly name = "ConnectError";
}
