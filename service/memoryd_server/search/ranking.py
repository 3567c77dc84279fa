"""The ranking of candidates: fusion, annotations, decay by age, and dates that the query names. Pure.

Fusion: the score is the weighted mean of the retrievers that found something: the cosine of the vector retriever, and
the BM25 of the keyword retriever as a share of the best BM25, which keeps its order and has the scale 0..1. If a
retriever found something but did not return a chunk, its true cosine or BM25 of the chunk counts, if the caller
provides it. The best candidates are then read, and their best windows count as well (`windows`).

Annotations: an importance of n multiplies the score by .75 + .05 n, so 5 is neutral. If the query names active
projects, a chunk whose projects are all active counts 1.15 times, one with any other project .9 times.

Decay: the age of a daily log is that of the day in its name, the age of other text that of its file. Evergreen files do
not age.

Dates: a chunk dated within or near a range of days that the query names gains up to .8 (`dates`).

Scores above 1 keep their order, and are limited to 1 in the results.
"""

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from types import MappingProxyType

from memoryd_server.search.dates import DateRange, gain_of
from memoryd_server.search.query import Candidate, RankingConfig, fused_score, text_score
from memoryd_server.search.windows import MOST_READ, with_windows
from memoryd_server.sources import day_of, match_day
from memoryd_server.store import ChunkHead, KeywordHit, VectorHit

_NONE: Mapping[int, float] = MappingProxyType({})
_score_of = operator.attrgetter("score")


def fuse(
    keyword: Sequence[KeywordHit] | None,
    vector: Sequence[VectorHit] | None = None,
    *,
    vector_weight: float = 0.7,
    text_weight: float = 0.3,
    true_cosine: Mapping[int, float] = _NONE,
    true_bm25: Mapping[int, float] = _NONE,
    others: Iterable[int] = (),
) -> list[Candidate]:
    """Return the candidates of both retrievers, best first. Hits are best first; None if a retriever did not run.

    A retriever that found nothing counts as not run: 0 for every chunk distinguishes none, and would only lower the
    other's scores. `others` are chunks that no retriever returned. `true_cosine` has cosines of chunks that the vector
    retriever did not return, `true_bm25` the BM25 of chunks that the keyword retriever did not return; a missing value
    counts as 0. BM25 is SQLite's: negative, smaller is better. Weights are relative to the sum of the weights that
    count; if it is 0, both count equally. Equal scores keep the keyword retriever's order, then the vector retriever's.
    """
    by_keyword = {hit.chunk_id: (rank, hit.bm25) for rank, hit in enumerate(keyword or (), 1)}
    by_vector = {hit.chunk_id: (rank, hit.cosine) for rank, hit in enumerate(vector or (), 1)}
    best = min((bm25 for _, bm25 in by_keyword.values()), default=0.0)
    share = vector_share(vector_weight, text_weight, has_keyword=bool(by_keyword), has_vector=bool(by_vector))
    candidates = []
    for chunk_id in dict.fromkeys((*by_keyword, *by_vector, *others)):
        keyword_rank, bm25 = by_keyword.get(chunk_id) or (None, true_bm25.get(chunk_id))
        vector_rank, cosine = by_vector.get(chunk_id) or (None, true_cosine.get(chunk_id))
        # Without keyword hits there is no best BM25 to take a share of.
        text = text_score(bm25, best) if by_keyword and bm25 is not None else None
        score = fused_score(cosine, text, share)
        candidates.append(Candidate(chunk_id, score, text, cosine, keyword_rank, vector_rank))
    return best_first(candidates)


def best_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates by their score, best first. Equal scores keep their order."""
    return sorted(candidates, key=_score_of, reverse=True)


def vector_share(vector_weight: float, text_weight: float, *, has_keyword: bool, has_vector: bool) -> float:
    """Return the vector retriever's share of the score; the arguments say which of the retrievers found something."""
    if not (has_keyword and has_vector):
        return 1.0 if has_vector else 0.0
    total = vector_weight + text_weight
    return vector_weight / total if total > 0 else 0.5


@dataclass(frozen=True, slots=True)
class Ranked:
    """Candidates, best first, and by chunk the factors of decay and of annotations that were applied.

    `vector_share` is the vector retriever's share of the scores before these factors.
    """

    candidates: list[Candidate]
    decays: Mapping[int, float]
    annotation_factors: Mapping[int, float]
    vector_share: float


@dataclass(frozen=True, slots=True)
class Adjustments:
    """What a chunk's file, annotations and day do to its score, by chunk; a missing factor is 1, a missing gain 0.

    `known` are the ids of the chunks that exist in the index, None if this was not looked up.
    """

    decays: Mapping[int, float]
    annotation_factors: Mapping[int, float]
    gains: Mapping[int, float]
    known: Collection[int] | None

    def ranked(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the known candidates with adjusted scores, best first. Equal scores keep their order.

        The score of a date is added last, because decay would reduce it.
        """
        if self.known is not None:
            candidates = [self._adjusted(candidate) for candidate in candidates if candidate.chunk_id in self.known]
        return best_first(candidates)

    def _adjusted(self, candidate: Candidate) -> Candidate:
        chunk_id = candidate.chunk_id
        factor = self.annotation_factors.get(chunk_id, 1.0) * self.decays.get(chunk_id, 1.0)
        gain = self.gains.get(chunk_id, 0.0)
        return candidate._replace(score=candidate.score * factor + gain, date=gain)


NO_ADJUSTMENTS = Adjustments({}, {}, {}, None)


def adjustments(
    heads: Mapping[int, ChunkHead],
    ranges: Sequence[DateRange],
    now: datetime,
    ranking: RankingConfig,
    active_projects: Collection[str] = frozenset(),
) -> Adjustments:
    """Return the adjustments of these chunks. `ranges` are the dates that the query names."""
    gains = {chunk_id: gain_of(day_of_chunk(head), ranges) for chunk_id, head in heads.items()} if ranges else {}
    return Adjustments(
        {chunk_id: _decay(head, now, ranking) for chunk_id, head in heads.items()} if ranking.decay else {},
        _annotation_factors(heads, active_projects),
        {chunk_id: gain for chunk_id, gain in gains.items() if gain},
        heads.keys(),
    )


def day_of_chunk(head: ChunkHead) -> date | None:
    """Return the day of a chunk or, if it has none, of its file.

    If the index has neither, because an older version built it, the day is that in the file's name.
    """
    return head.day or day_of(head.path)


def rank(
    candidates: Sequence[Candidate],
    adjusted: Adjustments,
    windows_of: Callable[[Sequence[int]], Mapping[int, float]],
    vector_share: float,
) -> Ranked:
    """Return the candidates with windows and adjustments in their scores, best first.

    `windows_of` is called with the best candidates, and returns the values of their windows; see `with_windows`. None
    are compared if keyword search found nothing.
    """
    ranked = adjusted.ranked(candidates)
    if any(candidate.text_score for candidate in candidates):
        windows = windows_of([candidate.chunk_id for candidate in ranked[:MOST_READ]])
        if windows:
            ranked = adjusted.ranked(with_windows(candidates, windows, vector_share))
    return Ranked(ranked, adjusted.decays, adjusted.annotation_factors, vector_share)


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


def _decay(head: ChunkHead, now: datetime, ranking: RankingConfig) -> float:
    modified = datetime.fromtimestamp(head.mtime_ns / 1e9, UTC)
    return decay_of(head.path, modified, now, ranking.half_life_days, ranking.decay_floor)


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
