"""One agent's memory, made from the packages below: one method a use case.

Methods are coroutines on the event loop; files and SQLite are touched on threads only.
"""

import asyncio
import math
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from memoryd_server.agent import search
from memoryd_server.agent.append_queue import AppendQueue
from memoryd_server.agent.background import BackgroundSync, make_watcher
from memoryd_server.agent.config import AgentConfig, SyncConfig
from memoryd_server.agent.coordinator import AfterSync, SyncCoordinator, SyncRunner
from memoryd_server.agent.embedding import AgentEmbedding, ProviderProbe
from memoryd_server.agent.files import FileRange, ListedFile, list_files, look_at, read_range, require_file
from memoryd_server.agent.forget import ForgetJob, ForgetReceipt, ForgetRequest, forget
from memoryd_server.agent.index import DamageRecovery
from memoryd_server.agent.state import IndexMonitor
from memoryd_server.agent.status import (
    DiskSizes,
    IndexReport,
    built_otherwise,
    freshness,
    keyword_error,
    report,
    sizes,
    unwatched,
)
from memoryd_server.agent.sync_run import SyncRun, SyncTrigger, VectorReport
from memoryd_server.agent.threads import SharedResources
from memoryd_server.chunk import CHUNKER_VERSION
from memoryd_server.errors import IndexDamaged, IndexReadOnly
from memoryd_server.model import Clock, Degradation, DegradationKind
from memoryd_server.providers import ProviderSelection
from memoryd_server.search import SearchAnswer, SearchEngine, SearchMode, SearchQuery
from memoryd_server.sessions import ContextFile, SeenSessions, load_context
from memoryd_server.sources import ForgottenSources, GrowthRule, WatchedRoot
from memoryd_server.sqlite import EmbeddingCache, SqliteStore, VectorIndex
from memoryd_server.store import BuildIdentity, Difference, IndexCounts
from memoryd_server.sync import FilePreparer, PendingScope, SyncEngine, SyncMode, SyncPlanner, SyncScope
from memoryd_server.threads import SerialExecutor
from memoryd_server.writing import Appender, Archiver, ArchiveReceipt, ArchiveRequest

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Agent:
    """One enabled agent from `start` to `stop`. `on_sync_end` hears of each run's end, for the log."""

    def __init__(
        self,
        config: AgentConfig,
        selection: ProviderSelection,
        threads: SharedResources,
        clock: Clock,
        on_sync_end: Callable[[str, SyncRun], None],
    ) -> None:
        identity = BuildIdentity(str(CHUNKER_VERSION), config.chunk_tokens, config.chunk_overlap)
        leg = VectorIndex(
            sqlite_vec=config.vector_enabled,
            extension_path=config.vector_extension_path,
            memory_budget_bytes=config.vector_memory_bytes,
        )
        self._store = SqliteStore(config.index_path, identity, leg)
        self.vectors = AgentEmbedding(
            config,
            selection,
            self._store,
            lambda: self._cache,
            threads.embed,
            on_mismatch=self._vectors_outdated,
            now_ms=lambda: clock.now_ns() // 1_000_000,
        )
        self.config = config
        self.board = IndexMonitor()
        self._quick, self._slow = threads.quick.share(), threads.slow.share()
        self._threads = threads
        self._clock = clock
        self._analyzer = threads.analyzer
        self._writer_thread = SerialExecutor(f"writer-{config.agent_id}")
        self.forgotten = ForgottenSources(config.ledger_path.with_name(f"{config.agent_id}.forgotten"))
        preparer = FilePreparer(self._analyzer, identity, config.sync.max_file_bytes, clock.now_ns, self.forgotten)
        asks = PendingScope()
        self._engine: SyncRunner = SyncEngine(
            self._store,
            SyncPlanner(config.corpus, asks, GrowthRule(config.sync.growth, clock.now_ns), self.forgotten.has_session),
            preparer,
            files_per_transaction=config.sync.files_per_transaction,
            clock=clock,
            failover=self.vectors.lineup,
            keep_vectors=selection.blocked,
        )
        self._search = SearchEngine(
            self._store,
            self._analyzer,
            lambda rows: look_at(self.config.corpus, rows),
            sources=config.sources,
            ranking=config.ranking,
        )
        self._appender = Appender(config.roots, str(config.ledger_path))
        self.appends = AppendQueue(self._appender, SerialExecutor(f"append-{config.agent_id}"), clock.monotonic)
        # Its own, because a disk that hangs during a write can hold it for ever.
        self._archive_thread = SerialExecutor(f"archive-{config.agent_id}")
        self._archiver = Archiver(config.agent_id)
        self._cache: EmbeddingCache | None = None
        self._forget = ForgetJob(self._store, self.forgotten, lambda: self.config, lambda: self._cache, clock.now_ns)
        self.session_starts = SeenSessions()
        self.coordinator = SyncCoordinator(
            self._engine,
            self.board,
            self._writer_thread,
            clock=clock,
            new_id=lambda: uuid.uuid4().hex,
            on_end=lambda run: on_sync_end(config.agent_id, run),
            asks=asks,
            vectors=self._vector_report,
        )
        self._background: BackgroundSync | None = None
        self._at_work = self._asked = True
        self._mending: DamageRecovery | None = None
        self._searched_at = -math.inf
        self._rested_after: float | None = None

    def accompany(self, after_sync: AfterSync, engine: SyncRunner | None = None) -> None:
        """Lets `after_sync` follow each run, and `engine`, if there is one, do the runs' work; before `start`."""
        self._engine = engine or self._engine
        # Such an engine keeps no index of memoryd's own.
        self.vectors.wanted = engine is None
        self.coordinator.accompany(after_sync, engine)

    def reserve(self) -> None:
        """Takes the index's lock ahead of `start`, so that no other process does meanwhile. Blocks.

        Raises:
            IndexBusy: another process holds it.
        """
        self._store.reserve()

    def release(self) -> None:
        """Gives up what `reserve` took, where no `start` follows."""
        self._store.close()

    async def start(self, *, background: bool = True, asked: bool = True) -> None:
        """Opens the index and, unless told otherwise, starts watching and a first sync.

        One that nobody has `asked` for gives back what it holds after that sync.

        Raises:
            IndexBusy, IndexTooNew, IndexUnavailable: the index cannot be opened.
        """
        try:
            await self._on_writer_thread(self._open)
            await self._first_look()
        except BaseException:
            await self._on_writer_thread(self._close)
            self._writer_thread.shutdown(wait=False)
            raise
        self._at_work, self._asked = background, asked
        self._background = self._new_background(self.config.sync)
        self._mending = DamageRecovery(self._store.health, self.board, lambda: self._sync_soon(SyncTrigger.RECONCILE))
        if self._at_work:
            await self._background.start()

    def _new_background(self, sync: SyncConfig) -> BackgroundSync:
        return BackgroundSync(
            sync,
            self._engine,
            self.coordinator,
            self.board,
            make_watcher=partial(make_watcher, sync, self.config.corpus, self._threads.native.open),
            threads=self._slow,
            tidy=self._tidy,
            first_turns=self._threads.first_syncs,
            rests_at_first=not self._asked,
        )

    async def adopt(self, config: AgentConfig) -> None:
        """Goes on with a configuration that the present one `can_become`; runs and searches under way go on."""
        before, self.config = self.config, config
        self._search.set_ranking(config.ranking)
        if self._background is not None and config.sync != before.sync:
            await self._background.stop()
            self._background = self._new_background(config.sync)
            if self._at_work:
                await self._background.start()

    async def _first_look(self) -> None:
        for _ in range(2):
            try:
                await self._note_counts()
                return await self._on(self._slow, self.vectors.look)
            except IndexDamaged:
                await self._on_writer_thread(self._store.repair)
        raise IndexDamaged(f"the index {self.index_path} is damaged, and so is the one that was begun in its place")

    async def _tidy(self) -> None:
        """Between syncs: makes deleted words vanish from the disk, and gives back what an idle agent holds."""
        await self._on_writer_thread(self._purge)
        if self._clock.monotonic() - self._searched_at > self.config.idle_seconds:
            if self._searched_at != self._rested_after:
                self._rested_after = self._searched_at
                self._threads.freed.note()
            await self._on_writer_thread(self._rest)

    def _rest(self) -> None:
        self._store.release_memory()
        if self._cache is not None:
            self._cache.release_memory()

    @property
    def at_rest(self) -> bool:
        """Whether nobody has asked for a while, so that nothing is held open to read from."""
        return self._store.is_idle

    def _purge(self) -> None:
        self.vectors.usage.save()
        if self._store.has_deleted_text:
            self._store.purge(lambda: self.coordinator.active is not None)

    def _open(self) -> None:
        self._store.open()
        enabled = self.config.cache_enabled
        # Switched off, it holds no vectors, and remembers what was refused until the daemon's end.
        self._cache = EmbeddingCache(
            self._cache_path if enabled else None,
            self.config.cache_max_entries if enabled else 0,
            lambda: self._clock.now_ns() // 1_000_000,
            self._store.journal,
        )
        self._appender.recover()
        self.forgotten.load()

    @property
    def _cache_path(self) -> Path:
        return self._store.path.with_name(self._store.path.name.removesuffix(".sqlite") + ".embeddings.sqlite")

    async def stop(self) -> None:
        """Stops watching, ends the run under way at a file boundary, and closes the index."""
        self.appends.stop()
        self._archive_thread.shutdown(wait=False)
        if self._background is not None:
            await self._background.stop()
        await self.coordinator.stop()
        await self._on_writer_thread(self._close)
        self._writer_thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._cache is not None:
            self.vectors.usage.save()
            self._cache.close()
        self._store.close()

    async def search(self, query: SearchQuery, *, session_key: str, min_revision: int | None) -> SearchAnswer:
        """Answers a question; never waits for a sync unless `min_revision` says so.

        A question without a mode is a hybrid one where a provider is configured, so that an answer by keywords alone
        names the degradation.

        Raises:
            RevisionNotReached: the deadline came before that revision.
        """
        await self.reach(session_key, min_revision, query.deadline)
        self._searched_at = self._clock.monotonic()
        if query.mode is SearchMode.UNSPECIFIED and self.vectors.is_configured:
            query = replace(query, mode=SearchMode.HYBRID)
        answer = await search.search(
            query,
            store=self._store,
            engine=self._search,
            vectors=self.vectors,
            threads=self._quick,
            reading=self._reading,
        )
        if answer.stale:
            self.board.update(dirty=True)
        # What is hidden looks stale to every search, and no sync can change that.
        if self.config.sync.on_search and self.board.current.dirty and not self._engine.last_comparison.hidden:
            self._sync_soon(SyncTrigger.SEARCH)
        return answer

    async def reach(self, session_key: str, min_revision: int | None, deadline: float) -> None:
        """What precedes a search whoever answers it: notes a session's start, and waits for a revision.

        Raises:
            RevisionNotReached: the deadline came before that revision.
        """
        if self.config.sync.on_session_start and self.session_starts.is_first(session_key):
            self._sync_soon(SyncTrigger.SESSION_START)
        if min_revision is not None:
            await self.board.reached_within(max(0.0, deadline - self._clock.monotonic()), min_revision)

    def _vectors_outdated(self) -> None:
        if self.config.sync.on_search:
            self._sync_soon(SyncTrigger.SEARCH)

    def _sync_soon(self, trigger: SyncTrigger) -> None:
        if self._background is not None:
            self._background.sync_soon(trigger)

    async def read(self, path: str, start_line: int, line_count: int) -> FileRange:
        """A line range of a memory file."""
        return await self._on(
            self._quick,
            lambda: read_range(self.config.corpus, path, start_line, line_count, self.config.sync.max_file_bytes),
        )

    async def forget(self, request: ForgetRequest, deadline: float) -> ForgetReceipt:
        """Removes what is named from the index, the cache and, where asked to, from the disk."""
        return await forget(
            self._forget,
            request,
            deadline,
            board=self.board,
            writer_thread=self._writer_thread,
            monotonic=self._clock.monotonic,
        )

    async def session_context(
        self, *, main_session: bool, today: date, max_total_chars: int | None
    ) -> tuple[ContextFile, ...]:
        """Return the files that a session loads at its start, in order, with their texts within the budget."""
        return await self._on(
            self._quick,
            load_context,
            self.config.roots,
            main_session=main_session,
            today=today,
            max_total_chars=max_total_chars,
            max_file_bytes=self.config.sync.max_file_bytes,
        )

    async def archive(self, request: ArchiveRequest) -> ArchiveReceipt:
        """Write the last messages of a transcript to a memory file.

        Raises:
            PathNotAllowed: the transcript's name is not allowed, or the memory folder is a link.
            FileNotFound: there is no such transcript.
            WorkspaceReadOnly: the file system or its permissions refuse the write.
            DiskFull: no space is left; nothing was written.
        """
        config = self.config
        return await self._on(
            self._archive_thread, self._archiver.archive, config.roots, config.sessions_folder, request
        )

    async def require_transcript(self, file_name: str) -> None:
        """Passes where the agent has a transcript of this name.

        Raises:
            PathNotAllowed: no transcript can have it, or it is a link.
            FileNotFound: there is none.
        """
        await self._on(self._quick, require_file, self.config.corpus, file_name)

    async def estimate(self, mode: SyncMode, ask: SyncScope) -> SyncRun:
        """A dry run: an ended run whose last event holds what a real one would do."""
        return await self.coordinator.estimate(mode, ask, self._slow)

    async def probe(self, deadline: float) -> ProviderProbe:
        """Calls the embedding provider once."""
        return await self.vectors.probe(deadline)

    async def report(self) -> IndexReport:
        """The index against the disk, found out now."""
        return await self._reading(
            lambda: self._on(
                self._slow,
                lambda: report(
                    self._store,
                    self._engine,
                    self._cache,
                    self.vectors,
                    sources=self.config.sources,
                    now_ns=self._clock.now_ns(),
                    append_issues=(*self._appender.issues(), *filter(None, [self.forgotten.problem])),
                    watched_roots=self._look_at_roots,
                ),
            )
        )

    async def files(self) -> list[ListedFile]:
        """Every file on disk or in the index, by path."""
        disk = await self._reading(lambda: self._on(self._slow, self._engine.compare))
        return list_files(disk, self.forgotten)

    async def keyword_error(self) -> str:
        """Why a search would fail now; empty when it would not."""
        return await self._on(self._quick, keyword_error, self._store)

    def degradations(self) -> tuple[Degradation, ...]:
        """Every way in which this memory is less than what was configured, as far as is known without a look."""
        return self.degradations_with(self.watched_roots())

    def degradations_with(self, watched: Sequence[WatchedRoot]) -> tuple[Degradation, ...]:
        """The same, where how each root is watched has just been found out."""
        found = [*self.config.impairments, *self._store.degradations()]
        found += built_otherwise(self._store.build_differences, self._engine.rebuild_waits)
        found += self.vectors.degradations()
        error = self.coordinator.last_error
        # A state directory that cannot be written is told already.
        if error is not None and not isinstance(error, IndexReadOnly):
            found.append(
                Degradation(DegradationKind.INDEX_IMPAIRED, "a completed sync", "the older index", error.message)
            )
        if self._background is not None:
            hidden, trouble = self._engine.last_comparison.hidden, self._background.trouble
            found += freshness(self.config.sync, watched, hidden, trouble)
        return tuple(found)

    def _vector_report(self) -> VectorReport:
        waits = self._engine.rebuild_waits
        rebuild = built_otherwise(self._store.build_differences, waits) if waits else []
        return self.vectors.report(self.board.current.chunks, rebuild)

    def mismatches(self) -> tuple[Difference, ...]:
        """(field, the index's value, the wanted value) of each thing that the index was built with otherwise."""
        return (*self._store.build_differences, *self.vectors.mismatches())

    @property
    def built_with(self) -> BuildIdentity | None:
        """How the index was chunked; None where it does not say."""
        return self._store.built_with

    def remarks(self) -> tuple[Degradation, ...]:
        """What an operator should know, although no answer is the worse for it."""
        trouble = None if self._cache is None else self._cache.problem
        remarks = self._store.remarks()
        return remarks if trouble is None else (*remarks, trouble)

    def watched_roots(self) -> tuple[WatchedRoot, ...]:
        """How each root is watched, as far as is known without asking the disk."""
        if self._background is None:
            return ()
        return self._background.watched_roots() if self._background.watching else unwatched(self.config.corpus)

    def _look_at_roots(self) -> tuple[WatchedRoot, ...]:
        if self._background is None:
            return ()
        return self._background.look() if self._background.watching else unwatched(self.config.corpus)

    @property
    def started(self) -> bool:
        """Whether the index is open."""
        return self._background is not None

    @property
    def index_path(self) -> Path:
        """Where the index is."""
        return self._store.path

    async def _note_counts(self) -> None:
        counts = await self._on(self._quick, self._counts)
        self.board.update(
            revision=counts.revision, files=counts.files, chunks=counts.chunks, whole=self._store.has_completed_sync
        )

    def measure(self) -> tuple[IndexCounts, DiskSizes]:
        """What the index holds, and the bytes on disk. Blocks; an agent at rest is not woken where it is known.

        Raises:
            IndexUnavailable: it cannot be read.
        """
        known = self._store.last_counts if self.at_rest else None
        asked = known is None or known.revision != self.board.current.revision
        return self._counts() if asked or known is None else known, sizes(self._store.sizes(), self._cache_path)

    def _counts(self) -> IndexCounts:
        with self._store.read() as reader:
            return reader.counts()

    async def _reading(self, ask: Callable[[], Awaitable[_T]], deadline: float | None = None) -> _T:
        return await (ask() if self._mending is None else self._mending.reading(ask, deadline))

    async def _on_writer_thread(self, work: Callable[[], _T]) -> _T:
        return await self._on(self._writer_thread, work)

    async def _on(self, threads: Executor, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.get_running_loop().run_in_executor(threads, lambda: work(*args, **kwargs))
