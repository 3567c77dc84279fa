"""SqliteWriter: files, transcripts and vectors of an index.

Each method runs in its own transaction. For one thread.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

import apsw

from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Chunk, FileStat, Source
from memoryd_server.sqlite import front_matter, schema, vector_mean
from memoryd_server.sqlite.chunk_columns import (
    COLUMNS,
    mark_annotated,
    refill_file,
    refill_transcript,
)
from memoryd_server.sqlite.connection import scalar, transaction, translated
from memoryd_server.sqlite.kept_vectors import KeptVectors
from memoryd_server.sqlite.reader import all_files, memory_files, transcript_state
from memoryd_server.sqlite.vector_rows import (
    STAGED,
    STORED,
    VectorObserver,
    VectorSetWriter,
    VectorTables,
    create_staged,
    drop_staged,
    promote_staged,
)
from memoryd_server.store import (
    ROWS_VERSION,
    FileKey,
    FileRow,
    PreparedFile,
    StopSign,
    TranscriptPart,
    TranscriptState,
    VectorIdentity,
    VectorView,
    batches_of,
    chunk_values,
    file_date,
    packed_line_numbers,
    stat_values,
)

_COPY_BATCH = 500
_REFILL_BATCH = 500
_STAT_ASSIGNMENTS = "size_bytes = ?, mtime_ns = ?, ctime_ns = ?, device = ?, inode = ?"


class SqliteWriter(VectorSetWriter):
    """Writes the rows of one index file, whole files at a time.

    `identity_json` is the build identity of the files to write; empty for a writer that writes no files. `observer` is
    called after each commit that changes vectors; None for a file that has no readers yet.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        identity_json: str = "",
        observer: VectorObserver | None = None,
    ) -> None:
        super().__init__(connection, observer=observer)
        self._identity_json = identity_json
        self._removed_chunks: list[int] = []
        self._inserted_vectors: dict[int, bytes] = {}
        self._kept = KeptVectors(connection)

    @translated()
    def files(self) -> dict[FileKey, FileRow]:
        """Return every indexed file, by source and path."""
        return all_files(self._connection)

    @translated()
    def memory_files(self, paths: Collection[str]) -> dict[FileKey, FileRow]:
        """Return the rows of the Markdown files with these paths; paths that are not indexed are left out."""
        return memory_files(self._connection, paths)

    @translated()
    def revision(self) -> int:
        """Return the index revision."""
        return schema.revision(self._connection)

    @translated()
    def write(self, files: Sequence[PreparedFile | TranscriptPart], removed: Iterable[FileRow] = ()) -> int:
        """Replace and remove whole files and append to transcripts, in one transaction; return the new revision."""
        self._removed_chunks, self._inserted_vectors = [], {}
        with transaction(self._connection):
            if files and self._identity_json:
                schema.record_chunking(self._connection, self._identity_json)
            for row in removed:
                self._remove(row.id)
            for file in files:
                if isinstance(file, TranscriptPart):
                    self._add_part(file)
                else:
                    self._replace(file)
            revision = schema.raise_revision(self._connection)
        if self._observer is not None and (self._removed_chunks or self._inserted_vectors):
            self._observer.apply(self._inserted_vectors, self._removed_chunks)
        return revision

    @translated()
    def touch(self, rows: Sequence[tuple[FileRow, FileStat]]) -> None:
        """Store the new stats of files whose bytes have not changed. The revision does not change."""
        with transaction(self._connection):
            for row, stat in rows:
                self._store_stat(row.id, stat)
            if rows:
                schema.count_touch(self._connection)

    @translated()
    def record_sync(self, completed_at_ms: int) -> None:
        """Store when a sync completed (Unix milliseconds)."""
        with transaction(self._connection):
            schema.set_meta(self._connection, "last_sync_ms", completed_at_ms)

    @translated()
    def transcript(self, file_id: int) -> TranscriptState | None:
        """Return how far a transcript was read; None for any other file and for a transcript that could not be read."""
        return transcript_state(self._connection, file_id)

    @translated()
    def outdated_transcripts(self, version: str) -> frozenset[int]:
        """Return the ids of the transcripts that were read by another version of the reader."""
        rows = self._connection.execute("SELECT file_id FROM transcripts WHERE version <> ?", (version,))
        return frozenset(row[0] for row in rows)

    @translated()
    def refill_transcript(self, row: FileRow, chunks: Iterable[Chunk], should_stop: StopSign) -> None:
        """Fill the columns of a transcript that an older version indexed; its text and vectors do not change.

        `chunks` are those of the indexed part, in order. Each transaction fills some hundred of them.

        Raises:
            SyncCancelled: `should_stop` returned true; the next run fills all of them.
        """
        after = 0
        for batch in batches_of(chunks, _REFILL_BATCH):
            if should_stop():
                raise SyncCancelled("the sync run was cancelled; what it has filled stays filled")
            with transaction(self._connection):
                after = refill_transcript(self._connection, row.id, after, batch)
                # Rows that searches keep, and filters by date, have the columns as they were.
                schema.count_touch(self._connection)
        with transaction(self._connection):
            self._connection.execute("UPDATE files SET rows_version = ? WHERE id = ?", (ROWS_VERSION, row.id))
            schema.raise_revision(self._connection)

    @translated()
    def record_failover(self, record: str) -> None:
        """Store the record of which provider makes the vectors instead of the configured one."""
        with transaction(self._connection):
            schema.set_meta(self._connection, "stand_in", record)

    @translated()
    def staged(self) -> VectorSetWriter | None:
        """Return the writer of the staged set; None if there is none."""
        return VectorSetWriter(self._connection, STAGED) if schema.is_staging(self._connection) else None

    @translated()
    def stage_vectors(self, identity: VectorIdentity) -> VectorSetWriter:
        """Begin a staged set of vectors of `identity`, and delete an earlier one; return its writer."""
        create_staged(self._connection, identity)
        return VectorSetWriter(self._connection, STAGED)

    @translated()
    def discard_staged(self) -> None:
        """Delete the staged set."""
        drop_staged(self._connection)

    @translated()
    def promote_staged(self) -> int:
        """Replace the stored set by the staged one, in one transaction; return the new revision."""
        revision = promote_staged(self._connection)
        if self._observer is not None:
            self._observer.reset()
        return revision

    @translated()
    def copy_vectors(self, source: VectorView, should_stop: StopSign) -> None:
        """Copy the vectors that another index has for the texts of this one, stored and staged, with their identities.

        Raises:
            SyncCancelled: `should_stop` returned true.
        """
        identity, staged = source.vector_identity(), source.staged()
        if identity is None:
            return
        self.begin_vectors(identity)
        self.record_failover(source.failover_record())
        _copy(source, self, self._ids_of_texts(), should_stop)
        next_identity = None if staged is None else staged.vector_identity()
        if staged is not None and next_identity is not None:
            _copy(staged, self.stage_vectors(next_identity), self._ids_of_texts(), should_stop)

    def _ids_of_texts(self) -> dict[bytes, list[int]]:
        ids: dict[bytes, list[int]] = {}
        for chunk_id, content_hash in self._connection.execute("SELECT id, content_hash FROM chunks"):
            ids.setdefault(content_hash, []).append(chunk_id)
        return ids

    @translated()
    def measure_vector_centre(self) -> None:
        """Measure the mean of the vectors if the index has changed since it was last measured."""
        vector_mean.measure(self._connection, self.revision(), self.vector_dimensions())

    def _replace(self, file: PreparedFile) -> None:
        file_id = self._id_of(file.source, file.path)
        if file_id is not None and file.same_bytes and refill_file(self._connection, file_id, file):
            self._store_stat(file_id, file.stat)
            return
        if file_id is not None:
            self._keep_vectors(file_id, file.path, {chunk.content_hash for chunk in file.chunks})
            self._remove(file_id)
        self._insert_chunks(self._insert_file(file), file)
        self._kept.clear()

    def _store_stat(self, file_id: int, stat: FileStat) -> None:
        values = (*stat_values(stat), file_id)
        self._connection.execute(f"UPDATE files SET {_STAT_ASSIGNMENTS} WHERE id = ?", values)  # noqa: S608 -- a constant

    def _keep_vectors(self, file_id: int, path: str, hashes: Collection[bytes] | None) -> None:
        """Keep the vectors of a file that is about to be removed, of the texts `hashes` only, or of all."""
        self._kept.keep(path, file_id, () if hashes == set() else self._vector_tables(), hashes)

    def _id_of(self, source: Source, path: str) -> int | None:
        row = self._connection.execute("SELECT id FROM files WHERE source = ? AND path = ?", (source, path)).fetchone()
        return None if row is None else int(row[0])

    def _add_part(self, part: TranscriptPart) -> None:
        file_id = self._id_of(part.source, part.moved_from or part.path)
        if part.replaces_all and file_id is not None:
            self._keep_vectors(file_id, part.path, {c.content_hash for c in part.chunks} if part.is_last else None)
            self._remove(file_id)
            file_id = None
        if file_id is None:
            file = PreparedFile(part.path, part.source, part.stat, part.mark, language=part.language)
            file_id = self._insert_file(file)
        if part.replaces_last:
            self._remove_chunks("SELECT max(id) FROM chunks WHERE file_id = ?", file_id)
        self._insert_chunks(file_id, part)
        if part.is_last:
            self._kept.clear()
        record_read_position(self._connection, file_id, part)

    def _insert_file(self, file: PreparedFile) -> int:
        self._connection.execute(
            "INSERT INTO files(source, path, hash, size_bytes, mtime_ns, ctime_ns, device, inode, chunk_count,"
            " metadata, language, error, day, rows_version, date) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                file.source,
                file.path,
                file.content_hash,
                *stat_values(file.stat),
                len(file.chunks),
                json.dumps(file.metadata, ensure_ascii=False) if file.metadata else None,
                file.language,
                file.error,
                file.day or None,
                ROWS_VERSION,
                file_date(file.path, file.metadata),
            ),
        )
        file_id = self._connection.last_insert_rowid()
        front_matter.insert(self._connection, file_id, file.metadata)
        return file_id

    def _insert_chunks(self, file_id: int, file: PreparedFile | TranscriptPart) -> None:
        first = self._next_chunk_id()
        self._connection.executemany(
            "INSERT INTO chunks(id, file_id, start_line, end_line, content_hash, breadcrumb, text, line_numbers,"
            f" {COLUMNS})"
            " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            [
                (
                    first + i,
                    file_id,
                    c.start_line,
                    c.end_line,
                    c.content_hash,
                    c.breadcrumb,
                    c.text,
                    packed_line_numbers(c),
                    *values,
                )
                for i, (c, values) in enumerate((c, chunk_values(c, file.origin)) for c in file.chunks)
            ],
        )
        mark_annotated(self._connection, file.chunks)
        for tables in self._vector_tables():
            self._connection.executemany(
                f"INSERT INTO {tables.pending} VALUES(?)",
                [(first + i,) for i in range(len(file.chunks))],
            )
        self._inserted_vectors |= self._kept.insert(file.path, first, file.chunks)
        self._connection.executemany(
            "INSERT INTO keyword(rowid, body, context) VALUES(?,?,?)",
            [(first + i, body, context) for i, (body, context) in enumerate(file.tokens)],
        )

    def _next_chunk_id(self) -> int:
        return int(scalar(self._connection, "SELECT coalesce(max(id), 0) + 1 FROM chunks"))

    def _vector_tables(self) -> tuple[VectorTables, ...]:
        """Return the sets of vectors that a change of chunks concerns."""
        return (STORED, STAGED) if schema.is_staging(self._connection) else (STORED,)

    def _remove(self, file_id: int) -> None:
        self._remove_chunks("SELECT id FROM chunks WHERE file_id = ?", file_id)
        schema.record_deleted_words(self._connection)
        self._connection.execute("DELETE FROM transcripts WHERE file_id = ?", (file_id,))
        front_matter.delete(self._connection, file_id)
        self._connection.execute("DELETE FROM files WHERE id = ?", (file_id,))

    def _remove_chunks(self, select_ids: str, file_id: int) -> None:
        """Remove the chunks that the statement `select_ids` selects for a file, from all tables."""
        ids = [row[0] for row in self._connection.execute(select_ids, (file_id,))]
        vectors = [(table, "chunk_id") for each in self._vector_tables() for table in (each.vectors, each.pending)]
        for table, column in (("keyword", "rowid"), *vectors, ("chunks", "id")):
            self._connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(each,) for each in ids])  # noqa: S608 -- constants
        if self._observer is not None:
            self._removed_chunks += ids
            # An id is used again for the next chunk, which may have no vector.
            for each in ids:
                self._inserted_vectors.pop(each, None)


def _copy(
    source: VectorView, target: VectorSetWriter, ids_of_texts: Mapping[bytes, Sequence[int]], should_stop: StopSign
) -> None:
    """Copy the vectors of one set to the chunks with the same texts."""
    after = 0
    while rows := source.stored_vectors(after, _COPY_BATCH):
        if should_stop():
            raise SyncCancelled("the sync run was cancelled; the index has not changed")
        after = rows[-1].chunk_id
        target.put_vectors(
            {chunk_id: row.vector for row in rows for chunk_id in ids_of_texts.get(row.content_hash, ())}
        )


def record_read_position(connection: apsw.Connection, file_id: int, part: TranscriptPart) -> None:
    """Store how far a transcript was read, within the caller's transaction that writes its chunks."""
    connection.execute(
        "UPDATE files SET path = ?, hash = ?, size_bytes = ?, mtime_ns = ?, ctime_ns = ?, device = ?, inode = ?,"
        " language = ?, error = NULL, chunk_count = chunk_count + ?, skipped = skipped + ?, date = ? WHERE id = ?",
        (
            part.path,
            part.mark,
            *stat_values(part.stat),
            part.language,
            len(part.chunks) - part.replaces_last,
            part.skipped,
            file_date(part.path, {}),
            file_id,
        ),
    )
    connection.execute(
        "INSERT OR REPLACE INTO transcripts(file_id, version, read_bytes, read_lines) VALUES(?,?,?,?)",
        (file_id, part.version, part.read.offset, part.read.lines),
    )
