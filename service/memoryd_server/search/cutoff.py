"""The cutoff: which candidates score high enough to be hits, and what a cosine means for an embedding model.

A least score from the request or the settings is a bound on the fused score: no result below it is shown, and none at
or above it is removed. Without one, the default cutoff applies. It judges each retriever on a separate scale, because a
fused score mixes two: a chunk that paraphrases the query has no keyword score, and its cosine alone, times the vector
weight, does not reach a bound made for both.

Cosines differ between models: unrelated texts have a cosine of about 0 with one model and of .7 with another. A table
has the scales of known models. The scale of any other model is derived for each query from the query's mean cosine with
the index's chunks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memoryd_server.search.dates import LONG_GAIN
from memoryd_server.search.query import Candidate, SearchQuery
from memoryd_server.store import Reader, VectorIdentity
from memoryd_server.vectors import Vectors

_CLEAR_SHARE = 0.18
"""How far above the mean the best chunk must be, as a share of the distance from the mean to 1; see `derived_scale`."""

# More than the error of a float32 product of unit vectors. Without it, the only chunk of an index could fall below a
# mean that is the chunk's own cosine.
_ROUNDING = 2e-5


@dataclass(frozen=True, slots=True)
class CosineScale:
    """Two cosines of a query with chunks.

    `unrelated` is typical of chunks that are unrelated to the query. The best chunk reaches `least` if the memory
    answers the query.
    """

    unrelated: float
    least: float

    def threshold(self, best: float) -> float:
        """Return the cosine from which chunks pass if the best chunk has the cosine `best`; infinity if none pass.

        If the best chunk reaches `least`, chunks pass from half way between `unrelated` and `least`: a chunk on several
        subjects has a lower cosine with a query about one of them.
        """
        return self.at(0.5) if best >= self.least else math.inf

    def at(self, share: float) -> float:
        """Return the cosine at a share of the way from `unrelated` (0) to `least` (1); a larger share is stricter."""
        return self.unrelated + share * (self.least - self.unrelated)


# The text is looked for in the model's name in lower case, with "-" for "_". Models without a measurement or a
# published figure are not listed. The figures are rounded: they mark a range, not a point.
_KNOWN = (
    # Measured with chunks embedded whole and in pieces: docs/search-quality.md, "The default minimum score".
    ("all-minilm-l6-v2", CosineScale(0.06, 0.22)),
    # Queries off the topic of a text .08, on it .44: https://afurmanov.com/chunk-size-embedding-similarity
    ("text-embedding-3-large", CosineScale(0.08, 0.25)),
    # Queries that a text does not answer .20 to .25: https://community.openai.com/t/1377685. The best chunk for an
    # answerable query has .43 on average: https://github.com/Bike4Mind/bike4mind/issues/471
    ("text-embedding-3-small", CosineScale(0.10, 0.25)),
    # Unrelated .71 to .72, related .80: https://github.com/run-llama/llama_index/issues/12487. The best chunk for an
    # answerable query has .77 on average: https://github.com/Bike4Mind/bike4mind/issues/471
    ("text-embedding-ada-002", CosineScale(0.72, 0.74)),
)


def known_scale(model: str) -> CosineScale | None:
    """Return the scale of a model by its name; None for one that is not in the table."""
    name = model.lower().replace("_", "-")
    return next((scale for part, scale in _KNOWN if part in name), None)


def derived_scale(query: Vectors, centre: Vectors) -> CosineScale:
    """Return the scale of an unknown model for one query; `query` is a unit vector.

    `centre` is the mean of the chunks' unit vectors. Its product with the query is the query's mean cosine with the
    chunks, and its squared length is the chunks' mean cosine with one another. Both rise with the cosines that a model
    gives to unrelated texts, and the rule moves with them: a model whose cosines are all compressed towards 1 gets the
    same answers. If the chunks are similar, the best cannot be far above the mean, and the bound is lower. So an index
    of one chunk, or of one subject, does not lose its answers; unrelated queries are cut off less often there.
    """
    mean = float(query @ centre)
    spread = max(0.0, 1.0 - mean) * max(0.0, 1.0 - float(centre @ centre) - _ROUNDING)
    return CosineScale(mean, mean + _CLEAR_SHARE * math.sqrt(spread) - _ROUNDING)


DEFAULT_MIN_SCORE = 0.35
"""The fused score from which a candidate with a keyword score passes the default cutoff."""

LEAST_COSINE = 0.1
"""No candidate passes by a lower cosine: with every model it means unrelated texts, even in a small index."""

UNCALIBRATED = CosineScale(DEFAULT_MIN_SCORE, DEFAULT_MIN_SCORE)
"""The scale of an unknown model before its vectors have been measured."""


def scale_of(reader: Reader, vector: Vectors, identity: VectorIdentity | None) -> CosineScale:
    """Return the scale of the cosines with `vector`, which was made by `identity`."""
    known = None if identity is None else known_scale(identity.model)
    if known is not None:
        return known
    centre = reader.vector_centre(len(vector))
    return UNCALIBRATED if centre is None else derived_scale(vector, centre)


class Cutoff(NamedTuple):
    """The candidates that passed, the number that did not, and the scale of cosines; None if none was used.

    `near` are the chunks that passed by their cosine, the nearest first. `least_cosine` is the cosine from which chunks
    passed, infinity if none did by their cosine; None if a least score decided.
    """

    candidates: list[Candidate]
    dropped: int
    scale: CosineScale | None
    near: Sequence[int] = ()
    least_cosine: float | None = None

    def with_nearest(self, max_results: int) -> "Cutoff":
        """Return the candidates with a third of the first `max_results` places reserved for the nearest.

        Otherwise common words of the query could fill every place. The order does not change apart from that.
        """
        if len(self.candidates) <= max_results:
            return self
        reserved = set(self.near[: max_results // 3])
        room = max_results - len(reserved)
        first: list[Candidate] = []
        rest: list[Candidate] = []
        for candidate in self.candidates:
            if candidate.chunk_id in reserved:
                first.append(candidate)
            elif room > 0:
                room -= 1
                first.append(candidate)
            else:
                rest.append(candidate)
        return self._replace(candidates=first + rest)


def apply_cutoff(candidates: Sequence[Candidate], query: SearchQuery, scale: CosineScale | None) -> Cutoff:
    """Remove the candidates below the query's least score or, if it has none, those that fail the default cutoff.

    `scale` is that of the cosines, None if there are none.
    """
    if query.min_score is not None:
        return Cutoff(*cut_below(candidates, query.min_score), None)
    return default_cut(candidates, scale or UNCALIBRATED)._replace(scale=scale)


def cut_below(candidates: Sequence[Candidate], min_score: float) -> tuple[list[Candidate], int]:
    """Return the candidates that score at least `min_score`, in their order, and how many score less."""
    passed = [candidate for candidate in candidates if candidate.score >= min_score]
    return passed, len(candidates) - len(passed)


def default_cut(candidates: Sequence[Candidate], scale: CosineScale) -> Cutoff:
    """Return the candidates to show if no least score is set.

    A candidate passes if its cosine passes on the model's `scale`, if it has a keyword score and its fused score
    reaches the default, if the keyword retriever returned it, or if it is dated within or just after a range of days
    that the query names. Scores below the default come last.
    """
    cosines = [-1.0 if c.vector_score is None else c.vector_score for c in candidates]
    least = max(LEAST_COSINE, scale.threshold(max(cosines, default=-1.0)))
    near: list[tuple[float, int]] = []
    good: list[Candidate] = []
    low: list[Candidate] = []
    for candidate, cosine in zip(candidates, cosines, strict=True):
        reaches_default = candidate.score >= DEFAULT_MIN_SCORE
        if cosine >= least:
            near.append((-cosine, candidate.chunk_id))
        elif (
            candidate.keyword_rank is None
            and not (reaches_default and candidate.text_score)
            # A chunk within a range gains as much.
            and candidate.date < LONG_GAIN
        ):
            continue
        # MMR may have put a lower score first.
        (good if reaches_default else low).append(candidate)
    passed = good + low
    return Cutoff(passed, len(candidates) - len(passed), scale, [chunk_id for _, chunk_id in sorted(near)], least)
