"""FileRows: the rows of files, chunks and keyword entries in one transaction of a writer."""

import json
from collections.abc import Collection, Sequence

from memoryd_server.model import Chunk, FileStat, Origin, Source
from memoryd_server.postgres import keyword, vectors
from memoryd_server.postgres.errors import storable
from memoryd_server.postgres.scope import OWN, AgentScope, Columns, Row
from memoryd_server.store import (
    ROWS_VERSION,
    ChunkValues,
    FileKey,
    PreparedFile,
    TranscriptPart,
    chunk_values,
    file_date,
    front_matter_values,
    has_annotations,
    packed_line_numbers,
    stat_values,
)

MAX_KEPT_BYTES = 64 << 20
"""Vectors beyond this are not kept, and come from the cache or the provider."""

_STAT_COLUMNS = ("size_bytes", "mtime_ns", "ctime_ns", "device", "inode")
_STAT_ASSIGNMENTS = ", ".join(f"{column} = %({column})s" for column in _STAT_COLUMNS)
_VALUE_COLUMNS = ("line_origins", "origin", "day", "importance", "triggers", "projects")
_VALUE_ASSIGNMENTS = ", ".join(f"{column} = %({column})s" for column in _VALUE_COLUMNS)

_FILES = Columns(
    "files",
    (
        ("id", "bigint"),
        ("source", "text"),
        ("path", "text"),
        ("hash", "bytea"),
        *((column, "bigint") for column in _STAT_COLUMNS),
        ("chunk_count", "bigint"),
        ("metadata", "text"),
        ("language", "text"),
        ("error", "text"),
        ("day", "text"),
        ("date", "text"),
        ("rows_version", "integer"),
    ),
)
_FRONT_MATTER = Columns(
    "front_matter", (("key", "text"), ("value", "text"), ("file_id", "bigint")), " ON CONFLICT DO NOTHING"
)
_CHUNKS = Columns(
    "chunks",
    (
        ("id", "bigint"),
        ("file_id", "bigint"),
        ("start_line", "bigint"),
        ("end_line", "bigint"),
        ("token_count", "integer"),
        ("content_hash", "bytea"),
        ("breadcrumb", "text"),
        ("text", "text"),
        ("line_numbers", "text"),
        ("line_origins", "text"),
        ("origin", "text"),
        ("day", "text"),
        ("importance", "integer"),
        ("triggers", "text"),
        ("projects", "text"),
    ),
)

# The most new rows that wait for the next statement.
_MAX_PENDING_CHUNKS = 2_000

# A set of vectors is kept for its own identity only: between two parts of a file, the set may have been replaced.
_KeptSets = dict[tuple[int, str], dict[bytes, bytes]]


class FileRows:
    """Replaces, removes and extends files in the transaction of `begin`, until `end`.

    New rows are inserted together, because each statement waits for the server. The vectors of unchanged texts of a
    replaced file are kept. A long transcript is replaced in several transactions, between which its vectors are in
    memory.
    """

    def __init__(self) -> None:
        self._kept_path = ""
        self._kept: _KeptSets = {}

    def begin(self, scope: AgentScope, documents: Sequence[PreparedFile | TranscriptPart]) -> None:
        """Begin with the state of a transaction, which will write these documents."""
        self._scope = scope
        paths = {path for each in documents for path in (each.path, getattr(each, "moved_from", "")) if path}
        self._ids = _ids_of(scope, paths)
        self._next_file_id, self._next_chunk_id = scope.state.next_file_id, scope.state.next_chunk_id
        self._chunks = self._tokens = 0
        self._removed_names: set[str] = set()
        self._annotated = self._removed_text = False
        self._new_files: list[Row] = []
        self._new_values: list[Row] = []
        self._new_chunks: list[Row] = []
        self._new_terms: list[tuple[int, keyword.ChunkTerms]] = []
        self._new_vectors: list[tuple[int, dict[int, bytes]]] = []

    def _flush(self) -> None:
        """Insert the new rows."""
        self._scope.insert(_FILES, self._new_files)
        self._scope.insert(_FRONT_MATTER, self._new_values)
        self._scope.insert(_CHUNKS, self._new_chunks)
        keyword.insert_terms(self._scope, self._new_terms)
        for number, found in self._new_vectors:
            vectors.insert_vectors(self._scope, number, found)
        for rows in (self._new_files, self._new_values, self._new_chunks, self._new_terms, self._new_vectors):
            rows.clear()

    def end(self) -> None:
        """Store what concerns the whole generation: its counts, its next ids and its names."""
        self._flush()
        keyword.remove_unused_names(self._scope, self._removed_names)
        self._scope.run(
            f"""UPDATE generations SET chunk_count = chunk_count + %(chunks)s, token_count = token_count + %(tokens)s,
                next_file_id = %(next_file)s, next_chunk_id = %(next_chunk)s, annotated = annotated OR %(annotated)s,
                has_deleted_text = has_deleted_text OR %(removed)s WHERE {OWN}""",  # noqa: S608 -- a constant
            chunks=self._chunks,
            tokens=self._tokens,
            next_file=self._next_file_id,
            next_chunk=self._next_chunk_id,
            annotated=self._annotated,
            removed=self._removed_text,
        )

    def replace(self, file: PreparedFile) -> None:
        """Replace a file or add it; fill the missing columns of an outdated one whose chunks have not changed."""
        file_id = self._id_of(file.source, file.path)
        if file_id is not None and file.same_bytes and self._refill(file_id, file):
            store_stat(self._scope, file_id, file.stat)
            return
        if file_id is not None:
            self._keep_vectors(file_id, file.path, {chunk.content_hash for chunk in file.chunks})
            self.remove([file_id])
        self._insert_chunks(self._insert_file(file), file)
        self._drop_kept()

    def add_part(self, part: TranscriptPart) -> None:
        """Add the next chunks of a transcript."""
        self._flush()
        file_id = self._id_of(part.source, part.moved_from or part.path)
        if part.replaces_all and file_id is not None:
            hashes = {chunk.content_hash for chunk in part.chunks} if part.is_last else None
            self._keep_vectors(file_id, part.path, hashes)
            self.remove([file_id])
            file_id = None
        if file_id is None:
            file = PreparedFile(part.path, part.source, part.stat, part.mark, language=part.language)
            file_id = self._insert_file(file)
        if part.replaces_last:
            last = f"id = (SELECT max(id) FROM chunks WHERE {OWN} AND file_id = ANY(%(files)s))"  # noqa: S608 -- a constant
            self._remove_chunks(last, [file_id])
        self._insert_chunks(file_id, part)
        if part.is_last:
            self._drop_kept()
        self._flush()
        self._record_position(file_id, part)

    def remove(self, file_ids: Collection[int]) -> None:
        """Remove files with everything that belongs to them."""
        if not file_ids:
            return
        self._ids = {key: known for key, known in self._ids.items() if known not in file_ids}
        self._remove_chunks("file_id = ANY(%(files)s)", file_ids)
        self._removed_text = True
        for table, column in (("front_matter", "file_id"), ("files", "id")):
            self._scope.run(f"DELETE FROM {table} WHERE {OWN} AND {column} = ANY(%(files)s)", files=list(file_ids))  # noqa: S608 -- constants

    def _id_of(self, source: Source, path: str) -> int | None:
        """Return the id of one of the files of `begin`; None if it is not in the index."""
        file_id = self._ids.get((source, path))
        if file_id is not None and file_id >= self._scope.state.next_file_id:
            # The file is one of the new ones.
            self._flush()
        return file_id

    def _insert_file(self, file: PreparedFile) -> int:
        file_id, self._next_file_id = self._next_file_id, self._next_file_id + 1
        self._new_files.append(
            (
                file_id,
                file.source.value,
                file.path,
                file.content_hash,
                *stat_values(file.stat),
                len(file.chunks),
                # Escapes U+0000.
                json.dumps(file.metadata, ensure_ascii=False) if file.metadata else None,
                file.language,
                None if file.error is None else storable(file.error),
                file.day or None,
                file_date(file.path, file.metadata),
                ROWS_VERSION,
            )
        )
        self._ids[file.source, file.path] = file_id
        self._add_front_matter(file_id, file)
        return file_id

    def _add_front_matter(self, file_id: int, file: PreparedFile) -> None:
        values = front_matter_values(file.metadata)
        self._new_values += [(storable(key), storable(value), file_id) for key, value in values]

    def _insert_chunks(self, file_id: int, file: PreparedFile | TranscriptPart) -> None:
        first = self._next_chunk_id
        self._next_chunk_id += len(file.chunks)
        terms = [keyword.chunk_terms(body, context) for body, context in file.tokens]
        lengths = [each.length for each in terms]
        self._new_chunks += [
            (
                chunk_id,
                file_id,
                chunk.start_line,
                chunk.end_line,
                length,
                chunk.content_hash,
                storable(chunk.breadcrumb),
                storable(chunk.text),
                packed_line_numbers(chunk),
                *_storable_values(chunk_values(chunk, file.origin)),
            )
            for chunk_id, (chunk, length) in enumerate(zip(file.chunks, lengths, strict=True), first)
        ]
        self._annotated = self._annotated or has_annotations(file.chunks)
        self._chunks += len(file.chunks)
        self._tokens += sum(lengths)
        self._new_terms += enumerate(terms, first)
        self._insert_kept(file.path, first, file.chunks)
        if len(self._new_chunks) > _MAX_PENDING_CHUNKS:
            self._flush()

    def _remove_chunks(self, condition: str, file_ids: Collection[int]) -> None:
        query = f"DELETE FROM chunks WHERE {OWN} AND {condition} RETURNING id, token_count"  # noqa: S608 -- constants
        removed = self._scope.all(query, files=list(file_ids))
        ids = [row[0] for row in removed]
        if ids:
            self._removed_names |= keyword.remove_terms(self._scope, ids)
            vectors.remove_vectors(self._scope, ids)
        self._chunks -= len(ids)
        self._tokens -= sum(row[1] for row in removed)

    def _keep_vectors(self, file_id: int, path: str, hashes: Collection[bytes] | None) -> None:
        """Keep the vectors of a file that is about to be removed, of the texts `hashes` only, or of all."""
        self._kept_path, self._kept = path, {}
        wanted = "" if hashes is None else " AND content_hash = ANY(%(hashes)s)"
        rows = self._scope.all(
            f"""SELECT vector_set, content_hash, embedding FROM chunks AS c JOIN vectors AS v
                    ON v.agent_id = c.agent_id AND v.generation = c.generation AND v.chunk_id = c.id
                WHERE c.agent_id = %(agent)s AND c.generation = %(generation)s AND file_id = %(file)s
                    AND vector_set = ANY(%(sets)s){wanted}""",  # noqa: S608 -- constants
            file=file_id,
            sets=[number for number, _ in self._sets()],
            hashes=list(hashes or ()),
        )
        identities = dict(self._sets())
        room = MAX_KEPT_BYTES
        for number, content_hash, vector in rows:
            room -= len(vector)
            if room < 0:
                break
            self._kept.setdefault((number, identities[number]), {})[content_hash] = vector

    def _insert_kept(self, path: str, first: int, chunks: Sequence[Chunk]) -> None:
        if path == self._kept_path:
            for each in self._sets():
                kept = self._kept.get(each, {})
                hashes = enumerate((chunk.content_hash for chunk in chunks), first)
                found = {chunk_id: kept[content_hash] for chunk_id, content_hash in hashes if content_hash in kept}
                self._new_vectors.append((each[0], found))

    def _drop_kept(self) -> None:
        self._kept_path, self._kept = "", {}

    def _sets(self) -> list[tuple[int, str]]:
        """Return the numbers of the stored and the staged set with their identities."""
        state = self._scope.state
        sets = [(state.vector_set, state.vector_identity)]
        return sets if state.staged_set is None else [*sets, (state.staged_set, state.staged_identity or "")]

    def _refill(self, file_id: int, file: PreparedFile) -> bool:
        """Fill the columns of a file's chunks; return False if its chunks are others."""
        rows = self._scope.all(
            f"""SELECT id, content_hash, start_line, end_line, breadcrumb FROM chunks
                WHERE {OWN} AND file_id = %(file)s ORDER BY id""",  # noqa: S608 -- a constant
            file=file_id,
        )
        wanted = [(c.content_hash, c.start_line, c.end_line, storable(c.breadcrumb)) for c in file.chunks]
        if [row[1:] for row in rows] != wanted:
            return False
        _fill(self._scope, [(row, chunk_values(c, file.origin)) for row, c in zip(rows, file.chunks, strict=True)])
        self._annotated = self._annotated or has_annotations(file.chunks)
        self._scope.run(
            f"""UPDATE files SET day = %(day)s, rows_version = %(version)s, date = %(date)s
                WHERE {OWN} AND id = %(file)s""",  # noqa: S608 -- a constant
            file=file_id,
            day=file.day or None,
            version=ROWS_VERSION,
            date=file_date(file.path, file.metadata),
        )
        self._scope.run(f"DELETE FROM front_matter WHERE {OWN} AND file_id = %(file)s", file=file_id)  # noqa: S608 -- a constant
        self._add_front_matter(file_id, file)
        return True

    def _record_position(self, file_id: int, part: TranscriptPart) -> None:
        """Store how far a transcript was read, in the transaction that writes its chunks."""
        self._ids.pop((part.source, part.moved_from), None)
        self._ids[part.source, part.path] = file_id
        self._scope.run(
            f"""UPDATE files SET path = %(path)s, hash = %(hash)s, {_STAT_ASSIGNMENTS}, language = %(language)s,
                error = NULL, chunk_count = chunk_count + %(added)s, skipped = skipped + %(skipped)s, date = %(date)s,
                reader_version = %(version)s, read_bytes = %(read_bytes)s, read_lines = %(read_lines)s
                WHERE {OWN} AND id = %(file)s""",  # noqa: S608 -- constants
            file=file_id,
            path=part.path,
            hash=part.mark,
            **_stat_values(part.stat),
            language=part.language,
            added=len(part.chunks) - part.replaces_last,
            skipped=part.skipped,
            date=file_date(part.path, {}),
            version=part.version,
            read_bytes=part.read.offset,
            read_lines=part.read.lines,
        )


def _ids_of(scope: AgentScope, paths: Collection[str]) -> dict[FileKey, int]:
    query = f"SELECT source, path, id FROM files WHERE {OWN} AND path = ANY(%(paths)s)"  # noqa: S608 -- a constant
    return {(Source(source), path): file_id for source, path, file_id in scope.all(query, paths=list(paths))}


def store_stat(scope: AgentScope, file_id: int, stat: FileStat) -> None:
    """Store the stat of a file."""
    query = f"UPDATE files SET {_STAT_ASSIGNMENTS} WHERE {OWN} AND id = %(file)s"  # noqa: S608 -- constants
    scope.run(query, **_stat_values(stat), file=file_id)


def refill_chunks(scope: AgentScope, file_id: int, after: int, chunks: Sequence[Chunk]) -> int:
    """Fill the columns of the next `chunks` of a transcript, after chunk id `after`; return the id of the last one.

    Stops at the first chunk whose text is another; the rest stays untrusted.
    """
    rows = scope.all(
        f"""SELECT id, content_hash FROM chunks WHERE {OWN} AND file_id = %(file)s AND id > %(after)s
            ORDER BY id LIMIT %(limit)s""",  # noqa: S608 -- a constant
        file=file_id,
        after=after,
        limit=len(chunks),
    )
    filled: list[tuple[Row, ChunkValues]] = []
    for row, chunk in zip(rows, chunks, strict=False):
        if row[1] != chunk.content_hash:
            break
        filled.append((row, chunk_values(chunk, Origin.UNTRUSTED)))
    _fill(scope, filled)
    return int(filled[-1][0][0]) if filled else after


def _fill(scope: AgentScope, filled: Sequence[tuple[Row, ChunkValues]]) -> None:
    query = f"UPDATE chunks SET {_VALUE_ASSIGNMENTS} WHERE {OWN} AND id = %(id)s"  # noqa: S608 -- constants
    scope.run_many(
        query,
        [{**dict(zip(_VALUE_COLUMNS, _storable_values(values), strict=True)), "id": row[0]} for row, values in filled],
    )


def _stat_values(stat: FileStat) -> dict[str, int]:
    return dict(zip(_STAT_COLUMNS, stat_values(stat), strict=True))


def _storable_values(values: ChunkValues) -> list[str | int | None]:
    return [storable(value) if isinstance(value, str) else value for value in values]
