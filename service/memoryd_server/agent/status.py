"""AgentStatus: how one agent is doing: disk, index, provider and degradations, at the moment of the call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.embedding import EmbeddingStatus
from memoryd_server.agent.index import AgentIndex
from memoryd_server.agent.reranking import RerankStatus
from memoryd_server.agent.root_status import RootStatus, oldest_age, root_statuses
from memoryd_server.agent.search import BackendStatus
from memoryd_server.agent.state import IndexState
from memoryd_server.agent.sync_run import ActiveSync
from memoryd_server.embedding import BYTES_A_TOKEN, BatchJobsState
from memoryd_server.model import Degradation, DegradationKind, FileFailure, Source
from memoryd_server.providers import ProviderProbe
from memoryd_server.sources import WatchedRoot
from memoryd_server.store import BuildIdentity, Difference, FileRow, IndexCounts
from memoryd_server.sync import DiskComparison


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """One source, on disk and in the index."""

    source: Source
    files_on_disk: int
    files_indexed: int
    chunks: int
    files_failed: int


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The index compared with the disk.

    Ages are in seconds; `last_sync_ms` is Unix time, None before the first sync. `built_with` is how the index was
    chunked, None if it does not say. `differences` are (field, the index's value, the configured value).
    `pending_embeddings` is how many chunks have no usable vector. `keyword_error` is why keyword search fails.
    `mean_chunk_tokens` is an estimate, 0 without chunks. `roots` are in the order of discovery.
    """

    location: str
    schema_version: int
    state: IndexState
    counts: IndexCounts
    size_bytes: int
    last_sync_ms: int | None
    sources: tuple[SourceCounts, ...]
    dirty: bool
    pending_files: int
    oldest_unindexed_age_seconds: float | None
    failed_files: tuple[FileFailure, ...]
    issues: tuple[str, ...]
    built_with: BuildIdentity | None
    differences: tuple[Difference, ...]
    pending_embeddings: int
    keyword_error: str
    cached_embeddings: int
    mean_chunk_tokens: int = 0
    roots: tuple[RootStatus, ...] = ()


# The transcripts that an issue about several of them names.
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One agent. `degradations` are those of its backend and of its index. `probe` is None if none was requested.

    `reranker` is None if none is configured. Holds no secret.
    """

    config: AgentConfig
    backend: BackendStatus
    degradations: tuple[Degradation, ...]
    index: IndexStatus
    embedding: EmbeddingStatus
    batch_jobs: BatchJobsState
    watched_roots: tuple[WatchedRoot, ...]
    active_sync: ActiveSync | None
    probe: ProviderProbe | None = None
    reranker: RerankStatus | None = None


def make_status(index: AgentIndex, backend: BackendStatus, append_issues: Sequence[str], now_ns: int) -> AgentStatus:
    """Walk the roots, read the index and search it once. Blocks; about 100 ms at 10,000 files.

    Raises:
        IndexUnavailable: the index cannot be read.
    """
    disk = index.runner.compare()
    with index.store.read() as reader:
        counts = reader.counts()
        last_sync_ms = reader.last_sync_ms()
    failed = tuple(_failures(disk))
    sources = tuple(_source_counts(source, disk, failed) for source in index.config.sources)
    # If memoryd keeps no index of its own, the store is empty, and only the runner knows what is indexed.
    counts = replace(counts, files=counts.files or sum(each.files_indexed for each in sources))
    sizes = index.store.sizes()
    dirty = disk.plan.pending > 0
    age_of = partial(oldest_age, disk, now_ns=now_ns, last_sync_ns=(last_sync_ms or 0) * 1_000_000)
    watched = index.watched_roots(verify=True)
    cache, run = index.cache, index.coordinator.active
    keyword_error = index.probe_keyword_search()
    embedding = index.embedding.measure()
    status = IndexStatus(
        location=index.location,
        schema_version=index.store.schema_version,
        state=index.monitor.current.seen(dirty=dirty, files=counts.files).state,
        counts=counts,
        size_bytes=sizes.database_bytes + sizes.log_bytes,
        last_sync_ms=last_sync_ms,
        sources=sources,
        dirty=dirty,
        pending_files=disk.plan.pending,
        oldest_unindexed_age_seconds=age_of(disk.plan.changed, [*disk.plan.removed, *disk.plan.hidden]),
        failed_files=failed,
        issues=(
            *disk.discovery.issues,
            *append_issues,
            *filter(None, [index.forgotten.problem, _skipped_records(disk)]),
        ),
        built_with=index.store.built_with,
        differences=index.differences(),
        pending_embeddings=index.embedding.pending(counts.chunks),
        keyword_error=keyword_error,
        cached_embeddings=0 if cache is None else cache.count(),
        mean_chunk_tokens=_mean_chunk_tokens(disk, index.config.chunk_tokens),
        roots=root_statuses(index.config, disk, failed, age_of),
    )
    return AgentStatus(
        config=index.config,
        backend=backend,
        degradations=(
            *backend.degradations,
            *index.degradations(watched),
            *_without_keyword_search(keyword_error),
            *index.remarks(),
        ),
        index=status,
        embedding=embedding,
        batch_jobs=index.embedding.batches,
        watched_roots=watched,
        active_sync=None if run is None else run.summary(),
    )


def _mean_chunk_tokens(disk: DiskComparison, most: int) -> int:
    """Return the mean size of the memory files' chunks, of which none has more than `most` tokens.

    Transcripts are not counted, because their files are much larger than their text.
    """
    rows = [row for row in disk.rows.values() if row.source is Source.MEMORY and row.chunk_count]
    chunks = sum(row.chunk_count for row in rows)
    size = sum(row.stat.size_bytes for row in rows)
    return min(most, -(-size // (chunks * BYTES_A_TOKEN))) if chunks else 0


def _without_keyword_search(error: str) -> list[Degradation]:
    return [Degradation(DegradationKind.FULLTEXT_MISSING, "keyword search", "", error)] if error else []


def _skipped_records(disk: DiskComparison) -> str:
    """Return how many records of transcripts are not indexed, and of which; empty if there are none."""
    rows = sorted((row for row in disk.rows.values() if row.skipped), key=lambda row: (-row.skipped, row.path))
    if not rows:
        return ""
    named = [f"{row.path} ({row.skipped})" for row in rows[:_MOST_NAMED]]
    others = len(rows) - len(named)
    names = ", ".join([*named, f"{others} others"] if others else named)
    total = sum(row.skipped for row in rows)
    return f"records of transcripts that are damaged or too large and are not indexed: {total}, in {names}"


def _failures(disk: DiskComparison) -> list[FileFailure]:
    rows = [FileFailure(row.path, row.source, row.error) for row in disk.rows.values() if row.error is not None]
    return sorted([*rows, *disk.discovery.failures], key=lambda failure: failure.path)


def _source_counts(source: Source, disk: DiskComparison, failed: Sequence[FileFailure]) -> SourceCounts:
    rows: list[FileRow] = [row for row in disk.rows.values() if row.source is source and row.error is None]
    return SourceCounts(
        source=source,
        files_on_disk=sum(file.source is source for file in disk.discovery.files),
        files_indexed=len(rows),
        chunks=sum(row.chunk_count for row in rows),
        files_failed=sum(failure.source is source for failure in failed),
    )


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """The settings in force.

    `load_time_ns` is when they were read (Unix time), `loads` how often settings were read since the start. `error` is
    why the last reload was refused, or the part of it that failed. `changed` are the keys whose values it changed,
    `awaiting_restart` those that differ on disk and need a restart.
    """

    load_time_ns: int
    loads: int = 1
    error: str = ""
    changed: tuple[str, ...] = ()
    awaiting_restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """The daemon. `start_time_ns` is Unix time; `warnings` concern the settings and the files that they name.

    `background_failures` returns a message for each background task of the daemon and of an agent that fails now.
    """

    start_time_ns: int
    warnings: Callable[[], tuple[str, ...]]
    settings: Callable[[], SettingsReport]
    background_failures: Callable[[str], tuple[str, ...]]
