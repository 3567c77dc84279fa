// Makes retries safe.

import { randomUUID } from "node:crypto";

import { type MessageInitShape, type MessageShape, clone, create } from "@bufbuild/protobuf";

import type { RememberRequestSchema } from "./gen/memoryd/v1/entry_service_pb.js";
import type {
  MemoryAppendRequestSchema,
  MemoryMoveRequestSchema,
  MemoryRestoreRequestSchema,
  MemoryWriteRequestSchema,
} from "./gen/memoryd/v1/memory_service_pb.js";

type Keyed =
  | typeof MemoryAppendRequestSchema
  | typeof MemoryMoveRequestSchema
  | typeof MemoryRestoreRequestSchema
  | typeof MemoryWriteRequestSchema
  | typeof RememberRequestSchema;

/** Returns the request with a random key if it has none; the caller's message is not changed. */
export function withKey<S extends Keyed>(schema: S, request: MessageInitShape<S>): MessageShape<S> {
  const filled = clone(schema, create(schema, request));
  filled.idempotencyKey ||= randomUUID();
  return filled;
}
