/**
 * A thin client of memoryd: its calls as methods that return promises and streams, with deadlines and typed errors.
 *
 * ```ts
 * await using client = connect();
 * for (const { path, startLine, snippet } of (await client.search({ query: "who owns the cache?" })).results) {
 *   console.log(path, startLine, snippet);
 * }
 * ```
 *
 * @module
 */

export type { CallOptions } from "./calls.js";
export { MemorydClient } from "./client.js";
export { type ConnectOptions, connect } from "./connect.js";
export { ConnectError } from "./connect_error.js";
export type { TlsOptions } from "./discovery.js";
export { EntryClient } from "./entries.js";
export { Code, MemorydError, type Violation } from "./error.js";
export { MemoryTool, type MemoryToolOptions } from "./memory_tool.js";
export { EventStream } from "./stream.js";
