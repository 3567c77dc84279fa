"""SignBits: one bit per dimension, for large indexes: whether the number is above the mean.

Candidates are found in two steps. The Hamming distance between the bits of query and chunk is cheap enough for all
chunks. The best of them are then ordered by the product of the query itself with the chunk's bits read as -1 and +1,
which leaves a quarter of them for the exact comparison. (On 9,357 real embeddings of 384 dimensions, 99.9 % of the ten
nearest are among the 256 that remain.) If there is memory for codes, one byte per number, those 256 are compared by
their codes, so that only the chunks that may be among the best are compared exactly.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from memoryd_server.sqlite.exact import SPARE_CANDIDATES, Column, SlotArrays, contenders
from memoryd_server.system import MAPPED_BYTES
from memoryd_server.vectors import FLOAT_BYTES, Ids, Vectors

_WORD_BITS = 64
_WORD_BYTES = 8

# The most bytes of a temporary array. The C library gets each block of `MAPPED_BYTES` or more from the operating system
# and returns it when it is freed: with 3 MiB, the page faults took ten times as long as the product itself.
_BLOCK_BYTES = MAPPED_BYTES * 3 // 4

# How many chunks pass each step: a minimum, and a number per requested hit. With fewer bits than _ENOUGH_BITS, more
# chunks pass, in inverse proportion.
_ENOUGH_BITS = 384
_MIN_COARSE, _COARSE_PER_HIT = 1_024, 32
_MIN_FINE, _FINE_PER_HIT = 256, 6

# The error of a code is uniform within half a step, so its standard deviation is step / sqrt(12), and so is that of the
# product of a vector with a unit query. Six standard deviations for each of two products.
_ERROR_IN_STEPS = 2 * 6 / 12**0.5
_MAX_CODE = 127

# The mean is stale when there are more than this many times as many vectors as it was measured for.
_STALE_GROWTH = 2


def bytes_a_chunk(dimensions: int, *, with_codes: bool = False) -> int:
    """Return the bytes that a chunk takes, without spare room."""
    return (_words(dimensions) + 1) * _WORD_BYTES + with_codes * (dimensions + FLOAT_BYTES)


def _words(dimensions: int) -> int:
    return -(-dimensions // _WORD_BITS)


class SignBits:
    """One bit per dimension and the chunk's id: 104 bytes per chunk at 768 dimensions, and an eighth of spare room.

    With codes, also one byte per number: 772 bytes more. `mean` is the mean of a sample of the vectors, `expected` the
    number of vectors. Stale when there are more than twice as many.
    """

    def __init__(self, mean: Vectors, expected: int, *, with_codes: bool = False) -> None:
        self._mean = mean
        self._words = words = _words(len(mean))
        self._expected = expected
        # Each 64-bit word of all chunks is contiguous, so that numpy compares it with one word of the query.
        # Without `self`, which would be a cycle: vectors that a release drops would stay until a full collection.
        columns: list[Column] = [lambda size: np.empty((words, size), np.uint64).T]
        if with_codes:
            columns += [lambda size: np.empty((size, len(mean)), np.int8), lambda size: np.empty(size, np.float32)]
        self._slots = SlotArrays(expected, columns)
        self._with_codes = with_codes

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids:
        """Return about 25 candidates per requested hit if few hits are requested, 6 if many.

        With codes, only those candidates that may be among the best `limit` and `SPARE_CANDIDATES` more.
        """
        centred = query - self._mean
        distances = self._distances(self._pack(centred[None])[0])
        ids = self._slots.ids
        rows = None if allowed is None else np.flatnonzero(np.isin(ids, allowed))
        coarse = _smallest(distances, ids, self._share(max(_MIN_COARSE, _COARSE_PER_HIT * limit)), rows)
        fine = self._share(max(_MIN_FINE, _FINE_PER_HIT * limit))
        if len(coarse) > fine:
            likeness = _products(self._bits, coarse, centred)
            coarse = coarse[np.lexsort((ids[coarse], -likeness.round(5)))[:fine]]
        if self._with_codes:
            coarse = coarse[self._contenders(coarse, query, limit + SPARE_CANDIDATES)]
        return ids[coarse]

    def put(self, ids: Ids, vectors: Vectors) -> None:
        """Add chunks that are not stored yet."""
        signs = self._pack(vectors - self._mean)
        self._slots.put(ids, signs, *(_coded(vectors) if self._with_codes else ()))

    def discard(self, ids: Ids) -> None:
        """Remove chunks; unknown ids are ignored."""
        self._slots.discard(ids)

    @property
    def form(self) -> str:
        """See `ResidentVectors`."""
        return "bits"

    @property
    def memory_bytes(self) -> int:
        """The bytes of bits, ids, codes and mean, including spare capacity."""
        return self._slots.memory_bytes + self._mean.nbytes

    @property
    def is_stale(self) -> bool:
        """Whether the mean was measured from too few vectors."""
        return self._slots.count > _STALE_GROWTH * max(self._expected, _MIN_COARSE)

    def _contenders(self, rows: NDArray[np.intp], query: Vectors, limit: int) -> NDArray[np.intp]:
        """Return those of these slots that may be among their nearest `limit`, judged by the codes."""
        steps = self._slots.column(2).view(np.float32)[rows]
        rough = _products(lambda part: self._slots.column(1)[part].astype(np.float32), rows, query) * steps
        return contenders(rough, limit, _ERROR_IN_STEPS * float(steps.max(initial=0.0)))

    def _share(self, count: int) -> int:
        return max(count, count * _ENOUGH_BITS // len(self._mean))

    def _pack(self, centred: Vectors) -> NDArray[np.uint64]:
        """Return one row of words per vector."""
        packed = np.zeros((len(centred), self._words * _WORD_BYTES), np.uint8)
        bits = np.packbits(centred > 0, axis=1)
        packed[:, : bits.shape[1]] = bits
        return packed.view(np.uint64)

    def _bits(self, rows: NDArray[np.intp]) -> Vectors:
        """Return the bits of these slots as 0.0 and 1.0; products with them order chunks as those with -1 and +1 do."""
        packed = np.ascontiguousarray(self._slots.column(0)[rows]).view(np.uint8)
        return np.unpackbits(packed, axis=1, count=len(self._mean)).astype(np.float32)

    def _distances(self, query: NDArray[np.uint64]) -> NDArray[np.uint16]:
        """Return how many bits of each slot differ from the query's."""
        words, query = self._slots.column(0).view(np.uint64).T, query[:, None]
        distances = np.empty(self._slots.count, np.uint16)
        # All words of a block in one call: after each call, the thread may have to wait for the interpreter lock.
        block = _BLOCK_BYTES // (_WORD_BYTES * self._words)
        for first in range(0, self._slots.count, block):
            counts = np.bitwise_count(words[:, first : first + block] ^ query)
            np.sum(counts, axis=0, dtype=np.uint16, out=distances[first : first + block])
        return distances


def _products(
    numbers_of: Callable[[NDArray[np.intp]], Vectors], rows: NDArray[np.intp], query: Vectors
) -> NDArray[np.float32]:
    """Return the product of each slot's numbers with the query; `numbers_of` returns the numbers of some slots."""
    block = max(1, _BLOCK_BYTES // query.nbytes)
    parts = [numbers_of(rows[first : first + block]) @ query for first in range(0, len(rows), block)]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)


def _coded(vectors: Vectors) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return each number in steps, and each vector's step; numbers that are not finite are 0."""
    numbers = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
    steps = np.abs(numbers).max(axis=1, initial=0.0) / _MAX_CODE
    codes = np.rint(numbers / np.where(steps > 0, steps, 1)[:, None])
    return codes.astype(np.int8), steps.astype(np.float32)


def _smallest(distances: NDArray[np.uint16], ids: Ids, count: int, rows: NDArray[np.intp] | None) -> NDArray[np.intp]:
    """Return the slots of the `count` smallest distances, among `rows` if given; the smaller ids among equals."""
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
