"""Which hits are too weak to return.

What a cosine means for one embedding model. Pure.

Models differ: unrelated texts have a cosine of about 0 with one and of .7 with another. The scale of a known model is
in a table. The scale of any other is derived for each question from its mean cosine with the index's chunks.

The cut: which candidates are good enough to be results. Pure.

A least score that the request or the settings name is a bound on the fused score. Without one the default applies. It
judges each retriever on its own scale, because a fused score mixes two: a chunk that answers in other words than the
question's has no keyword score, and its cosine alone, times the vector weight, does not reach a bound made for both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memoryd_server.search.query import Candidate
from memoryd_server.vectors import Vectors

_CLEAR_SHARE = 0.18
"""How far above the mean the best chunk must be, as a share of the distance that is left to 1; see `derived_scale`."""

# What float32 products of unit vectors are wrong by at most, and more; else the only chunk of an index could fall below
# a mean that is its own cosine.
_ROUNDING = 2e-5


@dataclass(frozen=True, slots=True)
class CosineScale:
    """Two cosines of a question with chunks.

    `unrelated` is typical of chunks that have nothing to do with the question. The best chunk reaches `least` if the
    memory answers the question.
    """

    unrelated: float
    least: float

    def least_beside(self, best: float) -> float:
        """Return the cosine from which chunks pass if the best chunk has the cosine `best`; infinity for none.

        Once the best shows that the memory answers, chunks pass from half way between `unrelated` and `least`: a chunk
        on several subjects has a lower cosine with a question about one of them.
        """
        return (self.unrelated + self.least) / 2 if best >= self.least else math.inf


# The text is looked for in the model's name in lower case, with "-" for "_". Models without a measurement or a
# published figure are not listed. The figures are rounded: they mark a range, not a point.
_KNOWN = (
    # Measured: docs/search-quality.md, "The least score".
    ("all-minilm-l6-v2", CosineScale(0.06, 0.22)),
    # Questions off the topic of a text .08, on it .44: https://afurmanov.com/chunk-size-embedding-similarity
    ("text-embedding-3-large", CosineScale(0.08, 0.25)),
    # Questions that a text does not answer .20 to .25: https://community.openai.com/t/1377685. The best chunk for an
    # answerable question has .43 on average: https://github.com/Bike4Mind/bike4mind/issues/471
    ("text-embedding-3-small", CosineScale(0.10, 0.25)),
    # Unrelated .71 to .72, related .80: https://github.com/run-llama/llama_index/issues/12487. The best chunk for an
    # answerable question has .77 on average: https://github.com/Bike4Mind/bike4mind/issues/471
    ("text-embedding-ada-002", CosineScale(0.72, 0.74)),
)


def known_scale(model: str) -> CosineScale | None:
    """Return the scale of a model by its name; None for one that is not in the table."""
    name = model.lower().replace("_", "-")
    return next((scale for part, scale in _KNOWN if part in name), None)


def derived_scale(question: NDArray[np.float32], centre: Vectors) -> CosineScale:
    """Return the scale of an unknown model for one question; `question` is a unit vector.

    `centre` is the mean of the chunks' unit vectors. Its product with the question is the question's mean cosine with
    the chunks, and its squared length the chunks' mean cosine with one another. Both rise with the cosines that a model
    gives to unrelated texts, and the rule moves with them: a model whose cosines are all compressed towards 1 gets the
    same answers. Where chunks are alike, the best cannot be far above the mean, and less is asked of it. So an index of
    one chunk, or of one subject, does not lose its answers; unrelated questions are cut less often there.
    """
    mean = float(question @ centre)
    apart = max(0.0, 1.0 - mean) * max(0.0, 1.0 - float(centre @ centre) - _ROUNDING)
    return CosineScale(mean, mean + _CLEAR_SHARE * math.sqrt(apart) - _ROUNDING)


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
