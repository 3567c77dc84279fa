"""Unit vectors and their blobs of little-endian float32; the threads of the library that multiplies them."""

import math
import struct
from collections.abc import Iterable, Sequence, Sized

import numpy as np
import threadpoolctl
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float32]
"""One vector."""

Vectors = NDArray[np.float32]
"""A matrix with one vector per row."""

Ids = NDArray[np.int64]

_BLOB = np.dtype("<f4")
FLOAT_BYTES = _BLOB.itemsize
_NUMBERS = frozenset((int, float))

MAX_DIMENSIONS = 131_072
"""Maximum number of components. The vectors of known models have up to 12,288."""

# A vector whose largest component is smaller has no usable direction.
_SHORTEST = 1e-10


class InvalidVector(ValueError):
    """A vector that must not be stored in an index; the message gives the reason."""


def unit(values: Sequence[float] | ArrayLike, dimensions: int | None = None) -> Vector:
    """Return `values` scaled to length 1, as a new float32 array.

    Raises:
        InvalidVector: `values` is not a flat list of finite numbers, is zero, has more than `MAX_DIMENSIONS`
            components, or does not have `dimensions`.
    """
    return np.asarray(exact_unit(values, dimensions), np.float32)


def exact_unit(values: Sequence[float] | ArrayLike, dimensions: int | None = None) -> NDArray[np.float64]:
    """Return `values` scaled to length 1, as a new float64 array.

    Raises:
        InvalidVector: as `unit`.
    """
    vector = _numbers(values)
    if dimensions is not None and vector.size != dimensions:
        raise InvalidVector(f"the vector has {vector.size} dimensions instead of {dimensions}")
    # Of components that include NaN, the largest is NaN.
    largest = float(np.abs(vector).max(initial=0.0))
    if not math.isfinite(largest):
        raise InvalidVector("the vector has components that are not finite")
    if largest < _SHORTEST:
        raise InvalidVector("the vector is zero" if vector.size else "the vector is empty")
    # Divide by the largest component first, because the squares of huge components would overflow.
    scaled: NDArray[np.float64] = vector / largest
    scaled /= math.sqrt(scaled.dot(scaled))
    return scaled


def _numbers(values: Sequence[float] | ArrayLike) -> NDArray[np.float64]:
    if isinstance(values, list | tuple):
        # Checked before the conversion: in an array of text, each element takes the memory of the longest one.
        types = list(map(type, values))
        only_floats = bool(types) and types.count(float) == len(types)
        if not only_floats and not _NUMBERS.issuperset(types):
            raise InvalidVector("the vector is not a list of numbers")
        _check_length(types)
        if only_floats:
            # Three times as fast as numpy's conversion.
            return np.frombuffer(struct.pack(f"{len(values)}d", *values))
    elif not isinstance(values, np.ndarray):
        raise InvalidVector("the vector is not a list of numbers")
    try:
        array = np.asarray(values)
    except OverflowError:
        raise InvalidVector("the vector is not a list of numbers") from None
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InvalidVector("the vector is not a list of numbers")
    _check_length(array)
    return array.astype(np.float64)


def _check_length(values: Sized) -> None:
    if len(values) > MAX_DIMENSIONS:
        raise InvalidVector(f"the vector has {len(values)} dimensions, more than {MAX_DIMENSIONS}")


def to_blob(vector: NDArray[np.floating]) -> bytes:
    """Return the vector as little-endian float32, four bytes per component."""
    return np.ascontiguousarray(vector, dtype=_BLOB).tobytes()


def from_blob(blob: bytes) -> Vector:
    """Return the vector that `to_blob` wrote, as a read-only view of `blob`."""
    return np.frombuffer(blob, dtype=_BLOB)


def from_blobs(rows: Iterable[tuple[int, bytes]], dimensions: int) -> tuple[Ids, Vectors]:
    """Return the chunk ids and a matrix of their vectors. Rows with other dimensions are omitted."""
    width = dimensions * FLOAT_BYTES
    fitting = [row for row in rows if len(row[1]) == width]
    ids = np.fromiter((row[0] for row in fitting), np.int64, len(fitting))
    vectors = from_blob(b"".join(row[1] for row in fitting)).reshape(-1, dimensions)
    return ids, vectors.astype(np.float32, copy=False)


def use_calling_thread_only() -> None:
    """Prevent BLAS from starting threads, in the whole process.

    The products of a search take tenths of a millisecond. Threads do not speed them up on an idle machine. On a busy
    machine each product would wait until the last thread has run: 100 ms instead of one.
    """
    threadpoolctl.threadpool_limits(1, user_api="blas")
