"""What a sync costs, the approval of a costly rebuild, and the change to another embedding provider.

A change of provider embeds all chunks into a second index, which replaces the first when it is complete. Until then,
and if the other provider fails too, searches use the old vectors.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from memoryd_server.embedding import Embedder, EmbeddingCost, ProviderChange, ProviderFailover, provider_and_model
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Source, SourceFile
from memoryd_server.store import FileRow, Store, Writer
from memoryd_server.sync.planner import SyncPlanner
from memoryd_server.sync.prepare import FilePreparer
from memoryd_server.sync.progress import (
    EmbeddingReporter,
    HiddenCommits,
    RunOptions,
    SyncObserver,
    SyncOutcome,
    SyncProgress,
    YieldingObserver,
)

# The cost of a rebuild that waits is computed again after this time. Computing it reads every file.
PRICE_VALID_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class FilesCost:
    """What indexing some files takes: how many differ from the index, their chunks, and the embedding cost of these."""

    files: int
    chunks: int
    price: EmbeddingCost


def price_files(
    preparer: FilePreparer,
    embedder: Embedder | None,
    files: Iterable[SourceFile],
    known: Mapping[tuple[Source, str], FileRow],
    should_stop: Callable[[], bool] = lambda: False,
) -> FilesCost:
    """Read and chunk `files` to compute their cost; write nothing. Files whose bytes are those of `known` cost nothing.

    Raises:
        SyncCancelled: `should_stop` returned true between two files.
    """
    count, chunk_count, price = 0, 0, EmbeddingCost()
    for file in files:
        if should_stop():
            raise SyncCancelled("the sync run was cancelled before it had changed anything")
        batches = preparer.chunks_of(file, known.get((file.source, file.path)))
        count += batches is not None
        for chunks in batches or ():
            chunk_count += len(chunks)
            price += EmbeddingCost() if embedder is None or not chunks else embedder.price(chunks)
    return FilesCost(count, chunk_count, price)


class RebuildApproval:
    """Delays a rebuild for another chunking if it costs more than the configured limit.

    Until a run with mode FULL, searches use the old index. `reason` says why a rebuild waits; empty if none does.
    `monotonic` is a clock in seconds.
    """

    def __init__(
        self,
        store: Store,
        planner: SyncPlanner,
        preparer: FilePreparer,
        embedder: Callable[[], Embedder | None],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._planner = planner
        self._preparer = preparer
        self._embedder = embedder
        self._monotonic = monotonic
        self._priced_at: float | None = None
        self.reason = ""

    def must_wait(self, should_stop: Callable[[], bool]) -> bool:
        """Return whether the rebuild that is due has to wait; `reason` then has the cost. For the writer thread."""
        embedder = self._embedder()
        if embedder is None or not self._store.build_differences or not self._has_vectors():
            self.reset()
        elif self._priced_at is None or self._monotonic() - self._priced_at > PRICE_VALID_SECONDS:
            files = self._planner.discover().files
            cost = price_files(self._preparer, embedder, files, {}, should_stop)
            self.reason = embedder.refusal(cost.price.tokens)
            self._priced_at = self._monotonic()
        return bool(self.reason)

    def _has_vectors(self) -> bool:
        # An index without vectors has none to lose, and its keyword search improves by the rebuild.
        vectors = self._store.writer()
        return vectors.vector_identity() is not None and vectors.count_pending() < vectors.count_chunks()

    def reset(self) -> None:
        """Clear the cost and the reason, after a rebuild."""
        self._priced_at, self.reason = None, ""


class _ProviderFailed(Exception):
    """The other provider failed before all vectors were made."""


class ProviderSwitch:
    """Rebuilds one index with the vectors of another provider. For the writer thread.

    `index_files` writes the files into an empty index; `has_hidden_files` returns whether some folder cannot be read.
    `monotonic` is a clock in seconds.
    """

    def __init__(
        self,
        store: Store,
        failover: ProviderFailover,
        index_files: Callable[[Writer, SyncObserver, Callable[[], bool]], SyncOutcome],
        has_hidden_files: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._failover = failover
        self._index_files = index_files
        self._has_hidden_files = has_hidden_files
        self._monotonic = monotonic

    def run(self, change: ProviderChange, options: RunOptions) -> SyncOutcome | None:
        """Carry out the change; return what the run did, or None if it failed, with the reason stored in the failover.

        `yielded` is set if the change was postponed for files that have changed; the vectors made are in the cache.

        Raises:
            SyncCancelled: `should_stop` returned true; the index has not changed.
        """
        obstacle = self._obstacle(change, options)
        if obstacle:
            self._record_refusal(change, obstacle)
            return None
        # Without a cache for all vectors, each attempt would start with the first vector again.
        cacheable = change.to.fits_cache(self._store.writer().count_chunks())
        should_yield = options.should_yield if cacheable else _never
        watch = YieldingObserver(HiddenCommits(options.observer), options.should_stop, should_yield, self._monotonic)
        try:
            outcome = self._rebuild(change, options, watch)
        except _ProviderFailed as failed:
            self._record_refusal(change, str(failed))
            return None
        except SyncCancelled:
            if options.should_stop() or not watch.yielded:
                raise
            return self._postpone(change, watch.cached)
        self._failover.apply(change)
        self._failover.load_state(self._store.writer(), outcome.embedding_reason)
        revision = self._store.writer().revision()
        options.observer.committed(revision)
        return replace(outcome, revision=revision, changed=True)

    def _obstacle(self, change: ProviderChange, options: RunOptions) -> str:
        """Return the reason why the change cannot be carried out now; empty if it can."""
        if self._has_hidden_files():
            return "a folder of the memory cannot be read, and a rebuild would remove its files from the index"
        return "" if options.confirmed else change.to.refusal(change.to.price_index(self._store.writer()).tokens)

    def _record_refusal(self, change: ProviderChange, reason: str) -> None:
        self._failover.record_refusal(f"{provider_and_model(change.to.provider.spec)} does not take over: {reason}")

    def _rebuild(self, change: ProviderChange, options: RunOptions, watch: YieldingObserver) -> SyncOutcome:
        with self._store.rebuild() as writer:
            outcome = self._index_files(writer, HiddenCommits(options.observer), options.should_stop)
            reporter = EmbeddingReporter(watch, outcome.indexed_files)
            done = change.to.run(writer, reporter, confirmed=True, rebuilding=True, should_stop=watch.should_stop)
            if change.to.fault:
                raise _ProviderFailed(change.to.fault)
            writer.record_failover(change.record.to_json())
            options.observer.progress(SyncProgress.swapping(outcome.indexed_files, outcome.chunks))
        return replace(
            outcome, cached_chunks=done.cached, pending_embeddings=done.pending, embedding_reason=done.reason
        )

    def _postpone(self, change: ProviderChange, cached: int) -> SyncOutcome:
        self._failover.postpone(change)
        pending = self._failover.active.state.pending
        return SyncOutcome(
            self._store.writer().revision(), cached_chunks=cached, pending_embeddings=pending, yielded=True
        )


def _never() -> bool:
    return False
