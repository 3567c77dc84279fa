"""How much is covered; abstain; empty reasons.

How much of a question a hit holds, and when that is too little to be an answer. Pure.

Why an answer is empty, in a word and in a sentence with what to do about it. Pure.
"""

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from memoryd_server.search.cutoff import CosineScale
from memoryd_server.search.keyword import KeywordAnswer
from memoryd_server.search.query import EmptyReason, SearchAnswer, SearchQuery
from memoryd_server.store import IndexCounts
from memoryd_server.text import QueryTerm, TermKind

# What coverage still counts where the index knows none of the names; measured in docs/search-quality.md.
_WITHOUT_NAMES = 0.2
_NEEDED = frozenset({TermKind.WORD, TermKind.GRAM})
_WORD = re.compile(r"[^\W_](?:[^\s]*[^\W_])?")
# What ends a sentence; the word after it is capitalised for no reason of its own.
_SENTENCE_END = re.compile("[.!?:;\u2026\u3002\uff01\uff1f\n]")


def smoothed_idf(frequency: int, chunks: int) -> float:
    """The inverse document frequency of a term that `frequency` of `chunks` hold; above 0, most where it is 0."""
    frequency = min(frequency, chunks)
    return math.log(1 + (chunks - frequency + 0.5) / (frequency + 0.5))


def weights(frequencies: Mapping[str, int], chunks: int) -> dict[str, float]:
    """The inverse document frequency of each term."""
    return {term: smoothed_idf(frequency, chunks) for term, frequency in frequencies.items()}


def alternatives(terms: Iterable[QueryTerm]) -> list[tuple[str, ...]]:
    """What a question cannot do without, a word each: its terms, of which a text needs one (stems by language)."""
    words: dict[str, list[str]] = {}
    for term in terms:
        if term.kind in _NEEDED:
            words.setdefault(term.original or term.text, []).append(term.text)
    return [tuple(found) for found in words.values()]


def coverage(
    found: Collection[str], idf_of: Mapping[str, float], words: Sequence[Collection[str]] | None = None
) -> float:
    """The IDF-weighted share of a query's words that a chunk holds, 0..1.

    `idf_of` holds every term of the query, those that the index has never seen included: they count in full. `words`
    are the `alternatives` where terms are not each a word of their own; a word weighs as much as its commonest term. A
    query without words is not covered.
    """
    if words is None:
        words = [(term,) for term in idf_of]
    weighed = [(min(idf_of.get(term, 0.0) for term in word), word) for word in words if word]
    total = sum(weight for weight, _ in weighed)
    held = sum(weight for weight, word in weighed if any(term in found for term in word))
    return min(1.0, held / total) if total > 0 else 0.0


def names_in(query: str) -> list[str]:
    """The capitalised words of a query that no sentence begins with, as they are written."""
    words = list(_WORD.finditer(query))
    return [
        word[0]
        for before, word in itertools.pairwise(words)
        if word[0][0].isupper() and not _SENTENCE_END.search(query, before.end(), word.start())
    ]


def known_names(query: str, terms_of: Callable[[str], Iterable[str]], frequencies: Mapping[str, int]) -> float:
    """The share of the query's names that the index knows, 0..1; 1 where there are none.

    A name is known when any of its terms stands in the index. `frequencies` holds all terms of the query without stop
    words, and a word with no term among them is none.
    """
    named = [[term for term in terms_of(name) if term in frequencies] for name in names_in(query)]
    known = [any(frequencies[term] > 0 for term in terms) for terms in named if terms]
    return sum(known) / len(known) if known else 1.0


def abstains(coverage: float, names: float, threshold: float) -> bool:
    """Whether the best hit covers too little of the query to be an answer. Never at a threshold of 0.

    Coverage counts a fifth where the index knows none of the names, so that a misspelt name alone empties no answer
    that holds most of the rest.
    """
    return coverage * (_WITHOUT_NAMES + (1 - _WITHOUT_NAMES) * names) < threshold


def empty_reason(
    answer: SearchAnswer,
    counts: IndexCounts,
    found: KeywordAnswer,
    query: SearchQuery,
    *,
    gone: int,
    abstained: bool,
    scale: CosineScale | None = None,
) -> tuple[EmptyReason, str]:
    """Return why an answer is empty, and the explanation. `scale` is the default cut's; None if it used none."""
    if counts.chunks == 0:
        return EmptyReason.EMPTY_INDEX, "nothing is indexed for this agent yet; call Sync, or look at Status"
    if abstained:
        share = f"{answer.coverage or 0:.2f}"
        return EmptyReason.ABSTAINED, f"the best hit covers {share} of the question, less than memoryd.abstainBelow"
    if gone:
        return EmptyReason.FILES_GONE, f"{gone} hits were in files that have since been removed or replaced"
    if answer.dropped_by_min_score:
        return EmptyReason.FILTERED_BY_SCORE, _dropped(answer.dropped_by_min_score, query.min_score, scale)
    if not found.terms:
        return EmptyReason.NO_MATCH, f"no word of the query stands in the {counts.files} indexed files"
    return EmptyReason.NO_MATCH, f"none of {', '.join(found.terms)} stands in the sources that were searched"


def _dropped(hits: int, min_score: float | None, scale: CosineScale | None) -> str:
    if min_score is not None:
        return f"{hits} hits score below min_score {min_score:g}; lower it to see them"
    least = "the default least score" if scale is None else f"{scale.least:.2f}, the least cosine by default"
    return f"none of {hits} hits reaches {least}; set min_score, for example to 0, to see them"
