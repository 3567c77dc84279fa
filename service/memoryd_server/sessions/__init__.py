"""The lifecycle of a session: its context at the start, memory flushes and the recall prompt."""

from memoryd_server.sessions.context import ContextFile, SeenSessions, SessionKey, load_context, wants_citations
from memoryd_server.sessions.daily_notes import StartupContext
from memoryd_server.sessions.flush import (
    FlushDecision,
    FlushInputs,
    FlushPolicy,
    TurnKind,
    WorkspaceAccess,
    decide_flush,
)
from memoryd_server.sessions.recall import TOOL_NAMES, ToolSchema, recall_prompt, tool_schemas

__all__ = [
    "TOOL_NAMES",
    "ContextFile",
    "FlushDecision",
    "FlushInputs",
    "FlushPolicy",
    "SeenSessions",
    "SessionKey",
    "StartupContext",
    "ToolSchema",
    "TurnKind",
    "WorkspaceAccess",
    "decide_flush",
    "load_context",
    "recall_prompt",
    "tool_schemas",
    "wants_citations",
]
