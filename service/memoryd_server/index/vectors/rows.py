"""The rows of the `vectors` table, for the writer thread; every function works within the caller's transaction."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import apsw

from memoryd_server.index.connection import scalar
from memoryd_server.index.vectors.floats import check_blob

# The hash is compared because chunk ids are reused: a vector that was long in the making must not land on another text.
_WRITE = (
    "INSERT OR REPLACE INTO vectors(chunk_id, embedding)"
    " SELECT id, ? FROM chunks WHERE id = ? AND content_hash = ? RETURNING chunk_id"
)
_MISSING = (
    "SELECT id, content_hash, text FROM chunks WHERE id > ?"
    " AND NOT EXISTS (SELECT 1 FROM vectors WHERE chunk_id = chunks.id) ORDER BY id LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class MissingVector:
    """A chunk without a vector."""

    chunk_id: int
    content_hash: bytes
    text: str


@dataclass(frozen=True, slots=True)
class NewVector:
    """A vector for a chunk that had this content when it was embedded; `embedding` as `to_blob` makes it."""

    chunk_id: int
    content_hash: bytes
    embedding: bytes


def write_vectors(connection: apsw.Connection, rows: Iterable[NewVector]) -> dict[int, bytes]:
    """Stores vectors, in the place of older ones; returns what was stored, as `VectorLeg.apply` takes it.

    A chunk that is gone, or whose content has changed since, is passed over.

    Raises:
        ValueError: an embedding is no vector of length 1.
    """
    written: dict[int, bytes] = {}
    for row in rows:
        check_blob(row.embedding)
        if connection.execute(_WRITE, (row.embedding, row.chunk_id, row.content_hash)).fetchall():
            written[row.chunk_id] = row.embedding
    return written


def delete_vectors(connection: apsw.Connection, chunk_ids: Collection[int] | None = None) -> None:
    """Removes the vectors of these chunks, or all of them."""
    if chunk_ids is None:
        connection.execute("DELETE FROM vectors")
    else:
        connection.executemany("DELETE FROM vectors WHERE chunk_id = ?", [(chunk_id,) for chunk_id in chunk_ids])


def missing(connection: apsw.Connection, limit: int, after: int = 0) -> list[MissingVector]:
    """At most `limit` chunks of ids above `after` that have no vector, ascending.

    Going on from the last id seen costs what the batch costs; starting over walks every chunk that has one.
    """
    return [MissingVector(*row) for row in connection.execute(_MISSING, (after, limit))]


def count(connection: apsw.Connection) -> int:
    """How many vectors are stored. Walks the table: some 30 ms at 100,000 of 768 dimensions."""
    return int(scalar(connection, "SELECT count(*) FROM vectors"))
