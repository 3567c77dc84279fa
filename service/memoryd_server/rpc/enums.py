"""Our enums as the wire's, by name: the value FOO of an enum with the prefix BAR_ is BAR_FOO."""

from enum import StrEnum

from memoryd.v1 import memory_pb2, memory_service_pb2, sync_event_pb2


def source(value: StrEnum) -> memory_pb2.Source:
    """A source."""
    return memory_pb2.Source.Value(f"SOURCE_{value.upper()}")


def search_mode(value: StrEnum) -> memory_pb2.SearchMode:
    """A search mode."""
    return memory_pb2.SearchMode.Value(f"SEARCH_MODE_{value}")


def index_state(value: StrEnum) -> memory_pb2.IndexState:
    """A state of an index."""
    return memory_pb2.IndexState.Value(f"INDEX_STATE_{value}")


def empty_reason(value: StrEnum | None) -> memory_pb2.EmptyReason:
    """Why an answer is empty; UNSPECIFIED when it is not."""
    return memory_pb2.EmptyReason.Value(f"EMPTY_REASON_{value or 'UNSPECIFIED'}")


def degradation_kind(value: StrEnum) -> memory_pb2.DegradationKind:
    """A kind of degradation."""
    return memory_pb2.DegradationKind.Value(f"DEGRADATION_KIND_{value}")


def backend(value: str) -> memory_pb2.Backend:
    """A backend."""
    return memory_pb2.Backend.Value(f"BACKEND_{value.upper()}")


def watcher_mode(value: StrEnum) -> memory_pb2.WatcherMode:
    """How a root is watched."""
    return memory_pb2.WatcherMode.Value(f"WATCHER_MODE_{value.upper()}")


def sync_mode(value: StrEnum) -> sync_event_pb2.SyncMode:
    """What a run does."""
    return sync_event_pb2.SyncMode.Value(f"SYNC_MODE_{value}")


def sync_trigger(value: StrEnum) -> sync_event_pb2.SyncTrigger:
    """What caused a run."""
    return sync_event_pb2.SyncTrigger.Value(f"SYNC_TRIGGER_{value}")


def sync_phase(value: StrEnum) -> sync_event_pb2.SyncPhase:
    """The stage of a run."""
    return sync_event_pb2.SyncPhase.Value(f"SYNC_PHASE_{value}")


def file_state(value: StrEnum) -> memory_service_pb2.FileState:
    """Whether a file can be found."""
    return memory_service_pb2.FileState.Value(f"FILE_STATE_{value}")


def flush_reason(value: StrEnum) -> memory_service_pb2.FlushReason:
    """Why to flush, or not."""
    return memory_service_pb2.FlushReason.Value(f"FLUSH_REASON_{value}")


def workspace_access(value: StrEnum) -> memory_service_pb2.WorkspaceAccess:
    """Whether tools may write."""
    return memory_service_pb2.WorkspaceAccess.Value(f"WORKSPACE_ACCESS_{value}")


def turn_kind(value: StrEnum) -> memory_service_pb2.TurnKind:
    """What started a turn."""
    return memory_service_pb2.TurnKind.Value(f"TURN_KIND_{value}")
