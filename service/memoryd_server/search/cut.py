"""The cut: which candidates are good enough to be results. Pure.

A least score that the request or the settings name is a bound on the fused score. Without one the default applies. It
judges each retriever on its own scale, because a fused score mixes two: a chunk that answers in other words than the
question's has no keyword score, and its cosine alone, times the vector weight, does not reach a bound made for both.
"""

from collections.abc import Sequence

from memoryd_server.search.cosine_scale import CosineScale
from memoryd_server.search.fusion import Candidate

DEFAULT_MIN_SCORE = 0.35
"""The fused score from which a candidate with a keyword score passes the default cut."""

LEAST_COSINE = 0.1
"""No candidate passes by a lower cosine: it means unrelated texts with every model, however small the index is."""

UNCALIBRATED = CosineScale(DEFAULT_MIN_SCORE, DEFAULT_MIN_SCORE)
"""The scale of an unknown model before its vectors have been measured."""


def cut(
    candidates: Sequence[Candidate], min_score: float, max_results: int, *, strict: bool
) -> tuple[list[Candidate], int]:
    """Return the candidates to show, and how many `min_score` removed.

    Hits at or above `min_score` come first. Unless `strict`, keyword-backed hits below it fill what room is left and
    never displace a qualifying one.
    """
    qualifying = [c for c in candidates if c.score >= min_score]
    below = [c for c in candidates if c.score < min_score]
    backed = [] if strict else [c for c in below if c.keyword_rank is not None]
    return (qualifying + backed)[:max_results], len(below) - len(backed)


def default_cut(candidates: Sequence[Candidate], scale: CosineScale, max_results: int) -> tuple[list[Candidate], int]:
    """Return the candidates to show when no least score is named, and how many were removed.

    A candidate stays if its cosine passes on the model's `scale`, if it has a keyword score and its fused score reaches
    the default, or if the keyword leg backs it. Scores below the default come last. The first `max_results` contain the
    nearest of those that pass by cosine; see `_with_nearest`.
    """
    cosines = [-1.0 if c.vector_score is None else c.vector_score for c in candidates]
    least = max(LEAST_COSINE, scale.least_beside(max(cosines, default=-1.0)))
    near: list[tuple[float, int]] = []
    good: list[Candidate] = []
    low: list[Candidate] = []
    for candidate, cosine in zip(candidates, cosines, strict=True):
        passes = candidate.score >= DEFAULT_MIN_SCORE
        if cosine >= least:
            near.append((-cosine, candidate.chunk_id))
        elif candidate.keyword_rank is None and not (passes and candidate.text_score):
            continue
        # Variety may have put a lower score first.
        (good if passes else low).append(candidate)
    kept = good + low
    return _with_nearest(kept, sorted(near), max_results), len(candidates) - len(kept)


def _with_nearest(kept: list[Candidate], near: Sequence[tuple[float, int]], max_results: int) -> list[Candidate]:
    """Return `kept` with a third of the first `max_results` places for the first of `near`; the order stays otherwise.

    Common words of the question could otherwise fill every place. `near` holds negative cosines with chunk ids,
    ascending.
    """
    if len(kept) <= max_results:
        return kept
    reserved = {chunk_id for _, chunk_id in near[: max_results // 3]}
    room = max_results - len(reserved)
    first: list[Candidate] = []
    rest: list[Candidate] = []
    for candidate in kept:
        if candidate.chunk_id in reserved:
            first.append(candidate)
        elif room > 0:
            room -= 1
            first.append(candidate)
        else:
            rest.append(candidate)
    return first + rest
