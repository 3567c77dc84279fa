"""Reads the index, within one snapshot: what a search and a status report see does not change under them."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import apsw

from memoryd_server.index import one_step, schema
from memoryd_server.index.connection import scalar, snapshot, translated
from memoryd_server.index.holdings import hashes_of_chunks_with, holdings
from memoryd_server.index.one_step import id_list
from memoryd_server.index.readers import ReaderPool
from memoryd_server.index.term_scores import BM25, KeptScores, ScoresMemo
from memoryd_server.index.transcript_rows import line_numbers
from memoryd_server.index.vector_rows import VectorRows
from memoryd_server.index.vocabulary import Vocabulary, VocabularyMemo
from memoryd_server.index.writer import IndexWriter
from memoryd_server.model import Source
from memoryd_server.store.rows import ChunkHead, ChunkRow, FileRow, Holdings, IndexCounts, KeywordHit

# A language of fewer chunks is not asked for: its stems would cost every question time.
LEAST_SHARE_OF_CHUNKS = 0.02

# How many steps of SQLite's virtual machine pass between two looks at the clock: some milliseconds. Each look waits for
# the interpreter: every 2,000 steps, they took a fifth of what 64 callers could have got.
_STEPS_BETWEEN_LOOKS = 50_000

# A look into it costs a tenth of `Source(...)`.
_SOURCES = MappingProxyType({source.value: source for source in Source})


@dataclass(slots=True)
class LastCounts:
    """The counts taken last, and what was learnt of the vocabulary; true as long as their revision is the index's."""

    counts: IndexCounts | None = None
    vocabulary: VocabularyMemo = field(default_factory=VocabularyMemo)
    scores: ScoresMemo = field(default_factory=ScoresMemo)

    def rest(self) -> None:
        """Gives back what takes memory."""
        self.vocabulary = VocabularyMemo()
        self.scores = ScoresMemo()


class IndexReader:
    """One snapshot of one index, for one thread, until its block ends.

    It holds what was committed before `opened_at` (monotonic seconds), and perhaps a little that came later.
    """

    def __init__(self, connection: apsw.Connection, last: LastCounts) -> None:
        self._connection = connection
        self._last = last
        self._revision: int | None = None
        self.opened_at = time.monotonic()

    def counts(self) -> IndexCounts:
        """Revision, files without an error, and chunks."""
        revision = self.revision()
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

    def languages(self) -> tuple[str, ...]:
        """The languages of at least 2 % of the chunks, for `Analyzer.query_terms`."""
        return self.counts().languages

    @property
    def vocabulary(self) -> Vocabulary:
        """The words of the keyword leg in the same snapshot."""
        return Vocabulary(self._connection, self._last.vocabulary, self.revision())

    @property
    def kept_scores(self) -> KeptScores:
        """What is kept of the keyword leg's scores in the same snapshot."""
        return KeptScores(self._connection, self._last.scores, self.revision())

    def revision(self) -> int:
        """The index revision."""
        if self._revision is None:
            self._revision = int(schema.get_meta(self._connection, "revision") or 0)
        return self._revision

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

    def keyword(self, match: str, sources: Sequence[Source], limit: int) -> list[KeywordHit]:
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
        return [KeywordHit(*row) for row in one_step.scored(self._connection, query, (match, *sources, limit))]

    def keyword_scores(self, match: str, ids: Sequence[int]) -> dict[int, float]:
        """The BM25 of those of these chunks that an FTS5 expression matches."""
        # "+": all matches are walked, a fifth of the work of ranking them. A search for each id by itself costs more.
        query = (
            f"SELECT rowid AS id, {BM25} AS score FROM keyword WHERE keyword MATCH ?"  # noqa: S608 -- constants
            " AND +rowid IN (SELECT value FROM json_each(?))"
        )
        return dict(one_step.scored(self._connection, query, (match, id_list(ids))))

    def heads(self, ids: Sequence[int]) -> dict[int, ChunkHead]:
        """The chunks of these ids without their texts, by id; unknown ids are left out."""
        query = (
            "SELECT json_array(chunks.id, path, source, mtime_ns) AS row FROM chunks JOIN files ON files.id = file_id"
            " WHERE chunks.id IN (SELECT value FROM json_each(?))"
        )
        rows = one_step.table(self._connection, query, (id_list(ids),))
        return {row[0]: ChunkHead(row[0], row[1], _SOURCES[row[2]], row[3]) for row in rows}

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        """The chunks of these ids, by id; unknown ids are left out."""
        query = (
            "SELECT json_array(chunks.id, path, source, start_line, end_line, text, breadcrumb, size_bytes, mtime_ns,"
            " language, line_numbers) AS row"
            " FROM chunks JOIN files ON files.id = file_id WHERE chunks.id IN (SELECT value FROM json_each(?))"
        )
        return {row[0]: _chunk_row(row) for row in one_step.table(self._connection, query, (id_list(ids),))}

    def holdings(self, file_ids: Sequence[int]) -> Holdings:
        """What is held of these files: chunks by their hashes, keyword entries and vectors."""
        return holdings(self._connection, file_ids)

    def hashes_of_chunks_with(self, text: str) -> set[bytes]:
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


def _chunk_row(row: Sequence[Any]) -> ChunkRow:
    chunk_id, path, source, start_line, end_line, text, breadcrumb, size, mtime, language, numbers = row
    lines = line_numbers(numbers)
    return ChunkRow(
        chunk_id, path, _SOURCES[source], start_line, end_line, text, breadcrumb, size, mtime, language, lines
    )


@contextmanager
def reading(pool: ReaderPool, last: LastCounts, deadline: float | None = None) -> Iterator[IndexReader]:
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
                yield IndexReader(connection, last)
        finally:
            if deadline is not None:
                connection.set_progress_handler(None)
