"""Which terms to search; BM25 hits.

The keyword leg: plain words into a bounded OR query, ranked by BM25.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from memoryd_server.model import Source
from memoryd_server.store import KeywordHit, Reader
from memoryd_server.text import QueryTerm, TermKind

# As in SQLite's fts5_aux.c, fts5Bm25GetData.
_LEAST_IDF = 1e-6


def idf(frequency: int, chunks: int) -> float:
    """The inverse document frequency of a term in `frequency` of `chunks` chunks, never below 1e-6."""
    value = math.log((chunks - frequency + 0.5) / (frequency + 0.5))
    return value if value > 0 else _LEAST_IDF


# Bounds that cost no recall and keep a long question fast; measured in the design of the keyword leg.
MOST_WORDS = 8
MOST_WORDS_IN_A_LARGE_INDEX = 6
LARGE_INDEX_CHUNKS = 50_000

# More words than that are searched as long as they are rare: together in at most so many chunks.
MOST_CHUNKS_OF_MORE_WORDS = 4_000
MOST_TERMS = 40

# A word that the index does not hold is looked for within its names, when it is long enough to tell one.
SHORTEST_PIECE = 4
MOST_NAMES_OF_A_PIECE = 30


@dataclass(frozen=True, slots=True)
class KeywordAnswer:
    """Candidates, best first, and what was searched.

    `terms` are the words of the question that the index holds, less those that its bounds left out; `searched` those
    that ranked the hits, with the names found for words that are cut short. `idf` weighs every word of the question,
    by its text: one that the index does not hold weighs the most. `frequencies` are the chunks that hold each, of
    `chunk_count`. `is_full` tells that there was room for no more hits, so that others may hold terms, too.
    """

    hits: tuple[KeywordHit, ...]
    terms: tuple[str, ...]
    searched: tuple[QueryTerm, ...] = ()
    idf: Mapping[str, float] = field(default_factory=dict)
    frequencies: Mapping[str, int] = field(default_factory=dict)
    chunk_count: int = 0
    is_full: bool = False

    def and_also(self, other: "KeywordAnswer") -> "KeywordAnswer":
        """This answer and one to the same question about another source."""
        return replace(
            self,
            hits=tuple(sorted((*self.hits, *other.hits), key=lambda hit: hit.bm25)),
            searched=tuple(dict.fromkeys((*self.searched, *other.searched))),
            is_full=self.is_full or other.is_full,
        )


def search(
    reader: Reader,
    terms: Sequence[QueryTerm],
    sources: Sequence[Source],
    *,
    enough: int,
    limit: int,
    chunk_count: int,
) -> KeywordAnswer:
    """At most `limit` chunks that hold any of the terms. The user's text is never FTS5 syntax: each term is quoted.

    Terms of half the chunks or more are searched only when the others find fewer than `enough`: SQLite gives such a
    term an inverse document frequency of 1e-6, so it ranks nothing, and it costs the most.
    """
    held = reader.frequencies(terms)
    # A guess that the index does not know says nothing of the question.
    terms = [term for term in terms if term.kind is not TermKind.GUESS or held[term]]
    frequencies = {term: held[term] for term in terms}
    chosen = choose_terms(terms, frequencies, chunk_count)
    telling = [term for term in chosen if 2 * frequencies[term] < chunk_count]
    telling += _names_of_pieces(terms, frequencies, reader)
    hits = reader.keyword_hits(telling, sources, limit)
    if len(hits) < enough and not set(chosen) <= set(telling):
        telling = list(dict.fromkeys((*chosen, *telling)))
        hits = reader.keyword_hits(telling, sources, limit)
    indexed = reader.keyword_chunks()
    weights = {term.text: idf(frequency, indexed) for term, frequency in frequencies.items()}
    counts = {term.text: frequency for term, frequency in frequencies.items()}
    names = tuple(term.text for term in chosen)
    return KeywordAnswer(tuple(hits), names, tuple(telling), weights, counts, chunk_count, len(hits) >= limit)


def choose_terms(
    terms: Sequence[QueryTerm], frequencies: Mapping[QueryTerm, int], chunk_count: int
) -> tuple[QueryTerm, ...]:
    """The terms of the rarest words that the index holds, in the query's order.

    The stems of one word count as one, and names, which are few and rare, as none.
    """
    words: dict[str, list[QueryTerm]] = {}
    for term in terms:
        if frequencies.get(term, 0) > 0:
            words.setdefault(term.original or term.text, []).append(term)
    ranked = sorted(words.values(), key=lambda group: sum(frequencies[term] for term in group))
    kept = _within_bounds(ranked, frequencies, chunk_count)
    return tuple(dict.fromkeys(term for term in terms if term in kept))


def _within_bounds(
    ranked: Sequence[Sequence[QueryTerm]], frequencies: Mapping[QueryTerm, int], chunk_count: int
) -> set[QueryTerm]:
    most = MOST_WORDS_IN_A_LARGE_INDEX if chunk_count > LARGE_INDEX_CHUNKS else MOST_WORDS
    kept: set[QueryTerm] = set()
    words = chunks = 0
    for group in ranked:
        words += group[0].kind in {TermKind.WORD, TermKind.GRAM}
        chunks += sum(frequencies[term] for term in group)
        if (words > most and chunks > MOST_CHUNKS_OF_MORE_WORDS) or len(kept) + len(group) > MOST_TERMS:
            break
        kept.update(group)
    return kept


def _names_of_pieces(
    terms: Sequence[QueryTerm], frequencies: Mapping[QueryTerm, int], reader: Reader
) -> list[QueryTerm]:
    """Names that hold a word of the question which the index does not know: perhaps a symbol of which an end is cut."""
    held = {term.original for term, frequency in frequencies.items() if frequency > 0}
    pieces = dict.fromkeys(
        term.original
        for term in terms
        if term.original not in held and len(term.original) >= SHORTEST_PIECE and term.kind is not TermKind.GRAM
    )
    found = [name for piece in pieces for name in reader.names_containing(piece.strip("_"), MOST_NAMES_OF_A_PIECE)]
    names = list(dict.fromkeys(found))[:MOST_NAMES_OF_A_PIECE]
    return [QueryTerm(name, kind=TermKind.GUESS, original=name) for name in names]
