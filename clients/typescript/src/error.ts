// What a call that failed rejects with: one error, with everything that the status says.

import { type DescMessage, type MessageShape, fromBinary } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { type ServiceError, type StatusObject, status as Code } from "@grpc/grpc-js";

import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema, StatusSchema } from "./gen/memoryd/client/status_pb.js";

export { status as Code } from "@grpc/grpc-js";

/** One thing wrong with one field of the request. */
export interface Violation {
  /** The field, as the contract names it. */
  readonly field: string;
  /** What is wrong with it. */
  readonly description: string;
}

/** What a {@link MemorydError} is made from. */
export interface Failure {
  readonly code: Code;
  readonly reason?: string;
  readonly message: string;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly violations?: readonly Violation[];
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** A call that did not end with OK. */
export class MemorydError extends Error {
  override readonly name = "MemorydError";
  /** The gRPC code; `Code[error.code]` is its name. */
  readonly code: Code;
  /**
   * The name of an `ErrorReason` without its prefix, for example `"INDEX_BUSY"`. Empty for a status that gRPC itself
   * made, such as a daemon that does not answer.
   */
  readonly reason: string;
  /** The values that the message speaks of. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Every bad field of an `INVALID_REQUEST`. */
  readonly violations: readonly Violation[];
  /** How long to wait before trying again; undefined where that does not help. */
  readonly retryAfterMs: number | undefined;

  /** Calls make these; a test of what handles them may, too. */
  constructor(failure: Failure) {
    super(failure.message, failure.cause === undefined ? undefined : { cause: failure.cause });
    this.code = failure.code;
    this.reason = failure.reason ?? "";
    this.metadata = failure.metadata ?? {};
    this.violations = failure.violations ?? [];
    this.retryAfterMs = failure.retryAfterMs;
  }
}

/** The error that a status stands for. Details that cannot be read are left out. */
export function decode(status: StatusObject | ServiceError, cause: unknown = status): MemorydError {
  return new MemorydError({ ...detailsOf(status), code: status.code, message: status.details, cause });
}

/** The error of a call that was ended on this side. */
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
