"""The vocabulary of the FTS5 index and a cache of BM25 scores per term.

The vocabulary holds the document frequency of each term, and finds the names that contain a given string.

FTS5's BM25 is a sum over the terms of a query, and the share of one term does not depend on the others
(`fts5Bm25Function` in SQLite's fts5_aux.c). Therefore the scores of a single term can be read and cached for as long as
the index does not change. Added in the order of the terms, as FTS5 does, they give the same score (see _SCORE_BITS), at
a fraction of the cost: FTS5 looks up the length of every chunk that contains a term, again for every query.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.sqlite import readers
from memoryd_server.sqlite.connection import scalar
from memoryd_server.sqlite.filter_cache import ChunkSet
from memoryd_server.store import KeywordHit
from memoryd_server.text import QueryTerm
from memoryd_server.vectors import Ids

# How many times as long as reading it took a list of names is used.
_NAMES_USE_FACTOR = 20.0

_MAX_FREQUENCIES = 20_000
_MAX_NAMES_CHECKED = 300


@dataclass(slots=True)
class RevisionFrequencies:
    """The frequencies looked up at one revision. The key of a prefix is its text followed by "*"."""

    revision: int
    frequencies: dict[str, int] = field(default_factory=dict)
    chunks: int | None = None


@dataclass(frozen=True, slots=True)
class SymbolList:
    """The names in the index, one per line. From `use_until` (monotonic seconds) on, the list may be replaced."""

    revision: int
    lines: str
    use_until: float


@dataclass(slots=True)
class SharedVocabulary:
    """The vocabulary caches shared by all readers of one index. A reader replaces caches that are outdated."""

    words: RevisionFrequencies | None = None
    names: SymbolList | None = None


class Vocabulary:
    """The terms of one snapshot, of `revision`."""

    def __init__(self, connection: apsw.Connection, shared: SharedVocabulary, revision: int) -> None:
        self._connection = connection
        self._shared = shared
        self._revision = revision
        known = shared.words
        if known is None or known.revision != revision or len(known.frequencies) > _MAX_FREQUENCIES:
            known = shared.words = RevisionFrequencies(revision)
        self._cache = known

    def frequency(self, term: str) -> int:
        """Return the number of chunks that contain `term`."""
        frequency = self._cache.frequencies.get(term)
        if frequency is None:
            row = self._connection.execute("SELECT doc FROM temp.vocabulary WHERE term = ?", (term,)).fetchone()
            frequency = self._cache.frequencies[term] = 0 if row is None else int(row[0])
        return frequency

    def term_frequency(self, term: QueryTerm) -> int:
        """Return the number of chunks that contain a term or, if it is a prefix, a term that begins with it."""
        return self.prefix_frequency(term.text) if term.prefix else self.frequency(term.text)

    def prefix_frequency(self, prefix: str) -> int:
        """Return the number of chunks that contain a term that begins with `prefix`."""
        key = f"{prefix}*"
        frequency = self._cache.frequencies.get(key)
        if frequency is None:
            count = "SELECT count(*) FROM keyword WHERE keyword MATCH ?"
            frequency = int(scalar(self._connection, count, (expression(prefix, prefix=True),)))
            self._cache.frequencies[key] = frequency
        return frequency

    def occurring(self, terms: Sequence[str]) -> tuple[str, ...]:
        """Return those of `terms` that occur in the index. Fast if none does, as is usual for guessed terms."""
        unknown = [term for term in terms if term not in self._cache.frequencies]
        if unknown:
            match = " OR ".join(map(expression, unknown))
            row = self._connection.execute("SELECT 1 FROM keyword WHERE keyword MATCH ? LIMIT 1", (match,)).fetchone()
            if row is None:
                self._cache.frequencies.update(dict.fromkeys(unknown, 0))
        return tuple(term for term in terms if self.frequency(term))

    def chunks(self) -> int:
        """Return the number of chunks in the keyword index, as BM25 counts them."""
        if self._cache.chunks is None:
            # Each chunk has one row in the keyword table, but counting these is several hundred times as slow.
            self._cache.chunks = int(scalar(self._connection, "SELECT count(*) FROM chunks"))
        return self._cache.chunks

    def names_containing(self, piece: str, limit: int) -> list[str]:
        """Return at most `limit` names (terms with "_" or a digit) that contain `piece`, the shortest first.

        Costs milliseconds if the names have to be read first. They are read again some time after a change, so that in
        a large index a name may be missing for some seconds.
        """
        lines = self._names().lines
        names: list[str] = []
        at = lines.find(piece)
        while at >= 0 and len(names) < _MAX_NAMES_CHECKED:
            start, end = lines.rfind("\n", 0, at) + 1, lines.find("\n", at)
            names.append(lines[start:end])
            at = lines.find(piece, end)
        return sorted(names, key=len)[:limit]

    def _names(self) -> SymbolList:
        names, now = self._shared.names, time.monotonic()
        if names is None or (names.revision != self._revision and now >= names.use_until):
            names = self._shared.names = self._read_names(now)
        return names

    def _read_names(self, started: float) -> SymbolList:
        rows = self._connection.execute("SELECT term FROM temp.vocabulary WHERE term GLOB '*[_0-9]*'")
        lines = "\n".join(term for (term,) in rows) + "\n"
        now = time.monotonic()
        return SymbolList(self._revision, lines, now + _NAMES_USE_FACTOR * (now - started))


def expression(term: str, *, prefix: bool = False) -> str:
    """Return the term as an FTS5 string with doubled quotes, so that it is never FTS5 syntax."""
    quoted = '"' + term.replace('"', '""') + '"'
    return quoted + "*" if prefix else quoted


def any_of(terms: Sequence[QueryTerm]) -> str:
    """Return an FTS5 expression that matches rows that contain any of these terms."""
    return " OR ".join(expression(term.text, prefix=term.prefix) for term in terms)


# The context column (file name and headings) has half the weight of the body; the weights were chosen by measurement.
BM25 = "bm25(keyword, 1.0, 0.5)"

# Reading a term's scores costs about 1.5 times as much as ranking its chunks. They are read when a term is requested
# repeatedly at one revision, or immediately if that is cheaper because the query's other terms are cached already.
REPEATED_REQUESTS = 3
_READ_COST_FACTOR = 2

# The most chunks whose scores one search reads, in about 5 ms; a more frequent term is never cached.
MAX_CHUNKS_READ = 10_000

# The most bytes cached per index: about 1,400 terms of a thousand chunks each. There is no eviction: in a large index,
# terms would evict each other before they are used again.
_MAX_BYTES = 16 * 2**20
_MAX_TERMS_COUNTED = 20_000

# Scores are scaled to integers of this size, which have all 53 binary digits of a score; the last ones of a score are
# lost if it is less than 1/256 of the most that its term can add.
_SCORE_BITS = 61
# FTS5's k1, and its least inverse document frequency (fts5_aux.c).
_K1 = 1.2
_LEAST_IDF = 1e-6


@dataclass(frozen=True, slots=True)
class TermScores:
    """The ids of the chunks that contain a term, ascending, and their BM25 for it: negative, smaller is better."""

    ids: NDArray[np.int32] | Ids
    bm25: NDArray[np.float64]

    @property
    def bytes(self) -> int:
        """The bytes of both arrays."""
        return self.ids.nbytes + self.bm25.nbytes


@dataclass(slots=True)
class RevisionScores:
    """The cached scores of one revision, by FTS5 expression, and how often each expression was requested."""

    revision: int
    terms: dict[str, TermScores] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    bytes: int = 0


@dataclass(slots=True)
class SharedScores:
    """The score cache shared by all readers of one index. A reader replaces a cache that is outdated."""

    current: RevisionScores | None = None
    max_bytes: int = _MAX_BYTES
    max_chunks_read: int = MAX_CHUNKS_READ
    max_terms_counted: int = _MAX_TERMS_COUNTED


class TermScoreCache:
    """The cached scores of terms in one snapshot, of `revision`, whose keyword index has `chunk_count` chunks."""

    def __init__(self, connection: apsw.Connection, shared: SharedScores, revision: int, chunk_count: int) -> None:
        self._connection = connection
        current = shared.current
        if current is None or current.revision != revision:
            current = shared.current = RevisionScores(revision)
        self._scores = current
        self._limits = shared
        self._chunk_count = chunk_count

    def get(self, frequencies: Sequence[tuple[QueryTerm, int]]) -> list[TermScores] | None:
        """Return the scores of terms given with their frequencies; None if FTS5 should rank them itself."""
        wanted = {_name(term): frequency for term, frequency in frequencies}
        if max(wanted.values(), default=0) > self._limits.max_chunks_read:
            return None
        missing = {name: chunks for name, chunks in wanted.items() if name not in self._scores.terms}
        if missing and self._scores.bytes < self._limits.max_bytes:
            self._read_worthwhile(missing, sum(wanted.values()))
        return self._cached([_name(term) for term, _ in frequencies])

    def _read_worthwhile(self, missing: Mapping[str, int], all_chunks: int) -> None:
        """Read the missing terms that are worth the cost. `all_chunks` is the sum of the frequencies of all terms."""
        requests = self._scores.requests
        if len(requests) > self._limits.max_terms_counted:
            requests.clear()
        requests.update(missing.keys())
        repeated = {name: chunks for name, chunks in missing.items() if requests[name] >= REPEATED_REQUESTS}
        is_cheaper = _READ_COST_FACTOR * (sum(missing.values()) - sum(repeated.values())) <= all_chunks
        room = self._limits.max_chunks_read
        for name, chunks in (missing if is_cheaper else repeated).items():
            if chunks <= room:
                self._read(name, chunks)
                room -= chunks

    def cached(self, terms: Sequence[QueryTerm]) -> list[TermScores] | None:
        """Return the scores of these terms if all are cached, else None; reads nothing."""
        return self._cached([_name(term) for term in terms])

    def _cached(self, names: Sequence[str]) -> list[TermScores] | None:
        scores = [self._scores.terms.get(name) for name in names]
        return None if None in scores else [each for each in scores if each is not None]

    def _read(self, name: str, frequency: int) -> None:
        scale = 2.0 ** (_SCORE_BITS - math.ceil(math.log2(_most(frequency, self._chunk_count))))
        query = (
            f"SELECT rowid AS id, CAST({BM25} * ? AS INTEGER) AS number"  # noqa: S608 -- a constant
            " FROM keyword WHERE keyword MATCH ? ORDER BY rowid"
        )
        ids, numbers = readers.integers(self._connection, query, (scale, name))
        if not len(ids) or ids[-1] <= np.iinfo(np.int32).max:
            ids = ids.astype(np.int32)
        scores = TermScores(ids, numbers / scale)
        self._scores.terms[name] = scores
        self._scores.bytes += scores.bytes


def _most(frequency: int, chunk_count: int) -> float:
    """Return what a term adds to the score of a chunk at most: its inverse document frequency x (k1 + 1)."""
    return (_K1 + 1) * max(_LEAST_IDF, math.log((chunk_count - frequency + 0.5) / (frequency + 0.5)))


def _name(term: QueryTerm) -> str:
    return expression(term.text, prefix=term.prefix)


def best(terms: Sequence[TermScores], limit: int, among: ChunkSet | None = None) -> list[KeywordHit]:
    """Return the best chunks by the sum over all terms, best first, the smaller id first among equals.

    `among` are the chunks that may be returned; None means all.
    """
    ids, totals = _summed(terms, among)
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


def _summed(terms: Sequence[TermScores], among: ChunkSet | None) -> tuple[Ids, NDArray[np.float64]]:
    """Return the chunks that contain any of the terms, ascending, and their scores, added in the order of the terms."""
    if not terms:
        return np.empty(0, np.int64), np.empty(0)
    every = np.concatenate([term.ids for term in terms]).astype(np.int64, copy=False)
    each = np.concatenate([term.bm25 for term in terms])
    if among is not None:
        kept = among.holds(every)
        every, each = every[kept], each[kept]
    # A stable sort keeps the order of the terms within a chunk; bincount adds in that order, as FTS5 does.
    order = every.argsort(kind="stable")
    ids = every[order]
    first = np.concatenate(([True], ids[1:] != ids[:-1])) if len(ids) else np.empty(0, bool)
    return ids[first], np.bincount(np.cumsum(first) - 1, weights=each[order]).astype(np.float64, copy=False)
