"""Dense arrays that chunks come into and go out of, without holes."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from memoryd_server.vectors import Ids

# Room is made for an eighth more than is asked for, and given back when more than half again is free.
_SPARE = 8
_LEAST = 64


# An array for so many slots, slots along the first axis, in whatever memory order suits the use.
Column = Callable[[int], NDArray[np.generic]]


class Slots:
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
