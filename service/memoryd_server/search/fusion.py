"""Legs merged into one ranking. Pure.

The score is the weighted mean of the legs that ran (retrieval study, step 2): the keyword leg gives BM25 divided by the
best BM25 of the query, so that its order is kept and its scale is 0..1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from memoryd_server.index.rows import KeywordHit


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk before the cut, with what each leg gave it. `keyword_rank` counts from 1."""

    chunk_id: int
    score: float
    text_score: float | None
    keyword_rank: int | None


def fuse(keyword: Sequence[KeywordHit]) -> list[Candidate]:
    """Candidates, best first. Equal scores keep the leg's order."""
    best = min((hit.bm25 for hit in keyword), default=0.0)
    return [
        Candidate(hit.chunk_id, text_score(hit.bm25, best), text_score(hit.bm25, best), rank)
        for rank, hit in enumerate(keyword, 1)
    ]


def text_score(bm25: float, best: float) -> float:
    """BM25 as a share of the query's best, 0..1. SQLite's BM25 is negative, and the smallest is the best."""
    return 1.0 if best >= 0 else max(0.0, min(1.0, bm25 / best))


def cut(
    candidates: Sequence[Candidate], min_score: float, max_results: int, *, strict: bool
) -> tuple[list[Candidate], int]:
    """The candidates to show, and how many `min_score` removed.

    Hits at or above `min_score` come first. Unless `strict`, keyword-backed hits below it fill what room is left and
    never displace a qualifying one.
    """
    qualifying = [c for c in candidates if c.score >= min_score]
    below = [c for c in candidates if c.score < min_score]
    backed = [] if strict else [c for c in below if c.keyword_rank is not None]
    return (qualifying + backed)[:max_results], len(below) - len(backed)
