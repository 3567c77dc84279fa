"""The vector leg of one agent: what is in memory, who scans what is not, and the exact answer."""

from collections.abc import Collection, Mapping, Sequence

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.index.connection import is_damage
from memoryd_server.index.reader import IndexReader
from memoryd_server.index.vectors import extension, scan
from memoryd_server.index.vectors.allowed import AllowedChunks, restricting
from memoryd_server.index.vectors.extension import VectorEngine
from memoryd_server.index.vectors.matrix import Matrix
from memoryd_server.index.vectors.ranking import Best
from memoryd_server.index.vectors.residency import Residency
from memoryd_server.index.vectors.resident import Resident
from memoryd_server.index.vectors.signs import SignBits, bytes_a_chunk
from memoryd_server.model import Source
from memoryd_server.store.rows import VectorHit
from memoryd_server.vectors import FLOAT_BYTES, Ids, Vectors, exact_unit

COARSE_ABOVE = 10_000
"""Chunks above which a coarse index proposes the candidates; up to it every vector is compared."""

MOST_CODES_BYTES = 32 * 2**20
"""What a coarse index may take for a byte of each number: about as much as the largest index that is held whole."""

# How far a small index may outgrow that before it is loaded anew.
_OUTGROWN = 1.25

# The share of spare room in what is resident.
_SPARE = 1.25


class VectorLeg:
    """Finds the nearest chunks of one agent's index. Any thread may search; the writer thread applies changes.

    A small index is compared whole in memory. A large one, or one that would not fit the memory budget whole, is
    narrowed down by sign bits. While no vectors are in memory, because the budget is too small, another search is
    loading them or the snapshot is too old to load from, the stored vectors are scanned: by sqlite-vec if it loads,
    else by numpy, with the same results.
    """

    def __init__(
        self,
        *,
        sqlite_vec: bool,
        extension_path: str | None,
        memory_budget_bytes: int,
        coarse_above: int = COARSE_ABOVE,
        most_codes_bytes: int = MOST_CODES_BYTES,
        load_extension: extension.Load = extension.load,
    ) -> None:
        self._wanted = sqlite_vec
        self._extension_path = extension_path
        self._load_extension = load_extension
        self._budget_bytes = memory_budget_bytes
        self._coarse_above = coarse_above
        self._most_codes_bytes = most_codes_bytes
        self._engine = VectorEngine("exact", load_error="sqlite-vec was not probed yet" if sqlite_vec else None)
        self._allowed = AllowedChunks()
        self._residency = Residency(self._begin, memory_budget_bytes)

    @property
    def engine(self) -> VectorEngine:
        """The engine that scans stored vectors, as last determined."""
        return self._engine

    def probe(self, timeout_seconds: float = extension.PROBE_SECONDS) -> VectorEngine:
        """Determine whether sqlite-vec loads and computes right distances. Blocks; call it at start."""
        if self._wanted:
            self._engine = extension.probe(self._extension_path, timeout_seconds, self._load_extension)
        return self._engine

    def search(
        self,
        reader: IndexReader,
        query: NDArray[np.float32],
        limit: int,
        sources: Sequence[Source] = (),
    ) -> list[VectorHit]:
        """Return the nearest chunks of the reader's snapshot, best first, equals by chunk id.

        Empty `sources` means all. The cosines are exact, from the stored vectors. Vectors of another dimension than the
        query's are left out.

        Raises:
            ValueError: the query has no direction: zero, or a number that is not finite.
        """
        direction = exact_unit(query)
        if limit < 1:
            return []
        best = Best(direction, limit)
        rough, named = direction.astype(np.float32), restricting(sources)
        candidates = None
        if self._residency.prepare(reader, len(rough)):
            candidates = self._residency.candidates(rough, limit, self._allowed.ids(reader, named))
        if candidates is None:
            candidates = self._scanned(reader, rough, limit, named)
        if candidates is None:
            scan.offer_all(reader, len(rough), self._allowed.ids(reader, named), best)
        else:
            scan.offer(reader, len(rough), candidates, best)
        return best.hits()

    def _scanned(self, reader: IndexReader, query: Vectors, limit: int, sources: Sequence[Source]) -> Ids | None:
        """Return the candidates that sqlite-vec finds among the stored vectors; None if it does not serve."""
        if self._engine.engine != "sqlite-vec":
            return None
        try:
            if not extension.is_loaded(reader.connection):
                self._load_extension(reader.connection, self._extension_path)
            return extension.nearest(reader.connection, query, limit, sources)
        except (apsw.SQLError, apsw.ExtensionLoadingError, ImportError, OSError) as error:
            if is_damage(error):
                raise
            self._engine = VectorEngine("exact", self._engine.version, extension.described(error))
            return None

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """Update memory after a commit; the writer thread calls it immediately after the commit.

        `added` holds the blobs of new and changed chunks, `removed` the chunks that lost theirs; an id that is
        in both is added.
        """
        self._residency.apply(added, removed)

    def reset(self) -> None:
        """Forgets what is resident, after a rebuild, a swap or another identity."""
        self._residency.reset()
        self._allowed.forget()

    def unload(self) -> None:
        """Gives the memory of an idle agent back; the next search loads anew."""
        self._residency.unload()
        self._allowed.forget()

    @property
    def form(self) -> str:
        """What is held in memory of each vector: `whole`, `bits`, or nothing (empty)."""
        return self._residency.form

    @property
    def memory_bytes(self) -> int:
        """What is resident."""
        return self._residency.memory_bytes + self._allowed.memory_bytes

    def _begin(self, reader: IndexReader, dimensions: int) -> Resident | None:
        """An empty resident of the kind that suits the snapshot."""
        count = reader.embedding_count()
        room = self._budget_bytes / _SPARE
        if count <= self._coarse_above and count * FLOAT_BYTES * dimensions <= room:
            return Matrix(dimensions, count, int(self._coarse_above * _OUTGROWN))
        if count * bytes_a_chunk(dimensions) > room:
            return None
        codes_fit = (
            count * dimensions <= self._most_codes_bytes and count * bytes_a_chunk(dimensions, with_codes=True) <= room
        )
        return SignBits(scan.sample_mean(reader, dimensions), count, with_codes=codes_fit)
