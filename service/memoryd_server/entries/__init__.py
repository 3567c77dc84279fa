"""Short texts in LanceDB, recalled by meaning."""

from memoryd_server.entries.capture import (
    IMPORTANCE,
    LEAST_PROMPT_CHARS,
    CaptureRefusal,
    CaptureSuggestion,
    recall_block,
    suggest,
)
from memoryd_server.entries.directory import EntryMemories
from memoryd_server.entries.memory import EntryForgetResult, RecallResult
from memoryd_server.entries.model import (
    ENTRIES_PLUGIN,
    DatasetLocation,
    Entry,
    EntryCategory,
    EntryConfig,
    EntryPage,
    ListPosition,
    RememberResult,
    ScoredEntry,
)
from memoryd_server.entries.store import NewEntry

__all__ = [
    "ENTRIES_PLUGIN",
    "IMPORTANCE",
    "LEAST_PROMPT_CHARS",
    "CaptureRefusal",
    "CaptureSuggestion",
    "DatasetLocation",
    "Entry",
    "EntryCategory",
    "EntryConfig",
    "EntryForgetResult",
    "EntryMemories",
    "EntryPage",
    "ListPosition",
    "NewEntry",
    "RecallResult",
    "RememberResult",
    "ScoredEntry",
    "recall_block",
    "suggest",
]
