"""SqliteReader: rows, counts, keyword and vector hits of one unchanging snapshot of an index."""

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any, cast

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.model import Source
from memoryd_server.sources import ReadPosition
from memoryd_server.sqlite import readers, schema, vector_mean
from memoryd_server.sqlite.connection import scalar, snapshot, translated
from memoryd_server.sqlite.filter_cache import IN_MASK, ChunkSet, FilterCache, file_keys
from memoryd_server.sqlite.keyword import SharedVocabulary, TermCounts, Vocabulary, any_of
from memoryd_server.sqlite.readers import ReaderPool, id_list
from memoryd_server.sqlite.row_cache import ChunkRowCache
from memoryd_server.sqlite.term_scores import BM25, SharedScores, TermScoreCache, best, scores_of
from memoryd_server.sqlite.vector_rows import VectorRows, parse_identity
from memoryd_server.store import (
    ALL_CHUNKS,
    ChunkFilter,
    ChunkHead,
    ChunkRow,
    FileKey,
    FileRow,
    IndexCounts,
    KeywordHit,
    StoredCounts,
    TranscriptState,
    VectorHit,
    VectorIdentity,
    chunk_head,
    chunk_row,
    file_row,
    last_lines,
    line_numbers,
)
from memoryd_server.text import QueryTerm, TermKind
from memoryd_server.vectors import Ids, Vectors


def count_stored(connection: apsw.Connection, file_ids: Sequence[int]) -> StoredCounts:
    """Return what the index stores of these files, counted in the tables that store it."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT id, content_hash FROM chunks WHERE file_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(file_ids)),),
    ).fetchall()
    ids = (json.dumps([row[0] for row in rows]),)
    entries = "SELECT count(*) FROM keyword WHERE rowid IN (SELECT value FROM json_each(?))"
    vectors = "SELECT count(*) FROM vectors WHERE chunk_id IN (SELECT value FROM json_each(?))"
    return StoredCounts(
        tuple(row[1] for row in rows), scalar(connection, entries, ids), scalar(connection, vectors, ids)
    )


def hashes_containing(connection: apsw.Connection, text: str) -> set[bytes]:
    """Return the content hashes of the chunks that contain `text` word for word."""
    query = "SELECT DISTINCT content_hash FROM chunks WHERE instr(text, ?) > 0"
    rows: list[tuple[Any, ...]] = connection.execute(query, (text,)).fetchall()
    return {row[0] for row in rows}


def transcript_state(connection: apsw.Connection, file_id: int) -> TranscriptState | None:
    """Return how far a transcript was read; None for any other file and for a transcript that could not be read."""
    row = connection.execute(
        "SELECT version, read_bytes, read_lines, chunk_count, language"
        " FROM transcripts JOIN files ON files.id = file_id WHERE file_id = ?",
        (file_id,),
    ).fetchone()
    if row is None:
        return None
    version, read_bytes, read_lines, chunk_count, language = row
    last = connection.execute(
        "SELECT text, line_numbers, line_origins FROM chunks WHERE id = (SELECT max(id) FROM chunks WHERE file_id = ?)",
        (file_id,),
    ).fetchone()
    lines = () if last is None else last_lines(*last)
    return TranscriptState(version, ReadPosition(read_bytes, read_lines), chunk_count, language, lines)


# Queries are not stemmed for languages with a smaller share: their stems would cost every search time.
MIN_LANGUAGE_SHARE = 0.02

# Steps of SQLite's virtual machine between two checks of the deadline: some milliseconds. Each check waits for the
# interpreter lock: with a check every 2,000 steps, 64 callers lost a fifth of their throughput.
_STEPS_PER_DEADLINE_CHECK = 50_000

_FILE_COLUMNS = (
    "id, path, source, hash, size_bytes, mtime_ns, ctime_ns, device, inode, chunk_count, error, rows_version, skipped"
)

# What a search needs of the table of single values, read by one statement per snapshot.
_META_OF_A_SEARCH = (
    "SELECT key, value FROM meta WHERE key IN"  # noqa: S608 -- constants
    f" ('revision', 'vector_identity', '{schema.ANNOTATED}', '{schema.TOUCHES}', '{vector_mean.REVISION}')"
)

# Takes a list of ids.
_CHUNKS_BY_ID = "FROM chunks JOIN files ON files.id = file_id WHERE chunks.id IN (SELECT value FROM json_each(?))"


@dataclass(slots=True)
class ReaderCaches:
    """The last counts, keyword caches, filters and rows, shared by all readers of an index, valid for one revision.

    `centre` is the mean of the vectors, with the revision that it was measured at.
    """

    counts: IndexCounts | None = None
    centre: tuple[int, Vectors] | None = None
    vocabulary: SharedVocabulary = field(default_factory=SharedVocabulary)
    scores: SharedScores = field(default_factory=SharedScores)
    filters: FilterCache = field(default_factory=FilterCache)
    rows: ChunkRowCache = field(default_factory=ChunkRowCache)

    def release_memory(self) -> None:
        """Drop the keyword caches, the filters and the rows."""
        self.filters.clear()
        self.rows = ChunkRowCache()
        self.vocabulary = SharedVocabulary()
        self.scores = SharedScores()


class SqliteReader(VectorRows):
    """One snapshot of one index, for one thread, until its block ends.

    The snapshot contains everything committed before `opened_at` (monotonic seconds), and perhaps some later commits.
    """

    def __init__(
        self, connection: apsw.Connection, caches: ReaderCaches, nearest: "NearestChunks | None" = None
    ) -> None:
        super().__init__(connection)
        self._caches = caches
        self._nearest = nearest
        self.opened_at = time.monotonic()

    @property
    def connection(self) -> apsw.Connection:
        """The connection of the snapshot, for SQL functions of an extension; valid within the block only."""
        return self._connection

    def counts(self) -> IndexCounts:
        """Return the revision, the files without an error, the chunks, their languages and sources."""
        revision = self.revision
        counts = self._caches.counts
        if counts is None or counts.revision != revision:
            counts = self._caches.counts = self._count(revision)
        return counts

    def _count(self, revision: int) -> IndexCounts:
        rows: list[tuple[Any, ...]] = self._connection.execute(
            "SELECT language, source, count(*), sum(chunk_count) FROM files WHERE error IS NULL GROUP BY 1, 2"
        ).fetchall()
        chunks_by_language: Counter[str] = Counter()
        for language, _, _, count in rows:
            chunks_by_language[language] += count
        chunks = chunks_by_language.total()
        least = max(1, MIN_LANGUAGE_SHARE * chunks)
        languages = tuple(language for language, count in chunks_by_language.most_common() if count >= least)
        sources = tuple(source for source in Source if any(row[1] == source and row[3] for row in rows))
        annotated = bool(self._meta.get(schema.ANNOTATED))
        return IndexCounts(revision, sum(row[2] for row in rows), chunks, languages, sources, annotated)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The terms of the keyword index in this snapshot."""
        return Vocabulary(self._connection, self._caches.vocabulary, self.revision)

    @cached_property
    def term_scores(self) -> TermScoreCache:
        """The cached keyword scores of single terms in this snapshot."""
        return TermScoreCache(self._connection, self._caches.scores, self.revision, self.vocabulary.chunks())

    @cached_property
    def _meta(self) -> dict[str, Any]:
        return dict(self._connection.execute(_META_OF_A_SEARCH))

    @cached_property
    def revision(self) -> int:
        """The index revision."""
        return int(self._meta.get("revision") or 0)

    @property
    def _state(self) -> tuple[int, int]:
        return self.revision, int(self._meta.get(schema.TOUCHES) or 0)

    @translated()
    def vector_identity(self) -> VectorIdentity | None:
        """Return the identity of the vectors, as given to `begin_vectors`; None if there never were any."""
        return parse_identity(str(self._meta.get("vector_identity") or ""))

    def last_sync_ms(self) -> int | None:
        """Return when a sync last completed (Unix milliseconds); None before the first."""
        value = schema.get_meta(self._connection, "last_sync_ms")
        return None if value is None else int(value)

    def files(self) -> dict[FileKey, FileRow]:
        """Return every indexed file, by source and path."""
        return all_files(self._connection)

    def frequencies(self, terms: Sequence[QueryTerm]) -> dict[QueryTerm, int]:
        """Return how many chunks hold each term, or a word that begins with it if it is a prefix.

        Guessed terms that do not occur in the index are 0, at almost no cost.
        """
        # One query for all guesses, which usually finds none and caches their frequencies for the lookups below.
        self.vocabulary.occurring([term.text for term in terms if term.kind is TermKind.GUESS])
        return {term: self.vocabulary.term_frequency(term) for term in terms}

    def keyword_chunks(self) -> int:
        """Return the number of chunks in the keyword index: N of BM25."""
        return self.vocabulary.chunks()

    def names_containing(self, piece: str, limit: int) -> list[str]:
        """Return at most `limit` names that contain `piece`; see `Vocabulary.names_containing`."""
        return self.vocabulary.names_containing(piece, limit)

    def selected(self, among: ChunkFilter) -> ChunkSet | None:
        """Return the chunks of this snapshot that a filter leaves; None if it has no condition."""
        if among == ALL_CHUNKS:
            return None
        return self._caches.filters.get(self._connection, self._state, among)

    def has_chunks(self, among: ChunkFilter) -> bool:
        """Return whether the filter leaves any chunk."""
        selected = self.selected(among)
        return self.counts().chunks > 0 if selected is None else bool(selected)

    def matching_files(self, among: ChunkFilter) -> frozenset[FileKey]:
        """Return the indexed files that match the filter's conditions on files and sources."""
        return file_keys(self._connection, among)

    def file_dates(self) -> dict[FileKey, str]:
        """Return the date of each indexed file by which filters select it, as YYYY-MM-DD.

        It is empty if only the time of the last modification counts.
        """
        rows = self._connection.execute("SELECT source, path, coalesce(date, '') FROM files")
        return {(Source(source), path): day for source, path, day in cast("Iterator[tuple[str, str, str]]", rows)}

    def keyword_hits(self, terms: Sequence[QueryTerm], among: ChunkFilter, limit: int) -> list[KeywordHit]:
        """Return the best chunks that hold any of `terms`, best first, the smaller id first among equals.

        Each term is quoted, so the user's text is never FTS5 syntax.
        """
        selected = self.selected(among)
        if not terms or (selected is not None and not selected):
            return []
        scores = self.term_scores.get(self._with_counts(terms))
        return self.matches(any_of(terms), limit, selected) if scores is None else best(scores, limit, selected)

    def keyword_scores(self, terms: Sequence[QueryTerm], ids: Sequence[int]) -> dict[int, float]:
        """Return the BM25 of each of these chunks for `terms`; 0 for one that holds none.

        Costs a fifth of a search.
        """
        scores = self.term_scores.get_for_lookup(self._with_counts(terms))
        if scores is not None:
            return scores_of(scores, ids)
        matches = self.scores_of_matches(any_of(terms), ids)
        return {chunk_id: matches.get(chunk_id, 0.0) for chunk_id in ids}

    def _with_counts(self, terms: Sequence[QueryTerm]) -> list[tuple[QueryTerm, TermCounts]]:
        return [(term, self.vocabulary.term_counts(term)) for term in terms]

    def vector_hits(self, query: NDArray[np.float32], limit: int, among: ChunkFilter) -> list[VectorHit]:
        """Return the nearest chunks of this snapshot as `VectorIndex.search` does; none without a vector index."""
        return [] if self._nearest is None else self._nearest(self, query, limit, among)

    def cosines(self, ids: Sequence[int], query: NDArray[np.float32]) -> dict[int, float]:
        """Return the cosine of each chunk's vector with the unit vector `query`; chunks without one are left out."""
        present, vectors = self.vectors_of(ids, len(query))
        return dict(zip(present.tolist(), (vectors @ query).tolist(), strict=True))

    def vectors_of(self, ids: Sequence[int], dimensions: int) -> tuple[Ids, Vectors]:
        """Return the ids of these chunks that have a vector of these dimensions, and the vectors, one per row."""
        return readers.vectors(self._connection, ids, dimensions)

    def vector_centre(self, dimensions: int) -> Vectors | None:
        """Return the mean of the stored vectors as last measured; None if there is none of these dimensions."""
        # It is measured at most once per revision, and revisions never repeat, not even in a rebuilt index.
        measured_at, cached = self._meta.get(vector_mean.REVISION), self._caches.centre
        if cached is not None and cached[0] == measured_at and len(cached[1]) == dimensions:
            return cached[1]
        centre = vector_mean.read(self._connection, dimensions)
        if centre is not None and measured_at is not None:
            self._caches.centre = measured_at, centre
        return centre

    def matches(self, match: str, limit: int, among: ChunkSet | None = None) -> list[KeywordHit]:
        """Return the best chunks for an FTS5 expression, best first, the smaller id first among equals.

        `among` are the chunks that may be returned; None means all.
        """
        allowed = "" if among is None else f" AND {IN_MASK.format(id='rowid')}"
        matching = f"keyword MATCH ?{allowed}"
        query = f"SELECT rowid AS id, {BM25} AS score FROM keyword WHERE {matching} ORDER BY score, id LIMIT ?"  # noqa: S608 -- constants
        masks = () if among is None else (among.mask,)
        return [KeywordHit(*row) for row in readers.scored(self._connection, query, (match, *masks, limit))]

    def scores_of_matches(self, match: str, ids: Sequence[int]) -> dict[int, float]:
        """Return the BM25 of those of these chunks that match an FTS5 expression."""
        # "+" makes SQLite scan all matches, which is a fifth of the work of ranking them. One search per id costs more.
        query = (
            f"SELECT rowid AS id, {BM25} AS score FROM keyword WHERE keyword MATCH ?"  # noqa: S608 -- constants
            " AND +rowid IN (SELECT value FROM json_each(?))"
        )
        return dict(readers.scored(self._connection, query, (match, id_list(ids))))

    def heads(self, ids: Sequence[int]) -> dict[int, ChunkHead]:
        """Return chunks without their texts, by id; unknown ids are left out."""
        columns = "chunks.id, path, source, mtime_ns, importance, projects, coalesce(chunks.day, files.day)"
        rows = readers.table(self._connection, columns, _CHUNKS_BY_ID, (id_list(ids),))
        return {row[0]: chunk_head(row) for row in rows}

    def dated_chunks(self, first: date, last: date, among: ChunkFilter, limit: int) -> list[int]:
        """Return at most `limit` chunks whose day, or else whose note's day, is in a range.

        The first chunk of each day comes before the second of any, the latest day first.
        """
        selected = self.selected(among)
        allowed = "" if selected is None else f" AND {IN_MASK.format(id='chunks.id')}"
        days = (first.isoformat(), last.isoformat(), *(() if selected is None else (selected.mask,)))
        dated = (
            "SELECT chunks.id AS id, chunks.day AS day FROM chunks"  # noqa: S608 -- constants
            f" WHERE chunks.day BETWEEN ? AND ?{allowed}"
            " UNION ALL SELECT chunks.id, files.day FROM files JOIN chunks ON files.id = file_id"
            f" WHERE files.day BETWEEN ? AND ? AND chunks.day IS NULL{allowed}"
        )
        query = (
            f"SELECT id FROM (SELECT id, day, row_number() OVER (PARTITION BY day ORDER BY id) AS place FROM ({dated}))"  # noqa: S608 -- as above
            " ORDER BY place, day DESC LIMIT ?"
        )
        return list(map(int, readers.ids(self._connection, query, (*days, *days, limit))))

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        """Return chunks by id; unknown ids are left out."""
        known = self._caches.rows.get(self._state, ids)
        missing = [chunk_id for chunk_id in ids if chunk_id not in known]
        return known | self._read_chunks(missing) if missing else known

    def _read_chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        columns = (
            "chunks.id, path, source, start_line, end_line, breadcrumb, size_bytes, mtime_ns, language, line_numbers,"
            " origin, importance, triggers, projects, coalesce(chunks.day, files.day, files.date, '')"
        )
        rows = readers.table_with_text(self._connection, columns, "text", _CHUNKS_BY_ID, (id_list(ids),))
        found = {row[0]: chunk_row(row) for row in rows}
        self._caches.rows.add(self._state, found)
        return found

    def chunks_of(self, file: FileKey, line: int | None, limit: int) -> list[int]:
        """Return up to `limit` chunks of a file, or those of them whose lines include `line`, by id."""
        rows: list[tuple[Any, ...]] = self._connection.execute(
            "SELECT chunks.id FROM files JOIN chunks ON file_id = files.id WHERE source = ? AND path = ?"
            " AND (? IS NULL OR ? BETWEEN start_line AND end_line) ORDER BY chunks.id LIMIT ?",
            (*file, line, line, limit),
        ).fetchall()
        return [row[0] for row in rows]

    def chunk_lines(self, file: FileKey, lines: tuple[int, int], limit: int) -> list[tuple[int, int]]:
        """Return the first and last line of up to `limit` chunks of a file with a line in the range `lines`, in order.

        A line between two messages of a transcript is in no chunk.
        """
        first, last = lines
        rows = self._connection.execute(
            "SELECT start_line, end_line, line_numbers FROM files JOIN chunks ON file_id = files.id WHERE source = ?"
            " AND path = ? AND end_line >= ? AND start_line <= ? ORDER BY start_line, end_line, chunks.id",
            (*file, first, last),
        )
        found = (
            (start, end)
            for start, end, numbers in cast("Iterator[tuple[int, int, str | None]]", rows)
            if numbers is None or any(first <= line <= last for line in line_numbers(numbers))
        )
        return list(itertools.islice(found, limit))

    def stored_counts(self, file_ids: Sequence[int]) -> StoredCounts:
        """Return what the index stores of these files: content hashes, keyword entries and vectors."""
        return count_stored(self._connection, file_ids)

    def hashes_containing(self, text: str) -> set[bytes]:
        """Return the content hashes of the chunks that contain `text` word for word; looks at every chunk."""
        return hashes_containing(self._connection, text)

    def embeddings_after(self, chunk_id: int, limit: int) -> list[tuple[int, bytes]]:
        """Return up to `limit` chunk ids above `chunk_id` with their vectors, ascending."""
        rows = self._connection.execute(
            "SELECT chunk_id, embedding FROM vectors WHERE chunk_id > ? ORDER BY chunk_id LIMIT ?", (chunk_id, limit)
        )
        return list(cast("Iterator[tuple[int, bytes]]", rows))

    def embeddings_of(self, ids: Collection[int]) -> list[tuple[int, bytes]]:
        """Return the vectors of these chunks, with their ids; chunks without one are left out."""
        query = "SELECT chunk_id, embedding FROM vectors WHERE chunk_id IN (SELECT value FROM json_each(?))"
        return list(cast("Iterator[tuple[int, bytes]]", self._connection.execute(query, (id_list([*ids]),))))

    def embedding_count(self) -> int:
        """Return the number of stored vectors. Scans an index: some 30 ms for 100,000 vectors of 768 dimensions."""
        return int(scalar(self._connection, "SELECT count(*) FROM vectors"))

    def last_embedding(self) -> int:
        """Return the highest id of a chunk that has a vector; 0 if there is none."""
        return int(scalar(self._connection, "SELECT coalesce(max(chunk_id), 0) FROM vectors"))


def all_files(connection: apsw.Connection) -> dict[FileKey, FileRow]:
    """Return every file of an index, by source and path."""
    rows = connection.execute(f"SELECT {_FILE_COLUMNS} FROM files")  # noqa: S608 -- a constant
    return {(row.source, row.path): row for row in map(file_row, rows)}


def memory_files(connection: apsw.Connection, paths: Collection[str]) -> dict[FileKey, FileRow]:
    """Return the Markdown files with these paths, by source and path; paths that are not indexed are left out."""
    query = f"SELECT {_FILE_COLUMNS} FROM files WHERE source = ? AND path IN (SELECT value FROM json_each(?))"  # noqa: S608 -- a constant
    rows = connection.execute(query, (Source.MEMORY, json.dumps([*paths])))
    return {(row.source, row.path): row for row in map(file_row, rows)}


NearestChunks = Callable[[SqliteReader, NDArray[np.float32], int, ChunkFilter], list[VectorHit]]
"""Finds the nearest chunks in a reader's snapshot (`VectorIndex.search`)."""


@contextmanager
def reading(
    pool: ReaderPool, caches: ReaderCaches, deadline: float | None = None, nearest: NearestChunks | None = None
) -> Iterator[SqliteReader]:
    """Open a snapshot on a connection from the pool. SQLite is interrupted when `time.monotonic()` passes `deadline`.

    Raises:
        DeadlineTooShort: the deadline passed during the read.
        IndexUnavailable: the index cannot be read.
    """
    with translated(), pool.connection() as connection:
        if deadline is not None:
            if time.monotonic() > deadline:
                raise apsw.InterruptError("the deadline had passed before the search began")
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_PER_DEADLINE_CHECK)
        try:
            with snapshot(connection):
                yield SqliteReader(connection, caches, nearest)
        finally:
            if deadline is not None:
                connection.set_progress_handler(None)
