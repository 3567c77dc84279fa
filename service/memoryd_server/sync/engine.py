"""SyncEngine: one run, incremental or full.

Brings the index in line with the Markdown files.

A sync has two halves. `plan` compares the files on disk with the rows of the index and touches nothing. `apply` carries
the plan out, whole files a transaction. A rebuild does the same into an empty file beside the index and swaps it in.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from memoryd_server.embedding import Embedder, EmbeddingCost, ProviderChange, ProviderFailover
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Clock, Source
from memoryd_server.sources import Discovery
from memoryd_server.store import FileRow, Store, Writer
from memoryd_server.sync.executor import PlanExecutor
from memoryd_server.sync.plan import LastComparison, SyncPlan
from memoryd_server.sync.planner import FULL_SCOPE, SyncPlanner, SyncScope
from memoryd_server.sync.prepare import FilePreparer
from memoryd_server.sync.progress import (
    EmbeddingReporter,
    HiddenCommits,
    RunOptions,
    SyncEstimate,
    SyncMode,
    SyncObserver,
    SyncOutcome,
    SyncPhase,
    SyncProgress,
    YieldingObserver,
)
from memoryd_server.sync.rebuild import ProviderSwitch, RebuildApproval, price_files


@dataclass(frozen=True, slots=True)
class DiskComparison:
    """The files on disk, the index's rows of the same moment, and how they differ.

    `agreed_ns` is when the two were last known to agree (Unix nanoseconds); None when that is not known.
    """

    discovery: Discovery
    rows: Mapping[tuple[Source, str], FileRow]
    plan: SyncPlan
    agreed_ns: int | None = None


class SyncEngine:
    """Syncs one index with its sources.

    Without a `lineup`, a rebuild keeps the vectors of unchanged texts only where `keep_vectors` says so.

    `run` belongs to the agent's writer thread; `compare` and `estimate` may run on any thread beside it.
    """

    def __init__(
        self,
        store: Store,
        survey: SyncPlanner,
        preparer: FilePreparer,
        *,
        files_per_transaction: int,
        clock: Clock,
        lineup: ProviderFailover | None = None,
        keep_vectors: bool = False,
    ) -> None:
        self._lineup = lineup
        self._keep_vectors = keep_vectors
        self._store = store
        self._survey = survey
        self._preparer = preparer
        self._files_per_transaction = files_per_transaction
        self._clock = clock
        self.last_comparison = LastComparison()
        # A rebuild that was asked for, and put off for files that have changed while its batch jobs were at work.
        self._owed = False
        self._gate = RebuildApproval(store, self._survey, preparer, lambda: self._embedder, clock.monotonic)
        self._hand_over = None if self._lineup is None else self._made_hand_over(self._lineup)
        store.health.watch(self._look_again)

    def _made_hand_over(self, lineup: ProviderFailover) -> ProviderSwitch:
        return ProviderSwitch(
            self._store,
            lineup,
            lambda writer, observer, should_stop: self._apply(writer, observer, should_stop, beside=True),
            lambda: bool(self.compare().plan.hidden),
            self._clock.monotonic,
        )

    @property
    def _embedder(self) -> Embedder | None:
        return None if self._lineup is None else self._lineup.active

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
        index is kept up to date. Where another provider stands in from now on, or no longer, that is a rebuild as well.

        Raises:
            SyncCancelled: `should_stop` said so at a file boundary.
            DiskFull: nothing of the transaction at work is kept; what was committed before stays.
            IndexUnavailable: the index cannot be written.
        """
        return self._store.on_sound_index(lambda stop: self._run(mode, observer, stop, should_yield), should_stop)

    def _run(
        self,
        mode: SyncMode,
        observer: SyncObserver,
        should_stop: Callable[[], bool],
        should_yield: Callable[[], bool],
    ) -> SyncOutcome:
        observer.progress(SyncProgress(phase=SyncPhase.PLANNING))
        asked = RunOptions(observer, should_stop, should_yield, confirmed=mode is SyncMode.FULL or self._owed)
        self._owed = False
        outcome = self._rebuilt(asked) if asked.confirmed or self._may_rebuild(should_stop) else self._updated(asked)
        outcome = self._handed_over(asked, outcome)
        self._store.writer().record_sync(self._clock.now_ns() // 1_000_000)
        with self._store.read() as reader:
            counts = reader.counts()
        return replace(outcome, files=counts.files, indexed_chunks=counts.chunks)

    def _rebuilt(self, asked: RunOptions) -> SyncOutcome:
        put_off = self._by_jobs(asked)
        if put_off is not None:
            return put_off
        outcome = self._handed_back(asked) or self._rebuild(
            asked.observer, asked.should_stop, confirmed=asked.confirmed
        )
        self._gate.open()
        self.compare()
        return outcome

    def _by_jobs(self, asked: RunOptions) -> SyncOutcome | None:
        """Has batch jobs make, before a rebuild, what it would have to; what was done where that was put off.

        The old index is kept up to date meanwhile, and the next pass goes on with the rebuild.
        """
        embedder = self._embedder
        if embedder is None or not asked.confirmed or self._store.build_differences:
            return None
        if not embedder.needs_batch_jobs(self._store.writer()):
            return None
        outcome = self._apply(self._store.writer(), asked.observer, asked.should_stop)
        done = self._embed_or_yield(asked, outcome)
        self._owed = done.yielded
        return done if done.yielded else None

    def _updated(self, asked: RunOptions) -> SyncOutcome:
        self._refresh_keyword(asked.observer, asked.should_stop)
        outcome = self._apply(self._store.writer(), asked.observer, asked.should_stop)
        return self._handed_back(asked, outcome) or self._embed_or_yield(asked, outcome)

    def _handed_back(self, asked: RunOptions, outcome: SyncOutcome | None = None) -> SyncOutcome | None:
        """What a hand-over to the configured provider did after `outcome`; None where none is due, or it failed."""
        if self._lineup is None:
            return None
        return self._changed(self._lineup.due_failback(asked.should_stop, now=asked.confirmed), asked, outcome)

    def _handed_over(self, asked: RunOptions, outcome: SyncOutcome) -> SyncOutcome:
        """The outcome, with what a hand-over did to the provider that stands in for one that has failed."""
        if self._lineup is None or outcome.yielded:
            return outcome
        return self._changed(self._lineup.due_failover(asked.should_stop), asked, outcome) or outcome

    def _changed(
        self, change: ProviderChange | None, asked: RunOptions, outcome: SyncOutcome | None
    ) -> SyncOutcome | None:
        done = None if change is None or self._hand_over is None else self._hand_over.carry_out(change, asked)
        if done is None or outcome is None:
            return done
        return outcome.followed_by(done) if done.yielded else replace(done, removed_files=outcome.removed_files)

    def _may_rebuild(self, should_stop: Callable[[], bool]) -> bool:
        if not self._store.build_differences or self._gate.must_wait(should_stop):
            return False
        return not self.compare().plan.hidden

    def _look_again(self) -> None:
        if self._lineup is not None and self._store.health.damage is None:
            self._lineup.look(self._store.writer())

    def _apply(
        self, writer: Writer, observer: SyncObserver, should_stop: Callable[[], bool], *, beside: bool = False
    ) -> SyncOutcome:
        began_ns = self._clock.now_ns()
        plan, rows = self._survey.take(writer, everything=beside or not self._store.has_completed_sync)
        application = PlanExecutor(
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
            outcome = application.remove(self._survey.plan(self._survey.discover(), gone, FULL_SCOPE).removed)
        if not (beside or plan.of_files):
            self.last_comparison.note(plan, began_ns, carried_out=not application.vanished)
        return outcome

    def _refresh_keyword(self, observer: SyncObserver, should_stop: Callable[[], bool]) -> None:
        if self._store.keyword_outdated:
            observer.committed(self._store.refresh_keyword(self._preparer.analyzer, should_stop))

    def _rebuild(self, observer: SyncObserver, should_stop: Callable[[], bool], *, confirmed: bool) -> SyncOutcome:
        with self._store.rebuild() as writer:
            outcome = self._apply(writer, HiddenCommits(observer), should_stop, beside=True)
            outcome = self._embed(
                writer, HiddenCommits(observer), outcome, should_stop, confirmed=confirmed, beside=True
            )
            if self._lineup is not None:
                self._lineup.carry(writer)
            elif self._keep_vectors:
                writer.copy_vectors(self._store.writer(), should_stop)
            observer.progress(
                SyncProgress(
                    SyncPhase.SWAPPING, outcome.indexed_files, outcome.indexed_files, outcome.chunks, outcome.chunks
                )
            )
        if self._lineup is not None:
            self._lineup.look(self._store.writer(), outcome.embedding_reason)
        revision = self._store.writer().revision()
        observer.committed(revision)
        return replace(outcome, revision=revision, changed=True)

    def _embed_or_yield(self, asked: RunOptions, outcome: SyncOutcome) -> SyncOutcome:
        if self._lineup is not None and self._lineup.is_postponed:
            return outcome
        watch = YieldingObserver(asked.observer, asked.should_stop, asked.should_yield, self._clock.monotonic)
        writer = self._store.writer()
        try:
            done = self._embed(writer, watch, outcome, watch.should_stop, confirmed=asked.confirmed)
        except SyncCancelled:
            if asked.should_stop() or not watch.yielded:
                raise
            done = replace(outcome, revision=writer.revision(), cached_chunks=watch.cached, changed=True)
        if not watch.yielded:
            return done
        pending = 0 if self._embedder is None else self._embedder.state.pending
        return replace(done, pending_embeddings=pending, embedding_reason="", yielded=True)

    def _embed(
        self,
        writer: Writer,
        observer: SyncObserver,
        outcome: SyncOutcome,
        should_stop: Callable[[], bool],
        *,
        confirmed: bool,
        beside: bool = False,
    ) -> SyncOutcome:
        if self._embedder is None:
            return outcome
        reporter = EmbeddingReporter(observer, outcome.indexed_files)
        done = self._embedder.run(writer, reporter, confirmed=confirmed, beside=beside, should_stop=should_stop)
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
        return bool(self._store.build_differences) and not self._gate.reason

    @property
    def rebuild_waits(self) -> str:
        """Why a rebuild that is due waits for a FULL run, with its price; empty when none does."""
        return self._gate.reason

    def compare(self) -> DiskComparison:
        """What differs between disk and index now."""
        began_ns = self._clock.now_ns()
        discovery = self._survey.discover()
        with self._store.read() as reader:
            rows = reader.files()
        plan = self._survey.plan(discovery, rows)
        self.last_comparison.note(plan, began_ns)
        return DiskComparison(discovery, rows, plan, self.last_comparison.agreed_ns)

    def estimate(self, mode: SyncMode, ask: SyncScope = FULL_SCOPE) -> SyncEstimate:
        """What a run would do, from reading the files it would read; a rebuild that waits is priced. Writes nothing."""
        state = self.compare()
        if self._lineup is not None:
            self._lineup.refresh()
        full = mode is SyncMode.FULL or bool(self._store.build_differences)
        plan = self._survey.plan(state.discovery, state.rows, ask)
        files = state.discovery.files if full else plan.to_read
        made = price_files(self._preparer, self._embedder, files, {} if full else state.rows)
        price = made.price if full else made.price + self._price_of_index()
        embedder = None if mode is SyncMode.FULL else self._embedder
        refusal = "" if embedder is None else embedder.refusal(price.tokens)
        return SyncEstimate(made.files, len(plan.removed), made.chunks, price.chunks, price.tokens, refusal)

    def _price_of_index(self) -> EmbeddingCost:
        if self._embedder is None:
            return EmbeddingCost()
        with self._store.read() as reader:
            return self._embedder.price_index(reader)
