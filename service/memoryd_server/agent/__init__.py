"""The application: one Agent, every edge calls it."""

from memoryd_server.agent.agent import Agent
from memoryd_server.agent.agents import Agents
from memoryd_server.agent.config import AgentConfig, SyncConfig
from memoryd_server.agent.coordinator import SyncRunner
from memoryd_server.agent.embedding import AgentEmbedding, ProviderProbe, QueryEmbedder, VectorUse
from memoryd_server.agent.files import FileRange, ListedFile, read_location
from memoryd_server.agent.forget import ForgetReceipt, ForgetRequest
from memoryd_server.agent.lifecycle import DetachedTasks, InUseCounter
from memoryd_server.agent.requests import (
    DEFAULT_LINES,
    DEFAULT_MESSAGES,
    DEFAULT_PAGE,
    DEFAULT_SNIPPET_CHARS,
    MOST_APPEND_BYTES,
    MOST_HEADING_CHARS,
    MOST_KEY_BYTES,
    MOST_LINES,
    MOST_MESSAGES,
    MOST_NAME_BYTES,
    MOST_PAGE,
    MOST_PATH_BYTES,
    MOST_QUERY_BYTES,
    MOST_RESULTS,
    MOST_SESSION_KEY_BYTES,
    MOST_SLUG_BYTES,
    MOST_SNIPPET_CHARS,
    MOST_TOOLS,
    AppendRequest,
    PageRequest,
    ReadRequest,
    SearchRequest,
    SessionContextRequest,
    SyncRequest,
)
from memoryd_server.agent.search import BackendStatus, SearchBackend
from memoryd_server.agent.state import IndexSnapshot, IndexState
from memoryd_server.agent.status import IndexReport, ServiceInfo, SettingsReport
from memoryd_server.agent.sync_run import (
    Heartbeat,
    RunCompleted,
    RunProgress,
    RunStarted,
    SyncEvent,
    SyncRun,
    SyncTrigger,
)
from memoryd_server.agent.threads import ProviderExecutors, SharedResources

__all__ = [
    "DEFAULT_LINES",
    "DEFAULT_MESSAGES",
    "DEFAULT_PAGE",
    "DEFAULT_SNIPPET_CHARS",
    "MOST_APPEND_BYTES",
    "MOST_HEADING_CHARS",
    "MOST_KEY_BYTES",
    "MOST_LINES",
    "MOST_MESSAGES",
    "MOST_NAME_BYTES",
    "MOST_PAGE",
    "MOST_PATH_BYTES",
    "MOST_QUERY_BYTES",
    "MOST_RESULTS",
    "MOST_SESSION_KEY_BYTES",
    "MOST_SLUG_BYTES",
    "MOST_SNIPPET_CHARS",
    "MOST_TOOLS",
    "Agent",
    "AgentConfig",
    "AgentEmbedding",
    "Agents",
    "AppendRequest",
    "BackendStatus",
    "DetachedTasks",
    "FileRange",
    "ForgetReceipt",
    "ForgetRequest",
    "Heartbeat",
    "InUseCounter",
    "IndexReport",
    "IndexSnapshot",
    "IndexState",
    "ListedFile",
    "PageRequest",
    "ProviderExecutors",
    "ProviderProbe",
    "QueryEmbedder",
    "ReadRequest",
    "RunCompleted",
    "RunProgress",
    "RunStarted",
    "SearchBackend",
    "SearchRequest",
    "ServiceInfo",
    "SessionContextRequest",
    "SettingsReport",
    "SharedResources",
    "SyncConfig",
    "SyncEvent",
    "SyncRequest",
    "SyncRun",
    "SyncRunner",
    "SyncTrigger",
    "VectorUse",
    "read_location",
]
