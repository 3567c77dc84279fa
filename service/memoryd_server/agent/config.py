"""AgentConfig and SyncConfig: the configuration of one agent, filled from the settings by the composition root."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from memoryd_server.model import Degradation, Source
from memoryd_server.providers import BatchPolicy, EmbeddingConfig
from memoryd_server.search import CitationMode, RankingConfig
from memoryd_server.sessions import FlushPolicy, StartupContext
from memoryd_server.sources import GrowthLimits, Roots


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """When an agent's index is synced. Times are in seconds; an interval of 0 is off.

    `growth` defines when a transcript is due; `compaction_forces` is whether a compacted transcript always is.
    """

    on_session_start: bool
    on_search: bool
    watch: bool
    poll: bool
    poll_seconds: float
    debounce_seconds: float
    interval_seconds: float
    reconcile_seconds: float
    files_per_transaction: int
    max_file_bytes: int
    growth: GrowthLimits = field(default_factory=GrowthLimits)
    compaction_forces: bool = True


@dataclass(frozen=True, slots=True)
class RecallConfig:
    """What `Agent.recall` returns.

    The block has at most `max_tokens` estimated tokens, if the request sets no other budget. An answer is relevant if
    its confidence is at least `min_confidence`, or `min_keyword_confidence` if keyword search alone answered. Text of
    other people and programs is only returned if `include_untrusted`. A recall waits `embedding_seconds` for the vector
    of its query.
    """

    max_tokens: int = 1_500
    min_confidence: float = 0.4
    min_keyword_confidence: float = 0.1
    include_untrusted: bool = False
    embedding_seconds: float = 0.15


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """One agent.

    `enabled` is whether there is an index, and so memory search; if not, `disabled_reason` names the setting. Without
    it, the calls that need no index are answered if `memory_enabled`, and no call otherwise.

    `idle_seconds` is the time without a search after which the agent releases memory. `impairments` are settings that
    this version does not implement. `min_score` is None if the settings name none. `plugins` are the frozen
    configurations of plug-ins by name, each of which only its plug-in reads; the one named as `configured_backend` is
    the search backend's. `sessions_folder` is where the gateway writes the agent's transcripts, and `session_database`
    the database that it uses instead; `sources` says whether they are indexed. `searched_sources` are the sources of a
    search that names none; empty for all of `sources`. `read_chars` is the length of the longest text of a read; None
    if only the API limits it. `startup` says which daily notes a session loads, `recall` what is recalled for a turn.
    `edits_enabled` is whether memory files may be edited; the contents that edits replace are kept for
    `history_seconds`, and at most `history_bytes` of them. `documents_driver` is "folder" if the memory files are in
    the workspace, else the kind of database that has them; `documents_location` then names the database, without a
    user and password, and `unread_workspace` is the workspace of the settings, which is not read.
    """

    agent_id: str
    default: bool
    enabled: bool
    memory_enabled: bool
    disabled_reason: str
    roots: Roots
    index_path: Path
    ledger_path: Path
    sessions_folder: Path
    session_database: Path
    sources: tuple[Source, ...]
    cache_enabled: bool
    cache_max_entries: int
    chunk_tokens: int
    chunk_overlap: int
    max_results: int
    min_score: float | None
    citations: CitationMode
    time_zone: str
    flush: FlushPolicy
    sync: SyncConfig
    configured_backend: str
    ranking: RankingConfig
    embedding: EmbeddingConfig
    confirm_above_tokens: int
    vector_enabled: bool
    vector_extension_path: str | None
    vector_memory_bytes: int
    batch: BatchPolicy
    impairments: tuple[Degradation, ...]
    startup: StartupContext = field(default_factory=StartupContext)
    idle_seconds: float = 600.0
    store_driver: str = "sqlite"
    documents_driver: str = "folder"
    documents_location: str = ""
    unread_workspace: str = ""
    searched_sources: tuple[Source, ...] = ()
    read_chars: int | None = None
    edits_enabled: bool = False
    history_seconds: float = 30 * 86_400.0
    history_bytes: int = 256 * 2**20
    recall: RecallConfig = field(default_factory=RecallConfig)
    plugins: Mapping[str, object] = field(default_factory=dict)

    @property
    def forgotten_path(self) -> Path:
        """The list of forgotten files and sessions of an agent with memory files in the workspace."""
        return self.ledger_path.with_name(f"{self.agent_id}.forgotten")

    @property
    def history_path(self) -> Path:
        """The history of writes of an agent whose history is not in a database."""
        return self.ledger_path.with_name(f"{self.agent_id}.history.sqlite")

    @property
    def memory_location(self) -> str:
        """Where the memory files are: the workspace, or a database."""
        return self.documents_location or self.roots.workspace

    @property
    def has_replicas(self) -> bool:
        """Whether other daemons may change the index too."""
        return self.store_driver != "sqlite"

    @property
    def backend(self) -> object | None:
        """The configuration of the search backend; None if the builtin search answers."""
        return self.plugins.get(self.configured_backend)

    def with_providers_of(self, other: "AgentConfig") -> "AgentConfig":
        """Return this configuration with the embedding of `other`, and with its plug-ins except the backend."""
        plugins = {name: plugin for name, plugin in other.plugins.items() if name != other.configured_backend}
        if self.backend is not None:
            plugins[self.configured_backend] = self.backend
        return replace(self, embedding=other.embedding, plugins=plugins)

    def can_become(self, other: "AgentConfig") -> bool:
        """Return whether an open agent with this configuration can continue with `other`, without being reopened."""
        sync = replace(
            other.sync,
            files_per_transaction=self.sync.files_per_transaction,
            max_file_bytes=self.sync.max_file_bytes,
            growth=self.sync.growth,
        )
        taken_over = {name: getattr(other, name) for name in _TAKEN_OVER}
        return self.backend == other.backend and replace(self, sync=sync, **taken_over) == other


# Read by each call, so that a change needs no reopening.
_TAKEN_OVER = (
    "default",
    "max_results",
    "min_score",
    "searched_sources",
    "read_chars",
    "edits_enabled",
    "citations",
    "time_zone",
    "flush",
    "startup",
    "ranking",
    "recall",
    "impairments",
    "idle_seconds",
    "plugins",
)
