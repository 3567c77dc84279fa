from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from memoryd.v1 import memory_pb2 as _memory_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SyncMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_MODE_UNSPECIFIED: _ClassVar[SyncMode]
    SYNC_MODE_INCREMENTAL: _ClassVar[SyncMode]
    SYNC_MODE_FULL: _ClassVar[SyncMode]

class SyncTrigger(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_TRIGGER_UNSPECIFIED: _ClassVar[SyncTrigger]
    SYNC_TRIGGER_MANUAL: _ClassVar[SyncTrigger]
    SYNC_TRIGGER_SESSION_START: _ClassVar[SyncTrigger]
    SYNC_TRIGGER_POST_COMPACTION: _ClassVar[SyncTrigger]
    SYNC_TRIGGER_STARTUP: _ClassVar[SyncTrigger]
    SYNC_TRIGGER_WATCH: _ClassVar[SyncTrigger]
    SYNC_TRIGGER_INTERVAL: _ClassVar[SyncTrigger]
    SYNC_TRIGGER_RECONCILE: _ClassVar[SyncTrigger]
    SYNC_TRIGGER_SEARCH: _ClassVar[SyncTrigger]
    SYNC_TRIGGER_APPEND: _ClassVar[SyncTrigger]
    SYNC_TRIGGER_SESSION_DELTA: _ClassVar[SyncTrigger]

class OnDisconnect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_DISCONNECT_UNSPECIFIED: _ClassVar[OnDisconnect]
    ON_DISCONNECT_CONTINUE: _ClassVar[OnDisconnect]
    ON_DISCONNECT_CANCEL: _ClassVar[OnDisconnect]

class OnConflict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_CONFLICT_UNSPECIFIED: _ClassVar[OnConflict]
    ON_CONFLICT_ABORT: _ClassVar[OnConflict]
    ON_CONFLICT_WAIT: _ClassVar[OnConflict]

class SyncPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_PHASE_UNSPECIFIED: _ClassVar[SyncPhase]
    SYNC_PHASE_PLANNING: _ClassVar[SyncPhase]
    SYNC_PHASE_INDEXING: _ClassVar[SyncPhase]
    SYNC_PHASE_EMBEDDING: _ClassVar[SyncPhase]
    SYNC_PHASE_SWAPPING: _ClassVar[SyncPhase]
    SYNC_PHASE_WAITING: _ClassVar[SyncPhase]
SYNC_MODE_UNSPECIFIED: SyncMode
SYNC_MODE_INCREMENTAL: SyncMode
SYNC_MODE_FULL: SyncMode
SYNC_TRIGGER_UNSPECIFIED: SyncTrigger
SYNC_TRIGGER_MANUAL: SyncTrigger
SYNC_TRIGGER_SESSION_START: SyncTrigger
SYNC_TRIGGER_POST_COMPACTION: SyncTrigger
SYNC_TRIGGER_STARTUP: SyncTrigger
SYNC_TRIGGER_WATCH: SyncTrigger
SYNC_TRIGGER_INTERVAL: SyncTrigger
SYNC_TRIGGER_RECONCILE: SyncTrigger
SYNC_TRIGGER_SEARCH: SyncTrigger
SYNC_TRIGGER_APPEND: SyncTrigger
SYNC_TRIGGER_SESSION_DELTA: SyncTrigger
ON_DISCONNECT_UNSPECIFIED: OnDisconnect
ON_DISCONNECT_CONTINUE: OnDisconnect
ON_DISCONNECT_CANCEL: OnDisconnect
ON_CONFLICT_UNSPECIFIED: OnConflict
ON_CONFLICT_ABORT: OnConflict
ON_CONFLICT_WAIT: OnConflict
SYNC_PHASE_UNSPECIFIED: SyncPhase
SYNC_PHASE_PLANNING: SyncPhase
SYNC_PHASE_INDEXING: SyncPhase
SYNC_PHASE_EMBEDDING: SyncPhase
SYNC_PHASE_SWAPPING: SyncPhase
SYNC_PHASE_WAITING: SyncPhase

class SyncStarted(_message.Message):
    __slots__ = ("mode", "trigger", "attached", "start_time", "index_revision", "dry_run")
    MODE_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    INDEX_REVISION_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    mode: SyncMode
    trigger: SyncTrigger
    attached: bool
    start_time: _timestamp_pb2.Timestamp
    index_revision: int
    dry_run: bool
    def __init__(self, mode: _Optional[_Union[SyncMode, str]] = ..., trigger: _Optional[_Union[SyncTrigger, str]] = ..., attached: bool = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., index_revision: _Optional[int] = ..., dry_run: bool = ...) -> None: ...

class SyncProgress(_message.Message):
    __slots__ = ("phase", "completed_files", "total_files", "completed_chunks", "total_chunks", "cached_chunks", "failed_files", "current_path", "elapsed", "eta", "batch_jobs", "completed_tokens", "total_tokens")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FILES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FILES_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CACHED_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FILES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_PATH_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    BATCH_JOBS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    phase: SyncPhase
    completed_files: int
    total_files: int
    completed_chunks: int
    total_chunks: int
    cached_chunks: int
    failed_files: int
    current_path: str
    elapsed: _duration_pb2.Duration
    eta: _duration_pb2.Duration
    batch_jobs: int
    completed_tokens: int
    total_tokens: int
    def __init__(self, phase: _Optional[_Union[SyncPhase, str]] = ..., completed_files: _Optional[int] = ..., total_files: _Optional[int] = ..., completed_chunks: _Optional[int] = ..., total_chunks: _Optional[int] = ..., cached_chunks: _Optional[int] = ..., failed_files: _Optional[int] = ..., current_path: _Optional[str] = ..., elapsed: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., eta: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., batch_jobs: _Optional[int] = ..., completed_tokens: _Optional[int] = ..., total_tokens: _Optional[int] = ...) -> None: ...

class SyncFileFailed(_message.Message):
    __slots__ = ("path", "source", "error")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    path: str
    source: _memory_pb2.Source
    error: str
    def __init__(self, path: _Optional[str] = ..., source: _Optional[_Union[_memory_pb2.Source, str]] = ..., error: _Optional[str] = ...) -> None: ...

class SyncHeartbeat(_message.Message):
    __slots__ = ("elapsed",)
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    elapsed: _duration_pb2.Duration
    def __init__(self, elapsed: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SyncEstimate(_message.Message):
    __slots__ = ("files", "removed_files", "chunks", "cache_misses", "estimated_tokens")
    FILES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FILES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    files: int
    removed_files: int
    chunks: int
    cache_misses: int
    estimated_tokens: int
    def __init__(self, files: _Optional[int] = ..., removed_files: _Optional[int] = ..., chunks: _Optional[int] = ..., cache_misses: _Optional[int] = ..., estimated_tokens: _Optional[int] = ...) -> None: ...

class SyncCompleted(_message.Message):
    __slots__ = ("index_revision", "changed", "indexed_files", "unchanged_files", "removed_files", "failed_files", "chunks", "cached_chunks", "elapsed", "estimate", "pending_embeddings", "refused_embeddings", "vectors_missing", "degradations")
    INDEX_REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    INDEXED_FILES_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FILES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FILES_FIELD_NUMBER: _ClassVar[int]
    FAILED_FILES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CACHED_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    PENDING_EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    VECTORS_MISSING_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    index_revision: int
    changed: bool
    indexed_files: int
    unchanged_files: int
    removed_files: int
    failed_files: int
    chunks: int
    cached_chunks: int
    elapsed: _duration_pb2.Duration
    estimate: SyncEstimate
    pending_embeddings: int
    refused_embeddings: int
    vectors_missing: bool
    degradations: _containers.RepeatedCompositeFieldContainer[_memory_pb2.Degradation]
    def __init__(self, index_revision: _Optional[int] = ..., changed: bool = ..., indexed_files: _Optional[int] = ..., unchanged_files: _Optional[int] = ..., removed_files: _Optional[int] = ..., failed_files: _Optional[int] = ..., chunks: _Optional[int] = ..., cached_chunks: _Optional[int] = ..., elapsed: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., estimate: _Optional[_Union[SyncEstimate, _Mapping]] = ..., pending_embeddings: _Optional[int] = ..., refused_embeddings: _Optional[int] = ..., vectors_missing: bool = ..., degradations: _Optional[_Iterable[_Union[_memory_pb2.Degradation, _Mapping]]] = ...) -> None: ...
