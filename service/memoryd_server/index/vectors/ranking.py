"""Exact cosines and their order: larger first, the smaller chunk id first among equals."""

import numpy as np
from numpy.typing import NDArray

from memoryd_server.store.rows import VectorHit
from memoryd_server.vectors import Ids, Vectors

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


class Best:
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
