from google.protobuf import timestamp_pb2 as _timestamp_pb2
from memoryd.v1 import memory_pb2 as _memory_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EntryCategory(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENTRY_CATEGORY_UNSPECIFIED: _ClassVar[EntryCategory]
    ENTRY_CATEGORY_PREFERENCE: _ClassVar[EntryCategory]
    ENTRY_CATEGORY_FACT: _ClassVar[EntryCategory]
    ENTRY_CATEGORY_DECISION: _ClassVar[EntryCategory]
    ENTRY_CATEGORY_ENTITY: _ClassVar[EntryCategory]
    ENTRY_CATEGORY_OTHER: _ClassVar[EntryCategory]

class RememberAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REMEMBER_ACTION_UNSPECIFIED: _ClassVar[RememberAction]
    REMEMBER_ACTION_STORED: _ClassVar[RememberAction]
    REMEMBER_ACTION_DUPLICATE: _ClassVar[RememberAction]
    REMEMBER_ACTION_ALREADY_STORED: _ClassVar[RememberAction]

class ForgetAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORGET_ACTION_UNSPECIFIED: _ClassVar[ForgetAction]
    FORGET_ACTION_DELETED: _ClassVar[ForgetAction]
    FORGET_ACTION_CANDIDATES: _ClassVar[ForgetAction]
    FORGET_ACTION_NOTHING_FOUND: _ClassVar[ForgetAction]

class CaptureTrigger(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CAPTURE_TRIGGER_UNSPECIFIED: _ClassVar[CaptureTrigger]
    CAPTURE_TRIGGER_REMEMBER: _ClassVar[CaptureTrigger]
    CAPTURE_TRIGGER_PREFERENCE: _ClassVar[CaptureTrigger]
    CAPTURE_TRIGGER_DECISION: _ClassVar[CaptureTrigger]
    CAPTURE_TRIGGER_CONTACT: _ClassVar[CaptureTrigger]
    CAPTURE_TRIGGER_OWN: _ClassVar[CaptureTrigger]
    CAPTURE_TRIGGER_RULE: _ClassVar[CaptureTrigger]

class CaptureExclusion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CAPTURE_EXCLUSION_UNSPECIFIED: _ClassVar[CaptureExclusion]
    CAPTURE_EXCLUSION_TOO_SHORT: _ClassVar[CaptureExclusion]
    CAPTURE_EXCLUSION_TOO_LONG: _ClassVar[CaptureExclusion]
    CAPTURE_EXCLUSION_RECALLED: _ClassVar[CaptureExclusion]
    CAPTURE_EXCLUSION_MARKUP: _ClassVar[CaptureExclusion]
    CAPTURE_EXCLUSION_SUMMARY: _ClassVar[CaptureExclusion]
    CAPTURE_EXCLUSION_EMOJI: _ClassVar[CaptureExclusion]
    CAPTURE_EXCLUSION_INJECTION: _ClassVar[CaptureExclusion]
    CAPTURE_EXCLUSION_NO_TRIGGER: _ClassVar[CaptureExclusion]
    CAPTURE_EXCLUSION_TURN_FULL: _ClassVar[CaptureExclusion]

class RecallBlockEmptyReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECALL_BLOCK_EMPTY_REASON_UNSPECIFIED: _ClassVar[RecallBlockEmptyReason]
    RECALL_BLOCK_EMPTY_REASON_OFF: _ClassVar[RecallBlockEmptyReason]
    RECALL_BLOCK_EMPTY_REASON_PROMPT_TOO_SHORT: _ClassVar[RecallBlockEmptyReason]
    RECALL_BLOCK_EMPTY_REASON_NOTHING_NEAR: _ClassVar[RecallBlockEmptyReason]
ENTRY_CATEGORY_UNSPECIFIED: EntryCategory
ENTRY_CATEGORY_PREFERENCE: EntryCategory
ENTRY_CATEGORY_FACT: EntryCategory
ENTRY_CATEGORY_DECISION: EntryCategory
ENTRY_CATEGORY_ENTITY: EntryCategory
ENTRY_CATEGORY_OTHER: EntryCategory
REMEMBER_ACTION_UNSPECIFIED: RememberAction
REMEMBER_ACTION_STORED: RememberAction
REMEMBER_ACTION_DUPLICATE: RememberAction
REMEMBER_ACTION_ALREADY_STORED: RememberAction
FORGET_ACTION_UNSPECIFIED: ForgetAction
FORGET_ACTION_DELETED: ForgetAction
FORGET_ACTION_CANDIDATES: ForgetAction
FORGET_ACTION_NOTHING_FOUND: ForgetAction
CAPTURE_TRIGGER_UNSPECIFIED: CaptureTrigger
CAPTURE_TRIGGER_REMEMBER: CaptureTrigger
CAPTURE_TRIGGER_PREFERENCE: CaptureTrigger
CAPTURE_TRIGGER_DECISION: CaptureTrigger
CAPTURE_TRIGGER_CONTACT: CaptureTrigger
CAPTURE_TRIGGER_OWN: CaptureTrigger
CAPTURE_TRIGGER_RULE: CaptureTrigger
CAPTURE_EXCLUSION_UNSPECIFIED: CaptureExclusion
CAPTURE_EXCLUSION_TOO_SHORT: CaptureExclusion
CAPTURE_EXCLUSION_TOO_LONG: CaptureExclusion
CAPTURE_EXCLUSION_RECALLED: CaptureExclusion
CAPTURE_EXCLUSION_MARKUP: CaptureExclusion
CAPTURE_EXCLUSION_SUMMARY: CaptureExclusion
CAPTURE_EXCLUSION_EMOJI: CaptureExclusion
CAPTURE_EXCLUSION_INJECTION: CaptureExclusion
CAPTURE_EXCLUSION_NO_TRIGGER: CaptureExclusion
CAPTURE_EXCLUSION_TURN_FULL: CaptureExclusion
RECALL_BLOCK_EMPTY_REASON_UNSPECIFIED: RecallBlockEmptyReason
RECALL_BLOCK_EMPTY_REASON_OFF: RecallBlockEmptyReason
RECALL_BLOCK_EMPTY_REASON_PROMPT_TOO_SHORT: RecallBlockEmptyReason
RECALL_BLOCK_EMPTY_REASON_NOTHING_NEAR: RecallBlockEmptyReason

class Entry(_message.Message):
    __slots__ = ("entry_id", "text", "importance", "category", "create_time")
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    entry_id: str
    text: str
    importance: float
    category: EntryCategory
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, entry_id: _Optional[str] = ..., text: _Optional[str] = ..., importance: _Optional[float] = ..., category: _Optional[_Union[EntryCategory, str]] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ScoredEntry(_message.Message):
    __slots__ = ("entry", "score")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    entry: Entry
    score: float
    def __init__(self, entry: _Optional[_Union[Entry, _Mapping]] = ..., score: _Optional[float] = ...) -> None: ...

class RememberRequest(_message.Message):
    __slots__ = ("agent_id", "text", "importance", "category", "idempotency_key")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    text: str
    importance: float
    category: EntryCategory
    idempotency_key: str
    def __init__(self, agent_id: _Optional[str] = ..., text: _Optional[str] = ..., importance: _Optional[float] = ..., category: _Optional[_Union[EntryCategory, str]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class RememberResponse(_message.Message):
    __slots__ = ("action", "entry", "score", "degradations")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    action: RememberAction
    entry: Entry
    score: float
    degradations: _containers.RepeatedCompositeFieldContainer[_memory_pb2.Degradation]
    def __init__(self, action: _Optional[_Union[RememberAction, str]] = ..., entry: _Optional[_Union[Entry, _Mapping]] = ..., score: _Optional[float] = ..., degradations: _Optional[_Iterable[_Union[_memory_pb2.Degradation, _Mapping]]] = ...) -> None: ...

class RecallRequest(_message.Message):
    __slots__ = ("agent_id", "query", "limit", "min_score", "categories")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MIN_SCORE_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    query: str
    limit: int
    min_score: float
    categories: _containers.RepeatedScalarFieldContainer[EntryCategory]
    def __init__(self, agent_id: _Optional[str] = ..., query: _Optional[str] = ..., limit: _Optional[int] = ..., min_score: _Optional[float] = ..., categories: _Optional[_Iterable[_Union[EntryCategory, str]]] = ...) -> None: ...

class RecallResponse(_message.Message):
    __slots__ = ("entries", "degradations")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[ScoredEntry]
    degradations: _containers.RepeatedCompositeFieldContainer[_memory_pb2.Degradation]
    def __init__(self, entries: _Optional[_Iterable[_Union[ScoredEntry, _Mapping]]] = ..., degradations: _Optional[_Iterable[_Union[_memory_pb2.Degradation, _Mapping]]] = ...) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ("agent_id", "entry_id", "query")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    entry_id: str
    query: str
    def __init__(self, agent_id: _Optional[str] = ..., entry_id: _Optional[str] = ..., query: _Optional[str] = ...) -> None: ...

class ForgetResponse(_message.Message):
    __slots__ = ("action", "deleted", "candidates", "degradations")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    action: ForgetAction
    deleted: Entry
    candidates: _containers.RepeatedCompositeFieldContainer[ScoredEntry]
    degradations: _containers.RepeatedCompositeFieldContainer[_memory_pb2.Degradation]
    def __init__(self, action: _Optional[_Union[ForgetAction, str]] = ..., deleted: _Optional[_Union[Entry, _Mapping]] = ..., candidates: _Optional[_Iterable[_Union[ScoredEntry, _Mapping]]] = ..., degradations: _Optional[_Iterable[_Union[_memory_pb2.Degradation, _Mapping]]] = ...) -> None: ...

class ListEntriesRequest(_message.Message):
    __slots__ = ("agent_id", "page_size", "page_token", "categories")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    page_size: int
    page_token: str
    categories: _containers.RepeatedScalarFieldContainer[EntryCategory]
    def __init__(self, agent_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., categories: _Optional[_Iterable[_Union[EntryCategory, str]]] = ...) -> None: ...

class ListEntriesResponse(_message.Message):
    __slots__ = ("entries", "next_page_token", "total")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    next_page_token: str
    total: int
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total: _Optional[int] = ...) -> None: ...

class SuggestCaptureRequest(_message.Message):
    __slots__ = ("agent_id", "user_messages")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    user_messages: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, agent_id: _Optional[str] = ..., user_messages: _Optional[_Iterable[str]] = ...) -> None: ...

class CaptureSuggestion(_message.Message):
    __slots__ = ("message_index", "text", "category", "importance", "trigger")
    MESSAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    message_index: int
    text: str
    category: EntryCategory
    importance: float
    trigger: CaptureTrigger
    def __init__(self, message_index: _Optional[int] = ..., text: _Optional[str] = ..., category: _Optional[_Union[EntryCategory, str]] = ..., importance: _Optional[float] = ..., trigger: _Optional[_Union[CaptureTrigger, str]] = ...) -> None: ...

class CaptureRefusal(_message.Message):
    __slots__ = ("message_index", "exclusion")
    MESSAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    EXCLUSION_FIELD_NUMBER: _ClassVar[int]
    message_index: int
    exclusion: CaptureExclusion
    def __init__(self, message_index: _Optional[int] = ..., exclusion: _Optional[_Union[CaptureExclusion, str]] = ...) -> None: ...

class SuggestCaptureResponse(_message.Message):
    __slots__ = ("suggestions", "refusals", "auto_capture")
    SUGGESTIONS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    AUTO_CAPTURE_FIELD_NUMBER: _ClassVar[int]
    suggestions: _containers.RepeatedCompositeFieldContainer[CaptureSuggestion]
    refusals: _containers.RepeatedCompositeFieldContainer[CaptureRefusal]
    auto_capture: bool
    def __init__(self, suggestions: _Optional[_Iterable[_Union[CaptureSuggestion, _Mapping]]] = ..., refusals: _Optional[_Iterable[_Union[CaptureRefusal, _Mapping]]] = ..., auto_capture: bool = ...) -> None: ...

class RecallBlockRequest(_message.Message):
    __slots__ = ("agent_id", "prompt")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    prompt: str
    def __init__(self, agent_id: _Optional[str] = ..., prompt: _Optional[str] = ...) -> None: ...

class RecallBlockResponse(_message.Message):
    __slots__ = ("block", "entries", "empty_reason", "degradations")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    EMPTY_REASON_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    block: str
    entries: _containers.RepeatedCompositeFieldContainer[ScoredEntry]
    empty_reason: RecallBlockEmptyReason
    degradations: _containers.RepeatedCompositeFieldContainer[_memory_pb2.Degradation]
    def __init__(self, block: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[ScoredEntry, _Mapping]]] = ..., empty_reason: _Optional[_Union[RecallBlockEmptyReason, str]] = ..., degradations: _Optional[_Iterable[_Union[_memory_pb2.Degradation, _Mapping]]] = ...) -> None: ...
