"""AgentStatus: disk, index, provider, degradations.

How an agent's memory is doing, computed from the disk and the index at the moment of asking.

What an agent's files take up on the disk.

What keeps an agent's index from following its files and settings, in words for whoever asks how it is doing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from memoryd_server.agent.config import SyncConfig
from memoryd_server.agent.coordinator import SyncRunner
from memoryd_server.agent.embedding import AgentEmbedding, VectorUse
from memoryd_server.errors import MemorydError
from memoryd_server.model import Degradation, DegradationKind, FileFailure, Source
from memoryd_server.sources import SESSIONS_FOLDER, Corpus, WatchedRoot, WatcherMode
from memoryd_server.store import Difference, FileRow, IndexCounts, Store, StoreSizes, VectorCache
from memoryd_server.sync import DiskComparison, HiddenFiles
from memoryd_server.text import QueryTerm

# A word that the index may or may not hold: what counts is that a real search answers.
_PROBE = QueryTerm("memoryd")


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """One source, on disk and in the index."""

    source: Source
    files_on_disk: int
    files_indexed: int
    chunks: int
    files_failed: int


def keyword_error(store: Store) -> str:
    """Why the keyword leg does not answer, found out by a search as every caller's runs; empty when it does."""
    try:
        with store.read() as reader:
            # With sources named: the scores that are kept in memory would answer a question about all of them.
            reader.keyword_hits([_PROBE], tuple(Source), 1)
    except MemorydError as error:
        return error.message
    return ""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The index against the disk. Ages in seconds; `last_sync_ms` is Unix time, None before the first sync."""

    counts: IndexCounts
    size_bytes: int
    last_sync_ms: int | None
    sources: tuple[SourceCounts, ...]
    dirty: bool
    pending_files: int
    oldest_unindexed_age_seconds: float | None
    watched_roots: tuple[WatchedRoot, ...]
    issues: tuple[str, ...]
    failed_files: tuple[FileFailure, ...]
    cached_embeddings: int
    keyword_error: str
    vectors: VectorUse
    schema_version: int


def report(
    store: Store,
    engine: SyncRunner,
    cache: VectorCache | None,
    vectors: AgentEmbedding,
    *,
    sources: Sequence[Source],
    now_ns: int,
    append_issues: tuple[str, ...],
    watched_roots: Callable[[], tuple[WatchedRoot, ...]],
) -> IndexReport:
    """Walks the roots, reads the index and searches it once. Blocks; some 100 ms at 10,000 files.

    `watched_roots` is asked here, as it looks at the disk too.

    Raises:
        IndexUnavailable: the index cannot be read.
    """
    disk = engine.compare()
    with store.read() as reader:
        counts = reader.counts()
        last_sync = reader.last_sync_ms()
    failed = tuple(_failures(disk))
    by_source = tuple(_source_counts(source, disk, failed) for source in sources)
    # Where memoryd keeps no index of its own, the store is empty, and only the engine knows what is indexed.
    files = counts.files or sum(each.files_indexed for each in by_source)
    sizes = store.sizes()
    return IndexReport(
        counts=replace(counts, files=files),
        size_bytes=sizes.database_bytes + sizes.log_bytes,
        last_sync_ms=last_sync,
        sources=by_source,
        dirty=disk.plan.pending > 0,
        pending_files=disk.plan.pending,
        oldest_unindexed_age_seconds=_oldest_age(disk, now_ns, last_sync_ns=(last_sync or 0) * 1_000_000),
        watched_roots=watched_roots(),
        issues=(*disk.discovery.issues, *append_issues),
        failed_files=failed,
        cached_embeddings=0 if cache is None else cache.count(),
        keyword_error=keyword_error(store),
        vectors=vectors.measure(),
        schema_version=store.schema_version,
    )


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


def _oldest_age(disk: DiskComparison, now_ns: int, *, last_sync_ns: int) -> float | None:
    """How long the longest-waiting file has waited; None when none waits.

    A file counts from its last change, but not from before disk and index last agreed: one that was moved here may be
    old. One that is gone tells no time and counts from that agreement, or from the last sync.
    """
    agreed = disk.agreed_ns or 0
    waiting = [max(file.stat.mtime_ns, file.stat.ctime_ns, agreed) for file in disk.plan.changed]
    if disk.plan.removed or disk.plan.hidden:
        waiting.append(agreed or last_sync_ns)
    return max(0.0, (now_ns - min(waiting)) / 1e9) if waiting else None


@dataclass(frozen=True, slots=True)
class DiskSizes:
    """Bytes of the index, of its write-ahead log, and of the cache of embeddings with its own."""

    database_bytes: int
    wal_bytes: int
    cache_bytes: int


def sizes(index: StoreSizes, cache_bytes: int) -> DiskSizes:
    """Return the sizes in bytes; 0 for a missing file."""
    return DiskSizes(index.database_bytes, index.log_bytes, cache_bytes)


def freshness(
    config: SyncConfig, watched: Sequence[WatchedRoot], hidden: Sequence[HiddenFiles], trouble: str
) -> Iterator[Degradation]:
    """Yields one degradation for each root whose changes are not told, and for each place that hides indexed files.

    `trouble` is why the last reconcile pass failed, empty when it did not. A root that is not there is no watcher's
    fault, and not repeated as one.
    """
    unwanted = (WatcherMode.DEAD,) if config.poll else (WatcherMode.POLLING, WatcherMode.DEAD)
    for root in watched:
        if root.present and root.mode in unwanted:
            wanted = f"native events for {root.root}"
            yield Degradation(DegradationKind.WATCHER_IMPAIRED, wanted, root.mode, root.reason)
    for place in hidden:
        reason = (
            f"{place.place} {place.reason}; the index keeps its {place.files} files, and they are found again when it "
            "is back. If they are gone for good, memoryd index --force forgets them"
        )
        yield Degradation(DegradationKind.SOURCE_SKIPPED, place.place, "", reason)
    if trouble:
        reason = f"the last reconcile pass failed ({trouble}); the next one tries again"
        yield Degradation(DegradationKind.WATCHER_IMPAIRED, "a reconcile pass", "file events alone", reason)


def built_otherwise(differences: Sequence[Difference], waits: str) -> list[Degradation]:
    """One degradation where an index was built with other settings; `waits` is why its rebuild does, if it does."""
    if not differences:
        return []
    told = "; ".join(f"{field} was {old}, is {new}" for field, old, new in differences)
    reason = f"the index was built with other settings ({told}): {waits or 'a sync rebuilds it'}"
    return [Degradation(DegradationKind.IDENTITY_MISMATCH, "chunks of the settings", "the older chunks", reason)]


def unwatched(corpus: Corpus) -> tuple[WatchedRoot, ...]:
    """Returns the roots where nothing is to be watched."""
    reason = "watching is switched off in the settings"
    roots = corpus.roots
    displays = [roots.display(folder) for folder in (roots.base(), *roots.extras())]
    displays += [SESSIONS_FOLDER] if corpus.sessions else []
    return tuple(WatchedRoot(display, WatcherMode.OFF, reason) for display in displays)


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """How the settings in force came about.

    `load_time_ns` is when they were read (Unix time), `loads` how often settings were read since the start. `error`
    says why the last reload was refused or what of it failed, `changed` which keys it brought into force, and
    `awaiting_restart` those that differ on disk and could not be.
    """

    load_time_ns: int
    loads: int = 1
    error: str = ""
    changed: tuple[str, ...] = ()
    awaiting_restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """The daemon itself. `start_time_ns` is Unix time; `warnings` are about the settings and the files they name."""

    start_time_ns: int
    warnings: Callable[[], tuple[str, ...]]
    settings: Callable[[], SettingsReport]
