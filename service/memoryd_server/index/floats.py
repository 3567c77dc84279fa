"""Vectors as blobs: little-endian float32, of length 1."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Vectors = NDArray[np.float32]

_BLOB = np.dtype("<f4")
FLOAT_BYTES = _BLOB.itemsize


def unit(vector: NDArray[np.floating]) -> NDArray[np.float64]:
    """The vector scaled to length 1.

    Raises:
        ValueError: it is no flat vector, holds a number that is not finite, or has no length.
    """
    wide = np.asarray(vector, np.float64)
    if wide.ndim != 1 or not np.isfinite(wide).all():
        raise ValueError("a vector must be flat and all its numbers finite")
    length = np.linalg.norm(wide)
    if not 0 < length < np.inf:
        raise ValueError("a vector must have a length")
    return wide / length


def from_blobs(rows: Iterable[tuple[int, bytes]], dimensions: int) -> tuple[Ids, Vectors]:
    """Chunk ids and their vectors, one a row; blobs of another dimension are left out."""
    width = dimensions * FLOAT_BYTES
    fitting = [row for row in rows if len(row[1]) == width]
    ids = np.fromiter((row[0] for row in fitting), np.int64, len(fitting))
    vectors = np.frombuffer(b"".join(row[1] for row in fitting), _BLOB).reshape(-1, dimensions)
    return ids, vectors.astype(np.float32, copy=False)
