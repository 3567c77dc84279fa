"""Legs merged into one ranking. Pure.

The score is the weighted mean of the legs that found something (retrieval study, step 2): cosine similarity from the
vector leg, and BM25 as a share of the best from the keyword leg, so that its order is kept and its scale is 0..1. A leg
that found something and did not return a chunk still has an opinion of it: its true cosine or BM25, where the caller
knows it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from memoryd_server.store.rows import KeywordHit, VectorHit

_NONE: Mapping[int, float] = MappingProxyType({})


class Candidate(NamedTuple):
    """A chunk before the cut, with what each leg gave it. Ranks count from 1.

    `text_score` is BM25's share of the best, 0..1, `vector_score` the cosine, -1..1. A score is None when its leg did
    not run or does not know the chunk, a rank when its leg did not return it.
    """

    chunk_id: int
    score: float
    text_score: float | None = None
    vector_score: float | None = None
    keyword_rank: int | None = None
    vector_rank: int | None = None


def fuse(
    keyword: Sequence[KeywordHit] | None,
    vector: Sequence[VectorHit] | None = None,
    *,
    vector_weight: float = 0.7,
    text_weight: float = 0.3,
    true_cosine: Mapping[int, float] = _NONE,
    true_bm25: Mapping[int, float] = _NONE,
) -> list[Candidate]:
    """Candidates of both legs, best first; both legs come best first. None is a leg that did not run.

    A leg that found nothing counts as not run: it cannot tell one chunk from another, and a 0 for every chunk would
    only lower the other leg's scores. `true_cosine` tells what the vector leg thinks of chunks that only the other
    found, `true_bm25` the opposite; what is not known counts 0. BM25 is SQLite's: negative, smaller is better. Weights
    are taken relative to the sum of those of the legs that count; where that is 0 they count alike. Equal scores
    keep the keyword leg's order, then the vector leg's.
    """
    words = {hit.chunk_id: (rank, hit.bm25) for rank, hit in enumerate(keyword or (), 1)}
    meanings = {hit.chunk_id: (rank, hit.cosine) for rank, hit in enumerate(vector or (), 1)}
    best = min((bm25 for _, bm25 in words.values()), default=0.0)
    share = _vector_share(vector_weight, text_weight, words_ran=bool(words), meanings_ran=bool(meanings))
    found = []
    for chunk_id in words | meanings:
        keyword_rank, bm25 = words.get(chunk_id, (None, true_bm25.get(chunk_id)))
        vector_rank, cosine = meanings.get(chunk_id, (None, true_cosine.get(chunk_id)))
        # Where no word was found, a true BM25 is no share of anything.
        text = text_score(bm25, best) if words and bm25 is not None else None
        score = _clamped(share * _clamped(cosine or 0.0) + (1 - share) * (text or 0.0))
        found.append(Candidate(chunk_id, score, text, cosine, keyword_rank, vector_rank))
    return sorted(found, key=lambda candidate: -candidate.score)


def _vector_share(vector_weight: float, text_weight: float, *, words_ran: bool, meanings_ran: bool) -> float:
    """The vector leg's share of the score."""
    if not (words_ran and meanings_ran):
        return 1.0 if meanings_ran else 0.0
    total = vector_weight + text_weight
    return vector_weight / total if total > 0 else 0.5


def text_score(bm25: float, best: float) -> float:
    """BM25 as a share of the query's best, 0..1. SQLite's BM25 is negative, and the smallest is the best."""
    return 1.0 if best >= 0 else _clamped(bm25 / best)


def _clamped(score: float) -> float:
    """The score within 0..1; what is no number counts 0."""
    return min(1.0, score) if score > 0 else 0.0
