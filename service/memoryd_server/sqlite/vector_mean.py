"""The mean of an index's vectors, from which the scale of a model's cosines is derived (decision 20).

It is measured on the writer thread after vectors have changed, and stored in the index; a search only reads it.
"""

import apsw
import numpy as np

from memoryd_server.sqlite import readers, schema
from memoryd_server.sqlite.connection import scalar, transaction
from memoryd_server.vectors import FLOAT_BYTES, Vectors, from_blob, to_blob

SAMPLED = 128
"""At least this many vectors are averaged, if the index has as many, and less than twice as many."""

# Two rows of the meta table: the numbers, and the index revision that they were measured at.
_NUMBERS = "vector_centre"
REVISION = "vector_centre_revision"
_EVERY = "SELECT chunk_id AS id FROM vectors WHERE chunk_id % ? = 0 ORDER BY chunk_id LIMIT ?"


def read(connection: apsw.Connection, dimensions: int) -> Vectors | None:
    """Return the mean as last measured; None if there is none, or if its length is not `dimensions`."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_NUMBERS,)).fetchone()
    if row is None or not isinstance(row[0], bytes) or len(row[0]) != dimensions * FLOAT_BYTES:
        return None
    return from_blob(row[0])


def measure(connection: apsw.Connection, revision: int, dimensions: int) -> None:
    """Measure the mean and store it, unless it was measured at this revision. For the writer thread.

    Vectors of other dimensions, and vectors with numbers that are not finite, are left out.
    """
    if schema.get_meta(connection, REVISION) == revision:
        return
    _, vectors = readers.vectors(connection, _sample(connection), dimensions)
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    if len(vectors):
        numbers = to_blob(vectors.mean(axis=0, dtype=np.float64))
        with transaction(connection):
            connection.execute("INSERT OR REPLACE INTO meta(key, value) VALUES(?, ?)", (_NUMBERS, numbers))
            schema.set_meta(connection, REVISION, revision)


def forget(connection: apsw.Connection) -> None:
    """Delete the mean, within the caller's transaction that deletes the vectors."""
    connection.execute("DELETE FROM meta WHERE key IN (?, ?)", (_NUMBERS, REVISION))


def _sample(connection: apsw.Connection) -> list[int]:
    """Return the chunk ids that are divisible by a step: the same ids for the same index, at the cost of a count."""
    step = max(1, int(scalar(connection, "SELECT count(*) FROM vectors")) // SAMPLED)
    ids = readers.ids(connection, _EVERY, (step, 4 * SAMPLED))
    if not len(ids):
        ids = readers.ids(connection, _EVERY, (1, SAMPLED))
    sample: list[int] = ids.tolist()
    return sample
