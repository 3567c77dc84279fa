"""QmdBackend: qmd's searches, reads and state for one agent; QmdSyncRunner: sync runs of an agent without an index.

For the event loop's thread.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from memoryd_server.agent import FileRange, read_location
from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import EmbeddingNotConfigured, PathNotAllowed
from memoryd_server.model import Clock, Degradation, DegradationKind, Source, stored
from memoryd_server.qmd import client, hits, index
from memoryd_server.qmd.any_word import WITHOUT_MODELS, any_word_query
from memoryd_server.qmd.client import QmdFailure, QmdFailureReason, QmdSearchMode
from memoryd_server.qmd.config import QmdConfig, allows
from memoryd_server.qmd.home import QmdHome
from memoryd_server.qmd.host import QmdHost
from memoryd_server.qmd.index import QmdIndex
from memoryd_server.qmd.process import CommandResult
from memoryd_server.qmd.updates import QmdUpdates
from memoryd_server.search import RankingConfig, SearchAnswer, SearchMode, SearchQuery
from memoryd_server.sources import Discovery, ForgottenSources, Roots, discover_files, read_file
from memoryd_server.store import FileRow
from memoryd_server.sync import (
    FULL_SCOPE,
    DiskComparison,
    LastComparison,
    SyncEstimate,
    SyncMode,
    SyncObserver,
    SyncOutcome,
    SyncProgress,
    SyncScope,
    make_plan,
)

# Rows requested in addition to those to be shown, because the files of some may be gone.
_SPARE_ROWS = 6
# The part of the time after an empty answer that a second search leaves for returning it: the smaller of the two.
_RESERVE_SECONDS = 1.0
_RESERVE_SHARE = 0.25
# The query of a probe. The index need not contain the word: a probe succeeds if qmd answers.
_PROBE_QUERY = "memoryd"
_T = TypeVar("_T")

NOT_READY = "qmd's first update has not completed yet"


@dataclass(frozen=True, slots=True)
class CoveredFiles:
    """The state before an update: the revision of memoryd's index or, if memoryd keeps none, the files on disk."""

    revision: int
    files: Discovery | None = None


class QmdBackend:
    """One agent's qmd from `start` to `stop`.

    `ranking` is called at each search. `revision` returns the revision of memoryd's index; None if memoryd keeps none.
    `threads` read the files of hits. Files and sessions in `forgotten` are not returned.
    """

    def __init__(
        self,
        config: QmdConfig,
        host: QmdHost,
        *,
        roots: Roots,
        ranking: Callable[[], RankingConfig],
        max_file_bytes: int,
        threads: Executor,
        revision: Callable[[], int] | None,
        forgotten: ForgottenSources,
        tasks: BackgroundTasks,
    ) -> None:
        self.config = config
        self._host = host
        self._roots = roots
        self._ranking = ranking
        self._max_file_bytes = max_file_bytes
        self._threads = threads
        self._revision = revision
        self._forgotten = forgotten
        home = QmdHome(config.folder, config.collections, config.environment)
        self._client = client.QmdClient(config.command, home, host.guard)
        self._files = hits.CollectionFiles(roots, config.collections, max_file_bytes, forgotten.excludes_data)
        self._index = QmdIndex(config, self._client, export=self._export, should_stop=lambda: self.updates.stopping)
        self.updates = QmdUpdates(config, self._index, host, self._snapshot, tasks=tasks)
        self.version = ""

    def _export(self) -> None:
        if self.config.sessions is not None:
            index.export_sessions(
                self.config.sessions,
                own_folder=self._exports_to_own_folder,
                now_ns=time.time_ns,
                is_forgotten=self._forgotten.has_session,
            )

    @property
    def _exports_to_own_folder(self) -> bool:
        sessions = self.config.sessions
        return sessions is not None and sessions.folder.is_relative_to(self.config.folder)

    async def forget(self, session_id: str, deadline: float) -> tuple[int, bool]:
        """Remove a session and missing files from qmd's index.

        Return the number of the session's documents, and whether the update completed before `deadline`.

        Raises:
            OSError: the session's documents cannot be removed.
        """
        documents, sessions = 0, self.config.sessions
        if session_id and sessions is not None:
            documents = await self._on_thread(
                lambda: index.forget_session(sessions, session_id, own_folder=self._exports_to_own_folder)
            )
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await self.updates.update_now(embed=False)
        except (TimeoutError, QmdFailure):
            self.updates.request()
            return documents, False
        return documents, True

    def _snapshot(self) -> CoveredFiles:
        return (
            CoveredFiles(0, discover_files(self._roots)) if self._revision is None else CoveredFiles(self._revision())
        )

    @property
    def covered(self) -> CoveredFiles | None:
        """The state that qmd's index includes at least; None before the first update of this process."""
        covered: CoveredFiles | None = self.updates.covered
        return covered

    @property
    def covered_files(self) -> Discovery | None:
        """The files that qmd's index includes at least; None if they are unknown or memoryd keeps an index."""
        covered = self.covered
        return None if covered is None else covered.files

    @property
    def documents(self) -> int:
        """The number of files in qmd's index after the last update; 0 before the first."""
        return 0 if self.updates.last is None else self.updates.last.documents

    async def is_ready(self) -> bool:
        """Return whether qmd's index can be searched: an update has completed since it was created."""
        return await self._on_thread(lambda: self._index.ready)

    async def _on_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _on_thread_before(self, deadline: float, work: Callable[[], _T]) -> _T:
        """Call `work` on a thread until `time.monotonic()` passes `deadline`.

        Raises:
            QmdFailure: NO_TIME.
        """
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await self._on_thread(work)
        except TimeoutError:
            raise QmdFailure(QmdFailureReason.NO_TIME, "reading the disk left no time for qmd") from None

    def permits(self, session_key: str) -> bool:
        """Return whether the session may search."""
        return allows(self.config.scope, session_key)

    async def search(self, query: SearchQuery, *, seconds: float, stale: bool) -> SearchAnswer:
        """Search with qmd, and return the current text of the files. `stale` is whether files are known to be changed.

        Raises:
            QmdFailure: qmd did not answer within `seconds`, or its output is not valid.
            EmbeddingNotConfigured: the query's mode is VECTOR, and the configured search mode uses no vectors.
        """
        began = time.monotonic()
        search_mode = self._search_mode(query.mode)
        names = self._files.collection_names(query.sources)
        limits = self.config.limits
        max_results = min(query.max_results, limits.max_results)
        max_rows = max_results + _SPARE_ROWS
        results = client.QmdResults(())
        if names:
            results = await self._search_collections(search_mode, query.text, names, max_rows, seconds)
            if search_mode is QmdSearchMode.SEARCH and not results.rows:
                results = await self._search_any_word(query.text, names, max_rows, began + seconds)
        else:
            await self._on_thread_before(began + seconds, self._require_index)
        ranked = await self._on_thread(
            lambda: hits.rank(
                self._files,
                # A file is read for each row, so rows in excess of those requested are ignored.
                results.rows[:max_rows],
                query,
                self._ranking(),
                max_results=max_results,
                max_chars=limits.max_snippet_chars,
            ),
        )
        covered = self.covered
        return hits.answer_of(
            results,
            ranked,
            hits.within_budgets(ranked.hits, query, limits.max_injected_chars),
            query,
            search_mode=search_mode,
            revision=0 if covered is None else covered.revision,
            documents=self.documents or len(results.rows),
            stale=stale or self.updates.pending or covered is None,
            missing=[source for source in query.sources if source not in self._sources()],
            elapsed_seconds=time.monotonic() - began,
        )

    def _sources(self) -> set[Source]:
        return {collection.source for collection in self.config.collections}

    def _search_mode(self, mode: SearchMode) -> QmdSearchMode:
        """Return the configured search mode, unless the caller selects keyword or vector search."""
        if mode is SearchMode.KEYWORD:
            return QmdSearchMode.SEARCH
        if mode is not SearchMode.VECTOR:
            return self.config.search_mode
        if self.config.search_mode is QmdSearchMode.SEARCH:
            raise EmbeddingNotConfigured(
                "memory.qmd.searchMode is search, which uses no vectors; set vsearch or query, or search with KEYWORD"
            )
        return QmdSearchMode.VSEARCH

    async def _search_collections(
        self, search_mode: QmdSearchMode, text: str, names: tuple[str, ...], limit: int, seconds: float
    ) -> client.QmdResults:
        deadline = time.monotonic() + seconds
        try:
            return await self._run_search(search_mode, text, names, limit, seconds)
        except QmdFailure as failure:
            if failure.reason is not QmdFailureReason.UNKNOWN_COLLECTION:
                raise
        # Another program has changed the configuration. The documents indexed under it are still in the index.
        await self._host.update(self._index.prepare)
        self.updates.request()
        return await self._run_search(search_mode, text, names, limit, deadline - time.monotonic())

    async def _run_search(
        self, search_mode: QmdSearchMode, text: str, names: tuple[str, ...], limit: int, seconds: float
    ) -> client.QmdResults:
        arguments = client.search_arguments(search_mode, text, names, limit)
        result = await self._run(arguments, seconds)
        try:
            return client.read_results(result, search_mode)
        except QmdFailure as failure:
            if failure.reason is QmdFailureReason.TIMEOUT and seconds < self.config.limits.timeout_seconds:
                reason = f"qmd did not answer within the {seconds:.1f} s that were left of the caller's time"
                raise QmdFailure(QmdFailureReason.NO_TIME, reason) from failure
            raise

    async def _search_any_word(
        self, text: str, names: tuple[str, ...], limit: int, deadline: float
    ) -> client.QmdResults:
        """Return the documents with any word of a text that no document has all words of.

        A failure leaves the answer without results: qmd has answered the query, and the builtin engine is only for a
        qmd that does not.
        """
        try:
            query = await self._on_thread_before(deadline, lambda: any_word_query(text))
            if query is None:
                return client.QmdResults(())
            left = deadline - time.monotonic()
            seconds = left - min(_RESERVE_SECONDS, left * _RESERVE_SHARE)
            result = await self._run(query.arguments(names, limit), seconds, WITHOUT_MODELS)
            results = client.read_results(result, QmdSearchMode.SEARCH, query.score)
        except QmdFailure as failure:
            return client.QmdResults((), second_failure=failure.message)
        return replace(results, matched_any_word=True)

    async def _run(
        self, arguments: Sequence[str], seconds: float, variables: Mapping[str, str] = MappingProxyType({})
    ) -> CommandResult:
        """Run a search, with `variables` in addition to its environment."""
        if seconds <= 0:
            raise QmdFailure(QmdFailureReason.NO_TIME, "no time was left to run qmd")
        deadline = time.monotonic() + seconds
        path = await self._on_thread_before(deadline, self._ready_command)
        left = max(0.0, deadline - time.monotonic())
        run = self._client.make_run_at(path, arguments, left, client.MAX_SEARCH_BYTES, variables)
        return await self._host.search(run, deadline - time.monotonic())

    def _ready_command(self) -> str:
        """Return the path of the command. Blocks.

        Raises:
            QmdFailure: MISSING, or NOT_READY.
        """
        self._require_index()
        return self._client.locate()

    def _require_index(self) -> None:
        if not self._index.ready:
            failure = self.updates.updating.failure
            raise QmdFailure(QmdFailureReason.NOT_READY, NOT_READY if failure is None else failure.message)

    async def probe(self) -> None:
        """Check qmd's version, and run a search as callers do if the index is ready.

        Raises:
            QmdFailure: qmd does not answer.
        """
        await self.check_version()
        names = self._files.collection_names(())
        if await self.is_ready() and names:
            await self._run_search(self.config.search_mode, _PROBE_QUERY, names, 1, self.config.limits.timeout_seconds)

    async def check_version(self) -> None:
        """Locate the command and set `version` to its version.

        Raises:
            QmdFailure: the command is missing, too old, or cannot be run.
        """
        await self._host.update(self._index.prepare)
        seconds = self.config.update.command_timeout_seconds
        path = await self._host.update(self._client.locate)
        run = self._client.make_run_at(path, client.VERSION, seconds)
        self.version = client.read_version(await self._host.search(run, seconds))

    async def read(self, path: str, start_line: int, line_count: int) -> FileRange | None:
        """Return lines of a file with the path `qmd/<collection>/<path>`, as in hits; None for any other path.

        Raises:
            PathNotAllowed: the path is not a file of the collection.
            FileNotFound: the file does not exist.
        """
        name, _, rest = path.removeprefix(hits.PREFIX).partition("/")
        names = {collection.name for collection in self.config.collections}
        if not path.startswith(hits.PREFIX) or name not in names:
            return None
        location = self._files.locate(name, rest)
        if location is None:
            raise PathNotAllowed(path, f"it is not a file of qmd's collection {name}")
        most = self._max_file_bytes
        return await self._on_thread(lambda: read_location(read_file, location, start_line, line_count, most))

    def degradations(self) -> list[Degradation]:
        """Return how qmd's index is incomplete although qmd answers."""
        degradations = []
        if self.updates.updating.failure is not None:
            reason = f"updating qmd's index failed: {self.updates.updating.failure.message}"
            degradations.append(
                Degradation(DegradationKind.INDEX_IMPAIRED, "a current qmd index", "an older one", reason)
            )
        if self.updates.embedding.failure is not None:
            reason = f"qmd did not embed all documents: {self.updates.embedding.failure.message}"
            degradations.append(Degradation(DegradationKind.VECTORS_PENDING, "a vector for each document", "", reason))
        return degradations

    def lock_degradations(self) -> list[Degradation]:
        """Return that embeddings run without the lock of the host. The results of searches do not depend on it."""
        if not self._index.embed_lock_problem:
            return []
        return [
            Degradation(
                DegradationKind.INDEX_IMPAIRED,
                "one `qmd embed` at a time on this host",
                "`qmd embed` without the lock that daemons share",
                self._index.embed_lock_problem,
            )
        ]

    @property
    def qmd_only_collections(self) -> tuple[str, ...]:
        """The collections that only qmd searches."""
        return tuple(collection.name for collection in self.config.collections if not collection.builtin)


class QmdSyncRunner:
    """Compares the disk with qmd's index; qmd does the indexing. `covered` returns the files before its last update."""

    rebuild_due = False
    rebuild_waits = ""

    def __init__(self, roots: Roots, covered: Callable[[], Discovery | None], clock: Clock) -> None:
        self._roots = roots
        self._covered = covered
        self._clock = clock
        self.last_comparison = LastComparison()

    def run(
        self,
        _mode: SyncMode,
        observer: SyncObserver,
        _should_stop: Callable[[], bool],
        _should_yield: Callable[[], bool] = lambda: False,
    ) -> SyncOutcome:
        """Return the files in qmd's index and those that the next update will index. The update follows the run."""
        observer.progress(SyncProgress())
        state = self.compare()
        changed, removed = len(state.plan.changed), len(state.plan.removed)
        return SyncOutcome(
            revision=0,
            files=len(state.rows),
            indexed_files=changed,
            unchanged_files=state.plan.unchanged,
            removed_files=removed,
            changed=state.plan.needs_run,
        )

    def compare(self) -> DiskComparison:
        """Return the differences between the files on disk and the files before qmd's last update."""
        began_ns = self._clock.now_ns()
        discovery, rows = discover_files(self._roots), _rows(self._covered())
        plan = make_plan(discovery, rows)
        self.last_comparison.record(plan, began_ns)
        return DiskComparison(discovery, rows, plan, self.last_comparison.agreed_ns)

    def estimate(self, _mode: SyncMode, _ask: SyncScope = FULL_SCOPE) -> SyncEstimate:
        """Return the number of files that differ; the number of qmd's chunks and requests is unknown."""
        plan = self.compare().plan
        return SyncEstimate(len(plan.to_read), len(plan.removed), 0, 0, 0)


def _rows(covered: Discovery | None) -> Mapping[tuple[Source, str], FileRow]:
    files = () if covered is None else covered.files
    return {(f.source, f.path): FileRow(0, f.path, f.source, b"", stored(f.stat), 0, None) for f in files}
