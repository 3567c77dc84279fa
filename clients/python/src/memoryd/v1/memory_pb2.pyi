from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SOURCE_UNSPECIFIED: _ClassVar[Source]
    SOURCE_MEMORY: _ClassVar[Source]
    SOURCE_SESSIONS: _ClassVar[Source]
    SOURCE_ENTRIES: _ClassVar[Source]

class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORIGIN_UNSPECIFIED: _ClassVar[Origin]
    ORIGIN_OWNER: _ClassVar[Origin]
    ORIGIN_AGENT: _ClassVar[Origin]
    ORIGIN_UNTRUSTED: _ClassVar[Origin]
    ORIGIN_SYSTEM: _ClassVar[Origin]

class SearchMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_MODE_UNSPECIFIED: _ClassVar[SearchMode]
    SEARCH_MODE_HYBRID: _ClassVar[SearchMode]
    SEARCH_MODE_KEYWORD: _ClassVar[SearchMode]
    SEARCH_MODE_VECTOR: _ClassVar[SearchMode]

class CitationMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CITATION_MODE_UNSPECIFIED: _ClassVar[CitationMode]
    CITATION_MODE_AUTO: _ClassVar[CitationMode]
    CITATION_MODE_ON: _ClassVar[CitationMode]
    CITATION_MODE_OFF: _ClassVar[CitationMode]

class Backend(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BACKEND_UNSPECIFIED: _ClassVar[Backend]
    BACKEND_BUILTIN: _ClassVar[Backend]
    BACKEND_QMD: _ClassVar[Backend]

class IndexState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INDEX_STATE_UNSPECIFIED: _ClassVar[IndexState]
    INDEX_STATE_EMPTY: _ClassVar[IndexState]
    INDEX_STATE_READY: _ClassVar[IndexState]
    INDEX_STATE_STALE: _ClassVar[IndexState]
    INDEX_STATE_BUILDING: _ClassVar[IndexState]
    INDEX_STATE_UNAVAILABLE: _ClassVar[IndexState]

class EmptyReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EMPTY_REASON_UNSPECIFIED: _ClassVar[EmptyReason]
    EMPTY_REASON_EMPTY_INDEX: _ClassVar[EmptyReason]
    EMPTY_REASON_NO_MATCH: _ClassVar[EmptyReason]
    EMPTY_REASON_FILTERED_BY_SCORE: _ClassVar[EmptyReason]
    EMPTY_REASON_SCOPE_DENIED: _ClassVar[EmptyReason]
    EMPTY_REASON_FILES_GONE: _ClassVar[EmptyReason]
    EMPTY_REASON_ABSTAINED: _ClassVar[EmptyReason]

class DegradationKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEGRADATION_KIND_UNSPECIFIED: _ClassVar[DegradationKind]
    DEGRADATION_KIND_VECTOR_LEG_SKIPPED: _ClassVar[DegradationKind]
    DEGRADATION_KIND_EMBEDDING_FALLBACK: _ClassVar[DegradationKind]
    DEGRADATION_KIND_BACKEND_FALLBACK: _ClassVar[DegradationKind]
    DEGRADATION_KIND_VECTOR_EXTENSION_MISSING: _ClassVar[DegradationKind]
    DEGRADATION_KIND_FULLTEXT_MISSING: _ClassVar[DegradationKind]
    DEGRADATION_KIND_IDENTITY_MISMATCH: _ClassVar[DegradationKind]
    DEGRADATION_KIND_INDEX_IMPAIRED: _ClassVar[DegradationKind]
    DEGRADATION_KIND_SOURCE_SKIPPED: _ClassVar[DegradationKind]
    DEGRADATION_KIND_DEADLINE_CUT: _ClassVar[DegradationKind]
    DEGRADATION_KIND_WATCHER_IMPAIRED: _ClassVar[DegradationKind]
    DEGRADATION_KIND_VECTORS_PENDING: _ClassVar[DegradationKind]
    DEGRADATION_KIND_RERANKING_SKIPPED: _ClassVar[DegradationKind]

class ScorePartKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCORE_PART_KIND_UNSPECIFIED: _ClassVar[ScorePartKind]
    SCORE_PART_KIND_KEYWORD: _ClassVar[ScorePartKind]
    SCORE_PART_KIND_WINDOW: _ClassVar[ScorePartKind]
    SCORE_PART_KIND_VECTOR: _ClassVar[ScorePartKind]
    SCORE_PART_KIND_ANNOTATIONS: _ClassVar[ScorePartKind]
    SCORE_PART_KIND_DECAY: _ClassVar[ScorePartKind]
    SCORE_PART_KIND_DATE: _ClassVar[ScorePartKind]
    SCORE_PART_KIND_ADJACENT: _ClassVar[ScorePartKind]
    SCORE_PART_KIND_DIVERSITY: _ClassVar[ScorePartKind]

class WatcherMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WATCHER_MODE_UNSPECIFIED: _ClassVar[WatcherMode]
    WATCHER_MODE_NATIVE: _ClassVar[WatcherMode]
    WATCHER_MODE_POLLING: _ClassVar[WatcherMode]
    WATCHER_MODE_DEAD: _ClassVar[WatcherMode]
    WATCHER_MODE_OFF: _ClassVar[WatcherMode]
SOURCE_UNSPECIFIED: Source
SOURCE_MEMORY: Source
SOURCE_SESSIONS: Source
SOURCE_ENTRIES: Source
ORIGIN_UNSPECIFIED: Origin
ORIGIN_OWNER: Origin
ORIGIN_AGENT: Origin
ORIGIN_UNTRUSTED: Origin
ORIGIN_SYSTEM: Origin
SEARCH_MODE_UNSPECIFIED: SearchMode
SEARCH_MODE_HYBRID: SearchMode
SEARCH_MODE_KEYWORD: SearchMode
SEARCH_MODE_VECTOR: SearchMode
CITATION_MODE_UNSPECIFIED: CitationMode
CITATION_MODE_AUTO: CitationMode
CITATION_MODE_ON: CitationMode
CITATION_MODE_OFF: CitationMode
BACKEND_UNSPECIFIED: Backend
BACKEND_BUILTIN: Backend
BACKEND_QMD: Backend
INDEX_STATE_UNSPECIFIED: IndexState
INDEX_STATE_EMPTY: IndexState
INDEX_STATE_READY: IndexState
INDEX_STATE_STALE: IndexState
INDEX_STATE_BUILDING: IndexState
INDEX_STATE_UNAVAILABLE: IndexState
EMPTY_REASON_UNSPECIFIED: EmptyReason
EMPTY_REASON_EMPTY_INDEX: EmptyReason
EMPTY_REASON_NO_MATCH: EmptyReason
EMPTY_REASON_FILTERED_BY_SCORE: EmptyReason
EMPTY_REASON_SCOPE_DENIED: EmptyReason
EMPTY_REASON_FILES_GONE: EmptyReason
EMPTY_REASON_ABSTAINED: EmptyReason
DEGRADATION_KIND_UNSPECIFIED: DegradationKind
DEGRADATION_KIND_VECTOR_LEG_SKIPPED: DegradationKind
DEGRADATION_KIND_EMBEDDING_FALLBACK: DegradationKind
DEGRADATION_KIND_BACKEND_FALLBACK: DegradationKind
DEGRADATION_KIND_VECTOR_EXTENSION_MISSING: DegradationKind
DEGRADATION_KIND_FULLTEXT_MISSING: DegradationKind
DEGRADATION_KIND_IDENTITY_MISMATCH: DegradationKind
DEGRADATION_KIND_INDEX_IMPAIRED: DegradationKind
DEGRADATION_KIND_SOURCE_SKIPPED: DegradationKind
DEGRADATION_KIND_DEADLINE_CUT: DegradationKind
DEGRADATION_KIND_WATCHER_IMPAIRED: DegradationKind
DEGRADATION_KIND_VECTORS_PENDING: DegradationKind
DEGRADATION_KIND_RERANKING_SKIPPED: DegradationKind
SCORE_PART_KIND_UNSPECIFIED: ScorePartKind
SCORE_PART_KIND_KEYWORD: ScorePartKind
SCORE_PART_KIND_WINDOW: ScorePartKind
SCORE_PART_KIND_VECTOR: ScorePartKind
SCORE_PART_KIND_ANNOTATIONS: ScorePartKind
SCORE_PART_KIND_DECAY: ScorePartKind
SCORE_PART_KIND_DATE: ScorePartKind
SCORE_PART_KIND_ADJACENT: ScorePartKind
SCORE_PART_KIND_DIVERSITY: ScorePartKind
WATCHER_MODE_UNSPECIFIED: WatcherMode
WATCHER_MODE_NATIVE: WatcherMode
WATCHER_MODE_POLLING: WatcherMode
WATCHER_MODE_DEAD: WatcherMode
WATCHER_MODE_OFF: WatcherMode

class Degradation(_message.Message):
    __slots__ = ("kind", "wanted", "used", "reason")
    KIND_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: DegradationKind
    wanted: str
    used: str
    reason: str
    def __init__(self, kind: _Optional[_Union[DegradationKind, str]] = ..., wanted: _Optional[str] = ..., used: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class LineRange(_message.Message):
    __slots__ = ("start_line", "end_line")
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    start_line: int
    end_line: int
    def __init__(self, start_line: _Optional[int] = ..., end_line: _Optional[int] = ...) -> None: ...

class SearchResult(_message.Message):
    __slots__ = ("path", "start_line", "end_line", "score", "snippet", "snippet_start_line", "snippet_end_line", "source", "citation", "modified_time", "score_detail", "origin", "importance", "triggers", "projects")
    PATH_FIELD_NUMBER: _ClassVar[int]
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SNIPPET_FIELD_NUMBER: _ClassVar[int]
    SNIPPET_START_LINE_FIELD_NUMBER: _ClassVar[int]
    SNIPPET_END_LINE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CITATION_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_TIME_FIELD_NUMBER: _ClassVar[int]
    SCORE_DETAIL_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_FIELD_NUMBER: _ClassVar[int]
    TRIGGERS_FIELD_NUMBER: _ClassVar[int]
    PROJECTS_FIELD_NUMBER: _ClassVar[int]
    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    snippet_start_line: int
    snippet_end_line: int
    source: Source
    citation: str
    modified_time: _timestamp_pb2.Timestamp
    score_detail: ScoreDetail
    origin: Origin
    importance: int
    triggers: _containers.RepeatedScalarFieldContainer[str]
    projects: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, path: _Optional[str] = ..., start_line: _Optional[int] = ..., end_line: _Optional[int] = ..., score: _Optional[float] = ..., snippet: _Optional[str] = ..., snippet_start_line: _Optional[int] = ..., snippet_end_line: _Optional[int] = ..., source: _Optional[_Union[Source, str]] = ..., citation: _Optional[str] = ..., modified_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., score_detail: _Optional[_Union[ScoreDetail, _Mapping]] = ..., origin: _Optional[_Union[Origin, str]] = ..., importance: _Optional[int] = ..., triggers: _Optional[_Iterable[str]] = ..., projects: _Optional[_Iterable[str]] = ...) -> None: ...

class ScoreDetail(_message.Message):
    __slots__ = ("vector", "text", "coverage", "decay", "vector_rank", "keyword_rank", "annotations", "window", "date", "adjacent", "rerank", "parts")
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    DECAY_FIELD_NUMBER: _ClassVar[int]
    VECTOR_RANK_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_RANK_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    ADJACENT_FIELD_NUMBER: _ClassVar[int]
    RERANK_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    vector: float
    text: float
    coverage: float
    decay: float
    vector_rank: int
    keyword_rank: int
    annotations: float
    window: float
    date: float
    adjacent: float
    rerank: float
    parts: _containers.RepeatedCompositeFieldContainer[ScorePart]
    def __init__(self, vector: _Optional[float] = ..., text: _Optional[float] = ..., coverage: _Optional[float] = ..., decay: _Optional[float] = ..., vector_rank: _Optional[int] = ..., keyword_rank: _Optional[int] = ..., annotations: _Optional[float] = ..., window: _Optional[float] = ..., date: _Optional[float] = ..., adjacent: _Optional[float] = ..., rerank: _Optional[float] = ..., parts: _Optional[_Iterable[_Union[ScorePart, _Mapping]]] = ...) -> None: ...

class ScorePart(_message.Message):
    __slots__ = ("kind", "amount")
    KIND_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    kind: ScorePartKind
    amount: float
    def __init__(self, kind: _Optional[_Union[ScorePartKind, str]] = ..., amount: _Optional[float] = ...) -> None: ...

class LegReport(_message.Message):
    __slots__ = ("leg", "ran", "candidates", "elapsed", "terms", "note")
    LEG_FIELD_NUMBER: _ClassVar[int]
    RAN_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    leg: SearchMode
    ran: bool
    candidates: int
    elapsed: _duration_pb2.Duration
    terms: _containers.RepeatedScalarFieldContainer[str]
    note: str
    def __init__(self, leg: _Optional[_Union[SearchMode, str]] = ..., ran: bool = ..., candidates: _Optional[int] = ..., elapsed: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., terms: _Optional[_Iterable[str]] = ..., note: _Optional[str] = ...) -> None: ...

class EmbeddingInfo(_message.Message):
    __slots__ = ("provider", "model")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    provider: str
    model: str
    def __init__(self, provider: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class SearchInfo(_message.Message):
    __slots__ = ("backend", "served_mode", "embedding", "degradations", "index_revision", "index_state", "stale", "keyword_candidates", "vector_candidates", "dropped_by_min_score", "elapsed", "empty_reason", "empty_explanation", "legs", "coverage", "reranking", "matched_any_word", "confidence")
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    SERVED_MODE_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    INDEX_REVISION_FIELD_NUMBER: _ClassVar[int]
    INDEX_STATE_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    VECTOR_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BY_MIN_SCORE_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    EMPTY_REASON_FIELD_NUMBER: _ClassVar[int]
    EMPTY_EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    LEGS_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    RERANKING_FIELD_NUMBER: _ClassVar[int]
    MATCHED_ANY_WORD_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    backend: Backend
    served_mode: SearchMode
    embedding: EmbeddingInfo
    degradations: _containers.RepeatedCompositeFieldContainer[Degradation]
    index_revision: int
    index_state: IndexState
    stale: bool
    keyword_candidates: int
    vector_candidates: int
    dropped_by_min_score: int
    elapsed: _duration_pb2.Duration
    empty_reason: EmptyReason
    empty_explanation: str
    legs: _containers.RepeatedCompositeFieldContainer[LegReport]
    coverage: float
    reranking: RerankInfo
    matched_any_word: bool
    confidence: float
    def __init__(self, backend: _Optional[_Union[Backend, str]] = ..., served_mode: _Optional[_Union[SearchMode, str]] = ..., embedding: _Optional[_Union[EmbeddingInfo, _Mapping]] = ..., degradations: _Optional[_Iterable[_Union[Degradation, _Mapping]]] = ..., index_revision: _Optional[int] = ..., index_state: _Optional[_Union[IndexState, str]] = ..., stale: bool = ..., keyword_candidates: _Optional[int] = ..., vector_candidates: _Optional[int] = ..., dropped_by_min_score: _Optional[int] = ..., elapsed: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., empty_reason: _Optional[_Union[EmptyReason, str]] = ..., empty_explanation: _Optional[str] = ..., legs: _Optional[_Iterable[_Union[LegReport, _Mapping]]] = ..., coverage: _Optional[float] = ..., reranking: _Optional[_Union[RerankInfo, _Mapping]] = ..., matched_any_word: bool = ..., confidence: _Optional[float] = ...) -> None: ...

class RerankInfo(_message.Message):
    __slots__ = ("provider", "model", "candidates", "cached", "elapsed")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    provider: str
    model: str
    candidates: int
    cached: int
    elapsed: _duration_pb2.Duration
    def __init__(self, provider: _Optional[str] = ..., model: _Optional[str] = ..., candidates: _Optional[int] = ..., cached: _Optional[int] = ..., elapsed: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatcherStatus(_message.Message):
    __slots__ = ("root", "mode", "reason")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    root: str
    mode: WatcherMode
    reason: str
    def __init__(self, root: _Optional[str] = ..., mode: _Optional[_Union[WatcherMode, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class SourceStatus(_message.Message):
    __slots__ = ("source", "files_on_disk", "files_indexed", "chunks", "files_failed")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    FILES_ON_DISK_FIELD_NUMBER: _ClassVar[int]
    FILES_INDEXED_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    FILES_FAILED_FIELD_NUMBER: _ClassVar[int]
    source: Source
    files_on_disk: int
    files_indexed: int
    chunks: int
    files_failed: int
    def __init__(self, source: _Optional[_Union[Source, str]] = ..., files_on_disk: _Optional[int] = ..., files_indexed: _Optional[int] = ..., chunks: _Optional[int] = ..., files_failed: _Optional[int] = ...) -> None: ...

class Identity(_message.Message):
    __slots__ = ("provider", "model", "endpoint", "dimensions", "chunk_tokens", "chunk_overlap", "query_prefix", "document_prefix", "piece_chars")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    QUERY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_PREFIX_FIELD_NUMBER: _ClassVar[int]
    PIECE_CHARS_FIELD_NUMBER: _ClassVar[int]
    provider: str
    model: str
    endpoint: str
    dimensions: int
    chunk_tokens: int
    chunk_overlap: int
    query_prefix: str
    document_prefix: str
    piece_chars: int
    def __init__(self, provider: _Optional[str] = ..., model: _Optional[str] = ..., endpoint: _Optional[str] = ..., dimensions: _Optional[int] = ..., chunk_tokens: _Optional[int] = ..., chunk_overlap: _Optional[int] = ..., query_prefix: _Optional[str] = ..., document_prefix: _Optional[str] = ..., piece_chars: _Optional[int] = ...) -> None: ...

class IdentityMismatch(_message.Message):
    __slots__ = ("field", "index_value", "wanted_value")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    INDEX_VALUE_FIELD_NUMBER: _ClassVar[int]
    WANTED_VALUE_FIELD_NUMBER: _ClassVar[int]
    field: str
    index_value: str
    wanted_value: str
    def __init__(self, field: _Optional[str] = ..., index_value: _Optional[str] = ..., wanted_value: _Optional[str] = ...) -> None: ...

class IndexStatus(_message.Message):
    __slots__ = ("state", "revision", "schema_version", "files", "chunks", "size_bytes", "last_sync_time", "identity", "identity_mismatches", "sources", "dirty", "pending_files", "oldest_unindexed_age", "pending_embeddings", "analyzer_version", "path", "next_identity", "roots")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_SYNC_TIME_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_MISMATCHES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    DIRTY_FIELD_NUMBER: _ClassVar[int]
    PENDING_FILES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UNINDEXED_AGE_FIELD_NUMBER: _ClassVar[int]
    PENDING_EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    ANALYZER_VERSION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    NEXT_IDENTITY_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    state: IndexState
    revision: int
    schema_version: int
    files: int
    chunks: int
    size_bytes: int
    last_sync_time: _timestamp_pb2.Timestamp
    identity: Identity
    identity_mismatches: _containers.RepeatedCompositeFieldContainer[IdentityMismatch]
    sources: _containers.RepeatedCompositeFieldContainer[SourceStatus]
    dirty: bool
    pending_files: int
    oldest_unindexed_age: _duration_pb2.Duration
    pending_embeddings: int
    analyzer_version: str
    path: str
    next_identity: Identity
    roots: _containers.RepeatedCompositeFieldContainer[RootStatus]
    def __init__(self, state: _Optional[_Union[IndexState, str]] = ..., revision: _Optional[int] = ..., schema_version: _Optional[int] = ..., files: _Optional[int] = ..., chunks: _Optional[int] = ..., size_bytes: _Optional[int] = ..., last_sync_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., identity: _Optional[_Union[Identity, _Mapping]] = ..., identity_mismatches: _Optional[_Iterable[_Union[IdentityMismatch, _Mapping]]] = ..., sources: _Optional[_Iterable[_Union[SourceStatus, _Mapping]]] = ..., dirty: bool = ..., pending_files: _Optional[int] = ..., oldest_unindexed_age: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., pending_embeddings: _Optional[int] = ..., analyzer_version: _Optional[str] = ..., path: _Optional[str] = ..., next_identity: _Optional[_Union[Identity, _Mapping]] = ..., roots: _Optional[_Iterable[_Union[RootStatus, _Mapping]]] = ...) -> None: ...

class RootStatus(_message.Message):
    __slots__ = ("root", "source", "files_on_disk", "files_indexed", "pending_files", "files_failed", "oldest_unindexed_age")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    FILES_ON_DISK_FIELD_NUMBER: _ClassVar[int]
    FILES_INDEXED_FIELD_NUMBER: _ClassVar[int]
    PENDING_FILES_FIELD_NUMBER: _ClassVar[int]
    FILES_FAILED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UNINDEXED_AGE_FIELD_NUMBER: _ClassVar[int]
    root: str
    source: Source
    files_on_disk: int
    files_indexed: int
    pending_files: int
    files_failed: int
    oldest_unindexed_age: _duration_pb2.Duration
    def __init__(self, root: _Optional[str] = ..., source: _Optional[_Union[Source, str]] = ..., files_on_disk: _Optional[int] = ..., files_indexed: _Optional[int] = ..., pending_files: _Optional[int] = ..., files_failed: _Optional[int] = ..., oldest_unindexed_age: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class EmbeddingStatus(_message.Message):
    __slots__ = ("requested_provider", "provider", "model", "dimensions", "fallback_from", "reason", "calls", "tokens", "probe", "usage")
    REQUESTED_PROVIDER_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FROM_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    requested_provider: str
    provider: str
    model: str
    dimensions: int
    fallback_from: str
    reason: str
    calls: int
    tokens: int
    probe: ProbeResult
    usage: _containers.RepeatedCompositeFieldContainer[ProviderUsage]
    def __init__(self, requested_provider: _Optional[str] = ..., provider: _Optional[str] = ..., model: _Optional[str] = ..., dimensions: _Optional[int] = ..., fallback_from: _Optional[str] = ..., reason: _Optional[str] = ..., calls: _Optional[int] = ..., tokens: _Optional[int] = ..., probe: _Optional[_Union[ProbeResult, _Mapping]] = ..., usage: _Optional[_Iterable[_Union[ProviderUsage, _Mapping]]] = ...) -> None: ...

class ProviderUsage(_message.Message):
    __slots__ = ("provider", "model", "calls", "tokens", "retries", "cache_hits")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    provider: str
    model: str
    calls: int
    tokens: int
    retries: int
    cache_hits: int
    def __init__(self, provider: _Optional[str] = ..., model: _Optional[str] = ..., calls: _Optional[int] = ..., tokens: _Optional[int] = ..., retries: _Optional[int] = ..., cache_hits: _Optional[int] = ...) -> None: ...

class ProbeResult(_message.Message):
    __slots__ = ("ok", "elapsed", "error", "dimensions")
    OK_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    elapsed: _duration_pb2.Duration
    error: str
    dimensions: int
    def __init__(self, ok: bool = ..., elapsed: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., error: _Optional[str] = ..., dimensions: _Optional[int] = ...) -> None: ...

class VectorStatus(_message.Message):
    __slots__ = ("enabled", "engine", "version", "load_error", "dimensions", "resident_form", "resident_bytes", "extension_path")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOAD_ERROR_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_FORM_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXTENSION_PATH_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    engine: str
    version: str
    load_error: str
    dimensions: int
    resident_form: str
    resident_bytes: int
    extension_path: str
    def __init__(self, enabled: bool = ..., engine: _Optional[str] = ..., version: _Optional[str] = ..., load_error: _Optional[str] = ..., dimensions: _Optional[int] = ..., resident_form: _Optional[str] = ..., resident_bytes: _Optional[int] = ..., extension_path: _Optional[str] = ...) -> None: ...

class FulltextStatus(_message.Message):
    __slots__ = ("available", "tokenizer", "error")
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    available: bool
    tokenizer: str
    error: str
    def __init__(self, available: bool = ..., tokenizer: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class CacheStatus(_message.Message):
    __slots__ = ("enabled", "entries", "max_entries")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    entries: int
    max_entries: int
    def __init__(self, enabled: bool = ..., entries: _Optional[int] = ..., max_entries: _Optional[int] = ...) -> None: ...

class BatchStatus(_message.Message):
    __slots__ = ("enabled", "failures", "last_error", "jobs", "chunks_in_jobs")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_IN_JOBS_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    failures: int
    last_error: str
    jobs: int
    chunks_in_jobs: int
    def __init__(self, enabled: bool = ..., failures: _Optional[int] = ..., last_error: _Optional[str] = ..., jobs: _Optional[int] = ..., chunks_in_jobs: _Optional[int] = ...) -> None: ...

class RerankerStatus(_message.Message):
    __slots__ = ("provider", "model", "endpoint", "reason", "candidates", "tokens_per_search", "calls", "tokens", "failures", "late", "cache_hits")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_SEARCH_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    provider: str
    model: str
    endpoint: str
    reason: str
    candidates: int
    tokens_per_search: int
    calls: int
    tokens: int
    failures: int
    late: int
    cache_hits: int
    def __init__(self, provider: _Optional[str] = ..., model: _Optional[str] = ..., endpoint: _Optional[str] = ..., reason: _Optional[str] = ..., candidates: _Optional[int] = ..., tokens_per_search: _Optional[int] = ..., calls: _Optional[int] = ..., tokens: _Optional[int] = ..., failures: _Optional[int] = ..., late: _Optional[int] = ..., cache_hits: _Optional[int] = ...) -> None: ...

class QmdStatus(_message.Message):
    __slots__ = ("configured", "available", "version", "reason")
    CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    configured: bool
    available: bool
    version: str
    reason: str
    def __init__(self, configured: bool = ..., available: bool = ..., version: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ServiceStatus(_message.Message):
    __slots__ = ("version", "start_time", "settings_awaiting_restart", "settings_warnings", "settings_load_time", "settings_loads", "settings_error", "background_failures")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_AWAITING_RESTART_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_LOAD_TIME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_LOADS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_ERROR_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FAILURES_FIELD_NUMBER: _ClassVar[int]
    version: str
    start_time: _timestamp_pb2.Timestamp
    settings_awaiting_restart: _containers.RepeatedScalarFieldContainer[str]
    settings_warnings: _containers.RepeatedScalarFieldContainer[str]
    settings_load_time: _timestamp_pb2.Timestamp
    settings_loads: int
    settings_error: str
    background_failures: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., settings_awaiting_restart: _Optional[_Iterable[str]] = ..., settings_warnings: _Optional[_Iterable[str]] = ..., settings_load_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., settings_loads: _Optional[int] = ..., settings_error: _Optional[str] = ..., background_failures: _Optional[_Iterable[str]] = ...) -> None: ...
