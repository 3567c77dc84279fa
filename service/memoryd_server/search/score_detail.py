"""The parts of a result's score: amounts that add up to it, and the penalties that moved it down. Pure.

The score of keyword search is split into BM25 and the best window (`windows`), and fused with the cosine by the vector
retriever's share (`query.fused_score`). Annotations and decay multiply what is there before them, so each has the
difference that it makes. The gain for a date is added last (`ranking`).
"""

from enum import StrEnum
from typing import NamedTuple

from memoryd_server.search.query import Hit, clamp
from memoryd_server.search.windows import WINDOW_WEIGHT


class ScorePartKind(StrEnum):
    """What an amount of a score comes from. The names are those of the wire's enum.

    ADJACENT and DIVERSITY are penalties that lower the place of a result, and are not part of its score.
    """

    KEYWORD = "KEYWORD"
    WINDOW = "WINDOW"
    VECTOR = "VECTOR"
    ANNOTATIONS = "ANNOTATIONS"
    DECAY = "DECAY"
    DATE = "DATE"
    ADJACENT = "ADJACENT"
    DIVERSITY = "DIVERSITY"


class ScorePart(NamedTuple):
    """An amount by which the score is higher, or lower if it is negative."""

    kind: ScorePartKind
    amount: float


def score_parts(hit: Hit) -> tuple[ScorePart, ...]:
    """Return the parts of a hit's score that are not 0; none if the builtin search did not compute it.

    Without the penalties, they add up to the score before it is limited to 1.
    """
    if hit.vector_share is None:
        return ()
    text_share = 1 - hit.vector_share
    # Before windows are compared, BM25 alone is the score of keyword search.
    window_weight = 0.0 if hit.window is None else WINDOW_WEIGHT
    keyword = text_share * (1 - window_weight) * (hit.text_score or 0.0)
    window = text_share * window_weight * (hit.window or 0.0)
    vector = hit.vector_share * clamp(hit.vector_score or 0.0)
    fused = keyword + window + vector
    annotated = fused * (1.0 if hit.annotation_factor is None else hit.annotation_factor)
    decayed = annotated * (1.0 if hit.decay is None else hit.decay)
    amounts = {
        ScorePartKind.KEYWORD: keyword,
        ScorePartKind.WINDOW: window,
        ScorePartKind.VECTOR: vector,
        ScorePartKind.ANNOTATIONS: annotated - fused,
        ScorePartKind.DECAY: decayed - annotated,
        ScorePartKind.DATE: hit.date or 0.0,
        ScorePartKind.ADJACENT: -(hit.adjacent or 0.0),
        ScorePartKind.DIVERSITY: -(hit.diversity or 0.0),
    }
    return tuple(ScorePart(kind, amount) for kind, amount in amounts.items() if amount)
