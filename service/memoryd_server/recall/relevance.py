"""When the results of a search say something about a turn, which nobody has asked the memory about. Pure.

The confidence of the search is relative to the words of the turn: "Thanks, sounds good!" is in many transcripts word
for word. So there must also be evidence: something in the turn that is more than conversation. The bounds were measured
with docs/search-quality.md, "Recall before a turn".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memoryd_server.search import Hit, SearchAnswer, SearchMode

LEAST_EVIDENCE: Final = 0.5
"""The least sum of the inverse document frequencies of the words in a hit, relative to that of a word in one chunk."""
LEAST_NEARNESS: Final = 1.6
"""The least nearness of the nearest chunk, if the turn shares no word with it that is evidence."""


@dataclass(frozen=True, slots=True)
class LeastConfidence:
    """The least confidence of hybrid search, and of keyword search alone. If it is 0, any result is relevant."""

    hybrid: float
    keyword: float


def is_relevant(answer: SearchAnswer, least: LeastConfidence, names: frozenset[str]) -> bool:
    """Return whether an answer says something about a turn with these names, in the form of `Hit.words`.

    A query for which no confidence is known is judged by the evidence alone.
    """
    bound = least.keyword if answer.served_mode is SearchMode.KEYWORD else least.hybrid
    if not answer.hits or (answer.confidence is not None and answer.confidence < bound):
        return False
    return not bound or _has_evidence(answer.hits, answer.nearness, names)


def _has_evidence(hits: Sequence[Hit], nearness: float | None, names: frozenset[str]) -> bool:
    return (nearness is not None and nearness >= LEAST_NEARNESS) or any(
        hit.identifiers or (hit.evidence or 0.0) >= LEAST_EVIDENCE or not names.isdisjoint(hit.words) for hit in hits
    )
