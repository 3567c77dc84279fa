"""The mean of an index's vectors, from which the scale of a model's cosines is derived (decision 20).

It is measured on the writer thread after vectors have changed and kept in the index, so that a search only reads it.
"""

import base64
import binascii
from dataclasses import dataclass

import apsw
import numpy as np

from memoryd_server.index import one_step, schema
from memoryd_server.index.connection import transaction
from memoryd_server.index.floats import FLOAT_BYTES, Vectors
from memoryd_server.index.json_value import JsonValue

SAMPLED = 256
"""Vectors that are averaged at most; they are evenly spaced by chunk id, so the same index gives the same mean."""

_KEY = "vector_centre"
_BLOB = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class _Kept(JsonValue):
    """A mean as it is stored: the index revision that it was measured at, and the numbers in base64."""

    revision: int
    numbers: str


def read(connection: apsw.Connection, dimensions: int) -> Vectors | None:
    """Return the mean as last measured; None if there is none, or if its length is not `dimensions`."""
    kept = _Kept.from_json(str(schema.get_meta(connection, _KEY)))
    if kept is None:
        return None
    try:
        blob = base64.b64decode(kept.numbers)
    except (TypeError, binascii.Error):
        return None
    return np.frombuffer(blob, _BLOB) if len(blob) == dimensions * FLOAT_BYTES else None


def measure(connection: apsw.Connection, revision: int, dimensions: int) -> None:
    """Measure the mean and keep it, unless it was measured at this revision. Belongs to the writer thread.

    Vectors of other dimensions, and those with a number that is not finite, do not count.
    """
    kept = _Kept.from_json(str(schema.get_meta(connection, _KEY)))
    if kept is not None and kept.revision == revision:
        return
    _, vectors = one_step.vectors(connection, _sample(connection), dimensions)
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    if len(vectors):
        numbers = base64.b64encode(vectors.mean(axis=0, dtype=np.float64).astype(_BLOB).tobytes()).decode()
        with transaction(connection):
            schema.set_meta(connection, _KEY, _Kept(revision, numbers).to_json())


def forget(connection: apsw.Connection) -> None:
    """Drop the mean, within the caller's transaction that drops the vectors."""
    connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))


def _sample(connection: apsw.Connection) -> list[int]:
    ids = one_step.ids(connection, "SELECT chunk_id AS id FROM vectors ORDER BY chunk_id")
    places = np.linspace(0, len(ids) - 1, min(SAMPLED, len(ids))).astype(np.int64)
    return [int(each) for each in ids[places]]
