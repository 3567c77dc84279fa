"""AgentIndex: the index of one agent, and everything that keeps it current.

That is the store with its cache of embeddings, the thread that writes them, the sync runs and the background work that
starts them, the repair of damage, and the release of memory while the agent is idle. `Agent` is the other half: the
use cases. Methods belong to the event loop's thread unless they say "Blocks"; those belong to any other thread.
"""

import asyncio
import math
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import ParamSpec, TypeVar

from memoryd_server.agent.background import BackgroundSync, make_watcher
from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.coordinator import AfterSync, SyncCoordinator, SyncRunner
from memoryd_server.agent.embedding import AgentEmbedding
from memoryd_server.agent.impairments import DamageRecovery, built_otherwise, freshness, unwatched
from memoryd_server.agent.lifecycle import in_database
from memoryd_server.agent.reloader import IndexReloader
from memoryd_server.agent.state import IndexMonitor
from memoryd_server.agent.sync_run import SyncRun, SyncTrigger, VectorReport
from memoryd_server.agent.threads import AgentDocuments, SharedResources
from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.chunk import CHUNKER_VERSION
from memoryd_server.errors import IndexBusy, IndexDamaged, IndexReadOnly, MemorydError
from memoryd_server.model import Clock, Degradation, DegradationKind
from memoryd_server.providers import EmbeddingProvider, ProviderSelection
from memoryd_server.sources import ForgottenSources, GrowthRule, WatchedRoot
from memoryd_server.store import BuildIdentity, Difference, IndexCounts, VectorCache
from memoryd_server.sync import DiskComparison, FilePreparer, PendingScope, SyncEngine, SyncPlanner
from memoryd_server.text import QueryTerm
from memoryd_server.threads import SerialExecutor

_P = ParamSpec("_P")
_T = TypeVar("_T")

# A word that the index may or may not hold: what counts is that a real search answers.
_PROBE = QueryTerm("memoryd")


FIRST_SYNC_DELAY_SECONDS = 0.5
"""How long after the opening for a call the first sync starts, if no search has started one before."""

OWN_EVENT_SECONDS = 2.0
"""How long after a write of an agent file events may be those of the write. The events themselves arrive earlier."""


async def run_on(threads: Executor, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return the result of `work`, called on one of `threads`."""
    return await asyncio.get_running_loop().run_in_executor(threads, partial(work, *args, **kwargs))


@dataclass(frozen=True, slots=True)
class DiskSizes:
    """Bytes of the index, of its transaction log, and of the cache of embeddings with its own log."""

    database_bytes: int
    log_bytes: int
    cache_bytes: int


class AgentIndex:
    """One agent's index from `open` to `close`.

    `quick` and `slow` are the agent's shares of the shared threads: for searches and reads, and for walks over the
    disk; `standby_threads` are those of `standby`. `documents` are what is indexed. `recover` is called on the writer
    thread each time the index is opened. `on_sync_end(agent_id, run)` is called after each run.
    """

    def __init__(
        self,
        config: AgentConfig,
        selection: ProviderSelection,
        threads: SharedResources,
        clock: Clock,
        *,
        documents: AgentDocuments,
        recover: Callable[[], None],
        on_sync_end: Callable[[str, SyncRun], None],
    ) -> None:
        self.config = config
        self._threads = threads
        self._clock = clock
        self._documents = documents
        self._recover = recover
        self.quick, self.slow = threads.quick.share(), threads.slow.share()
        self.standby_threads = threads.standby.share()
        self.writer_thread = SerialExecutor(f"writer-{config.agent_id}")
        identity = BuildIdentity(str(CHUNKER_VERSION), config.chunk_tokens, config.chunk_overlap)
        self._storage = threads.make_storage(config, identity)
        self.store, self.standby, self.readers = self._storage.store, self._storage.standby, self._storage.readers
        self.cache: VectorCache | None = None
        self.embedding = AgentEmbedding(
            config,
            selection,
            self.store,
            lambda: self.cache,
            threads.embed,
            on_mismatch=self._sync_for_search,
            now_ms=lambda: clock.now_ns() // 1_000_000,
        )
        self.forgotten = ForgottenSources(documents.forgotten)
        self.monitor = IndexMonitor()
        scope = PendingScope()
        self.runner: SyncRunner = SyncEngine(
            self.store,
            SyncPlanner(
                documents.corpus, scope, GrowthRule(config.sync.growth, clock.now_ns), self.forgotten.has_session
            ),
            FilePreparer(
                threads.analyzer,
                identity,
                config.sync.max_file_bytes,
                clock.now_ns,
                self.forgotten,
                read=documents.corpus.read,
                open_transcript=documents.corpus.open_transcript,
            ),
            files_per_transaction=config.sync.files_per_transaction,
            clock=clock,
            failover=self.embedding.failover,
            keep_vectors=selection.blocked,
            # Another replica may have forgotten a file since.
            before_run=self.forgotten.load if config.has_replicas else None,
        )
        self.coordinator = SyncCoordinator(
            self.runner,
            self.monitor,
            self.writer_thread,
            clock=clock,
            new_id=lambda: uuid.uuid4().hex,
            on_end=lambda run: on_sync_end(config.agent_id, run),
            scope=scope,
            vectors=self._vector_report,
            tasks=BackgroundTasks(threads.failures, config.agent_id),
        )
        self._background: BackgroundSync | None = None
        self._starts_syncs = self._requested = True
        self._recovery: DamageRecovery | None = None
        self._reloader: IndexReloader | None = None
        self._searched_at = self._written_at = -math.inf
        self._released_after: float | None = None

    def attach(self, after_sync: AfterSync, runner: SyncRunner | None) -> None:
        """Call `after_sync` after each run, and let `runner`, if it is not None, do the runs' work; before `open`."""
        self.runner = runner or self.runner
        # Another runner keeps no index of memoryd's own.
        self.embedding.wanted = runner is None
        self.coordinator.attach(after_sync, runner)

    def reserve(self) -> None:
        """Take the index's lock ahead of `open`, so that no other process takes it before. Blocks.

        Raises:
            IndexBusy: another process holds it.
        """
        self.store.reserve()

    def release(self) -> None:
        """Release the lock that `reserve` took, if no `open` follows. Blocks."""
        self.store.close()

    async def open(self, *, background: bool, requested: bool, answers_first: bool = False) -> None:
        """Open the index and, if `background`, start watching and a first sync.

        An index that no caller has `requested` releases its memory after this sync. If it `answers_first`, the sync
        starts later, so that it does not delay the call for which the index is opened.

        Raises:
            IndexBusy, IndexTooNew, IndexUnavailable: the index cannot be opened.
        """
        if self.config.has_replicas:
            self._reloader = self._new_reloader()
        try:
            await self.run_on_writer(self._open)
            await self._load_state()
        except BaseException:
            await self.run_on_writer(self._close)
            self.writer_thread.shutdown(wait=False)
            raise
        self._starts_syncs, self._requested = background, requested
        self._background = self._new_background(FIRST_SYNC_DELAY_SECONDS if answers_first else 0.0)
        self._recovery = DamageRecovery(self.store.health, self.monitor, lambda: self.sync_soon(SyncTrigger.RECONCILE))
        if self._reloader is not None:
            self._reloader.start()
        if background:
            await self._background.start()

    def _new_reloader(self) -> IndexReloader:
        tasks = BackgroundTasks(self._threads.failures, self.config.agent_id)
        return IndexReloader(self._reload, self._sync_reported, self.monitor, turns=self._threads.reloads, tasks=tasks)

    def _open(self) -> None:
        if self._reloader is not None:
            # Before the index is read, so that no change is missed.
            self.store.watch(self._reloader.note_change)
        self.store.open()
        self.cache = self._storage.open_cache(lambda: self._clock.now_ns() // 1_000_000)
        self._recover()
        self.forgotten.load()

    async def _load_state(self) -> None:
        for _ in range(2):
            try:
                counts = await run_on(self.quick, self._counts)
                await run_on(self.slow, self.embedding.load_state)
            except IndexDamaged:
                await self.run_on_writer(self.store.repair)
                continue
            self._record(counts)
            return
        raise IndexDamaged(f"the index {self.location} is damaged, and so is the one that was created in its place")

    async def _reload(self) -> None:
        """Load again what another replica may have changed."""
        self._record(await run_on(self.quick, self._reloaded_counts))

    def _reloaded_counts(self) -> IndexCounts:
        self.store.reload()
        self.forgotten.load()
        return self._counts()

    def _record(self, counts: IndexCounts) -> None:
        whole = self.store.has_completed_sync
        self.monitor.record_counts(counts.revision, files=counts.files, chunks=counts.chunks, whole=whole)

    async def _sync_reported(self, index_changed: bool) -> None:
        # The changes of a folder are reported by its watcher.
        if self._background is not None and self._starts_syncs and in_database(self.config):
            await self._background.sync_reported(index_changed=index_changed)

    async def reached_within(self, seconds: float, revision: int) -> None:
        """Return when the index has reached `revision`.

        Raises:
            RevisionNotReached: it has not within `seconds`.
            MemorydError: it has not, and the index cannot be read.
        """
        await (self._reloader or self.monitor).reached_within(seconds, revision)

    def _new_background(self, first_delay_seconds: float = 0.0) -> BackgroundSync:
        sync, corpus = self.config.sync, self._documents.corpus
        if not corpus.watches:
            sync = replace(sync, watch=False)
        return BackgroundSync(
            sync,
            self.runner,
            self.coordinator,
            self.monitor,
            make_watcher=partial(make_watcher, sync, corpus, self._threads.native.open),
            threads=self.slow,
            clean_up=self.clean_up,
            first_turns=self._threads.first_syncs,
            idle_at_first=not self._requested,
            first_delay_seconds=first_delay_seconds,
            tasks=BackgroundTasks(self._threads.failures, self.config.agent_id),
            database=corpus.database,
        )

    async def change_config(self, config: AgentConfig) -> None:
        """Continue with a configuration that the present one `can_become`; runs under way continue."""
        before, self.config = self.config, config
        if self._background is not None and config.sync != before.sync:
            await self._background.stop()
            self._background = self._new_background()
            if self._starts_syncs:
                await self._background.start()

    async def close(self, purge_until: float = -math.inf) -> None:
        """Stop watching, end the run under way at a file boundary, and close the index.

        Before that, overwrite deleted text on the disk until `purge_until` (the clock's monotonic seconds); what is
        left is overwritten after the next start.
        """
        if self._reloader is not None:
            await self._reloader.stop()
        if self._background is not None:
            await self._background.stop()
        await self.coordinator.stop()
        await self.run_on_writer(partial(self._close, purge_until))
        self.writer_thread.shutdown(wait=False)

    def _close(self, purge_until: float = -math.inf) -> None:
        if self.cache is not None:
            self.embedding.usage.save()
            self.cache.close()
        # An index that is damaged or not open has nothing to overwrite now; another replica overwrites its own text.
        with suppress(MemorydError):
            if self._clock.monotonic() < purge_until and self.store.has_deleted_text:
                with self.store.exclusive(lambda: True):
                    self.store.purge(lambda: self._clock.monotonic() >= purge_until)
        self.store.close()

    async def run_on_writer(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, called on the writer thread, between two passes of a sync."""
        return await run_on(self.writer_thread, work)

    @property
    def is_open(self) -> bool:
        """Whether the index is open."""
        return self._background is not None

    @property
    def location(self) -> str:
        """Where the index is: a path, or a database."""
        return self.store.location

    def sync_soon(self, trigger: SyncTrigger) -> None:
        """Start a sync, unless one is under way or has just failed; do not wait for it."""
        if self._background is not None:
            self._background.sync_soon(trigger)

    def note_transcripts(self) -> None:
        """Record that a call appended to a transcript, as an event of a file would; a sync starts when it is due."""
        if self._background is not None and self._starts_syncs:
            self._background.note_transcripts()

    def sync_vectors(self, provider: EmbeddingProvider) -> None:
        """Make the missing vectors, if this provider makes them and was not available before; do not wait for it."""
        if self._background is None or not self._starts_syncs or not self.embedding.may_use(provider):
            return
        embedder = self.embedding.embedder
        if embedder is not None and self.coordinator.active is None:
            # Why the last sync could make no vectors does not apply any more.
            embedder.record_pending(embedder.state.pending)
        self._background.sync_in_turn(SyncTrigger.RECONCILE)

    def _sync_for_search(self) -> None:
        if self.config.sync.on_search:
            self.sync_soon(SyncTrigger.SEARCH)

    def record_search(self) -> None:
        """Record that the index is in use."""
        self._searched_at = self._clock.monotonic()

    async def index_written(self, deadline: float, *paths: str) -> int | None:
        """Index memory files that a call of this agent wrote, moved or deleted; see `SyncCoordinator.index_files`."""
        try:
            return await self.coordinator.index_files(SyncTrigger.APPEND, deadline, *paths)
        finally:
            self._written_at = self._clock.monotonic()

    def record_answer(self, *, stale: bool) -> None:
        """Record whether a search found changed files, and start a sync if the index is outdated."""
        if stale:
            self.monitor.update(dirty=True)
        # Hidden files make every answer stale, and no sync can change that.
        if not self.monitor.current.dirty or self.runner.last_comparison.hidden:
            return
        if stale or not self._is_dirty_by_own_write():
            self._sync_for_search()

    def _is_dirty_by_own_write(self) -> bool:
        """Return whether the file events that made the index dirty may be those of an indexed write of this agent.

        The sync that follows the events looks at all files. An earlier one would only delay the next write.
        """
        is_recent = self._clock.monotonic() - self._written_at < OWN_EVENT_SECONDS
        return is_recent and self._background is not None and self._background.awaits_events

    async def read(self, call: Callable[[], Awaitable[_T]], deadline: float | None = None) -> _T:
        """Return the result of `call`; if it finds the index damaged, call it again after the repair.

        Raises:
            IndexDamaged: the repair was not done by `deadline` (`time.monotonic()` seconds), or within two seconds.
        """
        return await (call() if self._recovery is None else self._recovery.read(call, deadline))

    async def compare(self) -> DiskComparison:
        """Return the differences between disk and index."""
        return await self.read(lambda: run_on(self.slow, self.runner.compare))

    async def keyword_error(self) -> str:
        """Return why a search would fail now; empty if it would not."""
        return await run_on(self.quick, self.probe_keyword_search)

    def probe_keyword_search(self) -> str:
        """Return why keyword search fails; empty if it answers. Runs a search as callers do. Blocks."""
        try:
            with self.store.read() as reader:
                # Not a search for hits, which the scores in memory would answer.
                reader.keyword_scores([_PROBE], [1])
        except MemorydError as error:
            return error.message
        return ""

    @property
    def is_idle(self) -> bool:
        """Whether no search has used the index for a while, so that no file is open for reading."""
        return self.store.is_idle

    async def clean_up(self) -> None:
        """Between syncs: overwrite deleted text, release the memory of an idle agent, and index many new vectors."""
        await self.run_on_writer(self._purge)
        if self._clock.monotonic() - self._searched_at > self.config.idle_seconds:
            if self._searched_at != self._released_after:
                self._released_after = self._searched_at
                self._threads.freed.note()
            await self.release_memory()
        # Last, and not on the writer thread: it may take minutes, during which files are indexed.
        await run_on(self.slow, self.store.index_vectors)

    async def release_memory(self) -> None:
        """Release what searches hold in memory, and close the files that they read."""
        await self.run_on_writer(self._release_memory)

    def _release_memory(self) -> None:
        self.store.release_memory()
        if self.standby is not None:
            self.standby.release_memory()
        if self.cache is not None:
            self.cache.release_memory()
        self._documents.history.release_memory()

    def _purge(self) -> None:
        self.embedding.usage.save()
        if self.store.has_deleted_text:
            # A replica that is changing the index overwrites the text afterwards.
            with suppress(IndexBusy), self.store.exclusive(lambda: True):
                self.store.purge(lambda: self.coordinator.active is not None)

    def degradations(self, watched: Sequence[WatchedRoot] | None = None) -> tuple[Degradation, ...]:
        """Return each way in which the index is less than what is configured, without I/O.

        `watched` is how each root is watched, if the caller has just found out.
        """
        found = [*self.config.impairments, *self.store.degradations()]
        if differences := self.store.build_differences:
            found.append(built_otherwise(differences, self.runner.rebuild_waits))
        found += self.embedding.degradations()
        error = self.coordinator.last_error
        # The store reports a state directory that cannot be written.
        if error is not None and not isinstance(error, IndexReadOnly):
            found.append(
                Degradation(DegradationKind.INDEX_IMPAIRED, "a completed sync", "the older index", error.message)
            )
        found += [
            Degradation(DegradationKind.SOURCE_SKIPPED, place.place, "", f"{place.place} {place.reason}")
            for place in self.runner.last_comparison.skipped
        ]
        if self._background is not None:
            watcher = self._background.watcher
            if watched is None:
                watched = () if watcher is None else watcher.status()
            hidden, trouble = self.runner.last_comparison.hidden, self._background.trouble
            found += freshness(self.config.sync, watched, hidden, trouble)
        return tuple(found)

    def _vector_report(self) -> VectorReport:
        waits = self.runner.rebuild_waits
        differences = self.store.build_differences
        rebuild = [built_otherwise(differences, waits)] if waits and differences else []
        return self.embedding.report(self.monitor.current.chunks, rebuild)

    def differences(self) -> tuple[Difference, ...]:
        """Return (field, the index's value, the configured value) of each difference between index and settings."""
        return (*self.store.build_differences, *self.embedding.mismatches())

    def remarks(self) -> tuple[Degradation, ...]:
        """Return what an operator should know although no answer is worse for it."""
        problem = None if self.cache is None else self.cache.problem
        remarks = self.store.remarks()
        return remarks if problem is None else (*remarks, problem)

    def watched_roots(self, *, verify: bool = False) -> tuple[WatchedRoot, ...]:
        """Return how each root is watched. `verify` compares that with the disk and blocks."""
        if self._background is None or not self._documents.corpus.watches:
            return ()
        watcher = self._background.watcher
        if watcher is None:
            return unwatched(self._documents.corpus)
        return watcher.verified_status() if verify else watcher.status()

    def measure(self) -> tuple[IndexCounts, DiskSizes]:
        """Return what the index holds, and its bytes on disk. Blocks.

        The counts of an idle index are remembered, so that its files stay closed.

        Raises:
            IndexUnavailable: it cannot be read.
        """
        counts = self.store.last_counts if self.is_idle else None
        if counts is None or counts.revision != self.monitor.current.revision:
            counts = self._counts()
        sizes = self.store.sizes()
        return counts, DiskSizes(sizes.database_bytes, sizes.log_bytes, self._storage.cache_bytes())

    def _counts(self) -> IndexCounts:
        with self.store.read() as reader:
            return reader.counts()
