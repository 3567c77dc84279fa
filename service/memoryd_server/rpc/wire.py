"""Enums, times, cursors, page tokens.

Our enums as the wire's, by name: the value FOO of an enum with the prefix BAR_ is BAR_FOO.

Times as the wire's well-known types.

Cursors and page tokens: text that callers keep and hand back without looking into it.

Types of grpc that only its stubs know to be generic.

Builds messages whose strings protobuf can always encode.
"""

import base64
import binascii
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.v1 import memory_pb2, memory_service_pb2, sync_event_pb2
from memoryd_server.errors import CursorMalformed, FieldViolation, InvalidRequest
from memoryd_server.foreign_text import shown_path

_E = TypeVar("_E")


def _value(enum: type[_E], name: str) -> _E:
    wrapper: Any = enum  # protobuf's stubs hide that an enum's class has the wrapper's methods
    value: _E = wrapper.Value(name)
    return value


def source(value: StrEnum) -> memory_pb2.Source:
    """A source."""
    return _value(memory_pb2.Source, f"SOURCE_{value.upper()}")


def search_mode(value: StrEnum) -> memory_pb2.SearchMode:
    """A search mode."""
    return _value(memory_pb2.SearchMode, f"SEARCH_MODE_{value}")


def index_state(value: StrEnum) -> memory_pb2.IndexState:
    """A state of an index."""
    return _value(memory_pb2.IndexState, f"INDEX_STATE_{value}")


def empty_reason(value: StrEnum | None) -> memory_pb2.EmptyReason:
    """Why an answer is empty; UNSPECIFIED when it is not."""
    return _value(memory_pb2.EmptyReason, f"EMPTY_REASON_{value or 'UNSPECIFIED'}")


def degradation_kind(value: StrEnum) -> memory_pb2.DegradationKind:
    """A kind of degradation."""
    return _value(memory_pb2.DegradationKind, f"DEGRADATION_KIND_{value}")


def backend(value: str) -> memory_pb2.Backend:
    """A backend."""
    return _value(memory_pb2.Backend, f"BACKEND_{value.upper()}")


def watcher_mode(value: StrEnum) -> memory_pb2.WatcherMode:
    """How a root is watched."""
    return _value(memory_pb2.WatcherMode, f"WATCHER_MODE_{value.upper()}")


def sync_mode(value: StrEnum) -> sync_event_pb2.SyncMode:
    """What a run does."""
    return _value(sync_event_pb2.SyncMode, f"SYNC_MODE_{value}")


def sync_trigger(value: StrEnum) -> sync_event_pb2.SyncTrigger:
    """What caused a run."""
    return _value(sync_event_pb2.SyncTrigger, f"SYNC_TRIGGER_{value}")


def sync_phase(value: StrEnum) -> sync_event_pb2.SyncPhase:
    """The stage of a run."""
    return _value(sync_event_pb2.SyncPhase, f"SYNC_PHASE_{value}")


def file_state(value: StrEnum) -> memory_service_pb2.FileState:
    """Whether a file can be found."""
    return _value(memory_service_pb2.FileState, f"FILE_STATE_{value}")


def flush_reason(value: StrEnum) -> memory_service_pb2.FlushReason:
    """Why to flush, or not."""
    return _value(memory_service_pb2.FlushReason, f"FLUSH_REASON_{value}")


def workspace_access(value: StrEnum) -> memory_service_pb2.WorkspaceAccess:
    """Whether tools may write."""
    return _value(memory_service_pb2.WorkspaceAccess, f"WORKSPACE_ACCESS_{value}")


def turn_kind(value: StrEnum) -> memory_service_pb2.TurnKind:
    """What started a turn."""
    return _value(memory_service_pb2.TurnKind, f"TURN_KIND_{value}")


def timestamp(unix_ns: int) -> Timestamp:
    """Unix nanoseconds as a Timestamp; what no Timestamp can hold becomes the nearest that can."""
    earliest, latest = -62_135_596_800, 253_402_300_799
    seconds, nanos = divmod(unix_ns, 1_000_000_000)
    return Timestamp(seconds=max(earliest, min(latest, seconds)), nanos=nanos)


def duration(seconds: float) -> Duration:
    """Seconds as a Duration."""
    message = Duration()
    message.FromNanoseconds(int(seconds * 1e9))
    return message


def make_cursor(sync_id: str, sequence: int) -> str:
    """Where a follower of a run stands."""
    return _pack(f"s:{sync_id}:{sequence}")


def read_cursor(cursor: str) -> tuple[str, int]:
    """The run and the sequence that a cursor names.

    Raises:
        CursorMalformed: it was not made here.
    """
    try:
        kind, sync_id, sequence = _unpack(cursor).split(":")
        if kind == "s":
            return sync_id, int(sequence)
    except ValueError:
        pass
    raise CursorMalformed(f"cursor {cursor!r} is not a cursor of Sync; leave it empty to start anew")


def make_page_token(kind: str, last: str) -> str:
    """What follows the item named `last` in the list of that kind, for example `files`."""
    return _pack(f"{kind}:{last}")


def read_page_token(kind: str, token: str) -> str:
    """The item after which a page of that kind of list begins; empty for the first page.

    Raises:
        InvalidRequest: it was not made here.
    """
    if not token:
        return ""
    try:
        text = _unpack(token)
    except ValueError:
        text = ""
    if not text.startswith(f"{kind}:"):
        raise InvalidRequest([FieldViolation("page_token", "is not a next_page_token of this list")])
    return text.removeprefix(f"{kind}:")


def _pack(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _unpack(packed: str) -> str:
    try:
        return base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise ValueError("not packed here") from error


if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext


__all__ = ["Context"]

_P = ParamSpec("_P")
_M = TypeVar("_M", bound=Message)


def build_message(kind: Callable[_P, _M], /, *args: _P.args, **fields: _P.kwargs) -> _M:
    """Return a message of this type with these fields.

    Foreign text is made valid where it enters. This is the last defence: protobuf refuses a string with a lone
    surrogate, and one such string must not cost the caller the whole reply. What is left here is most likely the name
    of a file, so it is shown as one. Strings are looked at only after protobuf has refused one.
    """
    try:
        return kind(*args, **fields)
    except UnicodeEncodeError:
        return kind(*args, **{name: _encodable(value) for name, value in fields.items()})


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return shown_path(value)
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value
