"""Vectors beside the chunks that they belong to."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import apsw

from memoryd_server.index import schema
from memoryd_server.index.connection import scalar, translated
from memoryd_server.store.identity import VectorIdentity
from memoryd_server.store.rows import StoredVector, UnembeddedChunk
from memoryd_server.vectors import FLOAT_BYTES


class VectorChanges(Protocol):
    """Whoever keeps vectors in memory; told after each commit, on the writer thread."""

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """These vectors are new, and these chunks are gone."""

    def reset(self) -> None:
        """Nothing that was known holds any more."""


class VectorRows:
    """The vectors of one index file, to read; a part of `IndexReader` and of `IndexWriter`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    @translated()
    def vector_identity(self) -> VectorIdentity | None:
        """What the vectors were built with, as it was given to `begin_vectors`; None when there never were any."""
        return VectorIdentity.from_json(str(schema.get_meta(self._connection, "vector_identity") or ""))

    @translated()
    def failover_record(self) -> str:
        """Who stands in for the configured provider, as `note_failover` was told; empty when nobody ever did."""
        return str(schema.get_meta(self._connection, "stand_in") or "")

    @translated()
    def vector_dimensions(self) -> int:
        """What the stored vectors have; 0 while there are none."""
        first = scalar(self._connection, "SELECT length(embedding) FROM vectors ORDER BY chunk_id LIMIT 1")
        return int(first or 0) // FLOAT_BYTES

    @translated()
    def stored_vectors(self, after: int, limit: int) -> list[StoredVector]:
        """The next vectors by chunk id."""
        rows = self._connection.execute(
            "SELECT chunk_id, content_hash, embedding FROM vectors CROSS JOIN chunks ON id = chunk_id"
            " WHERE chunk_id > ? ORDER BY chunk_id LIMIT ?",
            (after, limit),
        )
        return [StoredVector(*row) for row in rows]

    @translated()
    def count_chunks(self) -> int:
        """Chunks, with a vector or without."""
        return int(scalar(self._connection, "SELECT count(*) FROM chunks"))

    @translated()
    def count_pending(self) -> int:
        """Chunks without a vector."""
        return int(scalar(self._connection, "SELECT count(*) FROM unembedded"))

    @translated()
    def pending_hashes(self) -> list[bytes]:
        """The content hashes of the chunks without a vector, one a chunk."""
        rows = self._connection.execute("SELECT content_hash FROM unembedded CROSS JOIN chunks ON id = chunk_id")
        return [row[0] for row in rows]

    @translated()
    def pending_chunks(self, after: int, limit: int, *, everything: bool) -> list[UnembeddedChunk]:
        """The next chunks by id that have no vector, or, for another identity, the next chunks whatever they have."""
        # CROSS: the list comes first, or else SQLite walks all chunks and looks each up in it.
        listed = "unembedded CROSS JOIN chunks ON id = chunk_id WHERE chunk_id > ? ORDER BY chunk_id"
        source = "chunks WHERE id > ? ORDER BY id" if everything else listed
        rows = self._connection.execute(
            f"SELECT id, content_hash, text FROM {source} LIMIT ?",  # noqa: S608 -- constants
            (after, limit),
        )
        return [UnembeddedChunk(*row) for row in rows]


@contextmanager
def not_overwriting(connection: apsw.Connection) -> Iterator[None]:
    """Frees pages without overwriting them, which for a whole table would write all of it to the log.

    The next vectors take the pages; and numbers tell no word.
    """
    connection.execute("PRAGMA secure_delete=FAST").fetchall()
    try:
        yield
    finally:
        connection.execute("PRAGMA secure_delete=ON").fetchall()
