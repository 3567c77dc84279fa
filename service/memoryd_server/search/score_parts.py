"""The parts of a candidate's score: amounts that add up to it, and the penalties that moved it down. Pure.

The score of keyword search is split into BM25 and the best window (`windows`), and fused with the cosine by the vector
retriever's share (`query.fused_score`). Annotations and decay are factors, so the part of each is the difference that
its factor makes. The gain for a date is added last (`ranking`).
"""

from memoryd_server.search.query import Candidate, ScorePart, ScorePartKind, clamp
from memoryd_server.search.ranking import Ranked
from memoryd_server.search.windows import WINDOW_WEIGHT


def score_parts(candidate: Candidate, ranked: Ranked) -> tuple[ScorePart, ...]:
    """Return the parts of a score that are not 0. `ranked` has the factors that were applied to it.

    Without the penalties, they add up to the score before it is limited to 1.
    """
    chunk_id, text_share = candidate.chunk_id, 1 - ranked.vector_share
    # Before windows are compared, BM25 alone is the score of keyword search.
    window_weight = 0.0 if candidate.window is None else WINDOW_WEIGHT
    keyword = text_share * (1 - window_weight) * (candidate.text_score or 0.0)
    window = text_share * window_weight * (candidate.window or 0.0)
    vector = ranked.vector_share * clamp(candidate.vector_score or 0.0)
    fused = keyword + window + vector
    annotated = fused * ranked.annotation_factors.get(chunk_id, 1.0)
    decayed = annotated * ranked.decays.get(chunk_id, 1.0)
    amounts = {
        ScorePartKind.KEYWORD: keyword,
        ScorePartKind.WINDOW: window,
        ScorePartKind.VECTOR: vector,
        ScorePartKind.ANNOTATIONS: annotated - fused,
        ScorePartKind.DECAY: decayed - annotated,
        ScorePartKind.DATE: candidate.date,
        ScorePartKind.ADJACENT: -candidate.adjacent,
        ScorePartKind.DIVERSITY: -candidate.diversity,
    }
    return tuple(ScorePart(kind, amount) for kind, amount in amounts.items() if amount)
