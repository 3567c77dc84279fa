"""Maximal marginal relevance (MMR): the order of candidates in which texts that repeat better ones move down. Pure."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from memoryd_server.search.query import Candidate

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
    similarity with a candidate before it. `diversity` of a candidate is its (1 - `trade_off`) x similarity. `trade_off`
    is the setting `lambda`, limited to 0..1; 1 ranks by score alone. `texts` is by chunk. Ties are broken by score,
    then by order. O(n^2) set comparisons.
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
        chosen.append(best._replace(diversity=(1 - trade_off) * similarity[best.chunk_id]))
        for candidate in remaining:
            to_best = jaccard(words[best.chunk_id], words[candidate.chunk_id])
            similarity[candidate.chunk_id] = max(similarity[candidate.chunk_id], to_best)
    return chosen


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets of words, 0..1; 1 for two empty sets."""
    union = len(one | other)
    return len(one & other) / union if union else 1.0
