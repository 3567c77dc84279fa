"""A cache of BM25 scores per term, computed from the postings and chunk lengths of the FTS5 index.

FTS5's BM25 is a sum over the terms of a query, and the contribution of a term does not depend on the others
(`fts5Bm25Function` in SQLite's fts5_aux.c). Therefore the scores of a single term can be cached for as long as the
index does not change. If they are added in the order of the terms, as FTS5 adds them, the sum is FTS5's score.

FTS5 looks up the length of every chunk that contains a term, again for every query, which is most of its cost. Here the
lengths of all chunks are read once per revision, and the scores of a term are computed from its postings with the
operations of FTS5, in the same order. This takes about a fifth of the time that FTS5 needs.
"""

import math
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.sqlite import readers
from memoryd_server.sqlite.filter_cache import ChunkSet
from memoryd_server.sqlite.keyword import LAST_CHARACTER, TermCounts, expression
from memoryd_server.store import KeywordHit
from memoryd_server.text import QueryTerm
from memoryd_server.vectors import Ids

# The context column (file name and headings) has half the weight of the body; the weights were chosen by measurement.
COLUMN_WEIGHTS = (1.0, 0.5)
BM25 = f"bm25(keyword, {COLUMN_WEIGHTS[0]}, {COLUMN_WEIGHTS[1]})"

# The lengths are read when the number of chunks that FTS5 ranked at one revision is this share of all chunks: ranking
# a chunk takes three times as long as reading its length.
_RANKED_SHARE = 1 / 3

# If only the scores of a few chunks are needed, FTS5 looks up a term in them at a third of the cost of reading the
# term's postings. The postings are therefore read only from the third request for the term at one revision, and one
# lookup reads at most this number of occurrences in total.
REPEATED_REQUESTS = 3
MAX_OCCURRENCES_READ_TO_LOOK_UP = 30_000

# The most occurrences that one search reads to rank chunks, in about 50 ms and 20 MB.
MAX_OCCURRENCES_READ = 500_000

# If chunks contain a term more often than this on average, FTS5 ranks them faster than its occurrences can be read.
MAX_OCCURRENCES_PER_CHUNK = 4

# The most bytes cached per index: about 1,300 terms of a thousand chunks each. The terms cached first are evicted.
_MAX_BYTES = 16 * 2**20
_BYTES_PER_TERM = 400
_MAX_TERMS_COUNTED = 20_000

# The constants of FTS5's BM25, and its least inverse document frequency (fts5_aux.c).
_K1 = 1.2
_B = 0.75
_LEAST_IDF = 1e-6


@dataclass(frozen=True, slots=True)
class TermScores:
    """The ids of the chunks that contain a term, ascending, and their BM25 for it: negative, smaller is better."""

    ids: NDArray[np.int32] | Ids
    bm25: NDArray[np.float64]

    @property
    def bytes(self) -> int:
        """The memory of a cached term, approximately."""
        return self.ids.nbytes + self.bm25.nbytes + _BYTES_PER_TERM


@dataclass(frozen=True, slots=True)
class ChunkLengths:
    """The lengths of all chunks in tokens, including the context column, in the form in which BM25 uses them.

    `ids` are ascending. `factors` has for each of them the part of BM25's denominator that does not depend on the
    term; `count` is the number of chunks. If FTS5 does not store the lengths as expected, `are_known` is false and
    `factors` is empty.
    """

    ids: Ids
    factors: NDArray[np.float64]
    count: int
    are_known: bool = True


@dataclass(slots=True)
class RevisionScores:
    """The cache of one revision: the scores of terms by FTS5 expression, and the lengths of the chunks.

    `requests` counts how often a term was looked up while its scores were not cached, `ranked` counts the chunks that
    FTS5 ranked before the lengths were read.
    """

    revision: int
    terms: dict[str, TermScores] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    ranked: int = 0
    lengths: ChunkLengths | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, scores: TermScores, max_bytes: int) -> None:
        """Cache the scores of a term, and evict the terms cached first until the rest take at most `max_bytes`."""
        with self.lock:
            if name in self.terms:
                return
            self.terms[name] = scores
            self.bytes += scores.bytes
            while self.bytes > max_bytes:
                self.bytes -= self.terms.pop(next(iter(self.terms))).bytes


@dataclass(slots=True)
class SharedScores:
    """The score cache shared by all readers of one index. A reader replaces a cache that is outdated."""

    current: RevisionScores | None = None
    max_bytes: int = _MAX_BYTES
    max_occurrences_read: int = MAX_OCCURRENCES_READ
    max_occurrences_per_chunk: int = MAX_OCCURRENCES_PER_CHUNK
    max_occurrences_read_to_look_up: int = MAX_OCCURRENCES_READ_TO_LOOK_UP
    max_terms_counted: int = _MAX_TERMS_COUNTED


class TermScoreCache:
    """The scores of terms in one snapshot, of `revision`, whose keyword index has `chunk_count` chunks."""

    def __init__(self, connection: apsw.Connection, shared: SharedScores, revision: int, chunk_count: int) -> None:
        self._connection = connection
        current = shared.current
        if current is None or current.revision != revision:
            current = shared.current = RevisionScores(revision)
        self._scores = current
        self._limits = shared
        self._chunk_count = chunk_count

    def get(self, terms: Sequence[tuple[QueryTerm, TermCounts]]) -> list[TermScores] | None:
        """Return the scores of terms with their counts, in this order; None if FTS5 should rank the chunks."""
        chunks = sum(counts.chunks for _, counts in terms)
        missing = self._missing(terms)
        if missing:
            if self._scores.lengths is None:
                self._scores.ranked += chunks
                if self._scores.ranked < _RANKED_SHARE * self._chunk_count:
                    return None
                self._scores.lengths = _read_lengths(self._connection)
            occurrences = sum(counts.occurrences for counts in missing.values())
            most = min(self._limits.max_occurrences_read, self._limits.max_occurrences_per_chunk * chunks)
            if not self._scores.lengths.are_known or occurrences > most:
                return None
        return self._all(terms)

    def get_for_lookup(self, terms: Sequence[tuple[QueryTerm, TermCounts]]) -> list[TermScores] | None:
        """Return the scores of terms, in this order, for the lookup of a few chunks.

        None means that FTS5 should look the chunks up: it is faster, or the lengths are not known.
        """
        missing = self._missing(terms)
        if missing:
            requests = self._scores.requests
            if len(requests) > self._limits.max_terms_counted:
                requests.clear()
            requests.update(missing.keys())
            lengths = self._scores.lengths
            is_readable = lengths is not None and lengths.are_known
            is_repeated = all(requests[name] >= REPEATED_REQUESTS for name in missing)
            occurrences = sum(counts.occurrences for counts in missing.values())
            if not (is_readable and is_repeated) or occurrences > self._limits.max_occurrences_read_to_look_up:
                return None
        return self._all(terms)

    def _missing(self, terms: Sequence[tuple[QueryTerm, TermCounts]]) -> dict[str, TermCounts]:
        """Return the counts of the terms that are not cached, by FTS5 expression."""
        named = ((_name(term), counts) for term, counts in terms)
        return {name: counts for name, counts in named if name not in self._scores.terms}

    def _all(self, terms: Sequence[tuple[QueryTerm, TermCounts]]) -> list[TermScores]:
        all_scores = []
        for term, _ in terms:
            name = _name(term)
            scores = self._scores.terms.get(name)
            if scores is None:
                scores = self._read(term)
                self._scores.add(name, scores, self._limits.max_bytes)
            all_scores.append(scores)
        return all_scores

    def _read(self, term: QueryTerm) -> TermScores:
        lengths = self._scores.lengths
        if lengths is None:
            raise AssertionError("the lengths are read before the first scores")
        ids, frequencies = _postings(self._connection, term)
        if not len(ids):
            return TermScores(ids, np.empty(0))
        value = math.log((lengths.count - len(ids) + 0.5) / (len(ids) + 0.5))
        idf = value if value > 0 else _LEAST_IDF
        factors = lengths.factors[np.searchsorted(lengths.ids, ids)]
        bm25 = -(idf * ((frequencies * (_K1 + 1.0)) / (frequencies + factors)))
        return TermScores(ids.astype(np.int32) if ids[-1] <= np.iinfo(np.int32).max else ids, bm25)


def _postings(connection: apsw.Connection, term: QueryTerm) -> tuple[Ids, NDArray[np.float64]]:
    """Return the ids of the chunks that contain a term, ascending, and for each the sum of its occurrences' weights."""
    where = "term = ?"
    bindings: tuple[str, ...] = (term.text,)
    if term.prefix:
        where, bindings = "term >= ? AND term < ?", (term.text, term.text + LAST_CHARACTER)
    # One number per occurrence, because reading and parsing a second one would double the cost.
    query = f"SELECT 2 * doc + (col = 'context') AS id FROM temp.occurrences WHERE {where}"  # noqa: S608 -- constants
    occurrences = readers.ids(connection, query, bindings)
    if term.prefix:
        occurrences.sort()
    return summed(occurrences >> 1, np.where(occurrences & 1, COLUMN_WEIGHTS[1], COLUMN_WEIGHTS[0]))


def _read_lengths(connection: apsw.Connection) -> ChunkLengths:
    """Return the lengths of all chunks, with `are_known` false if they do not agree with the stored totals.

    FTS5 has no interface for them. They are in its own tables, in a format that its source describes (fts5_storage.c,
    fts5_index.c). The format is part of the database file, so a new SQLite version has to read it too.
    """
    ids, sizes = readers.ids_and_blob(connection, "SELECT id, sz AS blob FROM keyword_docsize ORDER BY id")
    averages = connection.execute("SELECT block FROM keyword_data WHERE id = 1").fetchone()
    # FTS5 stores no totals before the first chunk.
    count, *totals = _varints(averages[0] if averages else b"").tolist() or [0, 0, 0]
    by_column = _varints(sizes)
    if len(by_column) != len(COLUMN_WEIGHTS) * len(ids) or count != len(ids):
        return ChunkLengths(ids, np.empty(0), 0, are_known=False)
    by_column = by_column.reshape(-1, len(COLUMN_WEIGHTS))
    if by_column.sum(axis=0).tolist() != totals:
        return ChunkLengths(ids, np.empty(0), 0, are_known=False)
    average = sum(totals) / count if sum(totals) else 1.0
    return ChunkLengths(ids, _K1 * (1 - _B + _B * by_column.sum(axis=1) / average), count)


def _varints(blob: bytes) -> NDArray[np.int64]:
    """Return the integers of a blob: seven bits per byte, the highest first; the last byte of each is below 128."""
    parts = np.frombuffer(blob, np.uint8)
    ends = np.flatnonzero(parts < 128)  # noqa: PLR2004 -- the highest bit
    starts = np.concatenate(([0], ends + 1))[:-1]
    values = np.zeros(len(ends), np.int64)
    for place in range(int((ends - starts).max(initial=-1)) + 1):
        at = starts + place
        inside = at <= ends
        values[inside] = values[inside] << 7 | parts[at[inside]] & 127
    return values


def _name(term: QueryTerm) -> str:
    return expression(term.text, prefix=term.prefix)


def best(terms: Sequence[TermScores], limit: int, among: ChunkSet | None = None) -> list[KeywordHit]:
    """Return the best chunks by the sum over all terms, best first, the smaller id first among equals.

    `among` are the chunks that may be returned; None means all.
    """
    if not terms:
        return []
    ids = np.concatenate([term.ids for term in terms])
    bm25 = np.concatenate([term.bm25 for term in terms])
    if among is not None:
        kept = among.holds(ids)
        ids, bm25 = ids[kept], bm25[kept]
    # A stable sort keeps the order of the terms within a chunk; `summed` adds in that order, as FTS5 does.
    order = ids.argsort(kind="stable")
    ids, totals = summed(ids[order], bm25[order])
    if len(ids) > limit:
        near = np.flatnonzero(totals <= np.partition(totals, limit - 1)[limit - 1])
        ids, totals = ids[near], totals[near]
    order = totals.argsort(kind="stable")[:limit]
    return [KeywordHit(*hit) for hit in zip(ids[order].tolist(), totals[order].tolist(), strict=True)]


def scores_of(terms: Sequence[TermScores], ids: Sequence[int]) -> dict[int, float]:
    """Return the sum over all terms for each of these chunks; 0 for chunks that contain none of them."""
    chunk_ids = np.array(ids, np.int64)
    totals = np.zeros(len(chunk_ids))
    for term in terms:
        places = np.minimum(np.searchsorted(term.ids, chunk_ids), max(len(term.ids) - 1, 0))
        rows = np.flatnonzero(term.ids[places] == chunk_ids) if len(term.ids) else np.empty(0, np.intp)
        totals[rows] += term.bm25[places[rows]]
    return dict(zip(ids, totals.tolist(), strict=True))


def summed(ids: Ids, values: NDArray[np.float64]) -> tuple[Ids, NDArray[np.float64]]:
    """Return each id of an ascending array once, and the sum of its values, added in their order."""
    if not len(ids):
        return ids, values
    first = np.concatenate(([True], ids[1:] != ids[:-1]))
    return ids[first], np.bincount(np.cumsum(first) - 1, weights=values).astype(np.float64, copy=False)
