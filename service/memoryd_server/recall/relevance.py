"""Which results of a search are relevant enough to insert before a turn without a request. No I/O.

The confidence of the search is relative to the words of the turn: "Thanks, sounds good!" is in many transcripts word
for word. So there must also be evidence: something in the turn that is more than conversation. In a memory of
conversations, one rare word in common is chance ("hang on a sec"), unless the turn is a question. The bounds were
measured with docs/search-quality.md, "Recall before a turn".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from memoryd_server.search import DateRange, Hit, SearchAnswer, SearchMode, dates_in

LEAST_EVIDENCE: Final = 0.5
"""The least sum of the inverse document frequencies of the words in a hit, relative to that of a word in one chunk."""
LEAST_WORDS: Final = 2
"""The least number of these words in one hit, if the turn is not a question."""
LEAST_NEARNESS: Final = 2.0
"""The least `SearchAnswer.nearness` without other evidence. It is a cosine on the model's scale: 1 is the least one of
an answer."""
LEAST_NEARNESS_TO_QUESTION: Final = 1.6
"""The same if the turn is a question."""
LEAST_ALL_WORDS: Final = 2
"""The least number of telling words, all of which a hit contains, that are evidence however frequent they are."""
MOST_DAYS: Final = 31
"""The most days of a date that is the only subject of a question."""


@dataclass(frozen=True, slots=True)
class LeastConfidence:
    """The least confidence of hybrid search, and of keyword search alone. If it is 0, any result is relevant."""

    hybrid: float
    keyword: float

    def of(self, answer: SearchAnswer) -> float:
        """Return the bound for an answer, by the searches that ran."""
        return self.keyword if answer.served_mode is SearchMode.KEYWORD else self.hybrid


def is_relevant(
    answer: SearchAnswer,
    least: LeastConfidence,
    names: frozenset[str],
    words: frozenset[str] = frozenset(),
    *,
    is_question: bool,
) -> bool:
    """Return whether an answer says something about a turn with these names and telling words, as in `Hit.words`.

    Words that tell nothing are stop words and those of conversation. A query for which no confidence is known is judged
    by the evidence alone.
    """
    bound = least.of(answer)
    if not answer.hits or (answer.confidence is not None and answer.confidence < bound):
        return False
    if not bound:
        return True
    least_nearness = LEAST_NEARNESS_TO_QUESTION if is_question else LEAST_NEARNESS
    if answer.nearness is not None and answer.nearness >= least_nearness:
        return True
    return any(_has_evidence(hit, names, words, 1 if is_question else LEAST_WORDS) for hit in answer.hits)


def past_dates(text: str, now: datetime) -> tuple[DateRange, ...]:
    """Return the ranges of days before today, of at most a month, that a question names."""
    today = now.date()
    return tuple(named for named in dates_in(text, now) if named.last < today and named.days <= MOST_DAYS)


def hits_of_dates(hits: Sequence[Hit], dates: Sequence[DateRange]) -> list[Hit]:
    """Return the hits that are dated within any of these ranges."""
    return [hit for hit in hits if any(named.first.isoformat() <= hit.day <= named.last.isoformat() for named in dates)]


def _has_evidence(hit: Hit, names: frozenset[str], words: frozenset[str], least_words: int) -> bool:
    has_rare_words = hit.evidence_words >= least_words and (hit.evidence or 0.0) >= LEAST_EVIDENCE
    # In a memory about one subject, its words are in every chunk and not rare.
    has_all_words = len(words) >= LEAST_ALL_WORDS and words.issubset(hit.words)
    return has_rare_words or has_all_words or bool(hit.identifiers) or not names.isdisjoint(hit.words)
