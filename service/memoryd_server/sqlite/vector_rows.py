"""VectorRows and VectorSetWriter: the two sets of vectors of an index file, stored and staged.

Searches read the stored set. A staged set is made next to it if the index is to have vectors of another model, and
replaces the stored set in one transaction (decision 24). Its tables exist only in the time between. Both sets belong to
the chunks of the file, so a change of chunks changes both.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import apsw

from memoryd_server.sqlite import schema, vector_mean
from memoryd_server.sqlite.connection import scalar, transaction, translated
from memoryd_server.store import PendingChunk, StoredVector, VectorIdentity
from memoryd_server.vectors import FLOAT_BYTES


class VectorObserver(Protocol):
    """Holds vectors in memory; called after each commit, on the writer thread."""

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """Add or replace the vectors of these chunks, and drop those of removed chunks."""

    def reset(self) -> None:
        """Drop every vector."""


@dataclass(frozen=True, slots=True)
class VectorTables:
    """The tables of one set: its vectors, and the chunks that have none; and the meta key of its identity."""

    vectors: str
    pending: str
    identity_key: str


STORED = VectorTables("vectors", "unembedded", schema.VECTOR_IDENTITY)
STAGED = VectorTables("staged_vectors", "staged_unembedded", schema.STAGED_IDENTITY)

# Every search reads the identity of the vectors, which hardly ever changes.
parse_identity = lru_cache(maxsize=256)(VectorIdentity.from_json)


class VectorRows:
    """One set of vectors of an index file, for reading."""

    def __init__(self, connection: apsw.Connection, tables: VectorTables = STORED) -> None:
        self._connection = connection
        self._tables = tables

    @translated()
    def vector_identity(self) -> VectorIdentity | None:
        """Return the identity of the vectors, as given to `begin_vectors`; None if there never were any."""
        return parse_identity(str(schema.get_meta(self._connection, self._tables.identity_key) or ""))

    @translated()
    def staged(self) -> "VectorRows | None":
        """Return the staged set; None if there is none."""
        return VectorRows(self._connection, STAGED) if schema.is_staging(self._connection) else None

    @translated()
    def failover_record(self) -> str:
        """Return the record last passed to `record_failover`; empty if there is none."""
        return str(schema.get_meta(self._connection, "stand_in") or "")

    @translated()
    def vector_dimensions(self) -> int:
        """Return the length of the vectors; 0 if there are none."""
        query = f"SELECT length(embedding) FROM {self._tables.vectors} ORDER BY chunk_id LIMIT 1"  # noqa: S608 -- constants
        return int(scalar(self._connection, query) or 0) // FLOAT_BYTES

    @translated()
    def stored_vectors(self, after: int, limit: int) -> list[StoredVector]:
        """Return up to `limit` vectors, by chunk id, after id `after`."""
        rows = self._connection.execute(
            f"SELECT chunk_id, content_hash, embedding FROM {self._tables.vectors} CROSS JOIN chunks ON id = chunk_id"  # noqa: S608 -- constants
            " WHERE chunk_id > ? ORDER BY chunk_id LIMIT ?",
            (after, limit),
        )
        return [StoredVector(*row) for row in rows]

    @translated()
    def count_chunks(self) -> int:
        """Return the number of chunks, with a vector or without."""
        return int(scalar(self._connection, "SELECT count(*) FROM chunks"))

    @translated()
    def count_pending(self) -> int:
        """Return the number of chunks without a vector."""
        return int(scalar(self._connection, f"SELECT count(*) FROM {self._tables.pending}"))  # noqa: S608 -- constants

    @translated()
    def pending_hashes(self) -> list[bytes]:
        """Return the content hash of each chunk without a vector."""
        query = f"SELECT content_hash FROM {self._tables.pending} CROSS JOIN chunks ON id = chunk_id"  # noqa: S608 -- constants
        return [row[0] for row in self._connection.execute(query)]

    @translated()
    def pending_chunks(self, after: int, limit: int, *, everything: bool) -> list[PendingChunk]:
        """Return up to `limit` chunks without a vector, by id, after id `after`; all chunks if `everything`."""
        # CROSS makes the pending chunks the outer table; otherwise SQLite scans all chunks and looks each up in it.
        pending = f"{self._tables.pending} CROSS JOIN chunks ON id = chunk_id WHERE chunk_id > ? ORDER BY chunk_id"
        source = "chunks WHERE id > ? ORDER BY id" if everything else pending
        rows = self._connection.execute(
            f"SELECT id, content_hash, text FROM {source} LIMIT ?",  # noqa: S608 -- constants
            (after, limit),
        )
        return [PendingChunk(*row) for row in rows]


class VectorSetWriter(VectorRows):
    """Changes one set of vectors of an index file, each call in its own transaction.

    `observer` is called after each commit that changes vectors; None for a set that has no readers yet.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        tables: VectorTables = STORED,
        observer: VectorObserver | None = None,
    ) -> None:
        super().__init__(connection, tables)
        self._observer = observer

    @translated()
    def begin_vectors(self, identity: VectorIdentity) -> None:
        """Delete every vector of the set and store the identity of the next ones."""
        tables = self._tables
        with not_overwriting(self._connection), transaction(self._connection):
            self._connection.execute(f"DELETE FROM {tables.vectors}")  # noqa: S608 -- constants
            self._connection.execute(f"DELETE FROM {tables.pending}")  # noqa: S608 -- constants
            self._connection.execute(f"INSERT INTO {tables.pending} SELECT id FROM chunks")  # noqa: S608 -- constants
            if tables is STORED:
                vector_mean.forget(self._connection)
            schema.set_meta(self._connection, tables.identity_key, identity.to_json())
        if self._observer is not None:
            self._observer.reset()

    @translated()
    def set_dimensions(self, identity: VectorIdentity) -> None:
        """Store the identity once its dimensions are known, and delete vectors of other lengths."""
        tables, width = self._tables, FLOAT_BYTES * identity.dimensions
        with transaction(self._connection):
            self._connection.execute(f"DELETE FROM {tables.vectors} WHERE length(embedding) <> ?", (width,))  # noqa: S608 -- constants
            deleted = self._connection.changes()
            if deleted:
                self._connection.execute(
                    f"INSERT OR IGNORE INTO {tables.pending}"  # noqa: S608 -- constants
                    f" SELECT id FROM chunks WHERE id NOT IN (SELECT chunk_id FROM {tables.vectors})"
                )
            schema.set_meta(self._connection, tables.identity_key, identity.to_json())
        if deleted and self._observer is not None:
            self._observer.reset()

    @translated()
    def put_vectors(self, vectors: Mapping[int, bytes]) -> int:
        """Store vectors by chunk id in one transaction; return the index revision, which only stored ones raise."""
        tables = self._tables
        with transaction(self._connection):
            self._connection.executemany(f"INSERT OR REPLACE INTO {tables.vectors} VALUES(?,?)", list(vectors.items()))
            self._connection.executemany(
                f"DELETE FROM {tables.pending} WHERE chunk_id = ?",  # noqa: S608 -- constants
                [(each,) for each in vectors],
            )
            stored = tables is STORED
            revision = schema.raise_revision(self._connection) if stored else schema.revision(self._connection)
        if self._observer is not None:
            self._observer.apply(vectors, ())
        return revision


def create_staged(connection: apsw.Connection, identity: VectorIdentity) -> None:
    """Begin a staged set of vectors of `identity`, and delete an earlier one, in one transaction."""
    with not_overwriting(connection), transaction(connection):
        _drop_staged(connection)
        connection.execute(f"CREATE TABLE {STAGED.vectors}(chunk_id INTEGER PRIMARY KEY, embedding BLOB NOT NULL)")
        connection.execute(f"CREATE TABLE {STAGED.pending}(chunk_id INTEGER PRIMARY KEY)")
        connection.execute(f"INSERT INTO {STAGED.pending} SELECT id FROM chunks")  # noqa: S608 -- constants
        schema.begin_staging(connection, identity.to_json())


def drop_staged(connection: apsw.Connection) -> None:
    """Delete the staged set, if there is one, in one transaction."""
    with not_overwriting(connection), transaction(connection):
        _drop_staged(connection)


def _drop_staged(connection: apsw.Connection) -> None:
    for table in (STAGED.vectors, STAGED.pending):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    schema.end_staging(connection)


def promote_staged(connection: apsw.Connection) -> int:
    """Replace the stored set by the staged one, in one transaction; return the new revision.

    The tables are renamed, so the cost does not depend on the new vectors, except for their index.
    """
    with not_overwriting(connection), transaction(connection):
        identity = schema.get_meta(connection, STAGED.identity_key)
        for stored, staged in ((STORED.vectors, STAGED.vectors), (STORED.pending, STAGED.pending)):
            connection.execute(f"DROP TABLE {stored}")
            connection.execute(f"ALTER TABLE {staged} RENAME TO {stored}")
        connection.execute(schema.VECTORS_BY_CHUNK)
        vector_mean.forget(connection)
        schema.set_meta(connection, STORED.identity_key, str(identity))
        schema.end_staging(connection)
        return schema.raise_revision(connection)


def discard_outdated(connection: apsw.Connection) -> None:
    """Delete a staged set that does not belong to the chunks of the index, which an older memoryd has changed since."""
    if schema.is_staging(connection) and not schema.is_staged_revision(connection):
        drop_staged(connection)


@contextmanager
def not_overwriting(connection: apsw.Connection) -> Iterator[None]:
    """Free pages without overwriting them, which for a whole table would write all of it to the log.

    The next vectors reuse the pages, and vectors contain no text.
    """
    connection.execute("PRAGMA secure_delete=FAST").fetchall()
    try:
        yield
    finally:
        connection.execute("PRAGMA secure_delete=ON").fetchall()
