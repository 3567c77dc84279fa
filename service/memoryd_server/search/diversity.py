"""The order of candidates that repeat one another: a penalty for neighbours, and maximal marginal relevance. Pure.

Adjacent chunks of one file are about the same subject, and often overlap. The penalty moves a chunk down for each
better chunk that is adjacent to it, so that adjacent chunks do not take the places of other files. It changes the order
only.
Chunks that are short enough to be shown as one hit take one place together, so they are not penalised.

Maximal marginal relevance (MMR) compares the words of the texts. It replaces the penalty if the settings enable it.
"""

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from memoryd_server.search.merging import union
from memoryd_server.search.query import Candidate
from memoryd_server.store import ChunkRow

KEYWORD_PENALTY: Final = 0.08
"""The penalty per adjacent chunk if keyword search alone answers."""
VECTOR_PENALTY: Final = 0.05
"""The penalty per adjacent chunk if vector search answers or takes part."""


def spread(
    candidates: Sequence[Candidate], rows: Mapping[int, ChunkRow], penalty: float, places: int, merged_chars: int
) -> list[Candidate]:
    """Return the candidates with the first `places` chosen one after another by score - `penalty` x adjacent chunks.

    Adjacent chunks are those of the same file, chosen before, that are next to the chunk or touch its lines, and that
    are not merged with it into a hit of `merged_chars`. `adjacent` of a chosen candidate is its penalty. The other
    candidates follow in their order. A candidate without a row is adjacent to none. Ties are broken by order.
    """
    chosen: list[Candidate] = []
    chosen_in: defaultdict[tuple[str, str], list[ChunkRow]] = defaultdict(list)

    def penalty_of(chunk_id: int) -> float:
        row = rows.get(chunk_id)
        if row is None:
            return 0.0
        adjacent = (other for other in chosen_in[row.source, row.path] if are_adjacent(row, other))
        return penalty * sum(union(other, row, merged_chars) is None for other in adjacent)

    # A penalty only grows, so the first of the heap whose value is current has the best value of all.
    heap = [(-candidate.score, place) for place, candidate in enumerate(candidates)]
    heapq.heapify(heap)
    while heap and len(chosen) < places:
        value, place = heap[0]
        candidate = candidates[place]
        paid = penalty_of(candidate.chunk_id)
        if paid - candidate.score > value:
            heapq.heapreplace(heap, (paid - candidate.score, place))
            continue
        heapq.heappop(heap)
        chosen.append(candidate._replace(adjacent=paid) if paid else candidate)
        row = rows.get(candidate.chunk_id)
        if row is not None:
            chosen_in[row.source, row.path].append(row)
    taken = {candidate.chunk_id for candidate in chosen}
    return chosen + [candidate for candidate in candidates if candidate.chunk_id not in taken]


def are_adjacent(one: ChunkRow, other: ChunkRow) -> bool:
    """Return whether two chunks of the same file follow one another or have touching or common lines.

    The chunks of a file have consecutive ids, except those of a transcript that was read in several parts.
    """
    if abs(one.id - other.id) == 1:
        return True
    first, second = (one, other) if one.start_line <= other.start_line else (other, one)
    return second.start_line <= first.end_line + 1


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
