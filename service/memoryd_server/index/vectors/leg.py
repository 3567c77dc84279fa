"""The vector leg of one agent: which engine, what is resident, and the exact answer."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from memoryd_server.index.floats import FLOAT_BYTES, Ids, Vectors, unit
from memoryd_server.index.reader import IndexReader
from memoryd_server.index.vectors import extension, scan
from memoryd_server.index.vectors.allowed import AllowedChunks
from memoryd_server.index.vectors.copy import CopyFailed, Vec0Copy
from memoryd_server.index.vectors.extension import VectorEngine
from memoryd_server.index.vectors.matrix import Matrix
from memoryd_server.index.vectors.ranking import Best
from memoryd_server.index.vectors.residency import Residency
from memoryd_server.index.vectors.resident import Resident
from memoryd_server.index.vectors.signs import SignBits, bytes_a_chunk
from memoryd_server.model import Source
from memoryd_server.store.rows import VectorHit

COARSE_ABOVE = 10_000
"""Chunks above which a coarse index proposes the candidates; up to it every vector is compared."""

MOST_CODES_BYTES = 32 * 2**20
"""What a coarse index may take for a byte of each number: about as much as the largest index that is held whole."""

# How far a small index may outgrow that before it is loaded anew.
_OUTGROWN = 1.25

# The share of spare room in what is resident, the half-empty pages of a copy included.
_SPARE = 1.25


class VectorLeg:
    """Finds the nearest chunks of one agent's index. Any thread may search; the writer thread applies changes.

    A small index is compared whole, by sqlite-vec when it loads and by numpy otherwise, with the same results. A large
    one, or one that would not fit the memory budget whole, is narrowed down by sign bits. When nothing may be resident,
    or another search is loading it, the blobs are scanned.
    """

    def __init__(
        self,
        *,
        sqlite_vec: bool,
        extension_path: str | None,
        memory_budget_bytes: int,
        coarse_above: int = COARSE_ABOVE,
        most_codes_bytes: int = MOST_CODES_BYTES,
    ) -> None:
        self._wanted = sqlite_vec
        self._extension_path = extension_path
        self._budget_bytes = memory_budget_bytes
        self._coarse_above = coarse_above
        self._most_codes_bytes = most_codes_bytes
        self._engine = VectorEngine("exact", load_error="sqlite-vec was not probed yet" if sqlite_vec else None)
        self._allowed = AllowedChunks()
        self._residency = Residency(self._begin, memory_budget_bytes)

    @property
    def engine(self) -> VectorEngine:
        """Who compares the vectors of a small index, as last found out."""
        return self._engine

    def probe(self, timeout_seconds: float = extension.PROBE_SECONDS) -> VectorEngine:
        """Finds out, by using it, whether sqlite-vec serves; to be called at start, off the event loop."""
        if self._wanted:
            self._engine = extension.probe(self._extension_path, timeout_seconds)
        return self._engine

    def search(
        self,
        reader: IndexReader,
        query: NDArray[np.float32],
        limit: int,
        sources: Sequence[Source] = (),
    ) -> list[VectorHit]:
        """The nearest chunks of the reader's snapshot, best first, equals by chunk id; empty `sources` means all.

        The cosines are exact, from the stored vectors. Vectors of another dimension than the query's are left out.

        Raises:
            ValueError: the query has no direction: zero, or a number that is not finite.
        """
        direction = unit(query)
        best = Best(direction, limit)
        allowed = self._allowed.ids(reader, sources)
        if limit < 1 or (allowed is not None and not len(allowed)):
            return []
        candidates = self._candidates(reader, direction.astype(np.float32), limit, allowed)
        if candidates is None:
            scan.offer_all(reader, len(direction), allowed, best)
        else:
            best.offer(*reader.vectors_of(candidates.tolist(), len(direction)))
        return best.hits()

    def _candidates(self, reader: IndexReader, query: Vectors, limit: int, allowed: Ids | None) -> Ids | None:
        try:
            return self._residency.candidates(reader, query, limit, allowed)
        except CopyFailed as error:
            self._give_up_extension(error)
            return None

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """Brings memory in line with a commit; to be called by the writer thread right after it.

        `added` holds the blobs of new and changed chunks, `removed` the chunks that lost theirs; an id that is
        in both is added.
        """
        try:
            self._residency.apply(added, removed)
        except CopyFailed as error:
            self._give_up_extension(error)

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
        try:
            return self._residency.memory_bytes + self._allowed.memory_bytes
        except CopyFailed as error:
            self._give_up_extension(error)
            return 0

    def _give_up_extension(self, error: CopyFailed) -> None:
        self._engine = VectorEngine("exact", self._engine.version, str(error))
        self._residency.reset()

    def _begin(self, reader: IndexReader, dimensions: int) -> Resident | None:
        """An empty resident of the kind that suits the snapshot."""
        count = reader.embedding_count()
        room = self._budget_bytes / _SPARE
        if count <= self._coarse_above and count * FLOAT_BYTES * dimensions <= room:
            most = int(self._coarse_above * _OUTGROWN)
            if self._engine.engine == "sqlite-vec":
                return Vec0Copy(self._extension_path, dimensions, most)
            return Matrix(dimensions, count, most)
        if count * bytes_a_chunk(dimensions) > room:
            return None
        codes_fit = (
            count * dimensions <= self._most_codes_bytes and count * bytes_a_chunk(dimensions, with_codes=True) <= room
        )
        return SignBits(scan.sample_mean(reader, dimensions), count, with_codes=codes_fit)
