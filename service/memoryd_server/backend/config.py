"""What one agent's memory is made with. The composition root fills it from the settings."""

from dataclasses import dataclass, replace
from pathlib import Path

from memoryd_server.backend.qmd.config import QmdConfig
from memoryd_server.embed import EmbeddingConfig
from memoryd_server.flush import FlushPolicy
from memoryd_server.model import Degradation
from memoryd_server.search.config import RankingConfig
from memoryd_server.search.query import CitationMode
from memoryd_server.sources import Roots


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """When an agent's index is brought up to date. Times in seconds; an interval of 0 is off."""

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


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """One agent.

    `impairments` are what the settings ask for and this version does not do. `qmd` is there where it is to answer.
    `sessions_folder` is where the gateway writes the agent's transcripts, whether or not they are indexed.
    """

    agent_id: str
    default: bool
    enabled: bool
    disabled_reason: str
    roots: Roots
    index_path: Path
    ledger_path: Path
    sessions_folder: Path
    cache_enabled: bool
    cache_max_entries: int
    chunk_tokens: int
    chunk_overlap: int
    max_results: int
    min_score: float
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
    batch_enabled: bool
    impairments: tuple[Degradation, ...]
    qmd: QmdConfig | None = None

    def can_become(self, other: "AgentConfig") -> bool:
        """Whether a memory opened with this can go on with `other`: neither index nor provider is concerned."""
        sync = replace(
            other.sync,
            files_per_transaction=self.sync.files_per_transaction,
            max_file_bytes=self.sync.max_file_bytes,
        )
        return replace(self, sync=sync, **{name: getattr(other, name) for name in _TAKEN_OVER}) == other


# What is looked up anew by each call.
_TAKEN_OVER = (
    "default",
    "max_results",
    "min_score",
    "citations",
    "time_zone",
    "flush",
    "ranking",
    "batch_enabled",
    "impairments",
)
