import assert from "node:assert/strict";
import { test } from "node:test";

import { create, toBinary } from "@bufbuild/protobuf";
import { type Any, DurationSchema, anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata } from "@grpc/grpc-js";
import { decode } from "#dist/error.js";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
  StatusSchema,
} from "#dist/gen/memoryd/client/status_pb.js";
import { Code, MemorydError } from "@memoryd/client";

function status(details: Uint8Array | undefined): MemorydError {
  const metadata = new Metadata();
  if (details) {
    metadata.set("grpc-status-details-bin", Buffer.from(details));
  }
  return decode({ code: Code.UNAVAILABLE, details: "the daemon is stopping", metadata });
}

function packed(...details: Any[]): Uint8Array {
  const renamed = details.map((each) => ({ ...each, typeUrl: each.typeUrl.replace("memoryd.client", "google.rpc") }));
  return toBinary(StatusSchema, create(StatusSchema, { code: 14, details: renamed }));
}

test("an error carries all that the status says", () => {
  const info = create(ErrorInfoSchema, { reason: "SHUTTING_DOWN", domain: "memoryd", metadata: { request_id: "7" } });
  const bad = create(BadRequestSchema, { fieldViolations: [{ field: "query", description: "must not be blank" }] });
  const retry = create(RetryInfoSchema, { retryDelay: create(DurationSchema, { seconds: 1n, nanos: 500_000_000 }) });
  const error = status(
    packed(anyPack(ErrorInfoSchema, info), anyPack(BadRequestSchema, bad), anyPack(RetryInfoSchema, retry)),
  );
  assert.ok(error instanceof MemorydError);
  assert.equal(error.name, "MemorydError");
  assert.equal(Code[error.code], "UNAVAILABLE");
  assert.equal(error.reason, "SHUTTING_DOWN");
  assert.equal(error.message, "the daemon is stopping");
  assert.deepEqual(error.metadata, { request_id: "7" });
  assert.deepEqual(error.violations, [{ field: "query", description: "must not be blank" }]);
  assert.equal(error.retryAfterMs, 1500);
});

test("what gRPC itself says has no reason, and details that cannot be read are left out", () => {
  for (const details of [undefined, new Uint8Array([255, 255, 255]), packed()]) {
    const error = status(details);
    assert.equal(error.code, Code.UNAVAILABLE);
    assert.equal(error.message, "the daemon is stopping");
    assert.equal(error.reason, "");
    assert.deepEqual([error.metadata, error.violations, error.retryAfterMs], [{}, [], undefined]);
  }
});

test("details of kinds that are not known do not hide those that are", () => {
  const unknown = { ...anyPack(ErrorInfoSchema, create(ErrorInfoSchema)), typeUrl: "type.googleapis.com/x.Y" };
  const info = create(ErrorInfoSchema, { reason: "INDEX_BUSY" });
  assert.equal(status(packed(unknown, anyPack(ErrorInfoSchema, info))).reason, "INDEX_BUSY");
});
