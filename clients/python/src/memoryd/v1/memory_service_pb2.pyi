from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from memoryd.v1 import memory_pb2 as _memory_pb2
from memoryd.v1 import sync_event_pb2 as _sync_event_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MissReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISS_REASON_UNSPECIFIED: _ClassVar[MissReason]
    MISS_REASON_FOUND: _ClassVar[MissReason]
    MISS_REASON_NOT_MEMORY: _ClassVar[MissReason]
    MISS_REASON_LINK: _ClassVar[MissReason]
    MISS_REASON_EXCLUDED: _ClassVar[MissReason]
    MISS_REASON_NOT_ON_DISK: _ClassVar[MissReason]
    MISS_REASON_FORGOTTEN: _ClassVar[MissReason]
    MISS_REASON_PENDING: _ClassVar[MissReason]
    MISS_REASON_FAILED: _ClassVar[MissReason]
    MISS_REASON_NO_TEXT: _ClassVar[MissReason]
    MISS_REASON_SOURCE_NOT_CONFIGURED: _ClassVar[MissReason]
    MISS_REASON_SOURCE_NOT_SEARCHED: _ClassVar[MissReason]
    MISS_REASON_FILTERED: _ClassVar[MissReason]
    MISS_REASON_NO_MATCH: _ClassVar[MissReason]
    MISS_REASON_NOT_RETRIEVED: _ClassVar[MissReason]
    MISS_REASON_BELOW_MIN_SCORE: _ClassVar[MissReason]
    MISS_REASON_BELOW_CUTOFF: _ClassVar[MissReason]
    MISS_REASON_DIVERSITY: _ClassVar[MissReason]
    MISS_REASON_ADJACENT: _ClassVar[MissReason]
    MISS_REASON_RESERVED: _ClassVar[MissReason]
    MISS_REASON_BELOW_MAX_RESULTS: _ClassVar[MissReason]
    MISS_REASON_RERANKED: _ClassVar[MissReason]
    MISS_REASON_ABSTAINED: _ClassVar[MissReason]
    MISS_REASON_TEXT_LIMIT: _ClassVar[MissReason]

class RecallSilentReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECALL_SILENT_REASON_UNSPECIFIED: _ClassVar[RecallSilentReason]
    RECALL_SILENT_REASON_NO_QUERY: _ClassVar[RecallSilentReason]
    RECALL_SILENT_REASON_EMPTY_INDEX: _ClassVar[RecallSilentReason]
    RECALL_SILENT_REASON_NOTHING_RELEVANT: _ClassVar[RecallSilentReason]
    RECALL_SILENT_REASON_ALREADY_SEEN: _ClassVar[RecallSilentReason]
    RECALL_SILENT_REASON_BUDGET_TOO_SMALL: _ClassVar[RecallSilentReason]
    RECALL_SILENT_REASON_SCOPE_DENIED: _ClassVar[RecallSilentReason]

class WorkspaceAccess(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKSPACE_ACCESS_UNSPECIFIED: _ClassVar[WorkspaceAccess]
    WORKSPACE_ACCESS_READ_WRITE: _ClassVar[WorkspaceAccess]
    WORKSPACE_ACCESS_READ_ONLY: _ClassVar[WorkspaceAccess]
    WORKSPACE_ACCESS_NONE: _ClassVar[WorkspaceAccess]

class TurnKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TURN_KIND_UNSPECIFIED: _ClassVar[TurnKind]
    TURN_KIND_USER: _ClassVar[TurnKind]
    TURN_KIND_HEARTBEAT: _ClassVar[TurnKind]
    TURN_KIND_CLI: _ClassVar[TurnKind]

class FlushReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FLUSH_REASON_UNSPECIFIED: _ClassVar[FlushReason]
    FLUSH_REASON_TOKEN_THRESHOLD: _ClassVar[FlushReason]
    FLUSH_REASON_TRANSCRIPT_SIZE: _ClassVar[FlushReason]
    FLUSH_REASON_DISABLED: _ClassVar[FlushReason]
    FLUSH_REASON_WORKSPACE_NOT_WRITABLE: _ClassVar[FlushReason]
    FLUSH_REASON_HEARTBEAT_TURN: _ClassVar[FlushReason]
    FLUSH_REASON_CLI_TURN: _ClassVar[FlushReason]
    FLUSH_REASON_ALREADY_FLUSHED: _ClassVar[FlushReason]
    FLUSH_REASON_TOKENS_UNKNOWN: _ClassVar[FlushReason]
    FLUSH_REASON_BELOW_THRESHOLD: _ClassVar[FlushReason]
    FLUSH_REASON_NO_THRESHOLD: _ClassVar[FlushReason]

class WriteKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WRITE_KIND_UNSPECIFIED: _ClassVar[WriteKind]
    WRITE_KIND_CREATE: _ClassVar[WriteKind]
    WRITE_KIND_REPLACE_CONTENT: _ClassVar[WriteKind]
    WRITE_KIND_REPLACE_TEXT: _ClassVar[WriteKind]
    WRITE_KIND_INSERT_LINES: _ClassVar[WriteKind]
    WRITE_KIND_DELETE_LINES: _ClassVar[WriteKind]
    WRITE_KIND_DELETE_FILE: _ClassVar[WriteKind]
    WRITE_KIND_MOVE: _ClassVar[WriteKind]
    WRITE_KIND_RESTORE: _ClassVar[WriteKind]

class PromptMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROMPT_MODE_UNSPECIFIED: _ClassVar[PromptMode]
    PROMPT_MODE_FULL: _ClassVar[PromptMode]
    PROMPT_MODE_MINIMAL: _ClassVar[PromptMode]
    PROMPT_MODE_NONE: _ClassVar[PromptMode]

class FileState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_STATE_UNSPECIFIED: _ClassVar[FileState]
    FILE_STATE_INDEXED: _ClassVar[FileState]
    FILE_STATE_PENDING: _ClassVar[FileState]
    FILE_STATE_STALE: _ClassVar[FileState]
    FILE_STATE_FAILED: _ClassVar[FileState]
    FILE_STATE_GONE: _ClassVar[FileState]
    FILE_STATE_FORGOTTEN: _ClassVar[FileState]
    FILE_STATE_EXCLUDED: _ClassVar[FileState]
MISS_REASON_UNSPECIFIED: MissReason
MISS_REASON_FOUND: MissReason
MISS_REASON_NOT_MEMORY: MissReason
MISS_REASON_LINK: MissReason
MISS_REASON_EXCLUDED: MissReason
MISS_REASON_NOT_ON_DISK: MissReason
MISS_REASON_FORGOTTEN: MissReason
MISS_REASON_PENDING: MissReason
MISS_REASON_FAILED: MissReason
MISS_REASON_NO_TEXT: MissReason
MISS_REASON_SOURCE_NOT_CONFIGURED: MissReason
MISS_REASON_SOURCE_NOT_SEARCHED: MissReason
MISS_REASON_FILTERED: MissReason
MISS_REASON_NO_MATCH: MissReason
MISS_REASON_NOT_RETRIEVED: MissReason
MISS_REASON_BELOW_MIN_SCORE: MissReason
MISS_REASON_BELOW_CUTOFF: MissReason
MISS_REASON_DIVERSITY: MissReason
MISS_REASON_ADJACENT: MissReason
MISS_REASON_RESERVED: MissReason
MISS_REASON_BELOW_MAX_RESULTS: MissReason
MISS_REASON_RERANKED: MissReason
MISS_REASON_ABSTAINED: MissReason
MISS_REASON_TEXT_LIMIT: MissReason
RECALL_SILENT_REASON_UNSPECIFIED: RecallSilentReason
RECALL_SILENT_REASON_NO_QUERY: RecallSilentReason
RECALL_SILENT_REASON_EMPTY_INDEX: RecallSilentReason
RECALL_SILENT_REASON_NOTHING_RELEVANT: RecallSilentReason
RECALL_SILENT_REASON_ALREADY_SEEN: RecallSilentReason
RECALL_SILENT_REASON_BUDGET_TOO_SMALL: RecallSilentReason
RECALL_SILENT_REASON_SCOPE_DENIED: RecallSilentReason
WORKSPACE_ACCESS_UNSPECIFIED: WorkspaceAccess
WORKSPACE_ACCESS_READ_WRITE: WorkspaceAccess
WORKSPACE_ACCESS_READ_ONLY: WorkspaceAccess
WORKSPACE_ACCESS_NONE: WorkspaceAccess
TURN_KIND_UNSPECIFIED: TurnKind
TURN_KIND_USER: TurnKind
TURN_KIND_HEARTBEAT: TurnKind
TURN_KIND_CLI: TurnKind
FLUSH_REASON_UNSPECIFIED: FlushReason
FLUSH_REASON_TOKEN_THRESHOLD: FlushReason
FLUSH_REASON_TRANSCRIPT_SIZE: FlushReason
FLUSH_REASON_DISABLED: FlushReason
FLUSH_REASON_WORKSPACE_NOT_WRITABLE: FlushReason
FLUSH_REASON_HEARTBEAT_TURN: FlushReason
FLUSH_REASON_CLI_TURN: FlushReason
FLUSH_REASON_ALREADY_FLUSHED: FlushReason
FLUSH_REASON_TOKENS_UNKNOWN: FlushReason
FLUSH_REASON_BELOW_THRESHOLD: FlushReason
FLUSH_REASON_NO_THRESHOLD: FlushReason
WRITE_KIND_UNSPECIFIED: WriteKind
WRITE_KIND_CREATE: WriteKind
WRITE_KIND_REPLACE_CONTENT: WriteKind
WRITE_KIND_REPLACE_TEXT: WriteKind
WRITE_KIND_INSERT_LINES: WriteKind
WRITE_KIND_DELETE_LINES: WriteKind
WRITE_KIND_DELETE_FILE: WriteKind
WRITE_KIND_MOVE: WriteKind
WRITE_KIND_RESTORE: WriteKind
PROMPT_MODE_UNSPECIFIED: PromptMode
PROMPT_MODE_FULL: PromptMode
PROMPT_MODE_MINIMAL: PromptMode
PROMPT_MODE_NONE: PromptMode
FILE_STATE_UNSPECIFIED: FileState
FILE_STATE_INDEXED: FileState
FILE_STATE_PENDING: FileState
FILE_STATE_STALE: FileState
FILE_STATE_FAILED: FileState
FILE_STATE_GONE: FileState
FILE_STATE_FORGOTTEN: FileState
FILE_STATE_EXCLUDED: FileState

class MemorySearchRequest(_message.Message):
    __slots__ = ("agent_id", "query", "max_results", "min_score", "sources", "mode", "max_snippet_chars", "explain", "session_key", "citations", "min_revision", "max_total_chars", "now", "active_projects", "abstain_below", "filter", "max_staleness")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    MAX_RESULTS_FIELD_NUMBER: _ClassVar[int]
    MIN_SCORE_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MAX_SNIPPET_CHARS_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    MIN_REVISION_FIELD_NUMBER: _ClassVar[int]
    MAX_TOTAL_CHARS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_PROJECTS_FIELD_NUMBER: _ClassVar[int]
    ABSTAIN_BELOW_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    query: str
    max_results: int
    min_score: float
    sources: _containers.RepeatedScalarFieldContainer[_memory_pb2.Source]
    mode: _memory_pb2.SearchMode
    max_snippet_chars: int
    explain: bool
    session_key: str
    citations: _memory_pb2.CitationMode
    min_revision: int
    max_total_chars: int
    now: _timestamp_pb2.Timestamp
    active_projects: _containers.RepeatedScalarFieldContainer[str]
    abstain_below: float
    filter: MemoryFilter
    max_staleness: _duration_pb2.Duration
    def __init__(self, agent_id: _Optional[str] = ..., query: _Optional[str] = ..., max_results: _Optional[int] = ..., min_score: _Optional[float] = ..., sources: _Optional[_Iterable[_Union[_memory_pb2.Source, str]]] = ..., mode: _Optional[_Union[_memory_pb2.SearchMode, str]] = ..., max_snippet_chars: _Optional[int] = ..., explain: bool = ..., session_key: _Optional[str] = ..., citations: _Optional[_Union[_memory_pb2.CitationMode, str]] = ..., min_revision: _Optional[int] = ..., max_total_chars: _Optional[int] = ..., now: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., active_projects: _Optional[_Iterable[str]] = ..., abstain_below: _Optional[float] = ..., filter: _Optional[_Union[MemoryFilter, _Mapping]] = ..., max_staleness: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class MemorySearchResponse(_message.Message):
    __slots__ = ("results", "info", "dropped")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_memory_pb2.SearchResult]
    info: _memory_pb2.SearchInfo
    dropped: _containers.RepeatedCompositeFieldContainer[DroppedCandidate]
    def __init__(self, results: _Optional[_Iterable[_Union[_memory_pb2.SearchResult, _Mapping]]] = ..., info: _Optional[_Union[_memory_pb2.SearchInfo, _Mapping]] = ..., dropped: _Optional[_Iterable[_Union[DroppedCandidate, _Mapping]]] = ...) -> None: ...

class DroppedCandidate(_message.Message):
    __slots__ = ("path", "start_line", "end_line", "source", "score", "reason", "explanation")
    PATH_FIELD_NUMBER: _ClassVar[int]
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    path: str
    start_line: int
    end_line: int
    source: _memory_pb2.Source
    score: float
    reason: MissReason
    explanation: str
    def __init__(self, path: _Optional[str] = ..., start_line: _Optional[int] = ..., end_line: _Optional[int] = ..., source: _Optional[_Union[_memory_pb2.Source, str]] = ..., score: _Optional[float] = ..., reason: _Optional[_Union[MissReason, str]] = ..., explanation: _Optional[str] = ...) -> None: ...

class FrontMatterCondition(_message.Message):
    __slots__ = ("key", "values")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    key: str
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class MemoryFilter(_message.Message):
    __slots__ = ("since", "until", "path_prefixes", "front_matter")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    PATH_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    FRONT_MATTER_FIELD_NUMBER: _ClassVar[int]
    since: str
    until: str
    path_prefixes: _containers.RepeatedScalarFieldContainer[str]
    front_matter: _containers.RepeatedCompositeFieldContainer[FrontMatterCondition]
    def __init__(self, since: _Optional[str] = ..., until: _Optional[str] = ..., path_prefixes: _Optional[_Iterable[str]] = ..., front_matter: _Optional[_Iterable[_Union[FrontMatterCondition, _Mapping]]] = ...) -> None: ...

class ExplainMissRequest(_message.Message):
    __slots__ = ("agent_id", "search", "path", "line")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    search: MemorySearchRequest
    path: str
    line: int
    def __init__(self, agent_id: _Optional[str] = ..., search: _Optional[_Union[MemorySearchRequest, _Mapping]] = ..., path: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class ExplainMissResponse(_message.Message):
    __slots__ = ("path", "reason", "explanation", "rank", "max_rank", "value", "limit", "rule", "chunk", "info")
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    MAX_RANK_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    path: str
    reason: MissReason
    explanation: str
    rank: int
    max_rank: int
    value: float
    limit: float
    rule: str
    chunk: _memory_pb2.SearchResult
    info: _memory_pb2.SearchInfo
    def __init__(self, path: _Optional[str] = ..., reason: _Optional[_Union[MissReason, str]] = ..., explanation: _Optional[str] = ..., rank: _Optional[int] = ..., max_rank: _Optional[int] = ..., value: _Optional[float] = ..., limit: _Optional[float] = ..., rule: _Optional[str] = ..., chunk: _Optional[_Union[_memory_pb2.SearchResult, _Mapping]] = ..., info: _Optional[_Union[_memory_pb2.SearchInfo, _Mapping]] = ...) -> None: ...

class MemoryReference(_message.Message):
    __slots__ = ("path", "start_line", "end_line")
    PATH_FIELD_NUMBER: _ClassVar[int]
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    path: str
    start_line: int
    end_line: int
    def __init__(self, path: _Optional[str] = ..., start_line: _Optional[int] = ..., end_line: _Optional[int] = ...) -> None: ...

class MemoryRecallRequest(_message.Message):
    __slots__ = ("agent_id", "session_key", "text", "recent_messages", "max_tokens", "max_chars", "sources", "filter", "seen", "remember_shown", "now", "active_projects", "min_confidence", "explain", "max_staleness")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RECENT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_CHARS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    REMEMBER_SHOWN_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_PROJECTS_FIELD_NUMBER: _ClassVar[int]
    MIN_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    session_key: str
    text: str
    recent_messages: _containers.RepeatedScalarFieldContainer[str]
    max_tokens: int
    max_chars: int
    sources: _containers.RepeatedScalarFieldContainer[_memory_pb2.Source]
    filter: MemoryFilter
    seen: _containers.RepeatedCompositeFieldContainer[MemoryReference]
    remember_shown: bool
    now: _timestamp_pb2.Timestamp
    active_projects: _containers.RepeatedScalarFieldContainer[str]
    min_confidence: float
    explain: bool
    max_staleness: _duration_pb2.Duration
    def __init__(self, agent_id: _Optional[str] = ..., session_key: _Optional[str] = ..., text: _Optional[str] = ..., recent_messages: _Optional[_Iterable[str]] = ..., max_tokens: _Optional[int] = ..., max_chars: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[_memory_pb2.Source, str]]] = ..., filter: _Optional[_Union[MemoryFilter, _Mapping]] = ..., seen: _Optional[_Iterable[_Union[MemoryReference, _Mapping]]] = ..., remember_shown: bool = ..., now: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., active_projects: _Optional[_Iterable[str]] = ..., min_confidence: _Optional[float] = ..., explain: bool = ..., max_staleness: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RecalledItem(_message.Message):
    __slots__ = ("path", "start_line", "end_line", "citation", "date", "score", "why", "text", "source", "origin")
    PATH_FIELD_NUMBER: _ClassVar[int]
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    CITATION_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    path: str
    start_line: int
    end_line: int
    citation: str
    date: str
    score: float
    why: str
    text: str
    source: _memory_pb2.Source
    origin: _memory_pb2.Origin
    def __init__(self, path: _Optional[str] = ..., start_line: _Optional[int] = ..., end_line: _Optional[int] = ..., citation: _Optional[str] = ..., date: _Optional[str] = ..., score: _Optional[float] = ..., why: _Optional[str] = ..., text: _Optional[str] = ..., source: _Optional[_Union[_memory_pb2.Source, str]] = ..., origin: _Optional[_Union[_memory_pb2.Origin, str]] = ...) -> None: ...

class MemoryRecallResponse(_message.Message):
    __slots__ = ("block", "items", "silent_reason", "silent_explanation", "info", "tokens_used")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SILENT_REASON_FIELD_NUMBER: _ClassVar[int]
    SILENT_EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    TOKENS_USED_FIELD_NUMBER: _ClassVar[int]
    block: str
    items: _containers.RepeatedCompositeFieldContainer[RecalledItem]
    silent_reason: RecallSilentReason
    silent_explanation: str
    info: _memory_pb2.SearchInfo
    tokens_used: int
    def __init__(self, block: _Optional[str] = ..., items: _Optional[_Iterable[_Union[RecalledItem, _Mapping]]] = ..., silent_reason: _Optional[_Union[RecallSilentReason, str]] = ..., silent_explanation: _Optional[str] = ..., info: _Optional[_Union[_memory_pb2.SearchInfo, _Mapping]] = ..., tokens_used: _Optional[int] = ...) -> None: ...

class MemoryGetRequest(_message.Message):
    __slots__ = ("agent_id", "path", "start_line", "line_count", "from_line", "lines", "include_chunks", "max_staleness")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    LINE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FROM_LINE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    path: str
    start_line: int
    line_count: int
    from_line: int
    lines: int
    include_chunks: bool
    max_staleness: _duration_pb2.Duration
    def __init__(self, agent_id: _Optional[str] = ..., path: _Optional[str] = ..., start_line: _Optional[int] = ..., line_count: _Optional[int] = ..., from_line: _Optional[int] = ..., lines: _Optional[int] = ..., include_chunks: bool = ..., max_staleness: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class MemoryGetResponse(_message.Message):
    __slots__ = ("path", "text", "start_line", "end_line", "total_lines", "next_start_line", "truncated", "content_sha256", "chunks")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_START_LINE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    CONTENT_SHA256_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    path: str
    text: str
    start_line: int
    end_line: int
    total_lines: int
    next_start_line: int
    truncated: bool
    content_sha256: str
    chunks: _containers.RepeatedCompositeFieldContainer[_memory_pb2.LineRange]
    def __init__(self, path: _Optional[str] = ..., text: _Optional[str] = ..., start_line: _Optional[int] = ..., end_line: _Optional[int] = ..., total_lines: _Optional[int] = ..., next_start_line: _Optional[int] = ..., truncated: bool = ..., content_sha256: _Optional[str] = ..., chunks: _Optional[_Iterable[_Union[_memory_pb2.LineRange, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("agent_id", "probe")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    probe: bool
    def __init__(self, agent_id: _Optional[str] = ..., probe: bool = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("service", "agent_id", "workspace", "configured_backend", "active_backend", "degradations", "index", "embedding", "vector", "fulltext", "cache", "batch", "watchers", "qmd", "active_sync", "source_issues", "failed_files", "reranker")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_BACKEND_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_BACKEND_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    FULLTEXT_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    WATCHERS_FIELD_NUMBER: _ClassVar[int]
    QMD_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SYNC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ISSUES_FIELD_NUMBER: _ClassVar[int]
    FAILED_FILES_FIELD_NUMBER: _ClassVar[int]
    RERANKER_FIELD_NUMBER: _ClassVar[int]
    service: _memory_pb2.ServiceStatus
    agent_id: str
    workspace: str
    configured_backend: _memory_pb2.Backend
    active_backend: _memory_pb2.Backend
    degradations: _containers.RepeatedCompositeFieldContainer[_memory_pb2.Degradation]
    index: _memory_pb2.IndexStatus
    embedding: _memory_pb2.EmbeddingStatus
    vector: _memory_pb2.VectorStatus
    fulltext: _memory_pb2.FulltextStatus
    cache: _memory_pb2.CacheStatus
    batch: _memory_pb2.BatchStatus
    watchers: _containers.RepeatedCompositeFieldContainer[_memory_pb2.WatcherStatus]
    qmd: _memory_pb2.QmdStatus
    active_sync: ActiveSync
    source_issues: _containers.RepeatedScalarFieldContainer[str]
    failed_files: _containers.RepeatedCompositeFieldContainer[_sync_event_pb2.SyncFileFailed]
    reranker: _memory_pb2.RerankerStatus
    def __init__(self, service: _Optional[_Union[_memory_pb2.ServiceStatus, _Mapping]] = ..., agent_id: _Optional[str] = ..., workspace: _Optional[str] = ..., configured_backend: _Optional[_Union[_memory_pb2.Backend, str]] = ..., active_backend: _Optional[_Union[_memory_pb2.Backend, str]] = ..., degradations: _Optional[_Iterable[_Union[_memory_pb2.Degradation, _Mapping]]] = ..., index: _Optional[_Union[_memory_pb2.IndexStatus, _Mapping]] = ..., embedding: _Optional[_Union[_memory_pb2.EmbeddingStatus, _Mapping]] = ..., vector: _Optional[_Union[_memory_pb2.VectorStatus, _Mapping]] = ..., fulltext: _Optional[_Union[_memory_pb2.FulltextStatus, _Mapping]] = ..., cache: _Optional[_Union[_memory_pb2.CacheStatus, _Mapping]] = ..., batch: _Optional[_Union[_memory_pb2.BatchStatus, _Mapping]] = ..., watchers: _Optional[_Iterable[_Union[_memory_pb2.WatcherStatus, _Mapping]]] = ..., qmd: _Optional[_Union[_memory_pb2.QmdStatus, _Mapping]] = ..., active_sync: _Optional[_Union[ActiveSync, _Mapping]] = ..., source_issues: _Optional[_Iterable[str]] = ..., failed_files: _Optional[_Iterable[_Union[_sync_event_pb2.SyncFileFailed, _Mapping]]] = ..., reranker: _Optional[_Union[_memory_pb2.RerankerStatus, _Mapping]] = ...) -> None: ...

class ActiveSync(_message.Message):
    __slots__ = ("sync_id", "mode", "trigger", "progress")
    SYNC_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    sync_id: str
    mode: _sync_event_pb2.SyncMode
    trigger: _sync_event_pb2.SyncTrigger
    progress: _sync_event_pb2.SyncProgress
    def __init__(self, sync_id: _Optional[str] = ..., mode: _Optional[_Union[_sync_event_pb2.SyncMode, str]] = ..., trigger: _Optional[_Union[_sync_event_pb2.SyncTrigger, str]] = ..., progress: _Optional[_Union[_sync_event_pb2.SyncProgress, _Mapping]] = ...) -> None: ...

class SyncRequest(_message.Message):
    __slots__ = ("agent_id", "mode", "trigger", "cursor", "on_disconnect", "heartbeat_interval", "dry_run", "sources", "reason", "transcript", "session_key", "on_conflict")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    ON_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    mode: _sync_event_pb2.SyncMode
    trigger: _sync_event_pb2.SyncTrigger
    cursor: str
    on_disconnect: _sync_event_pb2.OnDisconnect
    heartbeat_interval: _duration_pb2.Duration
    dry_run: bool
    sources: _containers.RepeatedScalarFieldContainer[_memory_pb2.Source]
    reason: str
    transcript: str
    session_key: str
    on_conflict: _sync_event_pb2.OnConflict
    def __init__(self, agent_id: _Optional[str] = ..., mode: _Optional[_Union[_sync_event_pb2.SyncMode, str]] = ..., trigger: _Optional[_Union[_sync_event_pb2.SyncTrigger, str]] = ..., cursor: _Optional[str] = ..., on_disconnect: _Optional[_Union[_sync_event_pb2.OnDisconnect, str]] = ..., heartbeat_interval: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., dry_run: bool = ..., sources: _Optional[_Iterable[_Union[_memory_pb2.Source, str]]] = ..., reason: _Optional[str] = ..., transcript: _Optional[str] = ..., session_key: _Optional[str] = ..., on_conflict: _Optional[_Union[_sync_event_pb2.OnConflict, str]] = ...) -> None: ...

class SyncResponse(_message.Message):
    __slots__ = ("sync_id", "sequence", "cursor", "time", "started", "progress", "file_failed", "heartbeat", "completed")
    SYNC_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    FILE_FAILED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    sync_id: str
    sequence: int
    cursor: str
    time: _timestamp_pb2.Timestamp
    started: _sync_event_pb2.SyncStarted
    progress: _sync_event_pb2.SyncProgress
    file_failed: _sync_event_pb2.SyncFileFailed
    heartbeat: _sync_event_pb2.SyncHeartbeat
    completed: _sync_event_pb2.SyncCompleted
    def __init__(self, sync_id: _Optional[str] = ..., sequence: _Optional[int] = ..., cursor: _Optional[str] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., started: _Optional[_Union[_sync_event_pb2.SyncStarted, _Mapping]] = ..., progress: _Optional[_Union[_sync_event_pb2.SyncProgress, _Mapping]] = ..., file_failed: _Optional[_Union[_sync_event_pb2.SyncFileFailed, _Mapping]] = ..., heartbeat: _Optional[_Union[_sync_event_pb2.SyncHeartbeat, _Mapping]] = ..., completed: _Optional[_Union[_sync_event_pb2.SyncCompleted, _Mapping]] = ...) -> None: ...

class WatchIndexRequest(_message.Message):
    __slots__ = ("agent_id", "heartbeat_interval")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    heartbeat_interval: _duration_pb2.Duration
    def __init__(self, agent_id: _Optional[str] = ..., heartbeat_interval: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatchIndexResponse(_message.Message):
    __slots__ = ("agent_id", "time", "state", "index_revision", "dirty", "pending_files", "active_sync", "watchers", "heartbeat")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INDEX_REVISION_FIELD_NUMBER: _ClassVar[int]
    DIRTY_FIELD_NUMBER: _ClassVar[int]
    PENDING_FILES_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SYNC_FIELD_NUMBER: _ClassVar[int]
    WATCHERS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    time: _timestamp_pb2.Timestamp
    state: _memory_pb2.IndexState
    index_revision: int
    dirty: bool
    pending_files: int
    active_sync: ActiveSync
    watchers: _containers.RepeatedCompositeFieldContainer[_memory_pb2.WatcherStatus]
    heartbeat: bool
    def __init__(self, agent_id: _Optional[str] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[_Union[_memory_pb2.IndexState, str]] = ..., index_revision: _Optional[int] = ..., dirty: bool = ..., pending_files: _Optional[int] = ..., active_sync: _Optional[_Union[ActiveSync, _Mapping]] = ..., watchers: _Optional[_Iterable[_Union[_memory_pb2.WatcherStatus, _Mapping]]] = ..., heartbeat: bool = ...) -> None: ...

class FlushDecisionRequest(_message.Message):
    __slots__ = ("agent_id", "total_tokens", "total_tokens_fresh", "incoming_prompt_tokens", "last_output_tokens", "context_window_tokens", "reserve_tokens_floor", "effective_reserve_tokens", "soft_threshold_tokens", "transcript_bytes", "compaction_count", "last_flush_compaction_count", "workspace_access", "turn_kind", "time_zone", "now")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FRESH_FIELD_NUMBER: _ClassVar[int]
    INCOMING_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LAST_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RESERVE_TOKENS_FLOOR_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_RESERVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SOFT_THRESHOLD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_FLUSH_COMPACTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ACCESS_FIELD_NUMBER: _ClassVar[int]
    TURN_KIND_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    total_tokens: int
    total_tokens_fresh: bool
    incoming_prompt_tokens: int
    last_output_tokens: int
    context_window_tokens: int
    reserve_tokens_floor: int
    effective_reserve_tokens: int
    soft_threshold_tokens: int
    transcript_bytes: int
    compaction_count: int
    last_flush_compaction_count: int
    workspace_access: WorkspaceAccess
    turn_kind: TurnKind
    time_zone: str
    now: _timestamp_pb2.Timestamp
    def __init__(self, agent_id: _Optional[str] = ..., total_tokens: _Optional[int] = ..., total_tokens_fresh: bool = ..., incoming_prompt_tokens: _Optional[int] = ..., last_output_tokens: _Optional[int] = ..., context_window_tokens: _Optional[int] = ..., reserve_tokens_floor: _Optional[int] = ..., effective_reserve_tokens: _Optional[int] = ..., soft_threshold_tokens: _Optional[int] = ..., transcript_bytes: _Optional[int] = ..., compaction_count: _Optional[int] = ..., last_flush_compaction_count: _Optional[int] = ..., workspace_access: _Optional[_Union[WorkspaceAccess, str]] = ..., turn_kind: _Optional[_Union[TurnKind, str]] = ..., time_zone: _Optional[str] = ..., now: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class FlushPrompts(_message.Message):
    __slots__ = ("system", "user", "silent_reply")
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    SILENT_REPLY_FIELD_NUMBER: _ClassVar[int]
    system: str
    user: str
    silent_reply: str
    def __init__(self, system: _Optional[str] = ..., user: _Optional[str] = ..., silent_reply: _Optional[str] = ...) -> None: ...

class FlushDecisionResponse(_message.Message):
    __slots__ = ("flush", "reason", "threshold_tokens", "projected_tokens", "remaining_tokens", "prompts", "target_path", "flush_compaction_count", "inputs")
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROJECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    TARGET_PATH_FIELD_NUMBER: _ClassVar[int]
    FLUSH_COMPACTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    flush: bool
    reason: FlushReason
    threshold_tokens: int
    projected_tokens: int
    remaining_tokens: int
    prompts: FlushPrompts
    target_path: str
    flush_compaction_count: int
    inputs: FlushDecisionRequest
    def __init__(self, flush: bool = ..., reason: _Optional[_Union[FlushReason, str]] = ..., threshold_tokens: _Optional[int] = ..., projected_tokens: _Optional[int] = ..., remaining_tokens: _Optional[int] = ..., prompts: _Optional[_Union[FlushPrompts, _Mapping]] = ..., target_path: _Optional[str] = ..., flush_compaction_count: _Optional[int] = ..., inputs: _Optional[_Union[FlushDecisionRequest, _Mapping]] = ...) -> None: ...

class MemoryAppendRequest(_message.Message):
    __slots__ = ("agent_id", "text", "path", "idempotency_key", "heading", "time_zone", "now")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    HEADING_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    text: str
    path: str
    idempotency_key: str
    heading: str
    time_zone: str
    now: _timestamp_pb2.Timestamp
    def __init__(self, agent_id: _Optional[str] = ..., text: _Optional[str] = ..., path: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., heading: _Optional[str] = ..., time_zone: _Optional[str] = ..., now: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class MemoryAppendResponse(_message.Message):
    __slots__ = ("path", "start_line", "end_line", "index_revision", "already_appended")
    PATH_FIELD_NUMBER: _ClassVar[int]
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    INDEX_REVISION_FIELD_NUMBER: _ClassVar[int]
    ALREADY_APPENDED_FIELD_NUMBER: _ClassVar[int]
    path: str
    start_line: int
    end_line: int
    index_revision: int
    already_appended: bool
    def __init__(self, path: _Optional[str] = ..., start_line: _Optional[int] = ..., end_line: _Optional[int] = ..., index_revision: _Optional[int] = ..., already_appended: bool = ...) -> None: ...

class TextReplacement(_message.Message):
    __slots__ = ("old_text", "new_text")
    OLD_TEXT_FIELD_NUMBER: _ClassVar[int]
    NEW_TEXT_FIELD_NUMBER: _ClassVar[int]
    old_text: str
    new_text: str
    def __init__(self, old_text: _Optional[str] = ..., new_text: _Optional[str] = ...) -> None: ...

class LineInsertion(_message.Message):
    __slots__ = ("after_line", "text")
    AFTER_LINE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    after_line: int
    text: str
    def __init__(self, after_line: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class LineDeletion(_message.Message):
    __slots__ = ("start_line", "end_line")
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    start_line: int
    end_line: int
    def __init__(self, start_line: _Optional[int] = ..., end_line: _Optional[int] = ...) -> None: ...

class FileDeletion(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MemoryWriteRequest(_message.Message):
    __slots__ = ("agent_id", "path", "expected_sha256", "content", "replace", "insert", "delete_lines", "delete_file", "idempotency_key")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SHA256_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    INSERT_FIELD_NUMBER: _ClassVar[int]
    DELETE_LINES_FIELD_NUMBER: _ClassVar[int]
    DELETE_FILE_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    path: str
    expected_sha256: str
    content: str
    replace: TextReplacement
    insert: LineInsertion
    delete_lines: LineDeletion
    delete_file: FileDeletion
    idempotency_key: str
    def __init__(self, agent_id: _Optional[str] = ..., path: _Optional[str] = ..., expected_sha256: _Optional[str] = ..., content: _Optional[str] = ..., replace: _Optional[_Union[TextReplacement, _Mapping]] = ..., insert: _Optional[_Union[LineInsertion, _Mapping]] = ..., delete_lines: _Optional[_Union[LineDeletion, _Mapping]] = ..., delete_file: _Optional[_Union[FileDeletion, _Mapping]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class MemoryWriteResponse(_message.Message):
    __slots__ = ("path", "content_sha256", "version_id", "start_line", "end_line", "index_revision", "already_written")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_SHA256_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    INDEX_REVISION_FIELD_NUMBER: _ClassVar[int]
    ALREADY_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    path: str
    content_sha256: str
    version_id: str
    start_line: int
    end_line: int
    index_revision: int
    already_written: bool
    def __init__(self, path: _Optional[str] = ..., content_sha256: _Optional[str] = ..., version_id: _Optional[str] = ..., start_line: _Optional[int] = ..., end_line: _Optional[int] = ..., index_revision: _Optional[int] = ..., already_written: bool = ...) -> None: ...

class MemoryMoveRequest(_message.Message):
    __slots__ = ("agent_id", "path", "new_path", "expected_sha256", "idempotency_key")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    NEW_PATH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SHA256_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    path: str
    new_path: str
    expected_sha256: str
    idempotency_key: str
    def __init__(self, agent_id: _Optional[str] = ..., path: _Optional[str] = ..., new_path: _Optional[str] = ..., expected_sha256: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class MemoryMoveResponse(_message.Message):
    __slots__ = ("path", "content_sha256", "version_id", "index_revision", "already_moved")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_SHA256_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_REVISION_FIELD_NUMBER: _ClassVar[int]
    ALREADY_MOVED_FIELD_NUMBER: _ClassVar[int]
    path: str
    content_sha256: str
    version_id: str
    index_revision: int
    already_moved: bool
    def __init__(self, path: _Optional[str] = ..., content_sha256: _Optional[str] = ..., version_id: _Optional[str] = ..., index_revision: _Optional[int] = ..., already_moved: bool = ...) -> None: ...

class MemoryHistoryRequest(_message.Message):
    __slots__ = ("agent_id", "path", "version_id", "include_diffs", "page_size", "page_token")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DIFFS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    path: str
    version_id: str
    include_diffs: bool
    page_size: int
    page_token: str
    def __init__(self, agent_id: _Optional[str] = ..., path: _Optional[str] = ..., version_id: _Optional[str] = ..., include_diffs: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class FileVersion(_message.Message):
    __slots__ = ("version_id", "path", "moved_from", "time", "caller", "kind", "before_sha256", "before_bytes", "after_sha256", "after_bytes", "restorable", "diff", "diff_truncated")
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MOVED_FROM_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BEFORE_SHA256_FIELD_NUMBER: _ClassVar[int]
    BEFORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    AFTER_SHA256_FIELD_NUMBER: _ClassVar[int]
    AFTER_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESTORABLE_FIELD_NUMBER: _ClassVar[int]
    DIFF_FIELD_NUMBER: _ClassVar[int]
    DIFF_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    version_id: str
    path: str
    moved_from: str
    time: _timestamp_pb2.Timestamp
    caller: str
    kind: WriteKind
    before_sha256: str
    before_bytes: int
    after_sha256: str
    after_bytes: int
    restorable: bool
    diff: str
    diff_truncated: bool
    def __init__(self, version_id: _Optional[str] = ..., path: _Optional[str] = ..., moved_from: _Optional[str] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., caller: _Optional[str] = ..., kind: _Optional[_Union[WriteKind, str]] = ..., before_sha256: _Optional[str] = ..., before_bytes: _Optional[int] = ..., after_sha256: _Optional[str] = ..., after_bytes: _Optional[int] = ..., restorable: bool = ..., diff: _Optional[str] = ..., diff_truncated: bool = ...) -> None: ...

class MemoryHistoryResponse(_message.Message):
    __slots__ = ("versions", "next_page_token")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[FileVersion]
    next_page_token: str
    def __init__(self, versions: _Optional[_Iterable[_Union[FileVersion, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class MemoryRestoreRequest(_message.Message):
    __slots__ = ("agent_id", "version_id", "path", "expected_sha256", "idempotency_key")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SHA256_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    version_id: str
    path: str
    expected_sha256: str
    idempotency_key: str
    def __init__(self, agent_id: _Optional[str] = ..., version_id: _Optional[str] = ..., path: _Optional[str] = ..., expected_sha256: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class MemoryRestoreResponse(_message.Message):
    __slots__ = ("path", "content_sha256", "version_id", "index_revision", "already_restored")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_SHA256_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_REVISION_FIELD_NUMBER: _ClassVar[int]
    ALREADY_RESTORED_FIELD_NUMBER: _ClassVar[int]
    path: str
    content_sha256: str
    version_id: str
    index_revision: int
    already_restored: bool
    def __init__(self, path: _Optional[str] = ..., content_sha256: _Optional[str] = ..., version_id: _Optional[str] = ..., index_revision: _Optional[int] = ..., already_restored: bool = ...) -> None: ...

class MemoryForgetRequest(_message.Message):
    __slots__ = ("agent_id", "path", "session_id", "text", "delete_source")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DELETE_SOURCE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    path: str
    session_id: str
    text: str
    delete_source: bool
    def __init__(self, agent_id: _Optional[str] = ..., path: _Optional[str] = ..., session_id: _Optional[str] = ..., text: _Optional[str] = ..., delete_source: bool = ...) -> None: ...

class MemoryForgetResponse(_message.Message):
    __slots__ = ("chunks", "keyword_entries", "vectors", "cached_embeddings", "qmd_documents", "source_files", "index_revision", "purge_pending", "history_contents")
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    CACHED_EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    QMD_DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FILES_FIELD_NUMBER: _ClassVar[int]
    INDEX_REVISION_FIELD_NUMBER: _ClassVar[int]
    PURGE_PENDING_FIELD_NUMBER: _ClassVar[int]
    HISTORY_CONTENTS_FIELD_NUMBER: _ClassVar[int]
    chunks: int
    keyword_entries: int
    vectors: int
    cached_embeddings: int
    qmd_documents: int
    source_files: int
    index_revision: int
    purge_pending: bool
    history_contents: int
    def __init__(self, chunks: _Optional[int] = ..., keyword_entries: _Optional[int] = ..., vectors: _Optional[int] = ..., cached_embeddings: _Optional[int] = ..., qmd_documents: _Optional[int] = ..., source_files: _Optional[int] = ..., index_revision: _Optional[int] = ..., purge_pending: bool = ..., history_contents: _Optional[int] = ...) -> None: ...

class SessionContextRequest(_message.Message):
    __slots__ = ("agent_id", "session_key", "time_zone", "now", "max_total_chars", "include_recall_prompt", "prompt_mode", "tools", "citations")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    MAX_TOTAL_CHARS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_RECALL_PROMPT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_MODE_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    session_key: str
    time_zone: str
    now: _timestamp_pb2.Timestamp
    max_total_chars: int
    include_recall_prompt: bool
    prompt_mode: PromptMode
    tools: _containers.RepeatedScalarFieldContainer[str]
    citations: _memory_pb2.CitationMode
    def __init__(self, agent_id: _Optional[str] = ..., session_key: _Optional[str] = ..., time_zone: _Optional[str] = ..., now: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., max_total_chars: _Optional[int] = ..., include_recall_prompt: bool = ..., prompt_mode: _Optional[_Union[PromptMode, str]] = ..., tools: _Optional[_Iterable[str]] = ..., citations: _Optional[_Union[_memory_pb2.CitationMode, str]] = ...) -> None: ...

class SessionContextFile(_message.Message):
    __slots__ = ("path", "text", "truncated", "exists", "start_line", "end_line", "problem")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    path: str
    text: str
    truncated: bool
    exists: bool
    start_line: int
    end_line: int
    problem: str
    def __init__(self, path: _Optional[str] = ..., text: _Optional[str] = ..., truncated: bool = ..., exists: bool = ..., start_line: _Optional[int] = ..., end_line: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class ToolSchema(_message.Message):
    __slots__ = ("name", "description", "parameters_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters_json: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters_json: _Optional[str] = ...) -> None: ...

class SessionContextResponse(_message.Message):
    __slots__ = ("files", "recall_prompt", "tool_schemas", "main_session")
    FILES_FIELD_NUMBER: _ClassVar[int]
    RECALL_PROMPT_FIELD_NUMBER: _ClassVar[int]
    TOOL_SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    MAIN_SESSION_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[SessionContextFile]
    recall_prompt: str
    tool_schemas: _containers.RepeatedCompositeFieldContainer[ToolSchema]
    main_session: bool
    def __init__(self, files: _Optional[_Iterable[_Union[SessionContextFile, _Mapping]]] = ..., recall_prompt: _Optional[str] = ..., tool_schemas: _Optional[_Iterable[_Union[ToolSchema, _Mapping]]] = ..., main_session: bool = ...) -> None: ...

class SessionArchiveRequest(_message.Message):
    __slots__ = ("agent_id", "transcript", "slug", "message_count", "time_zone", "now", "session_key")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    SLUG_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    transcript: str
    slug: str
    message_count: int
    time_zone: str
    now: _timestamp_pb2.Timestamp
    session_key: str
    def __init__(self, agent_id: _Optional[str] = ..., transcript: _Optional[str] = ..., slug: _Optional[str] = ..., message_count: _Optional[int] = ..., time_zone: _Optional[str] = ..., now: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., session_key: _Optional[str] = ...) -> None: ...

class SessionArchiveResponse(_message.Message):
    __slots__ = ("path", "messages", "index_revision", "already_archived")
    PATH_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    INDEX_REVISION_FIELD_NUMBER: _ClassVar[int]
    ALREADY_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    path: str
    messages: int
    index_revision: int
    already_archived: bool
    def __init__(self, path: _Optional[str] = ..., messages: _Optional[int] = ..., index_revision: _Optional[int] = ..., already_archived: bool = ...) -> None: ...

class SessionAppendRequest(_message.Message):
    __slots__ = ("agent_id", "session_id", "records", "expected_records", "session_key")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    session_id: str
    records: _containers.RepeatedScalarFieldContainer[str]
    expected_records: int
    session_key: str
    def __init__(self, agent_id: _Optional[str] = ..., session_id: _Optional[str] = ..., records: _Optional[_Iterable[str]] = ..., expected_records: _Optional[int] = ..., session_key: _Optional[str] = ...) -> None: ...

class SessionAppendResponse(_message.Message):
    __slots__ = ("path", "records", "size_bytes", "already_appended")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALREADY_APPENDED_FIELD_NUMBER: _ClassVar[int]
    path: str
    records: int
    size_bytes: int
    already_appended: bool
    def __init__(self, path: _Optional[str] = ..., records: _Optional[int] = ..., size_bytes: _Optional[int] = ..., already_appended: bool = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class Agent(_message.Message):
    __slots__ = ("agent_id", "workspace", "default", "enabled", "index_state", "may_edit")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    INDEX_STATE_FIELD_NUMBER: _ClassVar[int]
    MAY_EDIT_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    workspace: str
    default: bool
    enabled: bool
    index_state: _memory_pb2.IndexState
    may_edit: bool
    def __init__(self, agent_id: _Optional[str] = ..., workspace: _Optional[str] = ..., default: bool = ..., enabled: bool = ..., index_state: _Optional[_Union[_memory_pb2.IndexState, str]] = ..., may_edit: bool = ...) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ("agents", "next_page_token")
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[Agent]
    next_page_token: str
    def __init__(self, agents: _Optional[_Iterable[_Union[Agent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListFilesRequest(_message.Message):
    __slots__ = ("agent_id", "page_size", "page_token", "sources", "filter", "include_excluded")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    page_size: int
    page_token: str
    sources: _containers.RepeatedScalarFieldContainer[_memory_pb2.Source]
    filter: MemoryFilter
    include_excluded: bool
    def __init__(self, agent_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[_memory_pb2.Source, str]]] = ..., filter: _Optional[_Union[MemoryFilter, _Mapping]] = ..., include_excluded: bool = ...) -> None: ...

class File(_message.Message):
    __slots__ = ("path", "source", "size_bytes", "modified_time", "state", "error", "chunks", "date", "rule")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    path: str
    source: _memory_pb2.Source
    size_bytes: int
    modified_time: _timestamp_pb2.Timestamp
    state: FileState
    error: str
    chunks: int
    date: str
    rule: str
    def __init__(self, path: _Optional[str] = ..., source: _Optional[_Union[_memory_pb2.Source, str]] = ..., size_bytes: _Optional[int] = ..., modified_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[_Union[FileState, str]] = ..., error: _Optional[str] = ..., chunks: _Optional[int] = ..., date: _Optional[str] = ..., rule: _Optional[str] = ...) -> None: ...

class ListFilesResponse(_message.Message):
    __slots__ = ("files", "next_page_token")
    FILES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[File]
    next_page_token: str
    def __init__(self, files: _Optional[_Iterable[_Union[File, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
