"""What time and variety do to a ranking. Pure: the time is an argument."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memoryd_server.search.config import RankingConfig
from memoryd_server.search.dates import boosted, dates_in
from memoryd_server.search.decay import day_of, decay_of, decayed
from memoryd_server.search.fusion import Candidate
from memoryd_server.search.mmr import diversified
from memoryd_server.store.rows import ChunkHead


@dataclass(frozen=True, slots=True)
class Reordered:
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
) -> Reordered:
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
    return Reordered(kept, decays)


def _decay(row: ChunkHead, now: datetime, ranking: RankingConfig) -> float:
    modified = datetime.fromtimestamp(row.mtime_ns / 1e9, UTC)
    return decay_of(row.path, modified, now, ranking.half_life_days, ranking.decay_floor)
