"""The application: `Agents` opens the agents, and `Agent` has one method a use case. Every edge calls them.

    async with agents.use("main") as agent:
        result = await agent.search(SearchRequest(query="harbour crane"), deadline)

Requests are in `requests`; what the methods return, and the values in it, is exported here as well, so that an edge
imports no package below this one.
"""

from memoryd_server.agent.abandoned import AbandonedIndexes
from memoryd_server.agent.agent import Agent
from memoryd_server.agent.agents import Agents
from memoryd_server.agent.config import AgentConfig, RecallConfig, SyncConfig
from memoryd_server.agent.coordinator import SyncRunner
from memoryd_server.agent.edit_requests import HistoryRequest, MoveRequest, RestoreRequest, WriteRequest
from memoryd_server.agent.embedding import EmbeddingStatus
from memoryd_server.agent.entry_search import EntryAnswer, EntryHit, EntryQuery, EntrySearch
from memoryd_server.agent.file_listing import ListedFile
from memoryd_server.agent.files import FileRange, SessionContext, read_location
from memoryd_server.agent.filter_request import NO_FILTER, FilterRequest
from memoryd_server.agent.forget import ForgetReceipt
from memoryd_server.agent.history import FileVersion, HistoryPage
from memoryd_server.agent.lifecycle import AgentSummary, Deadline, DetachedTasks, InUseCounter
from memoryd_server.agent.miss import MissExplanation, MissRequest
from memoryd_server.agent.query_embedding import QueryEmbedder
from memoryd_server.agent.reader_index import ReaderIndex
from memoryd_server.agent.reader_processes import ReaderProcesses
from memoryd_server.agent.recall import RecallAnswer
from memoryd_server.agent.recall_request import MemoryRecallRequest
from memoryd_server.agent.requests import (
    MOST_KEY_BYTES,
    MOST_QUERY_BYTES,
    AppendRequest,
    FieldChecks,
    ForgetRequest,
    ListFilesRequest,
    PageRequest,
    ReadRequest,
    SearchRequest,
    SyncRequest,
    WatchRequest,
    agent_of_session,
)
from memoryd_server.agent.reranking import RerankPolicy, RerankStatus, SharedReranking
from memoryd_server.agent.root_status import RootStatus
from memoryd_server.agent.search import BackendStatus, SearchBackend, SearchResult
from memoryd_server.agent.session_requests import (
    FlushRequest,
    PromptMode,
    SessionAppendRequest,
    SessionArchiveRequest,
    SessionContextRequest,
)
from memoryd_server.agent.state import IndexUpdate
from memoryd_server.agent.status import AgentStatus, IndexStatus, ServiceInfo, SettingsReport
from memoryd_server.agent.sync_run import (
    ActiveSync,
    Heartbeat,
    RunCompleted,
    RunProgress,
    RunStarted,
    SyncEvent,
    SyncRun,
    SyncTrigger,
)
from memoryd_server.agent.threads import AgentDocuments, AgentStorage, ProviderExecutors, SharedResources
from memoryd_server.agent.workspace import AgentWorkspace
from memoryd_server.embedding import BatchJobsState, ProviderUsage
from memoryd_server.providers import ProviderProbe
from memoryd_server.recall import FileLines, Passage
from memoryd_server.search import (
    CitationMode,
    DroppedCandidate,
    Hit,
    RerankReport,
    RetrieverReport,
    SearchMode,
    citation,
)
from memoryd_server.sessions import ContextFile, FlushDecision, ToolSchema, TurnKind, WorkspaceAccess
from memoryd_server.sources import WatchedRoot
from memoryd_server.store import TOKENIZER, ProviderModel, VectorIdentity
from memoryd_server.sync import SyncMode
from memoryd_server.text import ANALYZER_VERSION
from memoryd_server.writing import (
    AppendReceipt,
    ArchiveReceipt,
    Change,
    FileDeletion,
    LineDeletion,
    LineInsertion,
    NewContent,
    TextReplacement,
    TranscriptReceipt,
    WriteReceipt,
)

__all__ = [
    "ANALYZER_VERSION",
    "MOST_KEY_BYTES",
    "MOST_QUERY_BYTES",
    "NO_FILTER",
    "TOKENIZER",
    "AbandonedIndexes",
    "ActiveSync",
    "Agent",
    "AgentConfig",
    "AgentDocuments",
    "AgentStatus",
    "AgentStorage",
    "AgentSummary",
    "AgentWorkspace",
    "Agents",
    "AppendReceipt",
    "AppendRequest",
    "ArchiveReceipt",
    "BackendStatus",
    "BatchJobsState",
    "Change",
    "CitationMode",
    "ContextFile",
    "Deadline",
    "DetachedTasks",
    "DroppedCandidate",
    "EmbeddingStatus",
    "EntryAnswer",
    "EntryHit",
    "EntryQuery",
    "EntrySearch",
    "FieldChecks",
    "FileDeletion",
    "FileLines",
    "FileRange",
    "FileVersion",
    "FilterRequest",
    "FlushDecision",
    "FlushRequest",
    "ForgetReceipt",
    "ForgetRequest",
    "Heartbeat",
    "HistoryPage",
    "HistoryRequest",
    "Hit",
    "InUseCounter",
    "IndexStatus",
    "IndexUpdate",
    "LineDeletion",
    "LineInsertion",
    "ListFilesRequest",
    "ListedFile",
    "MemoryRecallRequest",
    "MissExplanation",
    "MissRequest",
    "MoveRequest",
    "NewContent",
    "PageRequest",
    "Passage",
    "PromptMode",
    "ProviderExecutors",
    "ProviderModel",
    "ProviderProbe",
    "ProviderUsage",
    "QueryEmbedder",
    "ReadRequest",
    "ReaderIndex",
    "ReaderProcesses",
    "RecallAnswer",
    "RecallConfig",
    "RerankPolicy",
    "RerankReport",
    "RerankStatus",
    "RestoreRequest",
    "RetrieverReport",
    "RootStatus",
    "RunCompleted",
    "RunProgress",
    "RunStarted",
    "SearchBackend",
    "SearchMode",
    "SearchRequest",
    "SearchResult",
    "ServiceInfo",
    "SessionAppendRequest",
    "SessionArchiveRequest",
    "SessionContext",
    "SessionContextRequest",
    "SettingsReport",
    "SharedReranking",
    "SharedResources",
    "SyncConfig",
    "SyncEvent",
    "SyncMode",
    "SyncRequest",
    "SyncRun",
    "SyncRunner",
    "SyncTrigger",
    "TextReplacement",
    "ToolSchema",
    "TranscriptReceipt",
    "TurnKind",
    "VectorIdentity",
    "WatchRequest",
    "WatchedRoot",
    "WorkspaceAccess",
    "WriteReceipt",
    "WriteRequest",
    "agent_of_session",
    "citation",
    "read_location",
]
