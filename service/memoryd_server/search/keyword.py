"""The keyword retriever: the terms of a query that are searched, and the chunks with the best BM25.

The query's terms become a bounded OR query. The bounds keep long queries fast. They cost no recall where they were
measured; for MAX_CHUNKS_RANKED, see docs/decisions/0037-frequent-words-rank-and-do-not-find.md.
"""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from memoryd_server.store import ALL_FILES, ChunkFilter, KeywordHit, Reader
from memoryd_server.text import QueryTerm, TermKind

# As in SQLite's fts5_aux.c, fts5Bm25GetData.
_LEAST_IDF = 1e-6

# The rarest words are searched, up to this number.
MAX_WORDS = 8
MAX_WORDS_IN_LARGE_INDEX = 6
LARGE_INDEX_CHUNKS = 50_000

# More words are searched while the words searched occur in no more than this number of chunks in total.
MAX_CHUNKS_OF_EXTRA_WORDS = 4_000
MAX_TERMS = 40

# Chunks are found by the rarest words, which occur in no more than this number of chunks in total, and by more words if
# these find too few. The other words are only looked up in the best chunks found, at a fifth of the cost.
MAX_CHUNKS_RANKED = 30_000
_FOUND_FACTOR = 2
_LEAST_FOUND_FACTOR = 8

# A word that the index does not contain is searched within its names if the word has at least this length.
MIN_FRAGMENT_LENGTH = 4
MAX_NAMES_PER_FRAGMENT = 30


@dataclass(frozen=True, slots=True)
class KeywordAnswer:
    """Candidates, best first, and the terms that found them.

    `terms` are the words of the query that the index contains, without those that the bounds left out. `searched` are
    the terms that ranked the hits, with the names found for fragments. `idf` has the inverse document frequency of
    every term of the query and of these names; a term that the index does not contain has the highest. `frequencies`
    has the number of chunks, of `chunk_count`, that contain each of them. `is_full` is true if the limit was reached,
    so that other chunks may contain terms too.
    """

    hits: tuple[KeywordHit, ...]
    terms: tuple[str, ...]
    searched: tuple[QueryTerm, ...] = ()
    idf: Mapping[str, float] = field(default_factory=dict)
    frequencies: Mapping[str, int] = field(default_factory=dict)
    chunk_count: int = 0
    is_full: bool = False

    def combine(self, other: "KeywordAnswer") -> "KeywordAnswer":
        """Return this answer together with an answer to the same query from another source."""
        return replace(
            self,
            hits=tuple(sorted((*self.hits, *other.hits), key=lambda hit: hit.bm25)),
            searched=tuple(dict.fromkeys((*self.searched, *other.searched))),
            is_full=self.is_full or other.is_full,
        )


def idf(frequency: int, chunks: int) -> float:
    """Return the inverse document frequency of a term in `frequency` of `chunks` chunks, never below 1e-6."""
    value = math.log((chunks - frequency + 0.5) / (frequency + 0.5))
    return value if value > 0 else _LEAST_IDF


def search(
    reader: Reader,
    terms: Sequence[QueryTerm],
    among: ChunkFilter,
    *,
    enough: int,
    limit: int,
    chunk_count: int,
    max_chunks_ranked: int = MAX_CHUNKS_RANKED,
) -> KeywordAnswer:
    """Return at most `limit` chunks that contain any of `terms`. Each term is quoted, so no text is FTS5 syntax.

    Terms that occur in half the chunks or more are searched only if the others find fewer than `enough` chunks: SQLite
    gives such a term an inverse document frequency of 1e-6, so it does not affect the ranking, and it costs the most.
    The rarest words of all chunks may not occur in those that a filter leaves. If they find fewer than `enough`, the
    rarest `MAX_TERMS` terms are searched.
    """
    counts = reader.frequencies(terms)
    # A guessed term that does not occur in the index is not evidence about the query.
    terms = [term for term in terms if term.kind is not TermKind.GUESS or counts[term]]
    frequencies = {term: counts[term] for term in terms}
    chosen = choose_terms(terms, frequencies, chunk_count)
    searched = [term for term in chosen if 2 * frequencies[term] < chunk_count]
    names = _names_with_fragments(terms, frequencies, reader)
    if names:
        searched += names
        frequencies |= reader.frequencies(names)

    def best_hits() -> list[KeywordHit]:
        counted = {term: frequencies[term] for term in searched}
        return _best_hits(reader, counted, among, limit, max_chunks_ranked)

    hits = best_hits()
    if len(hits) < enough and not set(chosen) <= set(searched):
        searched = list(dict.fromkeys((*chosen, *searched)))
        hits = best_hits()
    if len(hits) < enough and (among.files != ALL_FILES or among.origins):
        known = sorted((term for term in terms if frequencies[term]), key=frequencies.__getitem__)[:MAX_TERMS]
        if not set(known) <= set(searched):
            searched = list(dict.fromkeys((*searched, *known)))
            hits = best_hits()
    keyword_chunks = reader.keyword_chunks()
    return KeywordAnswer(
        hits=tuple(hits),
        terms=tuple(term.text for term in chosen),
        searched=tuple(searched),
        idf={term.text: idf(frequency, keyword_chunks) for term, frequency in frequencies.items()},
        frequencies={term.text: frequency for term, frequency in frequencies.items()},
        chunk_count=chunk_count,
        is_full=len(hits) >= limit,
    )


def _best_hits(
    reader: Reader, terms: Mapping[QueryTerm, int], among: ChunkFilter, limit: int, max_chunks_ranked: int
) -> list[KeywordHit]:
    """Return the best `limit` chunks of those found by the rarest terms, ranked by all terms.

    `terms` are given with the number of chunks that contain each, in the whole index. If the rarest find fewer than
    `limit` of the chunks that the filter leaves, all terms find chunks.
    """
    rarest_first = sorted(terms, key=terms.__getitem__)
    totals = list(itertools.accumulate(map(terms.__getitem__, rarest_first)))
    finding = max(bisect_right(totals, max_chunks_ranked), bisect_left(totals, _LEAST_FOUND_FACTOR * limit) + 1)
    if finding >= len(terms):
        return reader.keyword_hits(list(terms), among, limit)
    found = reader.keyword_hits(rarest_first[:finding], among, _FOUND_FACTOR * limit)
    if len(found) < limit:
        return reader.keyword_hits(list(terms), among, limit)
    more = reader.keyword_scores(rarest_first[finding:], [hit.chunk_id for hit in found])
    hits = [KeywordHit(hit.chunk_id, hit.bm25 + more[hit.chunk_id]) for hit in found]
    return sorted(hits, key=lambda hit: (hit.bm25, hit.chunk_id))[:limit]


def choose_terms(
    terms: Sequence[QueryTerm], frequencies: Mapping[QueryTerm, int], chunk_count: int
) -> tuple[QueryTerm, ...]:
    """Return the terms of the rarest words that the index contains, in the query's order.

    The stems of one word count as one word; names, which are few and rare, do not count.
    """
    words: dict[str, list[QueryTerm]] = {}
    for term in terms:
        if frequencies.get(term, 0) > 0:
            words.setdefault(term.original or term.text, []).append(term)
    rarest_first = sorted(words.values(), key=lambda group: sum(frequencies[term] for term in group))
    chosen = _within_bounds(rarest_first, frequencies, chunk_count)
    return tuple(dict.fromkeys(term for term in terms if term in chosen))


def _within_bounds(
    rarest_first: Sequence[Sequence[QueryTerm]], frequencies: Mapping[QueryTerm, int], chunk_count: int
) -> set[QueryTerm]:
    max_words = MAX_WORDS_IN_LARGE_INDEX if chunk_count > LARGE_INDEX_CHUNKS else MAX_WORDS
    chosen: set[QueryTerm] = set()
    words = chunks = 0
    for group in rarest_first:
        words += group[0].kind in {TermKind.WORD, TermKind.GRAM}
        chunks += sum(frequencies[term] for term in group)
        if (words > max_words and chunks > MAX_CHUNKS_OF_EXTRA_WORDS) or len(chosen) + len(group) > MAX_TERMS:
            break
        chosen.update(group)
    return chosen


def _names_with_fragments(
    terms: Sequence[QueryTerm], frequencies: Mapping[QueryTerm, int], reader: Reader
) -> list[QueryTerm]:
    """Return names that contain a word of the query which the index does not contain: it may be part of a symbol."""
    indexed = {term.original for term, frequency in frequencies.items() if frequency > 0}
    fragments = dict.fromkeys(
        term.original
        for term in terms
        if term.original not in indexed and len(term.original) >= MIN_FRAGMENT_LENGTH and term.kind is not TermKind.GRAM
    )
    names = dict.fromkeys(
        name for fragment in fragments for name in reader.names_containing(fragment.strip("_"), MAX_NAMES_PER_FRAGMENT)
    )
    return [QueryTerm(name, kind=TermKind.GUESS, original=name) for name in list(names)[:MAX_NAMES_PER_FRAGMENT]]
