"""Our enums as the wire's, by name: the value FOO of an enum with the prefix BAR_ is BAR_FOO."""

from enum import StrEnum
from typing import Any, TypeVar

from memoryd.v1 import memory_pb2, memory_service_pb2, sync_event_pb2

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
