"""Maximal marginal relevance: hits that repeat better ones move down. Pure."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from memoryd_server.search.fusion import Candidate

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
