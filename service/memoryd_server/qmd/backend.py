"""QmdBackend: searches, reads, forgets; its sync engine.

qmd as it answers for one agent: its searches, its files, and how it is doing. On the event loop's thread.

The engine of an agent that keeps no index of memoryd's own: what qmd holds, compared with the files.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from memoryd_server.agent import FileRange, read_location
from memoryd_server.errors import EmbeddingNotConfigured, PathNotAllowed
from memoryd_server.model import Clock, Degradation, DegradationKind, Source, stored
from memoryd_server.qmd import client, hits, index
from memoryd_server.qmd.client import QmdFailure, QmdFailureReason, QmdSearchMode
from memoryd_server.qmd.config import QmdConfig, allows
from memoryd_server.qmd.home import QmdHome
from memoryd_server.qmd.host import QmdHost
from memoryd_server.qmd.index import QmdIndex
from memoryd_server.qmd.updates import QmdUpdates
from memoryd_server.search import RankingConfig, SearchAnswer, SearchMode, SearchQuery
from memoryd_server.sources import Discovery, ForgottenSources, Roots, discover_files
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

# Rows that are asked for beyond those to be shown: some may be of files that are gone.
_SPARE_ROWS = 6
# A word that the index may or may not hold: what counts is that a real search answers.
_TRIAL = "memoryd"
_T = TypeVar("_T")

NOT_READY = "qmd's first update has not completed yet"


@dataclass(frozen=True, slots=True)
class CoveredFiles:
    """What was there before an update: the revision of memoryd's own index, and the files where it keeps none."""

    revision: int
    files: Discovery | None = None


class QmdBackend:
    """One agent's qmd from `start` to `stop`.

    `ranking` is asked at each search. `revision` tells how far memoryd's own index has come; None where none is kept.
    `threads` are for reading the files of hits. `forgotten` is what is to be found no more.
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
        self._shelf = hits.CollectionFiles(roots, config.collections, max_file_bytes, forgotten.excludes_data)
        self._index = QmdIndex(config, self._client, export=self._export, is_unwanted=lambda: self.updates.stopping)
        self.updates = QmdUpdates(config, self._index, host, self._look)
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
        exported = self.config.sessions
        return exported is not None and exported.folder.is_relative_to(self.config.folder)

    async def forget(self, session_id: str, deadline: float) -> tuple[int, bool]:
        """Lets qmd forget what is no longer to be found; how many documents of a session went, and if all was in time.

        Raises:
            OSError: the session's documents cannot be removed.
        """
        documents, exported = 0, self.config.sessions
        if session_id and exported is not None:
            documents = await self._on_thread(
                lambda: index.forget_session(exported, session_id, own_folder=self._exports_to_own_folder)
            )
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await self.updates.now(embed=False)
        except (TimeoutError, QmdFailure):
            self.updates.ask()
            return documents, False
        return documents, True

    def _look(self) -> CoveredFiles:
        return (
            CoveredFiles(0, discover_files(self._roots)) if self._revision is None else CoveredFiles(self._revision())
        )

    @property
    def covered(self) -> CoveredFiles | None:
        """What qmd holds at least; None before the first update of this process."""
        covered: CoveredFiles | None = self.updates.covered
        return covered

    @property
    def covered_files(self) -> Discovery | None:
        """The files that qmd holds at least, where memoryd keeps no index of its own."""
        covered = self.covered
        return None if covered is None else covered.files

    @property
    def documents(self) -> int:
        """How many files qmd holds, as far as the last update told; 0 before it."""
        return 0 if self.updates.last is None else self.updates.last.documents

    async def is_ready(self) -> bool:
        """Return whether its index holds something to search."""
        return await self._on_thread(lambda: self._index.ready)

    async def _on_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _before(self, until: float, work: Callable[[], _T]) -> _T:
        """Do `work` on a thread until `time.monotonic()` passes `until`.

        Raises:
            QmdFailure: NO_TIME.
        """
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                return await self._on_thread(work)
        except TimeoutError:
            raise QmdFailure(QmdFailureReason.NO_TIME, "the disk left no time for qmd") from None

    def permits(self, session_key: str) -> bool:
        """Whether the session may search."""
        return allows(self.config.scope, session_key)

    async def search(self, query: SearchQuery, *, seconds: float, stale: bool) -> SearchAnswer:
        """Asks qmd, and shows what stands in the files now. `stale` is whether files are known to have changed.

        Raises:
            QmdFailure: it did not answer within `seconds`, or not in a way that can be believed.
            EmbeddingNotConfigured: vectors were asked for, and it makes none.
        """
        began = time.monotonic()
        verb = self._verb(query.mode)
        names = self._shelf.names(query.sources)
        wanted = min(query.max_results, self.config.limits.max_results)
        found = client.QmdResults(())
        if names:
            found = await self._found(verb, query.text, names, wanted + _SPARE_ROWS, seconds)
        else:
            await self._before(began + seconds, self._require_index)
        limits = self.config.limits
        ranked = await self._on_thread(
            lambda: hits.rank(
                self._shelf,
                # For each row a file is read, so that no more rows count than were asked for.
                found.rows[: wanted + _SPARE_ROWS],
                query,
                self._ranking(),
                most=wanted,
                most_chars=limits.max_snippet_chars,
            ),
        )
        covered = self.covered
        return hits.answer_of(
            found,
            ranked,
            hits.budgeted(ranked.hits, query, limits.max_injected_chars),
            query,
            verb=verb,
            revision=0 if covered is None else covered.revision,
            documents=self.documents or len(found.rows),
            stale=stale or self.updates.pending or covered is None,
            missing=[source for source in query.sources if source not in self._sources()],
            elapsed_seconds=time.monotonic() - began,
        )

    def _sources(self) -> set[Source]:
        return {collection.source for collection in self.config.collections}

    def _verb(self, mode: SearchMode) -> QmdSearchMode:
        """The configured verb, unless the caller wants one leg alone."""
        if mode is SearchMode.KEYWORD:
            return QmdSearchMode.SEARCH
        if mode is not SearchMode.VECTOR:
            return self.config.verb
        if self.config.verb is QmdSearchMode.SEARCH:
            raise EmbeddingNotConfigured(
                "memory.qmd.searchMode is search, which makes no vectors; set vsearch or query, or search by KEYWORD"
            )
        return QmdSearchMode.VSEARCH

    async def _found(
        self, verb: QmdSearchMode, question: str, names: tuple[str, ...], limit: int, seconds: float
    ) -> client.QmdResults:
        until = time.monotonic() + seconds
        try:
            return await self._searched(verb, question, names, limit, seconds)
        except QmdFailure as failure:
            if failure.reason is not QmdFailureReason.UNKNOWN_COLLECTION:
                raise
        # Somebody has changed our configuration. What qmd indexed under it is still there.
        await self._host.update(self._index.prepare)
        self.updates.ask()
        return await self._searched(verb, question, names, limit, until - time.monotonic())

    async def _searched(
        self, verb: QmdSearchMode, question: str, names: tuple[str, ...], limit: int, seconds: float
    ) -> client.QmdResults:
        if seconds <= 0:
            raise QmdFailure(QmdFailureReason.NO_TIME, "no time was left for qmd")
        until = time.monotonic() + seconds
        path = await self._before(until, self._ready_command)
        left = max(0.0, until - time.monotonic())
        run = self._client.run_of(path, client.search(verb, question, names, limit), left, client.MOST_BYTES)
        finished = await self._host.search(run, until - time.monotonic())
        try:
            return client.found(finished, verb)
        except QmdFailure as failure:
            if failure.reason is QmdFailureReason.TIMEOUT and seconds < self.config.limits.seconds:
                reason = f"qmd was given {seconds:.1f} s of the caller's time and did not answer in it"
                raise QmdFailure(QmdFailureReason.NO_TIME, reason) from failure
            raise

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

    async def trial(self) -> None:
        """A search as callers make them, after a look at the version.

        Raises:
            QmdFailure: it does not answer.
        """
        await self.look()
        names = self._shelf.names(())
        if await self.is_ready() and names:
            await self._searched(self.config.verb, _TRIAL, names, 1, self.config.limits.seconds)

    async def look(self) -> None:
        """Finds the command and asks for its version.

        Raises:
            QmdFailure: it is missing, too old, or cannot be run.
        """
        await self._host.update(self._index.prepare)
        seconds = self.config.update.command_seconds
        path = await self._host.update(self._client.locate)
        run = self._client.run_of(path, client.VERSION, seconds)
        self.version = client.read_version(await self._host.search(run, seconds))

    async def read(self, path: str, start_line: int, line_count: int) -> FileRange | None:
        """Lines of a file that hits name as `qmd/<collection>/<path>`; None for a path that is none of these.

        Raises:
            PathNotAllowed: it is no file of the collection.
            FileNotFound: it is not there.
        """
        name, _, rest = path.removeprefix(hits.PREFIX).partition("/")
        known = {collection.name for collection in self.config.collections}
        if not path.startswith(hits.PREFIX) or name not in known:
            return None
        location = self._shelf.locate(name, rest)
        if location is None:
            raise PathNotAllowed(path, f"it is no file of qmd's collection {name}")
        return await self._on_thread(lambda: read_location(location, start_line, line_count, self._max_file_bytes))

    def degradations(self) -> list[Degradation]:
        """What keeps qmd's index from being what was wanted, although it answers."""
        found = []
        if self.updates.updating.failure is not None:
            reason = f"qmd's index was not brought up to date: {self.updates.updating.failure.message}"
            found.append(Degradation(DegradationKind.INDEX_IMPAIRED, "a current index of qmd", "the older one", reason))
        if self.updates.embedding.failure is not None:
            reason = f"qmd did not make all vectors: {self.updates.embedding.failure.message}"
            found.append(Degradation(DegradationKind.VECTORS_PENDING, "a vector for each document", "", reason))
        return found

    @property
    def unserved(self) -> tuple[str, ...]:
        """The collections that only qmd searches."""
        return tuple(collection.name for collection in self.config.collections if not collection.builtin)


class QmdSyncRunner:
    """Looks at the disk and leaves the work to qmd. `covered` is what was there before qmd's last update."""

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
        """What qmd holds as yet, and what it is to take in; the update itself follows the run."""
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
        """What differs between the disk and what was there before qmd's last update."""
        began_ns = self._clock.now_ns()
        discovery, rows = discover_files(self._roots), _rows(self._covered())
        plan = make_plan(discovery, rows)
        self.last_comparison.record(plan, began_ns)
        return DiskComparison(discovery, rows, plan, self.last_comparison.agreed_ns)

    def estimate(self, _mode: SyncMode, _ask: SyncScope = FULL_SCOPE) -> SyncEstimate:
        """The files that differ; what qmd makes of them is not known."""
        plan = self.compare().plan
        return SyncEstimate(len(plan.to_read), len(plan.removed), 0, 0, 0)


def _rows(covered: Discovery | None) -> Mapping[tuple[Source, str], FileRow]:
    files = () if covered is None else covered.files
    return {(f.source, f.path): FileRow(0, f.path, f.source, b"", stored(f.stat), 0, None) for f in files}
