"""A few vectors, whole: the exact engine."""

import numpy as np

from memoryd_server.index.vectors.ranking import Best, contenders
from memoryd_server.index.vectors.resident import SPARE_CANDIDATES
from memoryd_server.index.vectors.slots import Slots
from memoryd_server.vectors import Ids, Vectors


class Matrix:
    """float32 rows, compared with the query one and all. Worn when it has outgrown `most` rows."""

    def __init__(self, dimensions: int, capacity: int, most: int) -> None:
        self._slots = Slots(capacity, [lambda size: np.empty((size, dimensions), np.float32)])
        self._most = most

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids:
        """The nearest, and a few more."""
        ids, vectors = self._slots.ids, self._slots.column(0).view(np.float32)
        wanted = limit + SPARE_CANDIDATES
        rough = vectors @ query
        if allowed is not None:
            rough[~np.isin(ids, allowed)] = np.nan
        rows = contenders(rough, wanted)
        best = Best(query.astype(np.float64), wanted)
        best.offer(ids[rows], vectors[rows])
        return best.ids

    def put(self, ids: Ids, vectors: Vectors) -> None:
        """Takes in chunks that are not there yet."""
        self._slots.put(ids, vectors)

    def discard(self, ids: Ids) -> None:
        """Drops chunks, those that are there."""
        self._slots.discard(ids)

    @property
    def form(self) -> str:
        """See `Resident`."""
        return "whole"

    @property
    def memory_bytes(self) -> int:
        """What the rows take, spare room included."""
        return self._slots.memory_bytes

    @property
    def worn(self) -> bool:
        """Whether there are more rows than it is meant for."""
        return self._slots.count > self._most
