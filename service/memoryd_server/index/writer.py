"""Writes rows. Used by one thread, inside the transactions that it opens itself."""

import json
from collections.abc import Collection, Iterable, Sequence

import apsw

from memoryd_server.index import schema
from memoryd_server.index.connection import scalar, transaction
from memoryd_server.index.plan import stored
from memoryd_server.index.purge import note_deleted_words
from memoryd_server.index.transcript_rows import note_read, packed, transcript_state
from memoryd_server.index.vector_rows import VectorChanges, VectorRows
from memoryd_server.model import FileStat, Source
from memoryd_server.store.identity import BuildIdentity
from memoryd_server.store.rows import FileRow, PreparedFile, TranscriptPart, TranscriptState

_FILE_COLUMNS = "id, path, source, hash, size_bytes, mtime_ns, ctime_ns, device, inode, chunk_count, error"


class IndexWriter:
    """The rows of one index file, changed whole files at a time.

    `identity` is what the files that it is given are chunked with; None for one that writes no files. `changes` hears
    of the chunks that go; it is None for a file that nobody reads yet.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        identity: BuildIdentity | None = None,
        changes: VectorChanges | None = None,
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._changes = changes
        self._gone: list[int] = []

    @property
    def vectors(self) -> VectorRows:
        """The vectors of the same file."""
        return VectorRows(self._connection, self._changes)

    def files(self) -> dict[tuple[Source, str], FileRow]:
        """Every file that the index knows, by source and path."""
        rows = self._connection.execute(f"SELECT {_FILE_COLUMNS} FROM files")  # noqa: S608 -- a constant
        return {(row.source, row.path): row for row in map(_file_row, rows)}

    def memory_files(self, paths: Collection[str]) -> dict[tuple[Source, str], FileRow]:
        """The same of some Markdown files; paths that the index does not know are left out."""
        query = f"SELECT {_FILE_COLUMNS} FROM files WHERE source = ? AND path IN (SELECT value FROM json_each(?))"  # noqa: S608 -- a constant
        rows = self._connection.execute(query, (Source.MEMORY, json.dumps([*paths])))
        return {(row.source, row.path): row for row in map(_file_row, rows)}

    def revision(self) -> int:
        """The index revision."""
        return int(schema.get_meta(self._connection, "revision") or 0)

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

    def touch(self, rows: Sequence[tuple[FileRow, FileStat]]) -> None:
        """Notes the new stats of files whose bytes have not changed. The revision stays."""
        with transaction(self._connection):
            self._connection.executemany(
                "UPDATE files SET size_bytes=?, mtime_ns=?, ctime_ns=?, device=?, inode=? WHERE id=?",
                [(*_stat_values(stat), row.id) for row, stat in rows],
            )

    def note_sync(self, completed_at_ms: int) -> None:
        """Remembers when a sync run last completed (Unix time in milliseconds)."""
        with transaction(self._connection):
            schema.set_meta(self._connection, "last_sync_ms", completed_at_ms)

    def transcript(self, file_id: int) -> TranscriptState | None:
        """How far a transcript was read; None for any other file, and one that could not be read."""
        return transcript_state(self._connection, file_id)

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


def _file_row(row: tuple[object, ...]) -> FileRow:
    file_id, path, source, content_hash, size, mtime, ctime, device, inode, count, error = row
    stat = FileStat(size, mtime, ctime, device, inode)  # type: ignore[arg-type]
    return FileRow(file_id, path, Source(str(source)), content_hash, stat, count, error)  # type: ignore[arg-type]


def _stat_values(stat: FileStat) -> tuple[int, int, int, int, int]:
    kept = stored(stat)
    return kept.size_bytes, kept.mtime_ns, kept.ctime_ns, kept.device, kept.inode
