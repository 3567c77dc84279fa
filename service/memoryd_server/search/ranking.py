"""Fusion, decay, MMR; pure.

Legs merged into one ranking. Pure.

The score is the weighted mean of the legs that found something (retrieval study, step 2): cosine similarity from the
vector leg, and BM25 as a share of the best from the keyword leg, so that its order is kept and its scale is 0..1. A leg
that found something and did not return a chunk still has an opinion of it: its true cosine or BM25, where the caller
knows it.

What time and variety do to a ranking. Pure: the time is an argument.

Maximal marginal relevance: hits that repeat better ones move down. Pure.

How much a note's age takes from its score. Pure.

A daily log is as old as the day in its name, other text as its file; what is kept on purpose without a date does not
age.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from types import MappingProxyType

from memoryd_server.search.dates import boosted, dates_in
from memoryd_server.search.query import Candidate, RankingConfig, _clamped, text_score
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


@dataclass(frozen=True, slots=True)
class Reranked:
    """Candidates, best first, and what decay left of each, by chunk; empty when decay is off."""

    candidates: list[Candidate]
    decays: Mapping[int, float]


def reorder(
    candidates: Sequence[Candidate],
    heads: Callable[[], Mapping[int, ChunkHead]],
    *,
    query: str,
    now: datetime,
    ranking: RankingConfig,
    texts_of: Callable[[Sequence[int]], Mapping[int, str]],
    words_of: Callable[[str], Collection[str]],
) -> Reranked:
    """Losses for age, gains for dates that the query names, and variety, in this order; each only where it applies.

    `heads` is asked where time counts, for the paths and times of the candidates, `texts_of` where variety does, for
    their texts; those that have none are dropped.
    """
    kept = list(candidates)
    decays: dict[int, float] = {}
    ranges = dates_in(query, now)
    if ranking.decay or ranges:
        known = heads()
        kept = [candidate for candidate in candidates if candidate.chunk_id in known]
        if ranking.decay:
            decays = {c.chunk_id: _decay(known[c.chunk_id], now, ranking) for c in kept}
            kept = sorted((decayed(c, decays[c.chunk_id]) for c in kept), key=lambda c: -c.score)
        # After decay, which would take back what a date that the query names has gained.
        kept = boosted(kept, {c.chunk_id: day_of(known[c.chunk_id].path) for c in kept}, ranges)
    if ranking.mmr:
        texts = texts_of([c.chunk_id for c in kept])
        kept = [candidate for candidate in kept if candidate.chunk_id in texts]
        kept = diversified(kept, texts, ranking.mmr_lambda, words_of)
    return Reranked(kept, decays)


def _decay(row: ChunkHead, now: datetime, ranking: RankingConfig) -> float:
    modified = datetime.fromtimestamp(row.mtime_ns / 1e9, UTC)
    return decay_of(row.path, modified, now, ranking.half_life_days, ranking.decay_floor)


_WORD = re.compile("[a-z0-9_]+")


def reference_words(text: str) -> list[str]:
    """The words that the reference compares: lower-case ASCII letters, digits and underscores."""
    return _WORD.findall(text.lower())


def diversified(
    candidates: Sequence[Candidate],
    texts: Mapping[int, str],
    trade_off: float,
    words_of: Callable[[str], Collection[str]] = reference_words,
) -> list[Candidate]:
    """The same candidates, each next one the best by `trade_off` x relevance - (1 - `trade_off`) x likeness.

    Relevance is the score's place between the lowest and the highest; likeness is the largest share of words that the
    candidate has in common with any before it. `trade_off` is the setting `lambda`, taken within 0..1; 1 ranks
    by score alone. `texts` is by chunk. Equals are settled by score, then by order. O(n^2) set comparisons.
    """
    trade_off = min(1.0, max(0.0, trade_off))
    left = sorted(candidates, key=lambda candidate: -candidate.score)
    if trade_off == 1 or not left:
        return left
    words = {candidate.chunk_id: frozenset(words_of(texts.get(candidate.chunk_id, ""))) for candidate in left}
    highest, lowest = left[0].score, left[-1].score
    likeness = dict.fromkeys(words, 0.0)
    chosen: list[Candidate] = []

    def value(candidate: Candidate) -> float:
        relevance = (candidate.score - lowest) / (highest - lowest) if highest > lowest else 1.0
        return trade_off * relevance - (1 - trade_off) * likeness[candidate.chunk_id]

    while left:
        # The first of equals has the best score: `left` is in that order.
        best = max(left, key=value)
        left.remove(best)
        chosen.append(best)
        for candidate in left:
            alike = jaccard(words[best.chunk_id], words[candidate.chunk_id])
            likeness[candidate.chunk_id] = max(likeness[candidate.chunk_id], alike)
    return chosen


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of their words that two texts have in common, 0..1; two texts without words are alike."""
    either = len(one | other)
    return len(one & other) / either if either else 1.0


_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])")
_LONG_TERM = ("MEMORY.md", "memory.md")
_SECONDS_A_DAY = 86_400


def day_of(path: str) -> date | None:
    """The day that a file under `memory/` is named after: `YYYY-MM-DD`, whatever follows; None if there is none."""
    named = _dated(path)
    try:
        return date(*map(int, named.groups())) if named else None
    except ValueError:
        return None


def _dated(path: str) -> re.Match[str] | None:
    """Return the year, month and day that the name of a file below a `memory` folder begins with, as written."""
    slash = path.rfind("/")
    named = _DAY.match(path, slash + 1) if slash >= 0 else None
    return named if named and (path.startswith("memory/") or path.find("/memory/", 0, slash + 1) >= 0) else None


def is_evergreen(path: str) -> bool:
    """Whether a file is the long-term memory or one under `memory/` that is not named like a day."""
    path = path.removeprefix("./")
    return path in _LONG_TERM or (path.startswith("memory/") and not _dated(path))


def age_days(path: str, modified: datetime, now: datetime) -> float | None:
    """Days, fractions included, from a file's day (its midnight, UTC) or its last change until `now`; negative ahead.

    None for a file that does not age: an evergreen one, and one under `memory/` whose name is no day of any calendar.
    """
    day = day_of(path)
    if day is None and (is_evergreen(path) or _dated(path)):
        return None
    since = modified if day is None else datetime.combine(day, time(), UTC)
    return (now - since).total_seconds() / _SECONDS_A_DAY


def multiplier(age: float, half_life_days: float, floor: float = 0.0) -> float:
    """Halves once per `half_life_days` of `age` in days, never below `floor`; 0 is the reference's.

    1 for an age that is no number or below zero (a clock set back, a note dated tomorrow), so that no score is raised,
    and for a half-life of nothing.
    """
    if not (math.isfinite(age) and age > 0 and half_life_days > 0):
        return 1.0
    return max(min(floor, 1.0), math.exp(-math.log(2) / half_life_days * age))


def decay_of(path: str, modified: datetime, now: datetime, half_life_days: float, floor: float) -> float:
    """What is left of the score of a file's chunks, `floor`..1. Both times are aware."""
    age = age_days(path, modified, now)
    return 1.0 if age is None else multiplier(age, half_life_days, floor)


def decayed(candidate: Candidate, decay: float) -> Candidate:
    """The candidate with what `decay` leaves of its score; what the legs gave it stays."""
    return candidate._replace(score=candidate.score * decay)
