"""Vectors as blobs: little-endian float32, of length 1."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Vectors = NDArray[np.float32]

_BLOB = np.dtype("<f4")
FLOAT_BYTES = _BLOB.itemsize

# How far from 1 the length of a stored vector may be: what float32 loses at thousands of dimensions, many times over.
_LENGTH_TOLERANCE = 1e-3


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


def to_blob(vector: NDArray[np.floating] | Sequence[float]) -> bytes:
    """The vector scaled to length 1, as it is stored.

    Raises:
        ValueError: it is no flat vector, holds a number that is not finite, or has no length.
    """
    return unit(np.asarray(vector, np.float64)).astype(_BLOB).tobytes()


def check_blob(blob: bytes) -> None:
    """Refuses what `to_blob` would not make.

    Raises:
        ValueError: the blob is no vector of length 1.
    """
    if not blob or len(blob) % FLOAT_BYTES:
        raise ValueError(f"{len(blob)} bytes are no vector of float32")
    length = np.linalg.norm(np.frombuffer(blob, _BLOB))
    if not abs(length - 1) <= _LENGTH_TOLERANCE:
        raise ValueError(f"a stored vector must have length 1, not {length}")


def from_blobs(rows: Iterable[tuple[int, bytes]], dimensions: int) -> tuple[Ids, Vectors]:
    """Chunk ids and their vectors, one a row; blobs of another dimension are left out."""
    width = dimensions * FLOAT_BYTES
    fitting = [row for row in rows if len(row[1]) == width]
    ids = np.fromiter((row[0] for row in fitting), np.int64, len(fitting))
    vectors = np.frombuffer(b"".join(row[1] for row in fitting), _BLOB).reshape(-1, dimensions)
    return ids, vectors.astype(np.float32, copy=False)
