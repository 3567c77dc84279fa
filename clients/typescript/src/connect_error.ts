/**
 * An error that the client detects before it sends anything: a malformed address, a file that cannot be read, or a
 * token that would be sent without TLS. The message says what is wrong and what to do.
 */
export class ConnectError extends Error {
  override readonly name = "ConnectError";
}
