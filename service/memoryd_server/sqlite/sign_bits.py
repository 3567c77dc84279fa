"""Many vectors, coarsely: of each number only whether it is above the mean, one bit.

Candidates are found in two steps. The Hamming distance between the bits of query and chunk is cheap enough for all
chunks. The best of them are then ordered by the product of the query itself with the chunk's bits read as -1 and +1,
which leaves a quarter of them for the exact comparison. (On 9,357 real embeddings of 384 dimensions, 99.9 % of the ten
nearest are among the 256 that remain.) Where there is memory for a byte of every number, those 256 are compared by it,
so that only those are left for the exact comparison that may be among the best of them.
"""

import numpy as np
from numpy.typing import NDArray

from memoryd_server.sqlite.exact import SPARE_CANDIDATES, Column, SlotArrays, contenders
from memoryd_server.vectors import FLOAT_BYTES, Ids, Vectors

_WORD_BITS = 64
_WORD_BYTES = 8

# Chunks compared at a time, 3 MiB at 768 dimensions.
_BLOCK = 32_768

# How many pass each step, at least and for each neighbour asked for; more where a vector has fewer bits than these.
_TELLING_BITS = 384
_LEAST_COARSE, _COARSE_EACH = 1_024, 32
_LEAST_FINE, _FINE_EACH = 256, 6

# A number is wrong by up to half a step, any part of it alike: a standard deviation of step / sqrt(12), and so is the
# product of a vector with a unit query. Six of them for each of two products.
_STEPS_OF_TWO_PRODUCTS = 2 * 6 / 12**0.5
_MOST_STEPS = 127

# A mean taken from fewer than half as many is taken anew.
_STALE_GROWTH = 2


def bytes_a_chunk(dimensions: int, *, with_codes: bool = False) -> int:
    """What a chunk takes, without spare room."""
    return (_words(dimensions) + 1) * _WORD_BYTES + with_codes * (dimensions + FLOAT_BYTES)


def _words(dimensions: int) -> int:
    return -(-dimensions // _WORD_BITS)


class SignBits:
    """One bit a dimension and the chunk's id: 104 bytes a chunk at 768 dimensions, and an eighth of spare room.

    With codes, a byte for each number, 772 bytes more. `mean` is that of a sample of the vectors; `expected` how many
    they are. Worn when they are twice as many.
    """

    def __init__(self, mean: Vectors, expected: int, *, with_codes: bool = False) -> None:
        self._mean = mean
        self._words = _words(len(mean))
        self._expected = expected
        # Words outermost, so that one word of the query meets a run of chunks.
        columns: list[Column] = [lambda size: np.empty((self._words, size), np.uint64).T]
        if with_codes:
            columns += [lambda size: np.empty((size, len(mean)), np.int8), lambda size: np.empty(size, np.float32)]
        self._slots = SlotArrays(expected, columns)
        self._with_codes = with_codes

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids:
        """The nearest as far as bits tell: some 25 for each one asked for when few are, 6 when many are.

        Of these, with codes, those that may be among the best `limit`, and a few more.
        """
        centred = query - self._mean
        distances = self._distances(self._pack(centred[None])[0])
        ids = self._slots.ids
        rows = None if allowed is None else np.flatnonzero(np.isin(ids, allowed))
        coarse = _smallest(distances, ids, self._share(max(_LEAST_COARSE, _COARSE_EACH * limit)), rows)
        fine = self._share(max(_LEAST_FINE, _FINE_EACH * limit))
        if len(coarse) > fine:
            likeness = self._bits(coarse) @ centred
            coarse = coarse[np.lexsort((ids[coarse], -likeness.round(5)))[:fine]]
        if self._with_codes:
            coarse = coarse[self._contenders(coarse, query, limit + SPARE_CANDIDATES)]
        return ids[coarse]

    def put(self, ids: Ids, vectors: Vectors) -> None:
        """Takes in chunks that are not there yet."""
        signs = self._pack(vectors - self._mean)
        self._slots.put(ids, signs, *(_coded(vectors) if self._with_codes else ()))

    def discard(self, ids: Ids) -> None:
        """Drops chunks, those that are there."""
        self._slots.discard(ids)

    @property
    def form(self) -> str:
        """See `Resident`."""
        return "bits"

    @property
    def memory_bytes(self) -> int:
        """What bits, ids and mean take, spare room included."""
        return self._slots.memory_bytes + self._mean.nbytes

    @property
    def worn(self) -> bool:
        """Whether the mean is that of too few."""
        return self._slots.count > _STALE_GROWTH * max(self._expected, _LEAST_COARSE)

    def _contenders(self, rows: NDArray[np.intp], query: Vectors, limit: int) -> NDArray[np.intp]:
        """Which of these slots may be among the nearest `limit` of them, as far as codes tell."""
        steps = self._slots.column(2).view(np.float32)[rows]
        rough = self._slots.column(1)[rows].astype(np.float32) @ query * steps
        return contenders(rough, limit, _STEPS_OF_TWO_PRODUCTS * float(steps.max(initial=0.0)))

    def _share(self, count: int) -> int:
        return max(count, count * _TELLING_BITS // len(self._mean))

    def _pack(self, centred: Vectors) -> NDArray[np.uint64]:
        """One row of words a vector."""
        packed = np.zeros((len(centred), self._words * _WORD_BYTES), np.uint8)
        bits = np.packbits(centred > 0, axis=1)
        packed[:, : bits.shape[1]] = bits
        return packed.view(np.uint64)

    def _bits(self, rows: NDArray[np.intp]) -> Vectors:
        """The bits of some slots as 0.0 and 1.0; products with them order as those with -1 and +1 do."""
        packed = np.ascontiguousarray(self._slots.column(0)[rows]).view(np.uint8)
        return np.unpackbits(packed, axis=1, count=len(self._mean)).astype(np.float32)

    def _distances(self, query: NDArray[np.uint64]) -> NDArray[np.uint16]:
        """How many bits of each slot differ from the query's."""
        words, query = self._slots.column(0).view(np.uint64).T, query[:, None]
        distances = np.empty(self._slots.count, np.uint16)
        # All words in one call: after each, a thread waits for the interpreter while others search.
        for first in range(0, self._slots.count, _BLOCK):
            counts = np.bitwise_count(words[:, first : first + _BLOCK] ^ query)
            np.sum(counts, axis=0, dtype=np.uint16, out=distances[first : first + _BLOCK])
        return distances


def _coded(vectors: Vectors) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Each number as so many steps, and each vector's step; numbers that are not finite as 0."""
    numbers = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
    steps = np.abs(numbers).max(axis=1, initial=0.0) / _MOST_STEPS
    codes = np.rint(numbers / np.where(steps > 0, steps, 1)[:, None])
    return codes.astype(np.int8), steps.astype(np.float32)


def _smallest(distances: NDArray[np.uint16], ids: Ids, count: int, rows: NDArray[np.intp] | None) -> NDArray[np.intp]:
    """The slots of the `count` smallest distances, among `rows` if given; of equals those of the smallest ids."""
    if rows is not None:
        among = _smallest(distances[rows], ids[rows], count, None)
        return rows[among]
    if len(distances) <= count:
        return np.arange(len(distances))
    cut = np.partition(distances, count - 1)[count - 1]
    below, equal = np.flatnonzero(distances < cut), np.flatnonzero(distances == cut)
    room = count - len(below)
    if len(equal) > room:
        equal = equal[np.argpartition(ids[equal], room - 1)[:room]]
    return np.concatenate((below, equal))
