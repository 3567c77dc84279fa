"""A session's start, flush and recall."""

from memoryd_server.sessions.context import ContextFile, SeenSessions, SessionKey, load_context, wants_citations
from memoryd_server.sessions.flush import FlushDecision, FlushInputs, FlushPolicy, TurnKind, WorkspaceAccess, decide
from memoryd_server.sessions.recall import TOOL_NAMES, ToolSchema, recall_prompt, tool_schemas

__all__ = [
    "TOOL_NAMES",
    "ContextFile",
    "FlushDecision",
    "FlushInputs",
    "FlushPolicy",
    "SeenSessions",
    "SessionKey",
    "ToolSchema",
    "TurnKind",
    "WorkspaceAccess",
    "decide",
    "load_context",
    "recall_prompt",
    "tool_schemas",
    "wants_citations",
]
