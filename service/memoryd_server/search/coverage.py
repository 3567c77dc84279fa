"""Coverage: how much of a query a hit contains, when that is too little to answer, and why an answer is empty. Pure."""

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from memoryd_server.search.cutoff import CosineScale
from memoryd_server.search.query import EmptyReason, SearchAnswer, SearchQuery
from memoryd_server.search.retrieval import RetrievalResult
from memoryd_server.store import ALL_FILES, IndexCounts
from memoryd_server.text import QueryTerm, TermKind

# The factor for coverage if the index contains none of the query's names; measured in docs/search-quality.md.
_WITHOUT_NAMES = 0.2
# See `hybrid_confidence`. A nearness of 1 is the least cosine of an answer; larger values than 4 are as good as 4.
_BIAS, _KEYWORD_COEFFICIENT, _NEARNESS_COEFFICIENT = -4.9, 17.5, 1.6
_MOST_NEARNESS = 4.0
# Slightly less than the narrowest known scale.
_LEAST_WIDTH = 0.019
_REQUIRED_KINDS = frozenset({TermKind.WORD, TermKind.GRAM})
_WORD = re.compile(r"[^\W_](?:[^\s]*[^\W_])?")
# The end of a sentence. The word after it is capitalised whether it is a name or not.
_SENTENCE_END = re.compile("[.!?:;\u2026\u3002\uff01\uff1f\n]")


def smoothed_idf(frequency: int, chunks: int) -> float:
    """Return the inverse document frequency of a term in `frequency` of `chunks` chunks; always above 0."""
    frequency = min(frequency, chunks)
    return math.log(1 + (chunks - frequency + 0.5) / (frequency + 0.5))


def weights(frequencies: Mapping[str, int], chunks: int) -> dict[str, float]:
    """Return the smoothed inverse document frequency of each term."""
    return {term: smoothed_idf(frequency, chunks) for term, frequency in frequencies.items()}


def alternatives(terms: Iterable[QueryTerm]) -> list[tuple[str, ...]]:
    """Return, for each required word of a query, its terms (stems by language). A text needs one of them."""
    words: dict[str, list[str]] = {}
    for term in terms:
        if term.kind in _REQUIRED_KINDS:
            words.setdefault(term.original or term.text, []).append(term.text)
    return [tuple(stems) for stems in words.values()]


def coverage(
    found: Collection[str], idf_of: Mapping[str, float], words: Sequence[Collection[str]] | None = None
) -> float:
    """Return the IDF-weighted share of a query's words that a chunk contains, 0..1; 0 for a query without words.

    `found` are the query's terms in the chunk. `idf_of` has every term of the query, also those that the index does not
    contain, which count in full. `words` are the `alternatives` of the query; None if each term is a separate word. A
    word has the weight of its most frequent term.
    """
    if words is None:
        words = [(term,) for term in idf_of]
    return WeightedWords(idf_of, words).coverage(found)


class WeightedWords:
    """The words of a query, each with the inverse document frequency of its most frequent term."""

    def __init__(self, idf_of: Mapping[str, float], words: Sequence[Collection[str]]) -> None:
        self._words = [(min(idf_of.get(term, 0.0) for term in word), frozenset(word)) for word in words if word]
        self._total = sum(weight for weight, _ in self._words)

    def information(self, found: Collection[str]) -> tuple[float, int]:
        """Return the sum of the inverse document frequencies of the words that a chunk contains, and their number."""
        weights = [weight for weight, word in self._words if not word.isdisjoint(found)]
        return sum(weights), len(weights)

    def coverage(self, found: Collection[str]) -> float:
        """Return the share of all words that a chunk contains, by inverse document frequency; 0 without words."""
        return min(1.0, self.information(found)[0] / self._total) if self._total > 0 else 0.0


def names_in(query: str) -> list[str]:
    """Return the capitalised words of a query that do not begin a sentence, as they are written."""
    words = list(_WORD.finditer(query))
    return [
        word[0]
        for before, word in itertools.pairwise(words)
        if word[0][0].isupper() and not _SENTENCE_END.search(query, before.end(), word.start())
    ]


def known_names(query: str, terms_of: Callable[[str], Iterable[str]], frequencies: Mapping[str, int]) -> float:
    """Return the share of the query's names that the index contains, 0..1; 1 for a query without names.

    The index contains a name if it contains any of the name's terms. `frequencies` has all terms of the query except
    stop words; a capitalised word with none of these terms is not counted as a name.
    """
    terms_by_name = [[term for term in terms_of(name) if term in frequencies] for name in names_in(query)]
    known = [any(frequencies[term] > 0 for term in terms) for terms in terms_by_name if terms]
    return sum(known) / len(known) if known else 1.0


def keyword_confidence(coverage: float, names: float) -> float:
    """Return how likely it is that the memory answers a query, 0..1, if keyword search alone answers.

    `coverage` is the largest of a hit, `names` the result of `known_names`.

    Coverage counts a fifth if the index contains none of the names, so that a misspelt name does not empty an answer
    that covers most of the other words.
    """
    return coverage * (_WITHOUT_NAMES + (1 - _WITHOUT_NAMES) * names)


def hybrid_confidence(keyword: float, cosine: float, scale: CosineScale) -> float | None:
    """Return how likely it is that the memory answers a query, 0..1, if both retrievers answer.

    `keyword` is the `keyword_confidence`, `cosine` that of the nearest chunk, `scale` the model's. The coefficients are
    those of a logistic regression; see docs/search-quality.md, "Returning no results". None if the scale does not
    distinguish cosines: the vectors of an unknown model are not measured yet, or the index has only similar chunks.
    """
    near = nearness(cosine, scale)
    if near is None:
        return None
    return 1 / (1 + math.exp(-(_BIAS + _KEYWORD_COEFFICIENT * keyword + _NEARNESS_COEFFICIENT * near)))


def nearness(cosine: float, scale: CosineScale) -> float | None:
    """Return a cosine on the model's scale, limited to 0..4: 0 for an unrelated text, 1 for the least one of an answer.

    None if the scale does not distinguish cosines.
    """
    width = scale.least - scale.unrelated
    return None if width < _LEAST_WIDTH else min(_MOST_NEARNESS, max(0.0, (cosine - scale.unrelated) / width))


def empty_reason(
    answer: SearchAnswer,
    counts: IndexCounts,
    retrieved: RetrievalResult,
    query: SearchQuery,
    *,
    gone: int,
    abstained: bool,
    scale: CosineScale | None = None,
) -> tuple[EmptyReason, str]:
    """Return why an answer is empty: the reason, and a sentence that says what to do.

    `gone` is the number of hits whose files are missing. `scale` is that of the default cutoff; None if it used none.
    """
    if counts.chunks == 0:
        return EmptyReason.EMPTY_INDEX, "nothing is indexed for this agent yet; call Sync, or check Status"
    if abstained:
        least = "the setting memoryd.abstainBelow" if query.abstain_below is None else "abstain_below of the request"
        return EmptyReason.ABSTAINED, f"the confidence is {answer.confidence or 0:.2f}, below {least}"
    if gone:
        return EmptyReason.FILES_GONE, f"{gone} hits were in files that have since been removed or replaced"
    if answer.dropped_by_min_score:
        return EmptyReason.FILTERED_BY_SCORE, _explain_cutoff(answer.dropped_by_min_score, query, scale)
    return EmptyReason.NO_MATCH, _explain_no_match(retrieved, query, counts)


def _explain_no_match(retrieved: RetrievalResult, query: SearchQuery, counts: IndexCounts) -> str:
    terms = retrieved.keyword.terms
    if retrieved.nothing_selected and query.origins:
        return "no indexed text matches the filter and has one of the permitted origins"
    if retrieved.nothing_selected and query.files != ALL_FILES:
        return "no indexed file matches the filter; remove one of its conditions"
    if not terms:
        return f"none of the query's words occur in the {counts.files} indexed files"
    place = "the sources that were searched" if query.files == ALL_FILES else "the files that match the filter"
    return f"none of {', '.join(terms)} occurs in {place}"


def _explain_cutoff(hits: int, query: SearchQuery, scale: CosineScale | None) -> str:
    if query.min_score is not None:
        name = "min_score" if query.min_score_is_requested else "the setting memory.search.query.minScore,"
        return f"{hits} hits score below {name} {query.min_score:g}; lower it to see them"
    least = "the default least score" if scale is None else f"{scale.least:.2f}, the default least cosine"
    return f"none of {hits} hits reaches {least}; set min_score, for example to 0, to see them"
