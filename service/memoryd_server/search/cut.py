"""The cut: which candidates are good enough to be results. Pure.

A least score that the request or the settings name is a bound on the fused score. Without one the default applies. It
judges each retriever on its own scale, because a fused score mixes two: a chunk that answers in other words than the
question's has no keyword score, and its cosine alone, times the vector weight, does not reach a bound made for both.
"""

from collections.abc import Callable, Sequence

from memoryd_server.search.cosine_scale import CosineScale
from memoryd_server.search.fusion import Candidate

DEFAULT_MIN_SCORE = 0.35
"""The fused score from which a candidate with a keyword score passes the default cut."""

UNCALIBRATED = CosineScale(DEFAULT_MIN_SCORE, DEFAULT_MIN_SCORE)
"""The scale of an unknown model before its vectors have been measured."""


def cut(
    candidates: Sequence[Candidate], min_score: float, max_results: int, *, strict: bool
) -> tuple[list[Candidate], int]:
    """Return the candidates to show, and how many `min_score` removed.

    Hits at or above `min_score` come first. Unless `strict`, keyword-backed hits below it fill what room is left and
    never displace a qualifying one.
    """
    return _divided(candidates, lambda c: c.score >= min_score, max_results, strict=strict)


def default_cut(candidates: Sequence[Candidate], scale: CosineScale, max_results: int) -> tuple[list[Candidate], int]:
    """Return the candidates to show when no least score is named, and how many were removed.

    A candidate passes by its cosine, on the model's `scale`, or by its fused score if it has a keyword score.
    Keyword-backed hits that do not pass fill what room is left, as in `cut`.
    """
    least = scale.least_beside(max((c.vector_score for c in candidates if c.vector_score is not None), default=-1.0))

    def passes(candidate: Candidate) -> bool:
        if candidate.vector_score is not None and candidate.vector_score >= least:
            return True
        return bool(candidate.text_score) and candidate.score >= DEFAULT_MIN_SCORE

    return _divided(candidates, passes, max_results, strict=False)


def _divided(
    candidates: Sequence[Candidate], passes: Callable[[Candidate], bool], max_results: int, *, strict: bool
) -> tuple[list[Candidate], int]:
    qualifying: list[Candidate] = []
    below: list[Candidate] = []
    for candidate in candidates:
        (qualifying if passes(candidate) else below).append(candidate)
    backed = [] if strict else [c for c in below if c.keyword_rank is not None]
    return (qualifying + backed)[:max_results], len(below) - len(backed)
