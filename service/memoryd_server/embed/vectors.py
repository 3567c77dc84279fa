"""Vectors: checked, of length one, and as bytes. Pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float32]

# Below this length a vector has no direction worth the name.
_SHORTEST = 1e-10


class BadVector(ValueError):
    """A vector that must not enter an index; the message says why."""


def unit(values: Sequence[float] | ArrayLike, dimensions: int | None = None) -> Vector:
    """`values` at length one, as a new float32 array.

    Raises:
        BadVector: it holds something that is no finite number, has no direction, or not `dimensions` components.
    """
    vector = _numbers(values)
    if dimensions is not None and vector.size != dimensions:
        raise BadVector(f"the vector has {vector.size} dimensions instead of {dimensions}")
    if not np.isfinite(vector).all():
        raise BadVector("the vector has components that are not finite")
    largest = float(np.abs(vector).max(initial=0.0))
    if largest < _SHORTEST:
        raise BadVector("the vector is zero" if vector.size else "the vector is empty")
    scaled = vector / largest
    return np.asarray(scaled / np.linalg.norm(scaled), np.float32)


def _numbers(values: Sequence[float] | ArrayLike) -> NDArray[np.float64]:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise BadVector("the vector is not a list of numbers") from None
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise BadVector("the vector is not a list of numbers")
    return array.astype(np.float64)


def to_blob(vector: Vector) -> bytes:
    """Little-endian float32, four bytes a component."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def from_blob(blob: bytes) -> Vector:
    """What `to_blob` wrote, as a read-only view of `blob`."""
    return np.frombuffer(blob, dtype="<f4")
