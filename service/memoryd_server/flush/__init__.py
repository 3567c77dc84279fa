"""The decision whether an agent should write durable notes before its host compacts the session. Pure."""

from memoryd_server.flush.decision import FlushDecision, FlushReason, decide
from memoryd_server.flush.inputs import FlushInputs, FlushPolicy, TurnKind, WorkspaceAccess
from memoryd_server.flush.prompts import SILENT_REPLY, FlushPrompts

__all__ = [
    "SILENT_REPLY",
    "FlushDecision",
    "FlushInputs",
    "FlushPolicy",
    "FlushPrompts",
    "FlushReason",
    "TurnKind",
    "WorkspaceAccess",
    "decide",
]
