"""The vectors of a file that is replaced, for those of its texts that do not change."""

from collections.abc import Collection, Mapping, Sequence

import apsw

from memoryd_server.model import Chunk
from memoryd_server.sqlite import schema
from memoryd_server.sqlite.vector_rows import STORED, VectorTables

MAX_BYTES = 64 << 20
"""Vectors beyond this are not kept, and come from the cache or the provider."""

_Vectors = dict[bytes, bytes]


class KeptVectors:
    """Vectors by the content hash of their text, from the removal of a file until its last chunk is inserted.

    A long transcript is replaced in several transactions. Its vectors are in memory between them, unless the vectors of
    the index are replaced meanwhile.
    """

    def __init__(self, connection: apsw.Connection, *, max_bytes: int = MAX_BYTES) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        self._path = ""
        self._sets: dict[tuple[VectorTables, str], _Vectors] = {}

    def keep(self, path: str, file_id: int, sets: Sequence[VectorTables], hashes: Collection[bytes] | None) -> None:
        """Read the vectors of a file's chunks in these sets, of the texts `hashes` only, or of all."""
        self._path = path
        self._sets = {(each, self._identity(each)): self._read(file_id, each, hashes) for each in sets}

    def insert(self, path: str, first_id: int, chunks: Sequence[Chunk]) -> Mapping[int, bytes]:
        """Insert the vectors that were kept of these chunks, which are pending; return those of the stored set."""
        stored: dict[int, bytes] = {}
        if path != self._path:
            return stored
        for (tables, identity), vectors in self._sets.items():
            if not vectors or identity != self._identity(tables):
                continue
            hashes = enumerate((chunk.content_hash for chunk in chunks), first_id)
            found = {chunk_id: vectors[each] for chunk_id, each in hashes if each in vectors}
            self._connection.executemany(f"INSERT INTO {tables.vectors} VALUES(?,?)", list(found.items()))
            self._connection.executemany(
                f"DELETE FROM {tables.pending} WHERE chunk_id = ?",  # noqa: S608 -- constants
                [(each,) for each in found],
            )
            if tables is STORED:
                stored = found
        return stored

    def clear(self) -> None:
        """Drop the vectors."""
        self._path, self._sets = "", {}

    def _identity(self, tables: VectorTables) -> str:
        return str(schema.get_meta(self._connection, tables.identity_key) or "")

    def _read(self, file_id: int, tables: VectorTables, hashes: Collection[bytes] | None) -> _Vectors:
        rows = self._connection.execute(
            f"SELECT content_hash, embedding FROM chunks JOIN {tables.vectors} ON chunk_id = id WHERE file_id = ?",  # noqa: S608 -- constants
            (file_id,),
        )
        kept: _Vectors = {}
        room = self._max_bytes
        for content_hash, embedding in rows:
            if hashes is not None and content_hash not in hashes:
                continue
            room -= len(embedding)
            if room < 0:
                break
            kept[content_hash] = embedding
        return kept
