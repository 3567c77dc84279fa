"""Reads the index, within one snapshot: what a search and a status report see does not change under them."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import apsw

from memoryd_server.index import schema
from memoryd_server.index.connection import scalar, snapshot, translated
from memoryd_server.index.readers import ReaderPool
from memoryd_server.index.rows import ChunkRow, FileRow, IndexCounts, KeywordHit
from memoryd_server.index.vector_rows import VectorRows
from memoryd_server.index.writer import IndexWriter
from memoryd_server.model import Source

# The date and heading column counts half; measured in the design of the keyword leg.
_BM25 = "bm25(keyword, 1.0, 0.5)"

# How many steps of SQLite's virtual machine pass between two looks at the clock: some tens of microseconds.
_STEPS_BETWEEN_LOOKS = 2_000


@dataclass(slots=True)
class LastCounts:
    """The counts taken last; true as long as their revision is the index's, for counting walks every file's row."""

    counts: IndexCounts | None = None


class IndexReader:
    """One snapshot of one index, for one thread, until its block ends."""

    def __init__(self, connection: apsw.Connection, last: LastCounts) -> None:
        self._connection = connection
        self._last = last

    def counts(self) -> IndexCounts:
        """Revision, files without an error, and chunks."""
        revision = self.revision()
        known = self._last.counts
        if known is None or known.revision != revision:
            known = self._last.counts = self._count(revision)
        return known

    def _count(self, revision: int) -> IndexCounts:
        files = scalar(self._connection, "SELECT count(*) FROM files WHERE error IS NULL")
        chunks = scalar(self._connection, "SELECT coalesce(sum(chunk_count), 0) FROM files")
        return IndexCounts(revision, files, chunks)

    def revision(self) -> int:
        """The index revision."""
        return int(schema.get_meta(self._connection, "revision") or 0)

    def meta(self, key: str) -> str | int | None:
        """A value of the meta table."""
        return schema.get_meta(self._connection, key)

    def files(self) -> dict[tuple[Source, str], FileRow]:
        """Every file that the index knows, by source and path."""
        return IndexWriter(self._connection).files()

    @property
    def vectors(self) -> VectorRows:
        """The vectors of the same snapshot, to read."""
        return VectorRows(self._connection, None)

    def document_frequencies(self, terms: Iterable[str]) -> Mapping[str, int]:
        """In how many chunks each term stands; absent terms count 0."""
        return {term: self._document_frequency(term) for term in terms}

    def _document_frequency(self, term: str) -> int:
        row = self._connection.execute("SELECT doc FROM temp.vocabulary WHERE term = ?", (term,)).fetchone()
        return 0 if row is None else int(row[0])

    def begins_a_term(self, prefix: str) -> bool:
        """Whether any term of the index begins with `prefix`."""
        row = self._connection.execute("SELECT term FROM temp.vocabulary WHERE term >= ? LIMIT 1", (prefix,)).fetchone()
        return row is not None and str(row[0]).startswith(prefix)

    def keyword(self, match: str, sources: Sequence[Source], limit: int) -> list[KeywordHit]:
        """The best chunks for an FTS5 expression, best first. An empty `sources` means all."""
        if sources:
            marks = ",".join("?" * len(sources))
            query = (
                f"SELECT keyword.rowid, {_BM25} AS score FROM keyword"  # noqa: S608 -- constants and marks
                " JOIN chunks ON chunks.id = keyword.rowid JOIN files ON files.id = chunks.file_id"
                f" WHERE keyword MATCH ? AND files.source IN ({marks}) ORDER BY score LIMIT ?"
            )
        else:
            query = f"SELECT rowid, {_BM25} AS score FROM keyword WHERE keyword MATCH ? ORDER BY score LIMIT ?"  # noqa: S608
        return [KeywordHit(*row) for row in self._connection.execute(query, (match, *sources, limit))]

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        """The chunks of these ids, by id; unknown ids are left out."""
        marks = ",".join("?" * len(ids))
        rows = self._connection.execute(
            "SELECT chunks.id, path, source, start_line, end_line, text, breadcrumb, size_bytes, mtime_ns"  # noqa: S608
            f" FROM chunks JOIN files ON files.id = file_id WHERE chunks.id IN ({marks})",
            tuple(ids),
        )
        return {row[0]: ChunkRow(row[0], row[1], Source(row[2]), *row[3:]) for row in rows}


@contextmanager
def reading(pool: ReaderPool, last: LastCounts, deadline: float | None = None) -> Iterator[IndexReader]:
    """A snapshot from the pool. SQLite is stopped when `time.monotonic()` passes `deadline`.

    Raises:
        DeadlineTooShort: the deadline came first.
        IndexUnavailable: the index cannot be read.
    """
    with translated(), pool.connection() as connection:
        if deadline is not None:
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
        try:
            with snapshot(connection):
                yield IndexReader(connection, last)
        finally:
            if deadline is not None:
                connection.set_progress_handler(None)
