"""Errors of memoryd as gRPC statuses with `google.rpc` details: always ErrorInfo, if apt BadRequest and RetryInfo."""

import asyncio
import functools
from collections.abc import Mapping
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from memoryd_server.errors import InvalidRequest, MemorydError
from memoryd_server.rpc.wire import Context, duration

DOMAIN = "memoryd"
# A client accepts 8 KiB of trailing metadata, which contain the message twice.
MOST_MESSAGE_BYTES = 1_500
MOST_DETAIL_BYTES = 300
# Of all violations together; only a request built to be wrong has more.
MOST_VIOLATION_BYTES = 3_000

DETAILS_KEY = "grpc-status-details-bin"
REQUEST_ID_KEY = "x-request-id"

_CODES: Mapping[str, grpc.StatusCode] = {
    "INVALID_REQUEST": grpc.StatusCode.INVALID_ARGUMENT,
    "CURSOR_MALFORMED": grpc.StatusCode.INVALID_ARGUMENT,
    "CURSOR_EXPIRED": grpc.StatusCode.OUT_OF_RANGE,
    "TOKEN_MISSING": grpc.StatusCode.UNAUTHENTICATED,
    "TOKEN_INVALID": grpc.StatusCode.UNAUTHENTICATED,
    "AGENT_FORBIDDEN": grpc.StatusCode.PERMISSION_DENIED,
    "SCOPE_MISSING": grpc.StatusCode.PERMISSION_DENIED,
    "PATH_NOT_ALLOWED": grpc.StatusCode.PERMISSION_DENIED,
    "AGENT_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "FILE_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "ENTRY_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "VERSION_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "CONTENT_CHANGED": grpc.StatusCode.ABORTED,
    "EDITS_DISABLED": grpc.StatusCode.FAILED_PRECONDITION,
    "MEMORY_DISABLED": grpc.StatusCode.FAILED_PRECONDITION,
    "EMBEDDING_NOT_CONFIGURED": grpc.StatusCode.FAILED_PRECONDITION,
    "WORKSPACE_READ_ONLY": grpc.StatusCode.FAILED_PRECONDITION,
    "INDEX_TOO_NEW": grpc.StatusCode.FAILED_PRECONDITION,
    "STATE_READ_ONLY": grpc.StatusCode.FAILED_PRECONDITION,
    "SYNC_CONFLICT": grpc.StatusCode.ABORTED,
    "SYNC_CANCELLED": grpc.StatusCode.ABORTED,
    "EMBEDDING_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "EMBEDDING_QUOTA_EXCEEDED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "BACKEND_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "INDEX_BUSY": grpc.StatusCode.UNAVAILABLE,
    "INDEX_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "ENTRIES_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "HISTORY_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "DISK_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "TOO_MANY_REQUESTS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "SHUTTING_DOWN": grpc.StatusCode.UNAVAILABLE,
    "REVISION_NOT_REACHED": grpc.StatusCode.DEADLINE_EXCEEDED,
    "DEADLINE_TOO_SHORT": grpc.StatusCode.DEADLINE_EXCEEDED,
    "NOT_IMPLEMENTED": grpc.StatusCode.UNIMPLEMENTED,
    "INTERNAL": grpc.StatusCode.INTERNAL,
}


def code_of(error: MemorydError) -> grpc.StatusCode:
    """Return the status code of an error."""
    return _CODES[error.reason]


def status_of(error: MemorydError) -> status_pb2.Status:
    """Return the whole status, as clients decode it from the trailing metadata."""
    metadata = {key: _clipped(value, MOST_DETAIL_BYTES) for key, value in error.metadata.items()}
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    details = [info]
    if isinstance(error, InvalidRequest):
        details.append(_bad_request(error))
    if error.retry_after_seconds is not None:
        details.append(_retry_info(error.retry_after_seconds))
    message = _clipped(error.message, MOST_MESSAGE_BYTES)
    return status_pb2.Status(code=code_of(error).value[0], message=message, details=map(_packed, details))


def _clipped(text: str, most_bytes: int) -> str:
    """Return `text` cut to `most_bytes`, counted as gRPC sends them: three for each byte that is not plain ASCII."""
    size = 0
    for at, character in enumerate(text):
        size += 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode("utf-8", "replace"))
        if size > most_bytes:
            return text[:at] + "…"
    return text


def _bad_request(error: InvalidRequest) -> error_details_pb2.BadRequest:
    """Return the violations; only the first ones if a client would not accept all."""
    bad_request, size = error_details_pb2.BadRequest(), 0
    for violation in error.violations:
        description = _clipped(violation.description, MOST_DETAIL_BYTES)
        size += len(violation.field) + len(description.encode("utf-8", "replace"))
        if size > MOST_VIOLATION_BYTES:
            break
        bad_request.field_violations.add(field=violation.field, description=description)
    return bad_request


def _retry_info(seconds: float) -> error_details_pb2.RetryInfo:
    return error_details_pb2.RetryInfo(retry_delay=duration(seconds))


def _packed(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


async def abort(context: Context, error: MemorydError, request_id: str) -> NoReturn:
    """End the call with the error's status."""
    status = status_of(error)
    trailing = ((DETAILS_KEY, status.SerializeToString()), (REQUEST_ID_KEY, request_id))
    try:
        await context.abort(code_of(error), status.message, trailing)
    except grpc.aio.AbortError as aborted:
        release_after_call(aborted)
        raise
    raise AssertionError("abort returned")


def release_after_call(aborted: grpc.aio.AbortError) -> None:
    """Clear the traceback of an abort when the current call has ended.

    gRPC's context keeps the exception, and the frames of its traceback, which have the context, keep all that the call
    used. Such a cycle stays until the garbage collector finds it.
    """
    call = asyncio.current_task()
    if call is not None:
        call.add_done_callback(functools.partial(_release, aborted))


def _release(aborted: grpc.aio.AbortError, _call: "asyncio.Task[Any]") -> None:
    aborted.__traceback__ = aborted.__context__ = None
