"""`MemorydError`, the exception of a failed call, and its decoding from the status."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from memoryd._status import details_of

_DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation in one field of the request."""

    field: str
    description: str


@dataclass(eq=False)
class MemorydError(Exception):
    """A call that ended with a status other than OK.

    `reason` is the name of an `ErrorReason` without its prefix; it is empty for a status that gRPC itself created, for
    example when no daemon answers. `violations` contains every invalid field of an INVALID_REQUEST.
    `retry_after_seconds` is set if a retry can succeed.
    """

    code: grpc.StatusCode
    reason: str = ""
    message: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()
    retry_after_seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.reason or self.code.name}: {self.message}"


@contextmanager
def typed_errors(addresses: Sequence[str] = ()) -> Iterator[None]:
    """Raise a `MemorydError` for an error of gRPC inside the block; see `decode`."""
    try:
        yield
    except grpc.RpcError as error:
        raise decode(error, addresses) from error


def decode(error: grpc.RpcError, addresses: Sequence[str] = ()) -> MemorydError:
    """Return the `MemorydError` of a failed call. Details that cannot be decoded are omitted.

    `addresses` are those of the client. gRPC names only the last one that it tried, so the message lists several.
    """
    failure = _decode(error)
    if len(addresses) > 1 and failure.code is grpc.StatusCode.UNAVAILABLE and not failure.reason:
        failure.message += f" (addresses: {', '.join(addresses)})"
    return failure


def _decode(error: grpc.RpcError) -> MemorydError:
    call: Any = error
    failure = MemorydError(call.code(), message=call.details() or "")
    try:
        for name, detail in details_of(_raw_details(call)):
            _add(failure, name, detail)
    except DecodeError:
        return MemorydError(failure.code, message=failure.message)
    return failure


def _raw_details(call: Any) -> bytes:
    return next((value for key, value in call.trailing_metadata() or () if key == _DETAILS), b"")


def _add(failure: MemorydError, name: str, detail: Any) -> None:
    if name == "ErrorInfo":
        failure.reason = detail.reason
        failure.metadata = {entry.key: entry.value for entry in detail.metadata}
    elif name == "BadRequest":
        failure.violations = tuple(Violation(each.field, each.description) for each in detail.field_violations)
    elif name == "RetryInfo":
        failure.retry_after_seconds = detail.retry_delay.seconds + detail.retry_delay.nanos / 1e9
