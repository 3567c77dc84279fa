"""What syncs would cost, and the rebuild that waits until somebody has agreed to its price."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from memoryd_server.errors import SyncCancelled
from memoryd_server.index.embedding import Embedder, Price
from memoryd_server.index.prepare import FilePreparer
from memoryd_server.index.survey import Survey
from memoryd_server.model import Source, SourceFile
from memoryd_server.store.protocol import Store
from memoryd_server.store.rows import FileRow

# A rebuild that waits is priced anew after so long: pricing reads every file.
PRICE_HOLDS_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class FilesPrice:
    """What indexing some files makes: how many of them differ from the index, their chunks, and what these cost."""

    files: int
    chunks: int
    price: Price


def price_files(
    preparer: FilePreparer,
    embedder: Embedder | None,
    files: Iterable[SourceFile],
    known: Mapping[tuple[Source, str], FileRow],
    should_stop: Callable[[], bool] = lambda: False,
) -> FilesPrice:
    """Reads and chunks `files`, and writes nothing; files whose bytes are those of `known` count for nothing.

    Raises:
        SyncCancelled: `should_stop` said so between two files.
    """
    count, chunk_count, price = 0, 0, Price()
    for file in files:
        if should_stop():
            raise SyncCancelled("the sync run was cancelled before it had changed anything")
        made = preparer.chunks_of(file, known.get((file.source, file.path)))
        count += made is not None
        for chunks in made or ():
            chunk_count += len(chunks)
            price += Price() if embedder is None or not chunks else embedder.price(chunks)
    return FilesPrice(count, chunk_count, price)


class RebuildGate:
    """Holds a rebuild back that other chunking asks for and that would cost more than was agreed to.

    Until Sync(FULL), the old index goes on answering with its chunks and vectors. `monotonic` is a clock in seconds.
    """

    def __init__(
        self,
        store: Store,
        survey: Survey,
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

    def holds_back(self, should_stop: Callable[[], bool]) -> bool:
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
