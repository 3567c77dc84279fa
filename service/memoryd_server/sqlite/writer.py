"""SqliteWriter: files, transcripts, vectors.

Writes rows. Used by one thread, inside the transactions that it opens itself.

What the index holds of a transcript beside its chunks: how far it was read, and where each line of a chunk is.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

import apsw

from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Chunk, FileStat, Source, stored
from memoryd_server.sqlite import schema, vector_mean
from memoryd_server.sqlite.connection import scalar, transaction, translated
from memoryd_server.sqlite.maintenance import note_deleted_words
from memoryd_server.sqlite.reader import (
    VectorObserver,
    VectorRows,
    all_files,
    memory_files,
    not_overwriting,
    transcript_state,
)
from memoryd_server.store import (
    BuildIdentity,
    FileKey,
    FileRow,
    PreparedFile,
    StopSign,
    TranscriptPart,
    TranscriptState,
    VectorIdentity,
    VectorView,
)
from memoryd_server.vectors import FLOAT_BYTES

_COPIED_AT_ONCE = 500


class SqliteWriter(VectorRows):
    """The rows of one index file, changed whole files at a time.

    `identity` is what the files that it is given are chunked with; None for one that writes no files. `changes` hears
    of the chunks that go; it is None for a file that nobody reads yet.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        identity: BuildIdentity | None = None,
        changes: VectorObserver | None = None,
    ) -> None:
        super().__init__(connection)
        self._identity = identity
        self._changes = changes
        self._gone: list[int] = []

    @translated()
    def files(self) -> dict[FileKey, FileRow]:
        """Every file that the index knows, by source and path."""
        return all_files(self._connection)

    @translated()
    def memory_files(self, paths: Collection[str]) -> dict[FileKey, FileRow]:
        """The same of some Markdown files; paths that the index does not know are left out."""
        return memory_files(self._connection, paths)

    @translated()
    def revision(self) -> int:
        """The index revision."""
        return int(schema.get_meta(self._connection, "revision") or 0)

    @translated()
    def write(self, files: Sequence[PreparedFile | TranscriptPart], removed: Iterable[FileRow] = ()) -> int:
        """Replaces and removes whole files, and adds to transcripts, in one transaction; returns the new revision."""
        self._gone = []
        with transaction(self._connection):
            if files and self._identity is not None:
                schema.note_chunking(self._connection, self._identity)
            for row in removed:
                self._remove(row.id)
            for file in files:
                if isinstance(file, TranscriptPart):
                    self._add_part(file)
                else:
                    self._replace(file)
            revision = schema.raise_revision(self._connection)
        if self._changes is not None and self._gone:
            self._changes.apply({}, self._gone)
        return revision

    @translated()
    def touch(self, rows: Sequence[tuple[FileRow, FileStat]]) -> None:
        """Notes the new stats of files whose bytes have not changed. The revision stays."""
        with transaction(self._connection):
            self._connection.executemany(
                "UPDATE files SET size_bytes=?, mtime_ns=?, ctime_ns=?, device=?, inode=? WHERE id=?",
                [(*_stat_values(stat), row.id) for row, stat in rows],
            )

    @translated()
    def note_sync(self, completed_at_ms: int) -> None:
        """Remembers when a sync run last completed (Unix time in milliseconds)."""
        with transaction(self._connection):
            schema.set_meta(self._connection, "last_sync_ms", completed_at_ms)

    @translated()
    def transcript(self, file_id: int) -> TranscriptState | None:
        """How far a transcript was read; None for any other file, and one that could not be read."""
        return transcript_state(self._connection, file_id)

    @translated()
    def note_failover(self, record: str) -> None:
        """Notes who stands in for the configured provider."""
        with transaction(self._connection):
            schema.set_meta(self._connection, "stand_in", record)

    @translated()
    def begin_vectors(self, identity: VectorIdentity) -> None:
        """Forgets every vector and notes what the next ones are built with."""
        with not_overwriting(self._connection), transaction(self._connection):
            self._connection.execute("DELETE FROM vectors")
            vector_mean.forget(self._connection)
            self._connection.execute("DELETE FROM unembedded")
            self._connection.execute("INSERT INTO unembedded SELECT id FROM chunks")
            schema.set_meta(self._connection, "vector_identity", identity.to_json())
        if self._changes is not None:
            self._changes.reset()

    @translated()
    def set_dimensions(self, identity: VectorIdentity) -> None:
        """Notes the identity now that it tells the dimensions, and forgets vectors that have others."""
        width = FLOAT_BYTES * identity.dimensions
        with transaction(self._connection):
            self._connection.execute("DELETE FROM vectors WHERE length(embedding) <> ?", (width,))
            forgotten = self._connection.changes()
            if forgotten:
                self._connection.execute(
                    "INSERT OR IGNORE INTO unembedded"
                    " SELECT id FROM chunks WHERE id NOT IN (SELECT chunk_id FROM vectors)"
                )
            schema.set_meta(self._connection, "vector_identity", identity.to_json())
        if forgotten and self._changes is not None:
            self._changes.reset()

    @translated()
    def put_vectors(self, vectors: Mapping[int, bytes]) -> int:
        """Stores vectors by chunk id in one transaction; returns the new revision."""
        with transaction(self._connection):
            self._connection.executemany("INSERT OR REPLACE INTO vectors VALUES(?,?)", list(vectors.items()))
            self._connection.executemany("DELETE FROM unembedded WHERE chunk_id = ?", [(each,) for each in vectors])
            revision = schema.raise_revision(self._connection)
        if self._changes is not None:
            self._changes.apply(vectors, ())
        return revision

    @translated()
    def copy_vectors(self, source: VectorView, should_stop: StopSign) -> None:
        """Store the vectors that another index has for the texts of this one, and what they were built with.

        Raises:
            SyncCancelled: `should_stop` said so.
        """
        identity = source.vector_identity()
        if identity is None:
            return
        self.begin_vectors(identity)
        self.note_failover(source.failover_record())
        wanted: dict[bytes, list[int]] = {}
        for chunk_id, text in self._connection.execute("SELECT id, content_hash FROM chunks"):
            wanted.setdefault(text, []).append(chunk_id)
        after = 0
        while rows := source.stored_vectors(after, _COPIED_AT_ONCE):
            if should_stop():
                raise SyncCancelled("the sync run was cancelled; the index is as it was")
            after = rows[-1].chunk_id
            self.put_vectors({chunk_id: row.vector for row in rows for chunk_id in wanted.get(row.content_hash, ())})

    @translated()
    def measure_vector_centre(self) -> None:
        """Measure the mean of the vectors if the index has changed since."""
        vector_mean.measure(self._connection, self.revision(), self.vector_dimensions())

    def _replace(self, file: PreparedFile) -> None:
        known = self._id_of(file.source, file.path)
        if known is not None:
            self._remove(known)
        self._insert_chunks(self._insert_file(file), file)

    def _id_of(self, source: Source, path: str) -> int | None:
        row = self._connection.execute("SELECT id FROM files WHERE source = ? AND path = ?", (source, path)).fetchone()
        return None if row is None else int(row[0])

    def _add_part(self, part: TranscriptPart) -> None:
        known = self._id_of(part.source, part.moved_from or part.path)
        if part.begins_anew and known is not None:
            self._remove(known)
            known = None
        if known is None:
            file = PreparedFile(part.path, part.source, part.stat, part.mark, language=part.language)
            known = self._insert_file(file)
        if part.replaces_last:
            self._remove_chunks("SELECT max(id) FROM chunks WHERE file_id = ?", known)
        self._insert_chunks(known, part)
        note_read(self._connection, known, part)

    def _insert_file(self, file: PreparedFile) -> int:
        self._connection.execute(
            "INSERT INTO files(source, path, hash, size_bytes, mtime_ns, ctime_ns, device, inode, chunk_count,"
            " metadata, language, error) VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                file.source,
                file.path,
                file.content_hash,
                *_stat_values(file.stat),
                len(file.chunks),
                json.dumps(file.metadata, ensure_ascii=False) if file.metadata else None,
                file.language,
                file.error,
            ),
        )
        return self._connection.last_insert_rowid()

    def _insert_chunks(self, file_id: int, file: PreparedFile | TranscriptPart) -> None:
        first = self._next_chunk_id()
        self._connection.executemany(
            "INSERT INTO chunks(id, file_id, start_line, end_line, content_hash, breadcrumb, text, line_numbers)"
            " VALUES(?,?,?,?,?,?,?,?)",
            [
                (first + i, file_id, c.start_line, c.end_line, c.content_hash, c.breadcrumb, c.text, packed(c))
                for i, c in enumerate(file.chunks)
            ],
        )
        self._connection.executemany(
            "INSERT INTO unembedded VALUES(?)", [(first + i,) for i in range(len(file.chunks))]
        )
        self._connection.executemany(
            "INSERT INTO keyword(rowid, body, context) VALUES(?,?,?)",
            [(first + i, body, context) for i, (body, context) in enumerate(file.tokens)],
        )

    def _next_chunk_id(self) -> int:
        return int(scalar(self._connection, "SELECT coalesce(max(id), 0) + 1 FROM chunks"))

    def _remove(self, file_id: int) -> None:
        self._remove_chunks("SELECT id FROM chunks WHERE file_id = ?", file_id)
        note_deleted_words(self._connection)
        self._connection.execute("DELETE FROM transcripts WHERE file_id = ?", (file_id,))
        self._connection.execute("DELETE FROM files WHERE id = ?", (file_id,))

    def _remove_chunks(self, which: str, file_id: int) -> None:
        """Removes the chunks whose ids the statement `which` gives for a file, with all that stands beside them."""
        ids = [row[0] for row in self._connection.execute(which, (file_id,))]
        for table, column in (
            ("keyword", "rowid"),
            ("vectors", "chunk_id"),
            ("unembedded", "chunk_id"),
            ("chunks", "id"),
        ):
            self._connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(each,) for each in ids])  # noqa: S608 -- constants
        if self._changes is not None:
            self._gone += ids


def _stat_values(stat: FileStat) -> tuple[int, int, int, int, int]:
    kept = stored(stat)
    return kept.size_bytes, kept.mtime_ns, kept.ctime_ns, kept.device, kept.inode


def packed(chunk: Chunk) -> str | None:
    """A chunk's line numbers as the table holds them."""
    return json.dumps(chunk.line_numbers, separators=(",", ":")) if chunk.line_numbers else None


def note_read(connection: apsw.Connection, file_id: int, part: TranscriptPart) -> None:
    """Notes, within the caller's transaction that writes its chunks, how far a transcript was read."""
    kept = stored(part.stat)
    connection.execute(
        "UPDATE files SET path = ?, hash = ?, size_bytes = ?, mtime_ns = ?, ctime_ns = ?, device = ?, inode = ?,"
        " language = ?, error = NULL, chunk_count = chunk_count + ? WHERE id = ?",
        (
            part.path,
            part.mark,
            kept.size_bytes,
            kept.mtime_ns,
            kept.ctime_ns,
            kept.device,
            kept.inode,
            part.language,
            len(part.chunks) - part.replaces_last,
            file_id,
        ),
    )
    connection.execute(
        "INSERT OR REPLACE INTO transcripts(file_id, version, read_bytes, read_lines) VALUES(?,?,?,?)",
        (file_id, part.version, part.read.offset, part.read.lines),
    )
