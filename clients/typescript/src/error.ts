// The error of a failed call, with all details of its status.

import { type DescMessage, type MessageShape, fromBinary } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { type ServiceError, type StatusObject, status as Code } from "@grpc/grpc-js";

import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema, StatusSchema } from "./gen/memoryd/client/status_pb.js";

export { status as Code } from "@grpc/grpc-js";

/** An invalid field of a request. */
export interface Violation {
  /** The name of the field. */
  readonly field: string;
  /** Why the field is invalid. */
  readonly description: string;
}

/** The values of a {@link MemorydError}. */
export interface Failure {
  readonly code: Code;
  readonly reason?: string;
  readonly message: string;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly violations?: readonly Violation[];
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** A call whose status is not OK. */
export class MemorydError extends Error {
  override readonly name = "MemorydError";
  /** The gRPC code; `Code[error.code]` is its name. */
  readonly code: Code;
  /**
   * The name of an `ErrorReason` without its prefix, for example `"INDEX_BUSY"`. Empty for a status that gRPC itself
   * created, for example if the daemon is not running.
   */
  readonly reason: string;
  /** The values that the message refers to. */
  readonly metadata: Readonly<Record<string, string>>;
  /** All invalid fields, for `INVALID_REQUEST`. */
  readonly violations: readonly Violation[];
  /** The time to wait before a retry; undefined if a retry does not help. */
  readonly retryAfterMs: number | undefined;

  /** Created by failed calls; tests may create it, too. */
  constructor(failure: Failure) {
    super(failure.message, failure.cause === undefined ? undefined : { cause: failure.cause });
    this.code = failure.code;
    this.reason = failure.reason ?? "";
    this.metadata = failure.metadata ?? {};
    this.violations = failure.violations ?? [];
    this.retryAfterMs = failure.retryAfterMs;
  }
}

/**
 * Returns the error of a status. Details that cannot be decoded are omitted. `addresses` are those of the client: gRPC
 * names only the last one that it tried, so the message lists several.
 */
export function decode(status: StatusObject | ServiceError, addresses: readonly string[] = []): MemorydError {
  const details = detailsOf(status);
  const unreached = addresses.length > 1 && status.code === Code.UNAVAILABLE && (details.reason ?? "") === "";
  const message = unreached ? `${status.details} (addresses: ${addresses.join(", ")})` : status.details;
  return new MemorydError({ ...details, code: status.code, message, cause: status });
}

/** Returns the error of a call that was cancelled by this client. */
export function cancelled(message: string, cause?: unknown): MemorydError {
  return new MemorydError({ code: Code.CANCELLED, message, cause });
}

function detailsOf(status: StatusObject | ServiceError): Partial<Failure> {
  const raw = status.metadata.get("grpc-status-details-bin")[0];
  if (!(raw instanceof Uint8Array)) {
    return {};
  }
  try {
    const details = fromBinary(StatusSchema, raw).details;
    const find = <D extends DescMessage>(schema: D): MessageShape<D> | undefined => {
      const detail = details.find((each) => each.typeUrl.endsWith(`google.rpc.${schema.name}`));
      return detail && fromBinary(schema, detail.value);
    };
    const info = find(ErrorInfoSchema);
    const delay = find(RetryInfoSchema)?.retryDelay;
    const violations = find(BadRequestSchema)?.fieldViolations ?? [];
    return {
      reason: info?.reason ?? "",
      metadata: { ...info?.metadata },
      violations: violations.map(({ field, description }) => ({ field, description })),
      retryAfterMs: delay && durationMs(delay),
    };
  } catch {
    return {};
  }
}
