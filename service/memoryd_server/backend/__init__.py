"""Who answers for an agent: the builtin engine now, and what keeps its index in line with the files."""

from memoryd_server.backend.agent_memory import AgentMemory
from memoryd_server.backend.board import BoardState, IndexState, StateBoard
from memoryd_server.backend.config import AgentConfig, SyncConfig
from memoryd_server.backend.directory import AgentDirectory
from memoryd_server.backend.embed_threads import EmbedThreads
from memoryd_server.backend.listing import ListedFile
from memoryd_server.backend.reading import FileRange
from memoryd_server.backend.status import IndexReport
from memoryd_server.backend.sync_run import SyncEvent, SyncRun, SyncTrigger
from memoryd_server.backend.threads import Threads

__all__ = [
    "AgentConfig",
    "AgentDirectory",
    "AgentMemory",
    "BoardState",
    "EmbedThreads",
    "FileRange",
    "IndexReport",
    "IndexState",
    "ListedFile",
    "StateBoard",
    "SyncConfig",
    "SyncEvent",
    "SyncRun",
    "SyncTrigger",
    "Threads",
]
