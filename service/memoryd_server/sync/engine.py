"""SyncEngine: one sync run, incremental or full.

A run has two halves. The planner compares the files on disk with the rows of the index and changes nothing. The
executor carries out the plan, whole files per transaction. A rebuild does the same into an empty second index, which
replaces the first when it is complete. Afterwards, chunks without a vector are embedded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from memoryd_server.embedding import Embedder, EmbeddingCost, ProviderChange, ProviderFailover
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Clock, Source
from memoryd_server.sources import Discovery
from memoryd_server.store import FileRow, Store, Writer
from memoryd_server.sync.approval import RebuildApproval, price_files
from memoryd_server.sync.executor import MAX_TRANSACTION_CHARS, PlanExecutor
from memoryd_server.sync.plan import FULL_SCOPE, LastComparison, Rows, SyncPlan, SyncPlanner, SyncScope, as_current
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
from memoryd_server.sync.provider_switch import ProviderSwitch


@dataclass(frozen=True, slots=True)
class DiskComparison:
    """The files on disk, the index's rows at the same moment, and how they differ.

    `agreed_ns` is when the two were last known to agree (Unix nanoseconds); None if they never were.
    """

    discovery: Discovery
    rows: Mapping[tuple[Source, str], FileRow]
    plan: SyncPlan
    agreed_ns: int | None = None


class SyncEngine:
    """Syncs one index with its sources.

    `failover` has the embedders; None if the index has no embedding provider. Without one, a rebuild copies the vectors
    of unchanged texts if `keep_vectors` is set. `before_run` is called when a run has begun to exclude other processes.

    `run` belongs to the agent's writer thread; `compare` and `estimate` may be called on any thread during a run.
    """

    def __init__(
        self,
        store: Store,
        planner: SyncPlanner,
        preparer: FilePreparer,
        *,
        files_per_transaction: int,
        chars_per_transaction: int = MAX_TRANSACTION_CHARS,
        clock: Clock,
        failover: ProviderFailover | None = None,
        keep_vectors: bool = False,
        before_run: Callable[[], None] | None = None,
    ) -> None:
        self._before_run = before_run
        self._failover = failover
        self._keep_vectors = keep_vectors
        self._store = store
        self._planner = planner
        self._preparer = preparer
        self._files_per_transaction = files_per_transaction
        self._chars_per_transaction = chars_per_transaction
        self._clock = clock
        self.last_comparison = LastComparison()
        # Whether a requested rebuild was postponed for changed files while its batch jobs were running.
        self._rebuild_postponed = False
        self._approval = RebuildApproval(store, planner, preparer, lambda: self._embedder, clock.monotonic)
        self._switch = None if failover is None else self._new_switch(failover)
        store.health.watch(self._reload_vector_state)

    def _new_switch(self, failover: ProviderFailover) -> ProviderSwitch:
        return ProviderSwitch(
            self._store,
            failover,
            lambda writer, observer, should_stop: self._apply(writer, observer, should_stop, rebuilding=True),
            lambda: bool(self.compare().plan.hidden),
            self._clock.monotonic,
        )

    @property
    def _embedder(self) -> Embedder | None:
        return None if self._failover is None else self._failover.active

    def run(
        self,
        mode: SyncMode,
        observer: SyncObserver,
        should_stop: Callable[[], bool],
        should_yield: Callable[[], bool] = lambda: False,
    ) -> SyncOutcome:
        """Make the index match the files. Rebuild it if `mode` is FULL, or if its build identity is outdated.

        If `should_yield` returns true, embedding ends early with `yielded` set, so that another run can index files
        that have changed since. While a root cannot be read, only a FULL run rebuilds, because a rebuild loses what the
        index has of that root.

        A rebuild for another build identity that would cost more than the configured limit waits for a FULL run; until
        then the old index is kept up to date. A change to or from the fallback provider is a rebuild as well.

        Raises:
            SyncCancelled: `should_stop` returned true at a file boundary.
            DiskFull: the transaction at that moment was rolled back; earlier ones stay.
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
        if self._before_run is not None:
            self._before_run()
        confirmed = mode is SyncMode.FULL or self._rebuild_postponed
        options = RunOptions(observer, should_stop, should_yield, confirmed=confirmed)
        self._rebuild_postponed = False
        outcome = self._run_full(options) if confirmed or self._may_rebuild(should_stop) else self._update(options)
        outcome = self._fail_over(options, outcome)
        self._store.writer().record_sync(self._clock.now_ns() // 1_000_000)
        with self._store.read() as reader:
            counts = reader.counts()
        return replace(outcome, files=counts.files, indexed_chunks=counts.chunks)

    def _run_full(self, options: RunOptions) -> SyncOutcome:
        postponed = self._embed_by_jobs(options)
        if postponed is not None:
            return postponed
        outcome = self._fail_back(options)
        if outcome is None:
            outcome = self._rebuild(options.observer, options.should_stop, confirmed=options.confirmed)
            if self._replaces_vectors():
                outcome = self._embed_or_yield(options, outcome)
        self._approval.reset()
        self.compare()
        return outcome

    def _replaces_vectors(self) -> bool:
        """Return whether vectors of another model answer until those of the settings are complete."""
        return self._embedder is not None and self._embedder.replaces(self._store.writer())

    def _embed_by_jobs(self, options: RunOptions) -> SyncOutcome | None:
        """Embed by batch jobs before a rebuild, which makes no jobs; return the outcome if that postpones the rebuild.

        The old index is kept up to date until the jobs have ended; then the next run rebuilds.
        """
        embedder = self._embedder
        if embedder is None or not options.confirmed or self._store.build_differences:
            return None
        if not embedder.needs_batch_jobs(self._store.writer()):
            return None
        outcome = self._apply(self._store.writer(), options.observer, options.should_stop)
        outcome = self._embed_or_yield(options, outcome)
        self._rebuild_postponed = outcome.yielded
        return outcome if outcome.yielded else None

    def _update(self, options: RunOptions) -> SyncOutcome:
        if self._store.keyword_outdated:
            revision = self._store.refresh_keyword(self._preparer.analyzer, options.should_stop)
            options.observer.committed(revision)
        outcome = self._apply(self._store.writer(), options.observer, options.should_stop)
        return self._fail_back(options, outcome) or self._embed_or_yield(options, outcome)

    def _fail_back(self, options: RunOptions, outcome: SyncOutcome | None = None) -> SyncOutcome | None:
        """Change back to the configured provider after `outcome`; None if that is not due, or failed."""
        if self._failover is None:
            return None
        change = self._failover.due_failback(options.should_stop, now=options.confirmed)
        return self._switch_provider(change, options, outcome)

    def _fail_over(self, options: RunOptions, outcome: SyncOutcome) -> SyncOutcome:
        """Change to the fallback provider after `outcome`, if the configured one has failed; return the outcome."""
        if self._failover is None or outcome.yielded:
            return outcome
        return self._switch_provider(self._failover.due_failover(options.should_stop), options, outcome) or outcome

    def _switch_provider(
        self, change: ProviderChange | None, options: RunOptions, outcome: SyncOutcome | None
    ) -> SyncOutcome | None:
        switched = None if change is None or self._switch is None else self._switch.run(change, options)
        if switched is None or outcome is None:
            return switched
        if switched.yielded:
            return outcome.followed_by(switched)
        return replace(switched, removed_files=outcome.removed_files)

    def _may_rebuild(self, should_stop: Callable[[], bool]) -> bool:
        if not self._store.build_differences or self._approval.must_wait(should_stop):
            return False
        return not self.compare().plan.hidden

    def _reload_vector_state(self) -> None:
        if self._failover is not None and self._store.health.damage is None:
            self._failover.load_state(self._store.writer())

    def _apply(
        self, writer: Writer, observer: SyncObserver, should_stop: Callable[[], bool], *, rebuilding: bool = False
    ) -> SyncOutcome:
        began_ns = self._clock.now_ns()
        plan, rows = self._planner.take(
            writer,
            everything=rebuilding or not self._store.has_completed_sync,
            refills=rebuilding or not self._store.build_differences,
        )
        executor = PlanExecutor(
            writer,
            self._preparer,
            observer,
            files_per_transaction=self._files_per_transaction,
            chars_per_transaction=self._chars_per_transaction,
            should_stop=should_stop,
            monotonic=self._clock.monotonic,
        )
        outcome = executor.run(plan, rows)
        if executor.missing:
            # Compared again: if their folder has become unreadable, they are hidden, and their rows stay.
            missing = {(row.source, row.path): row for row in executor.missing}
            outcome = executor.remove(self._planner.plan(self._planner.discover(), missing, FULL_SCOPE).removed)
        if not (rebuilding or plan.of_named_files):
            self.last_comparison.record(plan, began_ns, carried_out=not executor.missing)
        return outcome

    def _rebuild(self, observer: SyncObserver, should_stop: Callable[[], bool], *, confirmed: bool) -> SyncOutcome:
        replaces_vectors = self._replaces_vectors()
        with self._store.rebuild() as writer:
            hidden = HiddenCommits(observer)
            outcome = self._apply(writer, hidden, should_stop, rebuilding=True)
            if not replaces_vectors:
                outcome = self._embed(writer, hidden, outcome, should_stop, confirmed=confirmed, rebuilding=True)
                if self._failover is not None:
                    self._failover.copy_record(writer)
            if replaces_vectors or (self._failover is None and self._keep_vectors):
                writer.copy_vectors(self._store.writer(), should_stop)
            observer.progress(SyncProgress.swapping(outcome.indexed_files, outcome.chunks))
        if self._failover is not None:
            self._failover.load_state(self._store.writer(), outcome.embedding_reason)
        revision = self._store.writer().revision()
        observer.committed(revision)
        return replace(outcome, revision=revision, changed=True)

    def _embed_or_yield(self, options: RunOptions, outcome: SyncOutcome) -> SyncOutcome:
        if self._failover is not None and self._failover.is_postponed:
            return outcome
        watch = YieldingObserver(options.observer, options.should_stop, options.should_yield, self._clock.monotonic)
        writer = self._store.writer()
        try:
            embedded = self._embed(writer, watch, outcome, watch.should_stop, confirmed=options.confirmed)
        except SyncCancelled:
            if options.should_stop() or not watch.yielded:
                raise
            embedded = replace(outcome, revision=writer.revision(), cached_chunks=watch.cached, changed=True)
        if not watch.yielded:
            return embedded
        pending = 0 if self._embedder is None else self._embedder.state.pending
        return replace(embedded, pending_embeddings=pending, embedding_reason="", yielded=True)

    def _embed(
        self,
        writer: Writer,
        observer: SyncObserver,
        outcome: SyncOutcome,
        should_stop: Callable[[], bool],
        *,
        confirmed: bool,
        rebuilding: bool = False,
    ) -> SyncOutcome:
        if self._embedder is None:
            return outcome
        reporter = EmbeddingReporter(observer, outcome.indexed_files)
        done = self._embedder.run(writer, reporter, confirmed=confirmed, rebuilding=rebuilding, should_stop=should_stop)
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
        return bool(self._store.build_differences) and not self._approval.reason

    @property
    def rebuild_waits(self) -> str:
        """Why a rebuild that is due waits for a FULL run, with its cost; empty if none waits."""
        return self._approval.reason

    def compare(self) -> DiskComparison:
        """Return how disk and index differ now."""
        began_ns = self._clock.now_ns()
        discovery = self._planner.discover()
        with self._store.read() as reader:
            rows: Rows = reader.files()
        if self._store.build_differences:
            rows = as_current(rows)
        plan = self._planner.plan(discovery, rows)
        self.last_comparison.record(plan, began_ns)
        return DiskComparison(discovery, rows, plan, self.last_comparison.agreed_ns)

    def estimate(self, mode: SyncMode, scope: SyncScope = FULL_SCOPE) -> SyncEstimate:
        """Estimate what a run would do, by reading the files that it would read; writes nothing.

        The estimate includes a rebuild that waits for a FULL run.
        """
        comparison = self.compare()
        if self._failover is not None:
            self._failover.refresh()
        full = mode is SyncMode.FULL or bool(self._store.build_differences)
        plan = self._planner.plan(comparison.discovery, comparison.rows, scope)
        files = comparison.discovery.files if full else plan.to_read
        cost = price_files(self._preparer, self._embedder, files, {} if full else comparison.rows)
        price = cost.price if full else cost.price + self._price_index()
        embedder = None if mode is SyncMode.FULL else self._embedder
        refusal = "" if embedder is None else embedder.refusal(price.tokens)
        return SyncEstimate(cost.files, len(plan.removed), cost.chunks, price.chunks, price.tokens, refusal)

    def _price_index(self) -> EmbeddingCost:
        if self._embedder is None:
            return EmbeddingCost()
        with self._store.read() as reader:
            return self._embedder.price_index(reader)
