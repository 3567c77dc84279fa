"""Whole vectors in memory; ranking.

A few vectors, whole: the exact engine.

Dense arrays that chunks come into and go out of, without holes.

Exact cosines and their order: larger first, the smaller chunk id first among equals.

What can propose candidates from memory.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memoryd_server.store import VectorHit
from memoryd_server.vectors import Ids, Vectors


class ExactVectors:
    """float32 rows, compared with the query one and all. Worn when it has outgrown `most` rows."""

    def __init__(self, dimensions: int, capacity: int, most: int) -> None:
        self._slots = SlotArrays(capacity, [lambda size: np.empty((size, dimensions), np.float32)])
        self._most = most

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids:
        """The nearest, and a few more."""
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
        """Takes in chunks that are not there yet."""
        self._slots.put(ids, vectors)

    def discard(self, ids: Ids) -> None:
        """Drops chunks, those that are there."""
        self._slots.discard(ids)

    @property
    def form(self) -> str:
        """See `ResidentVectors`."""
        return "whole"

    @property
    def memory_bytes(self) -> int:
        """What the rows take, spare room included."""
        return self._slots.memory_bytes

    @property
    def worn(self) -> bool:
        """Whether there are more rows than it is meant for."""
        return self._slots.count > self._most


# Room is made for an eighth more than is asked for, and given back when more than half again is free.
_SPARE = 8
_LEAST = 64

# An array for so many slots, slots along the first axis, in whatever memory order suits the use.
Column = Callable[[int], NDArray[np.generic]]


class SlotArrays:
    """Columns of equal length; what a chunk has in each of them stands at its slot, which may change."""

    def __init__(self, capacity: int, columns: Sequence[Column]) -> None:
        self._makers = (_make_ids, *columns)
        self._arrays = [make(capacity + _LEAST) for make in self._makers]
        self.count = 0

    @property
    def ids(self) -> Ids:
        """The chunk of each slot; a view."""
        return self._arrays[0][: self.count].view(np.int64)

    def column(self, number: int) -> NDArray[np.generic]:
        """A column's slots in use; a view."""
        return self._arrays[number + 1][: self.count]

    @property
    def memory_bytes(self) -> int:
        """What the arrays take, spare room included."""
        return sum(array.nbytes for array in self._arrays)

    def put(self, ids: Ids, *values: NDArray[np.generic]) -> None:
        """Adds chunks that are not there yet, with one row a chunk for each column."""
        end = self.count + len(ids)
        if end > len(self._arrays[0]):
            self._resize(end)
        for array, rows in zip(self._arrays, (ids, *values), strict=True):
            array[self.count : end] = rows
        self.count = end

    def discard(self, ids: Ids) -> None:
        """Takes chunks out, those that are there; the last slots move into the holes."""
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
        # One array at a time, so that only the largest is ever there twice.
        for number, make in enumerate(self._makers):
            larger = make(_room(wanted))
            larger[: self.count] = self._arrays[number][: self.count]
            self._arrays[number] = larger


def _make_ids(capacity: int) -> NDArray[np.generic]:
    return np.empty(capacity, np.int64)


def _room(count: int) -> int:
    return count + count // _SPARE + _LEAST


# Twice what a dot product of unit vectors in float32 is ever wrong by, whatever the order of its additions, and more.
ROUNDING = 2e-5

_ROWS_AT_ONCE = 1_024


def cosines(vectors: Vectors, query: NDArray[np.float64]) -> NDArray[np.float64]:
    """The cosine of each row with a unit query, in float64; equal rows get equal cosines, wherever they stand."""
    parts = [
        (vectors[first : first + _ROWS_AT_ONCE].astype(np.float64) * query).sum(axis=1)
        for first in range(0, len(vectors), _ROWS_AT_ONCE)
    ]
    return np.clip(np.concatenate(parts), -1.0, 1.0) if parts else np.empty(0)


def contenders(rough: NDArray[np.float32], limit: int, rounding: float = ROUNDING) -> NDArray[np.intp]:
    """The rows that can be among the best `limit` once their cosines, wrong by half of `rounding`, are made exact."""
    fit = np.flatnonzero(np.isfinite(rough))
    if len(fit) <= limit:
        return fit
    cut = np.partition(rough[fit], -limit)[-limit]
    kept: NDArray[np.intp] = fit[rough[fit] >= cut - rounding]
    return kept


class TopK:
    """The best `limit` of all the rows offered."""

    def __init__(self, query: NDArray[np.float64], limit: int) -> None:
        self._query = query
        self._rough_query = query.astype(np.float32)
        self._limit = limit
        self._ids: Ids = np.empty(0, np.int64)
        self._cosines = np.empty(0)

    def offer(self, ids: Ids, vectors: Vectors) -> None:
        """Takes in more rows; rows with numbers that are not finite are passed over."""
        rows = contenders(vectors @ self._rough_query, self._limit)
        all_ids = np.concatenate((self._ids, ids[rows]))
        all_cosines = np.concatenate((self._cosines, cosines(vectors[rows], self._query)))
        order = np.lexsort((all_ids, -all_cosines))[: self._limit]
        self._ids, self._cosines = all_ids[order], all_cosines[order]

    @property
    def ids(self) -> Ids:
        """The chunk ids of the best, best first."""
        return self._ids

    def hits(self) -> list[VectorHit]:
        """The best, best first."""
        return [VectorHit(*pair) for pair in zip(self._ids.tolist(), self._cosines.tolist(), strict=True)]


# Candidates beyond the number asked for, because a snapshot may lack some of them.
SPARE_CANDIDATES = 16


class ResidentVectors(Protocol):
    """Vectors held in memory, in whatever form. Several threads may ask at once; changes are made alone."""

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids:
        """Return chunks among which the nearest `limit` to a unit query are, as far as this form can tell.

        `allowed` holds, sorted, the chunks that may be named; None means all.
        """

    def put(self, ids: Ids, vectors: Vectors) -> None:
        """Takes in chunks that are not there yet."""

    def discard(self, ids: Ids) -> None:
        """Drops chunks, those that are there."""

    @property
    def form(self) -> str:
        """What it holds of each vector: `whole`, or its sign `bits`."""

    @property
    def memory_bytes(self) -> int:
        """What it takes in memory."""

    @property
    def worn(self) -> bool:
        """Whether one loaded anew would serve better."""
