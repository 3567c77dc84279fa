"""What BM25 gives each chunk for one term, kept while the index stays as it is.

FTS5's BM25 is a sum over the terms of a question, and what a term gives a chunk does not depend on the others
(`fts5Bm25Function` in SQLite's fts5_aux.c). So it may be asked for one term alone, and kept. Added up in the order of
the terms, as FTS5 does, it is the same score to the last bit, at a fraction of the cost: FTS5 looks up the length of
every chunk that holds a term, for every question anew.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.index import one_step
from memoryd_server.index.vocabulary import expression
from memoryd_server.store.rows import KeywordHit
from memoryd_server.text import QueryTerm
from memoryd_server.vectors import Ids

# The date and heading column counts half; measured in the design of the keyword leg.
BM25 = "bm25(keyword, 1.0, 0.5)"

# Reading a term's scores costs some 2.5 times what ranking its chunks does. So they are read when a term is asked for
# again and again at one revision, or at once where it is the cheaper way to answer: the other terms are kept already.
_ASKED_OFTEN = 3
_COST_OF_READING = 3

# No search reads the scores of more chunks than that, some eight milliseconds; a commoner word is never kept.
_MOST_CHUNKS_READ = 10_000

# Of one index; some 1,400 terms that a thousand chunks hold each. What is kept then stays: in a large index words would
# else drive each other out, and each be read for nothing.
_MOST_BYTES = 16 * 2**20
_MOST_TERMS_COUNTED = 20_000


@dataclass(frozen=True, slots=True)
class TermScores:
    """The chunks that hold a term, ascending, and their BM25 for it alone: negative, smaller is better."""

    ids: NDArray[np.int32] | Ids
    bm25: NDArray[np.float64]

    @property
    def bytes(self) -> int:
        """What they take."""
        return self.ids.nbytes + self.bm25.nbytes


@dataclass(slots=True)
class KnownScores:
    """What is kept of one revision, by FTS5 expression, and how often each was asked for."""

    revision: int
    terms: dict[str, TermScores] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    bytes: int = 0


@dataclass(slots=True)
class ScoresMemo:
    """What all readers of one index remember together. Each replaces what it finds out of date."""

    known: KnownScores | None = None


class KeptScores:
    """The scores of terms in one snapshot, of `revision`."""

    def __init__(self, connection: apsw.Connection, memo: ScoresMemo, revision: int) -> None:
        self._connection = connection
        known = memo.known
        if known is None or known.revision != revision:
            known = memo.known = KnownScores(revision)
        self._known = known

    def of(self, frequencies: Sequence[tuple[QueryTerm, int]]) -> list[TermScores] | None:
        """The scores of each of these terms, which so many chunks hold; None where FTS5 had better rank them itself."""
        wanted = {_name(term): frequency for term, frequency in frequencies}
        if max(wanted.values(), default=0) > _MOST_CHUNKS_READ:
            return None
        missing = {name: chunks for name, chunks in wanted.items() if name not in self._known.terms}
        if missing and self._known.bytes < _MOST_BYTES:
            self._read_some(missing, sum(wanted.values()))
        return self._all([_name(term) for term, _ in frequencies])

    def _read_some(self, missing: Mapping[str, int], all_chunks: int) -> None:
        """Reads those of the missing terms that are worth it now, where all terms stand in so many chunks."""
        asked = self._known.asked
        if len(asked) > _MOST_TERMS_COUNTED:
            asked.clear()
        asked.update(missing.keys())
        often = {name: chunks for name, chunks in missing.items() if asked[name] >= _ASKED_OFTEN}
        is_cheaper = _COST_OF_READING * (sum(missing.values()) - sum(often.values())) <= all_chunks
        room = _MOST_CHUNKS_READ
        for name, chunks in (missing if is_cheaper else often).items():
            if chunks <= room:
                self._read(name)
                room -= chunks

    def kept(self, terms: Sequence[QueryTerm]) -> list[TermScores] | None:
        """The same for terms that have been asked for before, without reading any."""
        return self._all([_name(term) for term in terms])

    def _all(self, names: Sequence[str]) -> list[TermScores] | None:
        found = [self._known.terms.get(name) for name in names]
        return None if None in found else [scores for scores in found if scores is not None]

    def _read(self, name: str) -> None:
        query = f"SELECT rowid AS id, {BM25} AS score FROM keyword WHERE keyword MATCH ? ORDER BY rowid"  # noqa: S608 -- a constant
        rows = one_step.scored(self._connection, query, (name,))
        ids = np.array([row[0] for row in rows], np.int64)
        if not len(ids) or ids[-1] <= np.iinfo(np.int32).max:
            ids = ids.astype(np.int32)
        scores = TermScores(ids, np.array([row[1] for row in rows], np.float64))
        self._known.terms[name] = scores
        self._known.bytes += scores.bytes


def _name(term: QueryTerm) -> str:
    return expression(term.text, prefix=term.prefix)


def best(terms: Sequence[TermScores], limit: int) -> list[KeywordHit]:
    """The best chunks for all terms together, best first, the smaller id first among equals."""
    ids, totals = _summed(terms)
    if len(ids) > limit:
        near = np.flatnonzero(totals <= np.partition(totals, limit - 1)[limit - 1])
        ids, totals = ids[near], totals[near]
    order = totals.argsort(kind="stable")[:limit]
    return [KeywordHit(*hit) for hit in zip(ids[order].tolist(), totals[order].tolist(), strict=True)]


def scores_of(terms: Sequence[TermScores], ids: Sequence[int]) -> dict[int, float]:
    """The sum over all terms for each of these chunks, 0 for those that hold none."""
    asked = np.array(ids, np.int64)
    totals = np.zeros(len(asked))
    for term in terms:
        places = np.minimum(np.searchsorted(term.ids, asked), max(len(term.ids) - 1, 0))
        held = np.flatnonzero(term.ids[places] == asked) if len(term.ids) else np.empty(0, np.intp)
        totals[held] += term.bm25[places[held]]
    return dict(zip(ids, totals.tolist(), strict=True))


def _summed(terms: Sequence[TermScores]) -> tuple[Ids, NDArray[np.float64]]:
    """Every chunk that holds a term, ascending, and the sum of what the terms give it, taken in their order."""
    if not terms:
        return np.empty(0, np.int64), np.empty(0)
    every = np.concatenate([term.ids for term in terms]).astype(np.int64, copy=False)
    # Stable: the order of the terms stays within a chunk. bincount adds one after another, as FTS5 does.
    order = every.argsort(kind="stable")
    ids = every[order]
    first = np.concatenate(([True], ids[1:] != ids[:-1])) if len(ids) else np.empty(0, bool)
    values = np.concatenate([term.bm25 for term in terms])[order]
    return ids[first], np.bincount(np.cumsum(first) - 1, weights=values).astype(np.float64, copy=False)
