"""The ranking of candidates: fusion, annotations, decay by age, boosts for dates, and maximal marginal relevance. Pure.

Fusion: the score is the weighted mean of the retrievers that found something (retrieval study, step 2): the cosine of
the vector retriever, and the BM25 of the keyword retriever as a share of the best BM25, which keeps its order and has
the scale 0..1. If a retriever found something but did not return a chunk, its true cosine or BM25 of the chunk counts,
if the caller provides it.

Annotations: an importance of n multiplies the score by .75 + .05 n, so 5 is neutral. If the query names active
projects, a chunk whose projects are all active counts 1.15 times, one with any other project .9 times. Scores are
limited to 1; those that would exceed it keep their order.

Decay: the age of a daily log is that of the day in its name, the age of other text that of its file. Evergreen files do
not age.

Maximal marginal relevance (MMR) moves hits that repeat better hits down.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from types import MappingProxyType

from memoryd_server.search.dates import boosted, dates_in
from memoryd_server.search.query import Candidate, RankingConfig, clamp, text_score
from memoryd_server.sources import day_of, match_day
from memoryd_server.store import ChunkHead, KeywordHit, VectorHit

_NONE: Mapping[int, float] = MappingProxyType({})


def fuse(
    keyword: Sequence[KeywordHit] | None,
    vector: Sequence[VectorHit] | None = None,
    *,
    vector_weight: float = 0.7,
    text_weight: float = 0.3,
    true_cosine: Mapping[int, float] = _NONE,
    true_bm25: Mapping[int, float] = _NONE,
) -> list[Candidate]:
    """Return the candidates of both retrievers, best first. Hits are best first; None if a retriever did not run.

    A retriever that found nothing counts as not run: 0 for every chunk distinguishes none, and would only lower the
    other's scores. `true_cosine` has cosines of chunks that only the keyword retriever returned, `true_bm25` the BM25
    of chunks that only the vector retriever returned; a missing value counts as 0. BM25 is SQLite's: negative, smaller
    is better. Weights are relative to the sum of the weights that count; if it is 0, both count equally. Equal scores
    keep the keyword retriever's order, then the vector retriever's.
    """
    by_keyword = {hit.chunk_id: (rank, hit.bm25) for rank, hit in enumerate(keyword or (), 1)}
    by_vector = {hit.chunk_id: (rank, hit.cosine) for rank, hit in enumerate(vector or (), 1)}
    best = min((bm25 for _, bm25 in by_keyword.values()), default=0.0)
    share = _vector_share(vector_weight, text_weight, has_keyword=bool(by_keyword), has_vector=bool(by_vector))
    candidates = []
    for chunk_id in by_keyword | by_vector:
        keyword_rank, bm25 = by_keyword.get(chunk_id, (None, true_bm25.get(chunk_id)))
        vector_rank, cosine = by_vector.get(chunk_id, (None, true_cosine.get(chunk_id)))
        # Without keyword hits there is no best BM25 to take a share of.
        text = text_score(bm25, best) if by_keyword and bm25 is not None else None
        score = clamp(share * clamp(cosine or 0.0) + (1 - share) * (text or 0.0))
        candidates.append(Candidate(chunk_id, score, text, cosine, keyword_rank, vector_rank))
    return sorted(candidates, key=lambda candidate: -candidate.score)


def _vector_share(vector_weight: float, text_weight: float, *, has_keyword: bool, has_vector: bool) -> float:
    """Return the vector retriever's share of the score."""
    if not (has_keyword and has_vector):
        return 1.0 if has_vector else 0.0
    total = vector_weight + text_weight
    return vector_weight / total if total > 0 else 0.5


@dataclass(frozen=True, slots=True)
class Reranked:
    """Candidates, best first, and by chunk the factors of decay and of annotations that were applied."""

    candidates: list[Candidate]
    decays: Mapping[int, float]
    annotation_factors: Mapping[int, float]


def rank(
    candidates: Sequence[Candidate],
    heads: Callable[[], Mapping[int, ChunkHead]],
    *,
    query: str,
    now: datetime,
    ranking: RankingConfig,
    texts_of: Callable[[Sequence[int]], Mapping[int, str]],
    words_of: Callable[[str], Collection[str]],
    annotated: bool = False,
    active_projects: Collection[str] = frozenset(),
) -> Reranked:
    """Apply annotations, decay by age, boosts for the dates in `query`, and MMR, in this order; each if it applies.

    `annotated` is whether a candidate may have annotations. `heads` is called only if it is set and for decay and
    dates, and returns the paths and times of the candidates; `texts_of` is called
    only for MMR, and returns their texts. Candidates that are missing from the result are dropped.
    """
    ranked = list(candidates)
    decays: dict[int, float] = {}
    factors: dict[int, float] = {}
    ranges = dates_in(query, now)
    if annotated or ranking.decay or ranges:
        by_id = heads()
        ranked = [candidate for candidate in candidates if candidate.chunk_id in by_id]
        factors = _annotation_factors(by_id, active_projects)
        ranked = weighted(ranked, factors)
        if ranking.decay:
            decays = {c.chunk_id: _decay(by_id[c.chunk_id], now, ranking) for c in ranked}
            ranked = sorted((decayed(c, decays[c.chunk_id]) for c in ranked), key=lambda c: -c.score)
        # Boosts come after decay, which would reduce them.
        ranked = boosted(ranked, {c.chunk_id: day_of(by_id[c.chunk_id].path) for c in ranked}, ranges)
    if ranking.mmr:
        texts = texts_of([c.chunk_id for c in ranked])
        ranked = [candidate for candidate in ranked if candidate.chunk_id in texts]
        ranked = diversified(ranked, texts, ranking.mmr_lambda, words_of)
    return Reranked(ranked, decays, factors)


def _annotation_factors(by_id: Mapping[int, ChunkHead], active: Collection[str]) -> dict[int, float]:
    factors = {
        chunk_id: annotation_factor(head.importance, head.projects, active)
        for chunk_id, head in by_id.items()
        if head.importance is not None or (head.projects and active)
    }
    return {chunk_id: factor for chunk_id, factor in factors.items() if factor != 1}


def annotation_factor(importance: int | None, projects: Collection[str], active: Collection[str]) -> float:
    """Return the factor of a chunk's score; 1 without an importance and without active or own projects."""
    factor = 1.0 if importance is None else 0.75 + 0.05 * min(10, max(1, importance))
    if not (projects and active):
        return factor
    return factor * (1.15 if all(key in active for key in projects) else 0.9)


def weighted(candidates: Sequence[Candidate], factors: Mapping[int, float]) -> list[Candidate]:
    """Return the candidates with their scores multiplied by `factors`, best first; a missing factor is 1."""
    if not factors:
        return list(candidates)
    scored = [(candidate.score * factors.get(candidate.chunk_id, 1.0), candidate) for candidate in candidates]
    scored.sort(key=lambda pair: -pair[0])
    return [candidate._replace(score=min(1.0, score)) for score, candidate in scored]


def _decay(head: ChunkHead, now: datetime, ranking: RankingConfig) -> float:
    modified = datetime.fromtimestamp(head.mtime_ns / 1e9, UTC)
    return decay_of(head.path, modified, now, ranking.half_life_days, ranking.decay_floor)


_WORD = re.compile("[a-z0-9_]+")


def ascii_words(text: str) -> list[str]:
    """Return the words that OpenClaw compares: runs of ASCII letters, digits and underscores, in lower case."""
    return _WORD.findall(text.lower())


def diversified(
    candidates: Sequence[Candidate],
    texts: Mapping[int, str],
    trade_off: float,
    words_of: Callable[[str], Collection[str]] = ascii_words,
) -> list[Candidate]:
    """Return the candidates in MMR order: each has the best `trade_off` x relevance - (1 - `trade_off`) x similarity.

    Relevance is the score scaled to 0..1 between the lowest and the highest; similarity is the highest Jaccard
    similarity with a candidate before it. `trade_off` is the setting `lambda`, limited to 0..1; 1 ranks by score alone.
    `texts` is by chunk. Ties are broken by score, then by order. O(n^2) set comparisons.
    """
    trade_off = min(1.0, max(0.0, trade_off))
    remaining = sorted(candidates, key=lambda candidate: -candidate.score)
    if trade_off == 1 or not remaining:
        return remaining
    words = {candidate.chunk_id: frozenset(words_of(texts.get(candidate.chunk_id, ""))) for candidate in remaining}
    highest, lowest = remaining[0].score, remaining[-1].score
    similarity = dict.fromkeys(words, 0.0)
    chosen: list[Candidate] = []

    def value(candidate: Candidate) -> float:
        relevance = (candidate.score - lowest) / (highest - lowest) if highest > lowest else 1.0
        return trade_off * relevance - (1 - trade_off) * similarity[candidate.chunk_id]

    while remaining:
        # `max` returns the first of equals, which has the best score, because `remaining` is in that order.
        best = max(remaining, key=value)
        remaining.remove(best)
        chosen.append(best)
        for candidate in remaining:
            to_best = jaccard(words[best.chunk_id], words[candidate.chunk_id])
            similarity[candidate.chunk_id] = max(similarity[candidate.chunk_id], to_best)
    return chosen


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets of words, 0..1; 1 for two empty sets."""
    union = len(one | other)
    return len(one & other) / union if union else 1.0


_CURATED = ("MEMORY.md", "memory.md", "USER.md")
_SECONDS_A_DAY = 86_400


def is_evergreen(path: str) -> bool:
    """Return whether a file is a curated file, or is under `memory/` and has no day at the start of its name."""
    path = path.removeprefix("./")
    return path in _CURATED or (path.startswith("memory/") and not match_day(path))


def age_days(path: str, modified: datetime, now: datetime) -> float | None:
    """Return the days, with fraction, from the file's day (midnight UTC) or last change until `now`.

    The age of a future day is negative. None for a file that does not age: an evergreen file, and a file under
    `memory/` whose name begins with a date that does not exist.
    """
    day = day_of(path)
    if day is None and (is_evergreen(path) or match_day(path)):
        return None
    since = modified if day is None else datetime.combine(day, time(), UTC)
    return (now - since).total_seconds() / _SECONDS_A_DAY


def multiplier(age: float, half_life_days: float, floor: float = 0.0) -> float:
    """Return 1 halved once per `half_life_days` of `age` in days, but never below `floor`; OpenClaw's floor is 0.

    Return 1 for an age that is negative (a clock set back, a note dated tomorrow) or not finite, so that no score
    rises, and for a half-life that is not positive.
    """
    if not (math.isfinite(age) and age > 0 and half_life_days > 0):
        return 1.0
    return max(min(floor, 1.0), math.exp(-math.log(2) / half_life_days * age))


def decay_of(path: str, modified: datetime, now: datetime, half_life_days: float, floor: float) -> float:
    """Return the decay factor of a file's chunks, `floor`..1. Both times are timezone-aware."""
    age = age_days(path, modified, now)
    return 1.0 if age is None else multiplier(age, half_life_days, floor)


def decayed(candidate: Candidate, decay: float) -> Candidate:
    """Return the candidate with its score multiplied by `decay`; its retriever scores do not change."""
    return candidate._replace(score=candidate.score * decay)
