"""Values of the wire: enums, times, cursors, page tokens, and messages and lists that a reply can always hold.

An enum is converted by name: the value FOO of an enum with the prefix BAR_ is BAR_FOO. Cursors and page tokens are
opaque text, which callers return unchanged.
"""

import base64
import binascii
import math
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.v1 import memory_pb2, memory_service_pb2, sync_event_pb2
from memoryd_server.errors import CursorMalformed, FieldViolation, InvalidRequest
from memoryd_server.foreign_text import shown_path

_E = TypeVar("_E")
_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)

MOST_PAGE_BYTES = 1024 * 1024
"""A page ends before it is larger, so that it fits a gRPC message however long its paths and errors are."""

MOST_REPORT_BYTES = 256 * 1024
"""The size of a list in a report, for example of the warnings in `Status`."""

MOST_REPORT_CHARS = 4_000
"""The length of one text in a report."""


def _value(enum: type[_E], name: str) -> _E:
    wrapper: Any = enum  # the stubs of protobuf do not declare the methods of an enum's wrapper
    value: _E = wrapper.Value(name)
    return value


@cache
def source(value: StrEnum | None) -> memory_pb2.Source:
    """Return a source; that of entries for None."""
    if value is None:
        return memory_pb2.SOURCE_ENTRIES
    return _value(memory_pb2.Source, f"SOURCE_{value.upper()}")


@cache
def origin(value: StrEnum) -> memory_pb2.Origin:
    """Return an origin."""
    return _value(memory_pb2.Origin, f"ORIGIN_{value.upper()}")


@cache
def search_mode(value: StrEnum) -> memory_pb2.SearchMode:
    """Return a search mode."""
    return _value(memory_pb2.SearchMode, f"SEARCH_MODE_{value}")


@cache
def index_state(value: StrEnum) -> memory_pb2.IndexState:
    """Return the state of an index."""
    return _value(memory_pb2.IndexState, f"INDEX_STATE_{value}")


@cache
def empty_reason(value: StrEnum | None) -> memory_pb2.EmptyReason:
    """Return why an answer is empty; UNSPECIFIED if it is not."""
    return _value(memory_pb2.EmptyReason, f"EMPTY_REASON_{value or 'UNSPECIFIED'}")


@cache
def degradation_kind(value: StrEnum) -> memory_pb2.DegradationKind:
    """Return a kind of degradation."""
    return _value(memory_pb2.DegradationKind, f"DEGRADATION_KIND_{value}")


@cache
def backend(value: str) -> memory_pb2.Backend:
    """Return a backend."""
    return _value(memory_pb2.Backend, f"BACKEND_{value.upper()}")


def watcher_mode(value: StrEnum) -> memory_pb2.WatcherMode:
    """Return how a root is watched."""
    return _value(memory_pb2.WatcherMode, f"WATCHER_MODE_{value.upper()}")


def sync_mode(value: StrEnum) -> sync_event_pb2.SyncMode:
    """Return the mode of a run."""
    return _value(sync_event_pb2.SyncMode, f"SYNC_MODE_{value}")


def sync_trigger(value: StrEnum) -> sync_event_pb2.SyncTrigger:
    """Return the cause of a run."""
    return _value(sync_event_pb2.SyncTrigger, f"SYNC_TRIGGER_{value}")


def sync_phase(value: StrEnum) -> sync_event_pb2.SyncPhase:
    """Return the phase of a run."""
    return _value(sync_event_pb2.SyncPhase, f"SYNC_PHASE_{value}")


def file_state(value: StrEnum) -> memory_service_pb2.FileState:
    """Return whether a search can find a file."""
    return _value(memory_service_pb2.FileState, f"FILE_STATE_{value}")


def write_kind(value: StrEnum) -> memory_service_pb2.WriteKind:
    """Return what a write did to a file."""
    return _value(memory_service_pb2.WriteKind, f"WRITE_KIND_{value}")


def flush_reason(value: StrEnum) -> memory_service_pb2.FlushReason:
    """Return why to flush, or why not."""
    return _value(memory_service_pb2.FlushReason, f"FLUSH_REASON_{value}")


def workspace_access(value: StrEnum) -> memory_service_pb2.WorkspaceAccess:
    """Return whether tools may write."""
    return _value(memory_service_pb2.WorkspaceAccess, f"WORKSPACE_ACCESS_{value}")


def turn_kind(value: StrEnum) -> memory_service_pb2.TurnKind:
    """Return what started a turn."""
    return _value(memory_service_pb2.TurnKind, f"TURN_KIND_{value}")


def timestamp(unix_ns: int) -> Timestamp:
    """Return Unix nanoseconds as a Timestamp; the nearest possible one if they are out of its range."""
    return Timestamp(**timestamp_fields(unix_ns))


def timestamp_fields(unix_ns: int) -> dict[str, int]:
    """Return the fields of `timestamp`, for a message that is built from nested fields."""
    earliest, latest = -62_135_596_800, 253_402_300_799
    seconds, nanos = divmod(unix_ns, 1_000_000_000)
    return {"seconds": max(earliest, min(latest, seconds)), "nanos": nanos}


MAX_DURATION_SECONDS = 315_576_000_000.0
"""The longest time that a Duration can hold."""


def duration(seconds: float) -> Duration:
    """Return seconds as a Duration; the nearest possible one if they are out of its range, and 0 for NaN."""
    message = Duration()
    bounded = 0.0 if math.isnan(seconds) else max(-MAX_DURATION_SECONDS, min(MAX_DURATION_SECONDS, seconds))
    message.FromNanoseconds(int(bounded * 1e9))
    return message


def make_cursor(sync_id: str, sequence: int) -> str:
    """Return the cursor of a follower that has the events of a run up to `sequence`."""
    return _pack(f"s:{sync_id}:{sequence}")


def read_cursor(cursor: str) -> tuple[str, int]:
    """Return the run and the sequence that a cursor names.

    Raises:
        CursorMalformed: it is not a cursor of Sync.
    """
    try:
        kind, sync_id, sequence = _unpack(cursor).split(":")
        if kind == "s":
            return sync_id, int(sequence)
    except ValueError:
        pass
    raise CursorMalformed(f"cursor {cursor!r} is not a cursor of Sync; leave it empty to start a new run")


def make_page_token(kind: str, last: str) -> str:
    """Return the token of the page after the item named `last`, in a list of this kind, for example `files`."""
    return _pack(f"{kind}:{last}")


def read_page_token(kind: str, token: str) -> str:
    """Return the item after which a page of a list of this kind begins; empty for the first page.

    Raises:
        InvalidRequest: it is not a token of such a list.
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
        raise ValueError("not packed by `_pack`") from error


if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext


__all__ = ["Context"]

_P = ParamSpec("_P")


def build_message(kind: Callable[_P, _M], /, *args: _P.args, **fields: _P.kwargs) -> _M:
    """Return a message of this type with these fields.

    Foreign text is made valid when it enters memoryd. This is the last defence: protobuf refuses a string with a lone
    surrogate, and one such string must not fail the whole reply. Such a string is most likely a file's name, so it is
    shown as one. Strings are checked only after protobuf has refused one, also those in nested fields.
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
    if isinstance(value, dict):
        return {name: _encodable(item) for name, item in value.items()}
    return value


def fitting(items: Iterable[_T], message: Callable[[_T], _M], most_bytes: int = MOST_PAGE_BYTES) -> list[_M]:
    """Return the messages of the first items that fit in `most_bytes`, at least one."""
    shown: list[_M] = []
    room = most_bytes
    for item in items:
        next_message = message(item)
        room -= next_message.ByteSize()
        if shown and room < 0:
            break
        shown.append(next_message)
    return shown


def cut_text(text: str) -> str:
    """Return a text of a report, cut after 4,000 characters."""
    return text if len(text) <= MOST_REPORT_CHARS else text[:MOST_REPORT_CHARS] + "…"


def cut_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts of a report, each cut; above 256 KiB, only the first ones and how many are left out."""
    shown: list[str] = []
    room, omitted = MOST_REPORT_BYTES, 0
    for text in map(cut_text, texts):
        room -= len(text.encode("utf-8", "replace"))
        if room < 0:
            omitted += 1
        else:
            shown.append(text)
    return [*shown, f"… and {omitted:,} more"] if omitted else shown
