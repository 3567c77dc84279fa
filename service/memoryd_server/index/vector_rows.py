"""Vectors beside the chunks that they belong to."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.errors import SyncCancelled
from memoryd_server.index import centre, one_step, schema
from memoryd_server.index.connection import scalar, transaction
from memoryd_server.index.floats import FLOAT_BYTES, Ids, Vectors
from memoryd_server.store.rows import UnembeddedChunk

_COPIED_AT_ONCE = 500


class VectorChanges(Protocol):
    """Whoever keeps vectors in memory; told after each commit, on the writer thread."""

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """These vectors are new, and these chunks are gone."""

    def reset(self) -> None:
        """Nothing that was known holds any more."""


class VectorRows:
    """The vectors of one index file. `put` and `begin` belong to the writer thread.

    `changes` is None for a file that nobody reads yet, and for one that is only read.
    """

    def __init__(self, connection: apsw.Connection, changes: VectorChanges | None) -> None:
        self._connection = connection
        self._changes = changes

    def identity(self) -> str:
        """What the vectors were built with, as it was given to `begin`; empty when there never were any."""
        return str(schema.get_meta(self._connection, "vector_identity") or "")

    def stand_in(self) -> str:
        """Who stands in for the configured provider, as it was given to `note_stand_in`; empty when nobody ever did."""
        return str(schema.get_meta(self._connection, "stand_in") or "")

    def note_stand_in(self, note: str) -> None:
        """Notes who stands in for the configured provider."""
        with transaction(self._connection):
            schema.set_meta(self._connection, "stand_in", note)

    def begin(self, identity: str) -> None:
        """Forgets every vector and notes what the next ones are built with."""
        with _not_overwriting(self._connection), transaction(self._connection):
            self._connection.execute("DELETE FROM vectors")
            centre.forget(self._connection)
            self._connection.execute("DELETE FROM unembedded")
            self._connection.execute("INSERT INTO unembedded SELECT id FROM chunks")
            schema.set_meta(self._connection, "vector_identity", identity)
        if self._changes is not None:
            self._changes.reset()

    def dimensions(self) -> int:
        """What the stored vectors have; 0 while there are none."""
        first = scalar(self._connection, "SELECT length(embedding) FROM vectors ORDER BY chunk_id LIMIT 1")
        return int(first or 0) // FLOAT_BYTES

    def note_dimensions(self, identity: str, dimensions: int) -> None:
        """Notes the identity now that it tells the dimensions, and forgets vectors that have others."""
        with transaction(self._connection):
            self._connection.execute("DELETE FROM vectors WHERE length(embedding) <> ?", (FLOAT_BYTES * dimensions,))
            forgotten = self._connection.changes()
            if forgotten:
                self._connection.execute(
                    "INSERT OR IGNORE INTO unembedded"
                    " SELECT id FROM chunks WHERE id NOT IN (SELECT chunk_id FROM vectors)"
                )
            schema.set_meta(self._connection, "vector_identity", identity)
        if forgotten and self._changes is not None:
            self._changes.reset()

    def put(self, vectors: Mapping[int, bytes]) -> int:
        """Stores vectors by chunk id in one transaction; returns the new revision."""
        with transaction(self._connection):
            self._connection.executemany("INSERT OR REPLACE INTO vectors VALUES(?,?)", list(vectors.items()))
            self._connection.executemany("DELETE FROM unembedded WHERE chunk_id = ?", [(each,) for each in vectors])
            revision = schema.raise_revision(self._connection)
        if self._changes is not None:
            self._changes.apply(vectors, ())
        return revision

    def copy_from(self, other: "VectorRows", should_stop: Callable[[], bool]) -> None:
        """Store the vectors that another index file has for the texts of this one, and what they were built with.

        Raises:
            SyncCancelled: `should_stop` said so.
        """
        if not other.identity():
            return
        self.begin(other.identity())
        self.note_stand_in(other.stand_in())
        wanted: dict[bytes, list[int]] = {}
        for chunk_id, text in self._connection.execute("SELECT id, content_hash FROM chunks"):
            wanted.setdefault(text, []).append(chunk_id)
        after = 0
        while rows := other.embedded(after, _COPIED_AT_ONCE):
            if should_stop():
                raise SyncCancelled("the sync run was cancelled; the index is as it was")
            after = rows[-1][0]
            self.put({chunk_id: vector for _, text, vector in rows for chunk_id in wanted.get(text, ())})

    def embedded(self, after: int, limit: int) -> list[tuple[int, bytes, bytes]]:
        """Return the next vectors by chunk id: the id, the content hash of the chunk, and the vector's bytes."""
        rows = self._connection.execute(
            "SELECT chunk_id, content_hash, embedding FROM vectors CROSS JOIN chunks ON id = chunk_id"
            " WHERE chunk_id > ? ORDER BY chunk_id LIMIT ?",
            (after, limit),
        )
        return list(rows)

    def centre(self, dimensions: int) -> Vectors | None:
        """Return the mean of the stored vectors as last measured; None if there is none of these dimensions."""
        return centre.read(self._connection, dimensions)

    def measure_centre(self) -> None:
        """Measure that mean if the index has changed since. Belongs to the writer thread."""
        centre.measure(self._connection, int(schema.get_meta(self._connection, "revision") or 0), self.dimensions())

    def count_chunks(self) -> int:
        """Chunks, with a vector or without."""
        return int(scalar(self._connection, "SELECT count(*) FROM chunks"))

    def count_missing(self) -> int:
        """Chunks without a vector."""
        return int(scalar(self._connection, "SELECT count(*) FROM unembedded"))

    def missing_hashes(self) -> list[bytes]:
        """The content hashes of the chunks without a vector, one a chunk."""
        rows = self._connection.execute("SELECT content_hash FROM unembedded CROSS JOIN chunks ON id = chunk_id")
        return [row[0] for row in rows]

    def chunks(self, after: int, limit: int, *, everything: bool) -> list[UnembeddedChunk]:
        """The next chunks by id that have no vector, or, for another identity, the next chunks whatever they have."""
        # CROSS: the list comes first, or else SQLite walks all chunks and looks each up in it.
        listed = "unembedded CROSS JOIN chunks ON id = chunk_id WHERE chunk_id > ? ORDER BY chunk_id"
        source = "chunks WHERE id > ? ORDER BY id" if everything else listed
        rows = self._connection.execute(
            f"SELECT id, content_hash, text FROM {source} LIMIT ?",  # noqa: S608 -- constants
            (after, limit),
        )
        return [UnembeddedChunk(*row) for row in rows]

    def cosines(self, ids: Sequence[int], query: NDArray[np.float32]) -> dict[int, float]:
        """The cosine of each of these chunks' vectors with `query`, a unit vector; chunks without one are left out."""
        found, vectors = self.of(ids, len(query))
        return dict(zip(found.tolist(), (vectors @ query).tolist(), strict=True))

    def of(self, ids: Sequence[int], dimensions: int) -> tuple[Ids, Vectors]:
        """The stored vectors of these chunks, one a row, and whose they are; those of other dimensions are left out."""
        return one_step.vectors(self._connection, ids, dimensions)


@contextmanager
def _not_overwriting(connection: apsw.Connection) -> Iterator[None]:
    """Frees pages without overwriting them, which for a whole table would write all of it to the log.

    The next vectors take the pages; and numbers tell no word.
    """
    connection.execute("PRAGMA secure_delete=FAST").fetchall()
    try:
        yield
    finally:
        connection.execute("PRAGMA secure_delete=ON").fetchall()
