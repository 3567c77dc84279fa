"""SqliteReader: rows, counts, keyword and vector hits.

Reads the index, within one snapshot: what a search and a status report see does not change under them.

What an index holds of files, counted table by table.

Vectors beside the chunks that they belong to.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, cast

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.model import FileStat, Source
from memoryd_server.sources import ReadPosition
from memoryd_server.sqlite import readers, schema, vector_mean
from memoryd_server.sqlite.connection import scalar, snapshot, translated
from memoryd_server.sqlite.keyword import (
    BM25,
    SharedScores,
    SharedVocabulary,
    TermScoreCache,
    Vocabulary,
    any_of,
    best,
    scores_of,
)
from memoryd_server.sqlite.readers import ReaderPool, id_list
from memoryd_server.store import (
    ChunkHead,
    ChunkRow,
    FileKey,
    FileRow,
    IndexCounts,
    KeywordHit,
    PendingChunk,
    StoredCounts,
    StoredVector,
    TranscriptState,
    VectorHit,
    VectorIdentity,
)
from memoryd_server.text import QueryTerm, TermKind
from memoryd_server.vectors import FLOAT_BYTES, Ids, Vectors


def holdings(connection: apsw.Connection, file_ids: Sequence[int]) -> StoredCounts:
    """What is held of these files."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT id, content_hash FROM chunks WHERE file_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(file_ids)),),
    ).fetchall()
    ids = (json.dumps([row[0] for row in rows]),)
    # A table without contents keeps a row for each entry here.
    entries = "SELECT count(*) FROM keyword_docsize WHERE id IN (SELECT value FROM json_each(?))"
    vectors = "SELECT count(*) FROM vectors WHERE chunk_id IN (SELECT value FROM json_each(?))"
    return StoredCounts(
        tuple(row[1] for row in rows), scalar(connection, entries, ids), scalar(connection, vectors, ids)
    )


def hashes_of_chunks_with(connection: apsw.Connection, text: str) -> set[bytes]:
    """The content hashes of the chunks that hold `text` word for word."""
    query = "SELECT DISTINCT content_hash FROM chunks WHERE instr(text, ?) > 0"
    rows: list[tuple[Any, ...]] = connection.execute(query, (text,)).fetchall()
    return {row[0] for row in rows}


class VectorObserver(Protocol):
    """Whoever keeps vectors in memory; told after each commit, on the writer thread."""

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """These vectors are new, and these chunks are gone."""

    def reset(self) -> None:
        """Nothing that was known holds any more."""


class VectorRows:
    """The vectors of one index file, to read; a part of `SqliteReader` and of `SqliteWriter`."""

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
    def pending_chunks(self, after: int, limit: int, *, everything: bool) -> list[PendingChunk]:
        """The next chunks by id that have no vector, or, for another identity, the next chunks whatever they have."""
        # CROSS: the list comes first, or else SQLite walks all chunks and looks each up in it.
        listed = "unembedded CROSS JOIN chunks ON id = chunk_id WHERE chunk_id > ? ORDER BY chunk_id"
        source = "chunks WHERE id > ? ORDER BY id" if everything else listed
        rows = self._connection.execute(
            f"SELECT id, content_hash, text FROM {source} LIMIT ?",  # noqa: S608 -- constants
            (after, limit),
        )
        return [PendingChunk(*row) for row in rows]


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


def line_numbers(stored_numbers: str | None) -> tuple[int, ...]:
    """What `packed` made."""
    return tuple(json.loads(stored_numbers)) if stored_numbers else ()


def transcript_state(connection: apsw.Connection, file_id: int) -> TranscriptState | None:
    """How far a transcript was read; None for a file that is none, or could not be read."""
    row = connection.execute(
        "SELECT version, read_bytes, read_lines, chunk_count, language"
        " FROM transcripts JOIN files ON files.id = file_id WHERE file_id = ?",
        (file_id,),
    ).fetchone()
    if row is None:
        return None
    version, read_bytes, read_lines, chunk_count, language = row
    last = connection.execute(
        "SELECT text, line_numbers FROM chunks WHERE id = (SELECT max(id) FROM chunks WHERE file_id = ?)", (file_id,)
    ).fetchone()
    lines = () if last is None else tuple(zip(line_numbers(last[1]), last[0].split("\n"), strict=True))
    return TranscriptState(version, ReadPosition(read_bytes, read_lines), chunk_count, language, lines)


# A language of fewer chunks is not asked for: its stems would cost every question time.
LEAST_SHARE_OF_CHUNKS = 0.02

# How many steps of SQLite's virtual machine pass between two looks at the clock: some milliseconds. Each look waits for
# the interpreter: every 2,000 steps, they took a fifth of what 64 callers could have got.
_STEPS_BETWEEN_LOOKS = 50_000

_FILE_COLUMNS = "id, path, source, hash, size_bytes, mtime_ns, ctime_ns, device, inode, chunk_count, error"

# A look into it costs a tenth of `Source(...)`.
_SOURCES = MappingProxyType({source.value: source for source in Source})


@dataclass(slots=True)
class ReaderCaches:
    """The counts taken last, and what was learnt of the vocabulary; true as long as their revision is the index's."""

    counts: IndexCounts | None = None
    vocabulary: SharedVocabulary = field(default_factory=SharedVocabulary)
    scores: SharedScores = field(default_factory=SharedScores)

    def rest(self) -> None:
        """Gives back what takes memory."""
        self.vocabulary = SharedVocabulary()
        self.scores = SharedScores()


class SqliteReader(VectorRows):
    """One snapshot of one index, for one thread, until its block ends.

    It holds what was committed before `opened_at` (monotonic seconds), and perhaps a little that came later.
    """

    def __init__(self, connection: apsw.Connection, last: ReaderCaches, nearest: "NearestChunks | None" = None) -> None:
        super().__init__(connection)
        self._last = last
        self._nearest = nearest
        self._revision: int | None = None
        self.opened_at = time.monotonic()

    @property
    def connection(self) -> apsw.Connection:
        """The connection of the snapshot, for SQL functions of an extension; to be used within the block only."""
        return self._connection

    def counts(self) -> IndexCounts:
        """Revision, files without an error, and chunks."""
        revision = self.revision
        known = self._last.counts
        if known is None or known.revision != revision:
            known = self._last.counts = self._count(revision)
        return known

    def _count(self, revision: int) -> IndexCounts:
        rows: list[tuple[Any, ...]] = self._connection.execute(
            "SELECT language, source, count(*), sum(chunk_count) FROM files WHERE error IS NULL GROUP BY 1, 2"
        ).fetchall()
        of_language: Counter[str] = Counter()
        for language, _, _, count in rows:
            of_language[language] += count
        chunks = of_language.total()
        least = max(1, LEAST_SHARE_OF_CHUNKS * chunks)
        languages = tuple(language for language, count in of_language.most_common() if count >= least)
        sources = tuple(source for source in Source if any(row[1] == source and row[3] for row in rows))
        return IndexCounts(revision, sum(row[2] for row in rows), chunks, languages, sources)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the keyword leg in the same snapshot."""
        return Vocabulary(self._connection, self._last.vocabulary, self.revision)

    @cached_property
    def kept_scores(self) -> TermScoreCache:
        """What is kept of the keyword leg's scores in the same snapshot."""
        return TermScoreCache(self._connection, self._last.scores, self.revision)

    @property
    def revision(self) -> int:
        """The index revision."""
        if self._revision is None:
            self._revision = int(schema.get_meta(self._connection, "revision") or 0)
        return self._revision

    def last_sync_ms(self) -> int | None:
        """When a sync last completed (Unix milliseconds); None before the first."""
        value = schema.get_meta(self._connection, "last_sync_ms")
        return None if value is None else int(value)

    def files(self) -> dict[FileKey, FileRow]:
        """Every file that the index knows, by source and path."""
        return all_files(self._connection)

    def frequencies(self, terms: Sequence[QueryTerm]) -> dict[QueryTerm, int]:
        """In how many chunks each term stands, or begins a word where it is a prefix; unknown guesses cost nothing."""
        # One query for all guesses, which finds mostly none: what is looked up below is known then.
        self.vocabulary.known([term.text for term in terms if term.kind is TermKind.GUESS])
        return {term: self.vocabulary.term_frequency(term) for term in terms}

    def keyword_chunks(self) -> int:
        """How many chunks the keyword leg holds, as BM25 counts them."""
        return self.vocabulary.chunks()

    def names_containing(self, piece: str, limit: int) -> list[str]:
        """At most `limit` names that hold `piece`, as in `Vocabulary.names_with`."""
        return self.vocabulary.names_with(piece, limit)

    def keyword_hits(self, terms: Sequence[QueryTerm], sources: Sequence[Source], limit: int) -> list[KeywordHit]:
        """The best chunks for any of the terms, best first, the smaller id first among equals.

        An empty `sources` means all. The user's text is never FTS5 syntax: each term is quoted.
        """
        if not terms:
            return []
        if not sources:
            kept = self.kept_scores.of([(term, self.vocabulary.term_frequency(term)) for term in terms])
            if kept is not None:
                return best(kept, limit)
        return self.matches(any_of(terms), sources, limit)

    def keyword_scores(self, terms: Sequence[QueryTerm], ids: Sequence[int]) -> dict[int, float]:
        """The BM25 of each of these chunks for these terms: 0 where none stands. A fifth of the cost of a search."""
        kept = self.kept_scores.kept(terms)
        if kept is not None:
            return scores_of(kept, ids)
        found = self.scores_of_matches(any_of(terms), ids)
        return {chunk_id: found.get(chunk_id, 0.0) for chunk_id in ids}

    def vector_hits(self, query: NDArray[np.float32], limit: int, sources: Sequence[Source]) -> list[VectorHit]:
        """The nearest chunks of this snapshot, as in `VectorIndex.search`; none for a store without a vector leg."""
        return [] if self._nearest is None else self._nearest(self, query, limit, sources)

    def cosines(self, ids: Sequence[int], query: NDArray[np.float32]) -> dict[int, float]:
        """The cosine of each of these chunks' vectors with `query`, a unit vector; chunks without one are left out."""
        found, vectors = self.vectors_of(ids, len(query))
        return dict(zip(found.tolist(), (vectors @ query).tolist(), strict=True))

    def vectors_of(self, ids: Sequence[int], dimensions: int) -> tuple[Ids, Vectors]:
        """The stored vectors of these chunks, one a row, and whose they are; those of other dimensions are left out."""
        return readers.vectors(self._connection, ids, dimensions)

    def vector_centre(self, dimensions: int) -> Vectors | None:
        """Return the mean of the stored vectors as last measured; None if there is none of these dimensions."""
        return vector_mean.read(self._connection, dimensions)

    def matches(self, match: str, sources: Sequence[Source], limit: int) -> list[KeywordHit]:
        """The best chunks for an FTS5 expression, best first, the smaller id first among equals.

        An empty `sources` means all.
        """
        if sources:
            marks = ",".join("?" * len(sources))
            query = (
                f"SELECT keyword.rowid AS id, {BM25} AS score FROM keyword"  # noqa: S608 -- constants and marks
                " JOIN chunks ON chunks.id = keyword.rowid JOIN files ON files.id = chunks.file_id"
                f" WHERE keyword MATCH ? AND files.source IN ({marks}) ORDER BY score, id LIMIT ?"
            )
        else:
            query = f"SELECT rowid AS id, {BM25} AS score FROM keyword WHERE keyword MATCH ? ORDER BY score, id LIMIT ?"  # noqa: S608
        return [KeywordHit(*row) for row in readers.scored(self._connection, query, (match, *sources, limit))]

    def scores_of_matches(self, match: str, ids: Sequence[int]) -> dict[int, float]:
        """The BM25 of those of these chunks that an FTS5 expression matches."""
        # "+": all matches are walked, a fifth of the work of ranking them. A search for each id by itself costs more.
        query = (
            f"SELECT rowid AS id, {BM25} AS score FROM keyword WHERE keyword MATCH ?"  # noqa: S608 -- constants
            " AND +rowid IN (SELECT value FROM json_each(?))"
        )
        return dict(readers.scored(self._connection, query, (match, id_list(ids))))

    def heads(self, ids: Sequence[int]) -> dict[int, ChunkHead]:
        """The chunks of these ids without their texts, by id; unknown ids are left out."""
        query = (
            "SELECT json_array(chunks.id, path, source, mtime_ns) AS row FROM chunks JOIN files ON files.id = file_id"
            " WHERE chunks.id IN (SELECT value FROM json_each(?))"
        )
        rows = readers.table(self._connection, query, (id_list(ids),))
        return {row[0]: ChunkHead(row[0], row[1], _SOURCES[row[2]], row[3]) for row in rows}

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        """The chunks of these ids, by id; unknown ids are left out."""
        query = (
            "SELECT json_array(chunks.id, path, source, start_line, end_line, text, breadcrumb, size_bytes, mtime_ns,"
            " language, line_numbers) AS row"
            " FROM chunks JOIN files ON files.id = file_id WHERE chunks.id IN (SELECT value FROM json_each(?))"
        )
        return {row[0]: _chunk_row(row) for row in readers.table(self._connection, query, (id_list(ids),))}

    def stored_counts(self, file_ids: Sequence[int]) -> StoredCounts:
        """What is held of these files: chunks by their hashes, keyword entries and vectors."""
        return holdings(self._connection, file_ids)

    def hashes_containing(self, text: str) -> set[bytes]:
        """The content hashes of the chunks that hold `text` word for word; looks at every chunk."""
        return hashes_of_chunks_with(self._connection, text)

    def chunk_ids(self, sources: Sequence[Source]) -> list[int]:
        """The chunks of these sources, in no order."""
        marks = ",".join("?" * len(sources))
        rows = self._connection.execute(
            f"SELECT chunks.id FROM files JOIN chunks ON file_id = files.id WHERE source IN ({marks})",  # noqa: S608
            tuple(sources),
        )
        return [row[0] for row in rows]

    def embeddings_after(self, chunk_id: int, limit: int) -> list[tuple[int, bytes]]:
        """The `limit` stored vectors of the next higher chunk ids, ascending."""
        rows = self._connection.execute(
            "SELECT chunk_id, embedding FROM vectors WHERE chunk_id > ? ORDER BY chunk_id LIMIT ?", (chunk_id, limit)
        )
        return list(cast("Iterator[tuple[int, bytes]]", rows))

    def embedding_count(self) -> int:
        """How many vectors are stored. Walks the table: some 30 ms at 100,000 of 768 dimensions."""
        return int(scalar(self._connection, "SELECT count(*) FROM vectors"))

    def last_embedding(self) -> int:
        """The highest id of a chunk that has a vector, or 0."""
        return int(scalar(self._connection, "SELECT coalesce(max(chunk_id), 0) FROM vectors"))


def all_files(connection: apsw.Connection) -> dict[FileKey, FileRow]:
    """Every file of an index, by source and path."""
    rows = connection.execute(f"SELECT {_FILE_COLUMNS} FROM files")  # noqa: S608 -- a constant
    return {(row.source, row.path): row for row in map(_file_row, rows)}


def memory_files(connection: apsw.Connection, paths: Collection[str]) -> dict[FileKey, FileRow]:
    """The same of some Markdown files; paths that the index does not know are left out."""
    query = f"SELECT {_FILE_COLUMNS} FROM files WHERE source = ? AND path IN (SELECT value FROM json_each(?))"  # noqa: S608 -- a constant
    rows = connection.execute(query, (Source.MEMORY, json.dumps([*paths])))
    return {(row.source, row.path): row for row in map(_file_row, rows)}


def _file_row(row: tuple[object, ...]) -> FileRow:
    file_id, path, source, content_hash, size, mtime, ctime, device, inode, count, error = row
    stat = FileStat(size, mtime, ctime, device, inode)  # type: ignore[arg-type]
    return FileRow(file_id, path, Source(str(source)), content_hash, stat, count, error)  # type: ignore[arg-type]


def _chunk_row(row: Sequence[Any]) -> ChunkRow:
    chunk_id, path, source, start_line, end_line, text, breadcrumb, size, mtime, language, numbers = row
    lines = line_numbers(numbers)
    return ChunkRow(
        chunk_id, path, _SOURCES[source], start_line, end_line, text, breadcrumb, size, mtime, language, lines
    )


NearestChunks = Callable[[SqliteReader, NDArray[np.float32], int, Sequence[Source]], list[VectorHit]]
"""Finds the nearest chunks in a reader's snapshot (`VectorIndex.search`)."""


@contextmanager
def reading(
    pool: ReaderPool, last: ReaderCaches, deadline: float | None = None, nearest: NearestChunks | None = None
) -> Iterator[SqliteReader]:
    """A snapshot from the pool. SQLite is stopped when `time.monotonic()` passes `deadline`.

    Raises:
        DeadlineTooShort: the deadline came first.
        IndexUnavailable: the index cannot be read.
    """
    with translated(), pool.connection() as connection:
        if deadline is not None:
            if time.monotonic() > deadline:
                raise apsw.InterruptError("the deadline had passed before the search began")
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
        try:
            with snapshot(connection):
                yield SqliteReader(connection, last, nearest)
        finally:
            if deadline is not None:
                connection.set_progress_handler(None)
