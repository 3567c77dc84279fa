/** The messages and enums of the API `memoryd.v1`, with their schemas. */

export * from "./gen/memoryd/v1/entry_service_pb.js";
export * from "./gen/memoryd/v1/error_reason_pb.js";
export * from "./gen/memoryd/v1/memory_pb.js";
export * from "./gen/memoryd/v1/memory_service_pb.js";
export * from "./gen/memoryd/v1/sync_event_pb.js";
