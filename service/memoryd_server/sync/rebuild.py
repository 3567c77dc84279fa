"""Price and approval; switch to another provider.

What syncs would cost, and the rebuild that waits until somebody has agreed to its price.

Makes an index's vectors anew with another provider, in a file beside the index that is swapped in when it is whole.

Until then, and where the other provider fails as well, the old vectors stay in use.
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
    SyncPhase,
    SyncProgress,
    YieldingObserver,
)

# A rebuild that waits is priced anew after so long: pricing reads every file.
PRICE_HOLDS_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class FilesCost:
    """What indexing some files makes: how many of them differ from the index, their chunks, and what these cost."""

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
    """Reads and chunks `files`, and writes nothing; files whose bytes are those of `known` count for nothing.

    Raises:
        SyncCancelled: `should_stop` said so between two files.
    """
    count, chunk_count, price = 0, 0, EmbeddingCost()
    for file in files:
        if should_stop():
            raise SyncCancelled("the sync run was cancelled before it had changed anything")
        made = preparer.chunks_of(file, known.get((file.source, file.path)))
        count += made is not None
        for chunks in made or ():
            chunk_count += len(chunks)
            price += EmbeddingCost() if embedder is None or not chunks else embedder.price(chunks)
    return FilesCost(count, chunk_count, price)


class RebuildApproval:
    """Holds a rebuild back that other chunking asks for and that would cost more than was agreed to.

    Until Sync(FULL), the old index goes on answering with its chunks and vectors. `monotonic` is a clock in seconds.
    """

    def __init__(
        self,
        store: Store,
        survey: SyncPlanner,
        preparer: FilePreparer,
        embedder: Callable[[], Embedder | None],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._survey = survey
        self._preparer = preparer
        self._embedder = embedder
        self._monotonic = monotonic
        self._priced_at: float | None = None
        self.reason = ""

    def must_wait(self, should_stop: Callable[[], bool]) -> bool:
        """Whether the rebuild that is due has to wait; `reason` says why, with the price. For the writer thread."""
        embedder = self._embedder()
        if embedder is None or not self._store.build_differences or not self._has_vectors():
            self.open()
        elif self._priced_at is None or self._monotonic() - self._priced_at > PRICE_HOLDS_SECONDS:
            files = self._survey.discover().files
            cost = price_files(self._preparer, embedder, files, {}, should_stop)
            self.reason = embedder.refusal(cost.price.tokens)
            self._priced_at = self._monotonic()
        return bool(self.reason)

    def _has_vectors(self) -> bool:
        # An index without any has nothing to lose, and its keywords gain by the rebuild.
        vectors = self._store.writer()
        return vectors.vector_identity() is not None and vectors.count_pending() < vectors.count_chunks()

    def open(self) -> None:
        """Forgets the price, after a rebuild."""
        self._priced_at, self.reason = None, ""


class _Failed(Exception):
    """The other provider made not all of the vectors."""


class ProviderSwitch:
    """Hands one index over, for the writer thread.

    `index_files` brings the files into an empty index; `is_hidden` tells that some cannot be seen now. `monotonic` is a
    clock in seconds.
    """

    def __init__(
        self,
        store: Store,
        lineup: ProviderFailover,
        index_files: Callable[[Writer, SyncObserver, Callable[[], bool]], SyncOutcome],
        is_hidden: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._lineup = lineup
        self._index_files = index_files
        self._is_hidden = is_hidden
        self._monotonic = monotonic

    def carry_out(self, change: ProviderChange, asked: RunOptions) -> SyncOutcome | None:
        """What the run did; None where the change did not come about, which the lineup says with its reason.

        `yielded` is set where it was put off for files that have changed; what was made is in the cache.

        Raises:
            SyncCancelled: `should_stop` said so; the index is as it was.
        """
        why_not = self._why_not(change, asked)
        if why_not:
            self._stays(change, why_not)
            return None
        # Without a cache that keeps them all, each attempt would begin with the first vector.
        keeps = change.to.remembers(self._store.writer().count_chunks())
        should_yield = asked.should_yield if keeps else _never
        watch = YieldingObserver(HiddenCommits(asked.observer), asked.should_stop, should_yield, self._monotonic)
        try:
            outcome = self._rebuild(change, asked, watch)
        except _Failed as failed:
            self._stays(change, str(failed))
            return None
        except SyncCancelled:
            if asked.should_stop() or not watch.yielded:
                raise
            return self._put_off(change, watch.cached)
        self._lineup.changed(change)
        self._lineup.look(self._store.writer(), outcome.embedding_reason)
        revision = self._store.writer().revision()
        asked.observer.committed(revision)
        return replace(outcome, revision=revision, changed=True)

    def _why_not(self, change: ProviderChange, asked: RunOptions) -> str:
        if self._is_hidden():
            return (
                "some folder of the memory cannot be looked into, and a rebuild would lose what the index holds of it"
            )
        return "" if asked.confirmed else change.to.refusal(change.to.price_index(self._store.writer()).tokens)

    def _stays(self, change: ProviderChange, why: str) -> None:
        self._lineup.stays(f"{provider_and_model(change.to.provider.spec)} does not take over: {why}")

    def _rebuild(self, change: ProviderChange, asked: RunOptions, watch: YieldingObserver) -> SyncOutcome:
        with self._store.rebuild() as writer:
            outcome = self._index_files(writer, HiddenCommits(asked.observer), asked.should_stop)
            reporter = EmbeddingReporter(watch, outcome.indexed_files)
            done = change.to.run(writer, reporter, confirmed=True, beside=True, should_stop=watch.should_stop)
            if change.to.fault:
                raise _Failed(change.to.fault)
            writer.record_failover(change.note.to_json())
            count = outcome.indexed_files
            asked.observer.progress(SyncProgress(SyncPhase.SWAPPING, count, count, outcome.chunks, outcome.chunks))
        return replace(
            outcome, cached_chunks=done.cached, pending_embeddings=done.pending, embedding_reason=done.reason
        )

    def _put_off(self, change: ProviderChange, cached: int) -> SyncOutcome:
        self._lineup.put_off(change)
        pending = self._lineup.active.state.pending
        return SyncOutcome(
            self._store.writer().revision(), cached_chunks=cached, pending_embeddings=pending, yielded=True
        )


def _never() -> bool:
    return False
