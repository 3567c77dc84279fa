"""Exact vector search in memory: dense arrays, float64 cosines, and the protocol of resident vectors.

Hits are ordered by cosine, larger first, and by the smaller chunk id among equals.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memoryd_server.store import VectorHit
from memoryd_server.vectors import Ids, Vectors


class ExactVectors:
    """float32 rows, all of which are compared with the query. Stale if there are more than `max_rows` rows."""

    def __init__(self, dimensions: int, capacity: int, max_rows: int) -> None:
        self._slots = SlotArrays(capacity, [lambda size: np.empty((size, dimensions), np.float32)])
        self._max_rows = max_rows

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids:
        """Return the nearest `limit` chunks and `SPARE_CANDIDATES` more."""
        ids, vectors = self._slots.ids, self._slots.column(0).view(np.float32)
        wanted = limit + SPARE_CANDIDATES
        rough = vectors @ query
        if allowed is not None:
            rough[~np.isin(ids, allowed)] = np.nan
        rows = contenders(rough, wanted)
        best = TopK(query.astype(np.float64), wanted)
        best.offer(ids[rows], vectors[rows])
        return best.ids

    def put(self, ids: Ids, vectors: Vectors) -> None:
        """Add chunks that are not stored yet."""
        self._slots.put(ids, vectors)

    def discard(self, ids: Ids) -> None:
        """Remove chunks; unknown ids are ignored."""
        self._slots.discard(ids)

    @property
    def form(self) -> str:
        """See `ResidentVectors`."""
        return "whole"

    @property
    def memory_bytes(self) -> int:
        """The bytes of the rows, including spare capacity."""
        return self._slots.memory_bytes

    @property
    def is_stale(self) -> bool:
        """Whether there are more than `max_rows` rows."""
        return self._slots.count > self._max_rows


# Arrays are allocated with room for an eighth more slots and _MIN_SLOTS, and shrunk above 1.5 times that capacity.
_SPARE = 8
_MIN_SLOTS = 64

# Returns an array for a number of slots, with the slots along the first axis, in any memory order.
Column = Callable[[int], NDArray[np.generic]]


class SlotArrays:
    """Dense columns of equal length. A chunk's values are at its slot, which changes when other chunks are removed."""

    def __init__(self, capacity: int, columns: Sequence[Column]) -> None:
        self._columns = (_allocate_ids, *columns)
        self._arrays = [allocate(capacity + _MIN_SLOTS) for allocate in self._columns]
        self.count = 0

    @property
    def ids(self) -> Ids:
        """The chunk id of each slot; a view."""
        return self._arrays[0][: self.count].view(np.int64)

    def column(self, number: int) -> NDArray[np.generic]:
        """Return the used slots of a column; a view."""
        return self._arrays[number + 1][: self.count]

    @property
    def memory_bytes(self) -> int:
        """The bytes of the arrays, including spare capacity."""
        return sum(array.nbytes for array in self._arrays)

    def put(self, ids: Ids, *values: NDArray[np.generic]) -> None:
        """Add chunks that are not stored yet, with one row per chunk for each column."""
        end = self.count + len(ids)
        if end > len(self._arrays[0]):
            self._resize(end)
        for array, rows in zip(self._arrays, (ids, *values), strict=True):
            array[self.count : end] = rows
        self.count = end

    def discard(self, ids: Ids) -> None:
        """Remove chunks and move the last slots into the holes; unknown ids are ignored."""
        holes = np.flatnonzero(np.isin(self.ids, ids))
        end = self.count - len(holes)
        moved = np.setdiff1d(np.arange(end, self.count), holes, assume_unique=True)
        filled = holes[holes < end]
        for array in self._arrays:
            array[filled] = array[moved]
        self.count = end
        if 2 * len(self._arrays[0]) > 3 * _room(end):
            self._resize(end)

    def _resize(self, wanted: int) -> None:
        # One array at a time, so that at most one is in memory twice.
        for number, allocate in enumerate(self._columns):
            resized = allocate(_room(wanted))
            resized[: self.count] = self._arrays[number][: self.count]
            self._arrays[number] = resized


def _allocate_ids(capacity: int) -> NDArray[np.generic]:
    return np.empty(capacity, np.int64)


def _room(count: int) -> int:
    return count + count // _SPARE + _MIN_SLOTS


# More than twice the largest error of a float32 dot product of unit vectors, in any order of additions.
ROUNDING = 2e-5

_ROW_BATCH = 1_024


def cosines(vectors: Vectors, query: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cosine of each row with a unit query, in float64; equal rows get equal cosines at any position."""
    parts = [
        (vectors[first : first + _ROW_BATCH].astype(np.float64) * query).sum(axis=1)
        for first in range(0, len(vectors), _ROW_BATCH)
    ]
    return np.clip(np.concatenate(parts), -1.0, 1.0) if parts else np.empty(0)


def contenders(rough: NDArray[np.float32], limit: int, rounding: float = ROUNDING) -> NDArray[np.intp]:
    """Return the rows that can be among the best `limit` by exact cosine.

    `rough` holds cosines with an error of at most half of `rounding`; rows that are not finite are left out.
    """
    finite = np.flatnonzero(np.isfinite(rough))
    if len(finite) <= limit:
        return finite
    cut = np.partition(rough[finite], -limit)[-limit]
    rows: NDArray[np.intp] = finite[rough[finite] >= cut - rounding]
    return rows


class TopK:
    """The best `limit` rows of all that were offered."""

    def __init__(self, query: NDArray[np.float64], limit: int) -> None:
        self._query = query
        self._rough_query = query.astype(np.float32)
        self._limit = limit
        self._ids: Ids = np.empty(0, np.int64)
        self._cosines = np.empty(0)

    def offer(self, ids: Ids, vectors: Vectors) -> None:
        """Compare more rows with the query; rows with numbers that are not finite are ignored."""
        rows = contenders(vectors @ self._rough_query, self._limit)
        all_ids = np.concatenate((self._ids, ids[rows]))
        all_cosines = np.concatenate((self._cosines, cosines(vectors[rows], self._query)))
        order = np.lexsort((all_ids, -all_cosines))[: self._limit]
        self._ids, self._cosines = all_ids[order], all_cosines[order]

    @property
    def ids(self) -> Ids:
        """The chunk ids of the best rows, best first."""
        return self._ids

    def hits(self) -> list[VectorHit]:
        """Return the best rows as hits, best first."""
        return [VectorHit(*pair) for pair in zip(self._ids.tolist(), self._cosines.tolist(), strict=True)]


# Candidates beyond the requested number, because some may be missing from the snapshot.
SPARE_CANDIDATES = 16


class ResidentVectors(Protocol):
    """Vectors in memory. Several threads may read concurrently; changes require exclusive access."""

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids:
        """Return candidates that include the nearest `limit` chunks to a unit query, as far as this form can tell.

        `allowed` holds the sorted ids of the chunks that may be returned; None means all.
        """

    def put(self, ids: Ids, vectors: Vectors) -> None:
        """Add chunks that are not stored yet."""

    def discard(self, ids: Ids) -> None:
        """Remove chunks; unknown ids are ignored."""

    @property
    def form(self) -> str:
        """The form of the vectors: `whole`, or their sign `bits`."""

    @property
    def memory_bytes(self) -> int:
        """The bytes taken in memory."""

    @property
    def is_stale(self) -> bool:
        """Whether the vectors should be loaded again, because this form no longer suits them."""
