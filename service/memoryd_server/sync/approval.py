"""What a sync costs, and the approval of a rebuild that costs more than the configured limit."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from memoryd_server.embedding import Embedder, EmbeddingCost
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Source, SourceFile
from memoryd_server.sources import ReadStopped
from memoryd_server.store import FileRow, Store
from memoryd_server.sync.plan import SyncPlanner
from memoryd_server.sync.prepare import FilePreparer

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
        SyncCancelled: `should_stop` returned true between two files, or within an archive.
    """
    try:
        return _price(preparer, embedder, files, known, should_stop)
    except ReadStopped:
        # A cause would be logged as an unexpected error.
        raise SyncCancelled("the sync run was cancelled before it had changed anything") from None


def _price(
    preparer: FilePreparer,
    embedder: Embedder | None,
    files: Iterable[SourceFile],
    known: Mapping[tuple[Source, str], FileRow],
    should_stop: Callable[[], bool],
) -> FilesCost:
    count, chunk_count, price = 0, 0, EmbeddingCost()
    for file in files:
        if should_stop():
            raise ReadStopped
        batches = preparer.chunks_of(file, known.get((file.source, file.path)), should_stop)
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
