"""Brings the index in line with the Markdown files.

A sync has two halves. `plan` compares the files on disk with the rows of the index and touches nothing. `apply` carries
the plan out, whole files a transaction. A rebuild does the same into an empty file beside the index and swaps it in.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from memoryd_server.errors import SyncCancelled
from memoryd_server.index.apply import Application
from memoryd_server.index.asks import SyncAsk
from memoryd_server.index.connection import translated
from memoryd_server.index.embedding import Embedder, Price
from memoryd_server.index.last_look import LastLook
from memoryd_server.index.mending import on_sound_index
from memoryd_server.index.plan import SyncPlan
from memoryd_server.index.prepare import FilePreparer
from memoryd_server.index.pricing import RebuildGate, price_files
from memoryd_server.index.progress import SyncEstimate, SyncMode, SyncObserver, SyncOutcome, SyncPhase, SyncProgress
from memoryd_server.index.rows import FileRow
from memoryd_server.index.store import IndexStore
from memoryd_server.index.survey import Survey
from memoryd_server.index.writer import IndexWriter
from memoryd_server.index.yielding import Yielding
from memoryd_server.model import Source
from memoryd_server.sources import Discovery, Roots


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks that a sync reads: wall time in Unix nanoseconds, and a steady one in seconds."""

    now_ns: Callable[[], int] = time.time_ns
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class DiskState:
    """The files on disk, the index's rows of the same moment, and how they differ.

    `agreed_ns` is when the two were last known to agree (Unix nanoseconds); None when that is not known.
    """

    discovery: Discovery
    rows: Mapping[tuple[Source, str], FileRow]
    plan: SyncPlan
    agreed_ns: int | None = None


class SyncEngine:
    """Syncs one index with its sources; with `roots` alone, these are their Markdown.

    `run` belongs to the agent's writer thread; `compare` and `estimate` may run on any thread beside it.
    """

    def __init__(
        self,
        store: IndexStore,
        roots: Roots | Survey,
        preparer: FilePreparer,
        *,
        files_per_transaction: int,
        clock: Clock,
        embedder: Embedder | None = None,
    ) -> None:
        self._embedder = embedder
        self._store = store
        self._survey = Survey.of(roots)
        self._preparer = preparer
        self._files_per_transaction = files_per_transaction
        self._clock = clock
        self.last_look = LastLook()
        self._gate = RebuildGate(store, self._survey, preparer, embedder, clock.monotonic)
        store.condition.watch(self._look_again)

    @on_sound_index
    def run(
        self,
        mode: SyncMode,
        observer: SyncObserver,
        should_stop: Callable[[], bool],
        should_yield: Callable[[], bool] = lambda: False,
    ) -> SyncOutcome:
        """Makes the index match the files; rebuilds it when asked to, or when it was built with another identity.

        Where `should_yield` says so, making vectors ends early with `yielded` set, so that another run can take in
        files that have changed meanwhile. While a root cannot be looked into, only a FULL run rebuilds: it would lose
        what the index keeps of it.

        A rebuild for another identity that would cost more than was agreed to waits for a FULL run; until then the old
        index is kept up to date.

        Raises:
            SyncCancelled: `should_stop` said so at a file boundary.
            DiskFull: nothing of the transaction at work is kept; what was committed before stays.
            IndexUnavailable: the index cannot be written.
        """
        observer.progress(SyncProgress(phase=SyncPhase.PLANNING))
        with translated():
            if mode is SyncMode.FULL or self._may_rebuild(should_stop):
                outcome = self._rebuild(observer, should_stop, confirmed=mode is SyncMode.FULL)
                self._gate.open()
                self.compare()
            else:
                self._refresh_keyword(observer, should_stop)
                outcome = self._apply(self._store.writer, observer, should_stop)
                outcome = self._embed_or_yield(observer, outcome, should_stop, should_yield)
            self._store.writer.note_sync(self._clock.now_ns() // 1_000_000)
            with self._store.read() as reader:
                return replace(outcome, files=reader.counts().files)

    def _may_rebuild(self, should_stop: Callable[[], bool]) -> bool:
        if not self._store.needs_rebuild or self._gate.holds_back(should_stop):
            return False
        return not self.compare().plan.hidden

    def _look_again(self) -> None:
        if self._embedder is not None and self._store.condition.damage is None:
            self._embedder.look(self._store.writer.vectors)

    def _apply(
        self, writer: IndexWriter, observer: SyncObserver, should_stop: Callable[[], bool], *, beside: bool = False
    ) -> SyncOutcome:
        began_ns = self._clock.now_ns()
        rows = writer.files()
        plan = self._survey.take(rows, everything=beside or not self._store.whole)
        application = Application(
            writer,
            self._preparer,
            observer,
            files_per_transaction=self._files_per_transaction,
            should_stop=should_stop,
            monotonic=self._clock.monotonic,
        )
        outcome = application.carry_out(plan, rows)
        if application.vanished:
            # Their folder may have become one that cannot be looked into, which is no ground to forget them.
            gone = {(row.source, row.path): row for row in application.vanished}
            outcome = application.remove(self._survey.plan(self._survey.discover(), gone, SyncAsk()).removed)
        if not beside:
            self.last_look.note(plan, began_ns, carried_out=not application.vanished)
        return outcome

    def _refresh_keyword(self, observer: SyncObserver, should_stop: Callable[[], bool]) -> None:
        if self._store.keyword_outdated:
            observer.committed(self._store.refresh_keyword(self._preparer.analyzer, should_stop))

    def _rebuild(self, observer: SyncObserver, should_stop: Callable[[], bool], *, confirmed: bool) -> SyncOutcome:
        with self._store.rebuilding() as writer:
            outcome = self._apply(writer, _Beside(observer), should_stop, beside=True)
            outcome = self._embed(writer, _Beside(observer), outcome, should_stop, confirmed=confirmed, beside=True)
            observer.progress(
                SyncProgress(
                    SyncPhase.SWAPPING, outcome.indexed_files, outcome.indexed_files, outcome.chunks, outcome.chunks
                )
            )
        if self._embedder is not None:
            self._embedder.look(self._store.writer.vectors, outcome.embedding_reason)
        revision = self._store.writer.revision()
        observer.committed(revision)
        return replace(outcome, revision=revision, changed=True)

    def _embed_or_yield(
        self,
        observer: SyncObserver,
        outcome: SyncOutcome,
        should_stop: Callable[[], bool],
        should_yield: Callable[[], bool],
    ) -> SyncOutcome:
        watch = Yielding(observer, should_stop, should_yield, self._clock.monotonic)
        writer = self._store.writer
        try:
            done = self._embed(writer, watch, outcome, watch.should_stop, confirmed=False)
        except SyncCancelled:
            if should_stop() or not watch.yielded:
                raise
            done = replace(outcome, revision=writer.revision(), cached_chunks=watch.cached, changed=True)
        if not watch.yielded:
            return done
        pending = 0 if self._embedder is None else self._embedder.state.pending
        return replace(done, pending_embeddings=pending, embedding_reason="", yielded=True)

    def _embed(
        self,
        writer: IndexWriter,
        observer: SyncObserver,
        outcome: SyncOutcome,
        should_stop: Callable[[], bool],
        *,
        confirmed: bool,
        beside: bool = False,
    ) -> SyncOutcome:
        if self._embedder is None:
            return outcome
        done = self._embedder.run(
            writer, observer, outcome, confirmed=confirmed, beside=beside, should_stop=should_stop
        )
        return replace(
            outcome,
            revision=writer.revision(),
            cached_chunks=done.cached,
            pending_embeddings=done.pending,
            embedding_reason=done.reason,
            changed=outcome.changed or done.embedded + done.cached > 0,
        )

    @property
    def rebuild_due(self) -> bool:
        """Whether the next run rebuilds, because the index was built with another identity."""
        return self._store.needs_rebuild and not self._gate.reason

    @property
    def rebuild_waits(self) -> str:
        """Why a rebuild that is due waits for a FULL run, with its price; empty when none does."""
        return self._gate.reason

    def compare(self) -> DiskState:
        """What differs between disk and index now."""
        began_ns = self._clock.now_ns()
        discovery = self._survey.discover()
        with self._store.read() as reader:
            rows = reader.files()
        plan = self._survey.plan(discovery, rows)
        self.last_look.note(plan, began_ns)
        return DiskState(discovery, rows, plan, self.last_look.agreed_ns)

    def estimate(self, mode: SyncMode) -> SyncEstimate:
        """What a run would do, from reading the files it would read; a rebuild that waits is priced. Writes nothing."""
        state = self.compare()
        full = mode is SyncMode.FULL or self._store.needs_rebuild
        plan = self._survey.plan(state.discovery, state.rows, SyncAsk())
        files = state.discovery.files if full else plan.to_read
        made = price_files(self._preparer, self._embedder, files, {} if full else state.rows)
        price = made.price if full else made.price + self._price_of_index()
        return SyncEstimate(made.files, len(plan.removed), made.chunks, price.chunks, price.tokens)

    def _price_of_index(self) -> Price:
        if self._embedder is None:
            return Price()
        with self._store.read() as reader:
            return self._embedder.price_of_index(reader.vectors)


class _Beside:
    """Passes on what a rebuild tells, but for its commits, which nobody can see before the swap."""

    def __init__(self, observer: SyncObserver) -> None:
        self.progress = observer.progress
        self.file_failed = observer.file_failed

    def committed(self, revision: int) -> None:
        """Keeps silent."""
