"""PostgresReader: rows, counts, keyword and vector hits of one unchanging snapshot of an index."""

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import date

from memoryd_server.model import Source
from memoryd_server.postgres import vectors
from memoryd_server.postgres.errors import storable
from memoryd_server.postgres.filters import chunk_condition, file_condition
from memoryd_server.postgres.hnsw import HnswIndex
from memoryd_server.postgres.keyword import BY_CHUNK, FrequencyCache, KeywordIndex
from memoryd_server.postgres.scope import OWN, AgentScope
from memoryd_server.postgres.session import Operation
from memoryd_server.postgres.vectors import PostgresVectors
from memoryd_server.sources import ReadPosition
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
    chunk_head,
    chunk_row,
    file_row,
    last_lines,
    line_numbers,
)
from memoryd_server.text import QueryTerm
from memoryd_server.vectors import Vectors

# Queries are not stemmed for languages with a smaller share: their stems would cost every search time.
MIN_LANGUAGE_SHARE = 0.02

_FILE_COLUMNS = (
    "id, path, source, hash, size_bytes, mtime_ns, ctime_ns, device, inode, chunk_count, error, rows_version, skipped"
)
_CHUNKS_BY_ID = """FROM chunks AS c JOIN files AS f
    ON f.agent_id = c.agent_id AND f.generation = c.generation AND f.id = c.file_id
    WHERE c.agent_id = %(agent)s AND c.generation = %(generation)s AND c.id = ANY(%(ids)s)"""
_HEADS = f"""SELECT c.id, path, source, mtime_ns, importance, projects, coalesce(c.day, f.day)
    {_CHUNKS_BY_ID}"""
_CHUNKS = f"""SELECT c.id, path, source, start_line, end_line, breadcrumb, size_bytes, mtime_ns, language, line_numbers,
    origin, importance, triggers, projects, coalesce(c.day, f.day, f.date, ''), text
    {_CHUNKS_BY_ID}"""
_DATED = f"""WITH dated AS (
        SELECT id, day FROM chunks WHERE {OWN} AND day BETWEEN %(from)s AND %(to)s
        UNION ALL
        SELECT c.id, f.day FROM files AS f JOIN chunks AS c
            ON c.agent_id = f.agent_id AND c.generation = f.generation AND c.file_id = f.id
            WHERE f.agent_id = %(agent)s AND f.generation = %(generation)s AND f.day BETWEEN %(from)s AND %(to)s
                AND c.day IS NULL)
    SELECT id FROM (SELECT id, day, row_number() OVER (PARTITION BY day ORDER BY id) AS place
        FROM dated WHERE true{{among}}) AS placed
    ORDER BY place, day DESC LIMIT %(limit)s"""  # noqa: S608 -- constants


@dataclass(slots=True)
class PostgresReaderCaches:
    """The last counts and the frequencies of terms, shared by all readers of an index, valid for one revision."""

    counts: IndexCounts | None = None
    frequencies: FrequencyCache = field(default_factory=FrequencyCache)

    def release_memory(self) -> None:
        """Drop the frequencies."""
        self.frequencies = FrequencyCache()


class PostgresReader(PostgresVectors):
    """One snapshot of one index, for one thread, until its block ends."""

    def __init__(self, scope: AgentScope, caches: PostgresReaderCaches, hnsw: HnswIndex | None = None) -> None:
        super().__init__(lambda: nullcontext(scope))
        self._hnsw = hnsw
        self._scope = scope
        self._caches = caches
        self._keyword = KeywordIndex(scope, caches.frequencies)

    @property
    def revision(self) -> int:
        """The index revision."""
        return self._scope.state.revision

    def counts(self) -> IndexCounts:
        """Return the revision, the files without an error, the chunks, their languages and sources."""
        counts = self._caches.counts
        if counts is None or counts.revision != self.revision:
            counts = self._caches.counts = self._count()
        return counts

    def _count(self) -> IndexCounts:
        rows = self._scope.all(
            "SELECT language, source, count(*), sum(chunk_count)::bigint FROM files"  # noqa: S608 -- a constant
            f" WHERE {OWN} AND error IS NULL GROUP BY 1, 2"
        )
        chunks_by_language: Counter[str] = Counter()
        for language, _, _, count in rows:
            chunks_by_language[language] += count
        chunks = chunks_by_language.total()
        least = max(1, MIN_LANGUAGE_SHARE * chunks)
        languages = tuple(language for language, count in chunks_by_language.most_common() if count >= least)
        sources = tuple(source for source in Source if any(row[1] == source and row[3] for row in rows))
        files = sum(row[2] for row in rows)
        return IndexCounts(self.revision, files, chunks, languages, sources, self._scope.state.annotated)

    def last_sync_ms(self) -> int | None:
        """Return when a sync last completed (Unix milliseconds); None before the first."""
        return self._scope.state.last_sync_ms

    def files(self) -> dict[FileKey, FileRow]:
        """Return every indexed file, by source and path."""
        return all_files(self._scope)

    def frequencies(self, terms: Sequence[QueryTerm]) -> dict[QueryTerm, int]:
        """Return how many chunks hold each term, or a word that begins with it if it is a prefix."""
        with self._scope.connection.measured_as(Operation.SEARCH_KEYWORD):
            return self._keyword.frequencies(terms)

    def keyword_chunks(self) -> int:
        """Return the number of chunks in the keyword index: N of BM25."""
        return self._scope.state.chunk_count

    def names_containing(self, piece: str, limit: int) -> list[str]:
        """Return at most `limit` names that contain `piece`, the shortest first."""
        return self._keyword.names_containing(piece, limit)

    def has_chunks(self, among: ChunkFilter) -> bool:
        """Return whether the filter leaves any chunk."""
        if among == ALL_CHUNKS:
            return self._scope.state.chunk_count > 0
        condition, values = chunk_condition(among, "id")
        query = f"SELECT EXISTS(SELECT 1 FROM chunks WHERE {OWN}{condition})"  # noqa: S608 -- constants
        return bool(self._scope.one(query, **values)[0])

    def matching_files(self, among: ChunkFilter) -> frozenset[FileKey]:
        """Return the indexed files that match the filter's conditions on files and sources."""
        condition, values = file_condition(among)
        rows = self._scope.all(f"SELECT source, path FROM files WHERE {OWN}{condition}", **values)  # noqa: S608 -- constants
        return frozenset((Source(source), path) for source, path in rows)

    def keyword_hits(self, terms: Sequence[QueryTerm], among: ChunkFilter, limit: int) -> list[KeywordHit]:
        """Return the best chunks that hold any of `terms`, best first, the smaller id first among equals."""
        with self._scope.connection.measured_as(Operation.SEARCH_KEYWORD):
            return self._keyword.hits(terms, among, limit)

    def keyword_scores(self, terms: Sequence[QueryTerm], ids: Sequence[int]) -> dict[int, float]:
        """Return the BM25 of each of these chunks for `terms`; 0 for one that holds none of them."""
        with self._scope.connection.measured_as(Operation.SEARCH_KEYWORD):
            return self._keyword.scores(terms, ids)

    def vector_hits(self, query: Vectors, limit: int, among: ChunkFilter) -> list[VectorHit]:
        """Return the nearest chunks by exact cosine, best first, the smaller id first among equals.

        If the agent has an HNSW index, some may be missing.
        """
        with self._scope.connection.measured_as(Operation.SEARCH_VECTOR):
            return vectors.nearest(self._scope, query, limit, among, self._hnsw)

    def cosines(self, ids: Sequence[int], query: Vectors) -> dict[int, float]:
        """Return the cosine of each chunk's vector with the unit vector `query`; chunks without one are left out."""
        with self._scope.connection.measured_as(Operation.SEARCH_VECTOR):
            return vectors.cosines(self._scope, ids, query)

    def vector_centre(self, dimensions: int) -> Vectors | None:
        """Return the mean of the stored vectors as last measured; None if there is none of these dimensions."""
        return vectors.read_centre(self._scope, dimensions)

    def heads(self, ids: Sequence[int]) -> dict[int, ChunkHead]:
        """Return chunks without their texts, by id; unknown ids are left out."""
        return {row[0]: chunk_head(row) for row in self._scope.all(_HEADS, ids=list(ids))}

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        """Return chunks by id; unknown ids are left out."""
        return {row[0]: chunk_row(row) for row in self._scope.all(_CHUNKS, ids=list(ids))}

    def chunks_of(self, file: FileKey, line: int | None, limit: int) -> list[int]:
        """Return up to `limit` chunks of a file, or those of them whose lines include `line`, by id."""
        source, path = file
        query = f"""SELECT id FROM chunks WHERE {OWN} AND file_id = (SELECT id FROM files
                WHERE {OWN} AND source = %(source)s AND path_key = md5(%(path)s) AND path = %(path)s)
            AND (%(line)s::bigint IS NULL OR %(line)s BETWEEN start_line AND end_line) ORDER BY id LIMIT %(limit)s"""  # noqa: S608 -- constants
        return [row[0] for row in self._scope.all(query, source=source, path=storable(path), line=line, limit=limit)]

    def chunk_lines(self, file: FileKey, lines: tuple[int, int], limit: int) -> list[tuple[int, int]]:
        """Return the first and last line of up to `limit` chunks of a file with a line in the range `lines`, in order.

        A line between two messages of a transcript is in no chunk.
        """
        (source, path), (first, last) = file, lines
        query = f"""SELECT start_line, end_line, line_numbers FROM chunks WHERE {OWN} AND file_id =
                (SELECT id FROM files
                    WHERE {OWN} AND source = %(source)s AND path_key = md5(%(path)s) AND path = %(path)s)
            AND end_line >= %(first)s AND start_line <= %(last)s ORDER BY start_line, end_line, id"""  # noqa: S608 -- constants
        found = (
            (start, end)
            for start, end, numbers in self._scope.all(query, source=source, path=path, first=first, last=last)
            if numbers is None or any(first <= line <= last for line in line_numbers(numbers))
        )
        return list(itertools.islice(found, limit))

    def file_dates(self) -> dict[FileKey, str]:
        """Return the date of each indexed file by which filters select it, as YYYY-MM-DD.

        It is empty if only the time of the last modification counts.
        """
        rows = self._scope.all(f"SELECT source, path, coalesce(date, '') FROM files WHERE {OWN}")  # noqa: S608 -- a constant
        return {(Source(source), path): day for source, path, day in rows}

    def dated_chunks(self, first: date, last: date, among: ChunkFilter, limit: int) -> list[int]:
        """Return at most `limit` chunks whose day, or else whose note's day, is in a range: first one of each day."""
        condition, values = chunk_condition(among, "id")
        days = {"from": first.isoformat(), "to": last.isoformat()}
        return [row[0] for row in self._scope.all(_DATED.format(among=condition), **values, **days, limit=limit)]

    def stored_counts(self, file_ids: Sequence[int]) -> StoredCounts:
        """Return what the index stores of these files, counted in the tables that store it."""
        rows = self._scope.all(
            f"SELECT id, content_hash FROM chunks WHERE {OWN} AND file_id = ANY(%(files)s)",  # noqa: S608 -- a constant
            files=list(file_ids),
        )
        entries, stored = self._scope.one(
            f"""SELECT (SELECT count(DISTINCT chunk_id) FROM postings
                    WHERE {OWN} AND {BY_CHUNK} AND chunk_id = ANY(%(ids)s)),
                (SELECT count(*) FROM vectors WHERE {OWN} AND vector_set = %(set)s AND chunk_id = ANY(%(ids)s))""",  # noqa: S608 -- constants
            ids=[row[0] for row in rows],
            set=self._scope.state.vector_set,
        )
        return StoredCounts(tuple(row[1] for row in rows), entries, stored)

    def hashes_containing(self, text: str) -> set[bytes]:
        """Return the content hashes of the chunks that contain `text` word for word; looks at every chunk."""
        query = f"SELECT DISTINCT content_hash FROM chunks WHERE {OWN} AND position(%(text)s IN text) > 0"  # noqa: S608 -- a constant
        return {row[0] for row in self._scope.all(query, text=storable(text))}


def all_files(scope: AgentScope) -> dict[FileKey, FileRow]:
    """Return every file of an index, by source and path."""
    return _files(scope, "")


def memory_files(scope: AgentScope, paths: Collection[str]) -> dict[FileKey, FileRow]:
    """Return the Markdown files with these paths, by source and path; paths that are not indexed are left out."""
    return _files(scope, " AND source = %(source)s AND path = ANY(%(paths)s)", source=Source.MEMORY, paths=[*paths])


def _files(scope: AgentScope, condition: str, **values: object) -> dict[FileKey, FileRow]:
    rows = scope.all(f"SELECT {_FILE_COLUMNS} FROM files WHERE {OWN}{condition} ORDER BY id", **values)  # noqa: S608 -- constants
    return {(row.source, row.path): row for row in map(file_row, rows)}


def transcript_state(scope: AgentScope, file_id: int) -> TranscriptState | None:
    """Return how far a transcript was read; None for any other file and for a transcript that could not be read."""
    rows = scope.all(
        f"""SELECT reader_version, read_bytes, read_lines, chunk_count, language FROM files
            WHERE {OWN} AND id = %(file)s AND reader_version IS NOT NULL""",  # noqa: S608 -- a constant
        file=file_id,
    )
    if not rows:
        return None
    version, read_bytes, read_lines, chunk_count, language = rows[0]
    last = scope.all(
        f"""SELECT text, line_numbers, line_origins FROM chunks WHERE {OWN} AND file_id = %(file)s
            ORDER BY id DESC LIMIT 1""",  # noqa: S608 -- a constant
        file=file_id,
    )
    lines = last_lines(*last[0]) if last else ()
    return TranscriptState(version, ReadPosition(read_bytes, read_lines), chunk_count, language, lines)
