"""SQLite's BM25, computed here for chunks that the keyword leg did not return.

Asking SQLite for a few given rows (`MATCH ... AND rowid IN (...)`) costs more than the whole search did.
"""

import math
from collections.abc import Mapping, Sequence

from memoryd_server.index.reader import IndexReader
from memoryd_server.index.vocabulary import Vocabulary
from memoryd_server.text import Analyzer, QueryTerm

BODY_WEIGHT = 1.0
CONTEXT_WEIGHT = 0.5

# As in SQLite's fts5_aux.c, fts5Bm25Function.
_K1 = 1.2
_B = 0.75
_LEAST_IDF = 1e-6


def idf(frequency: int, chunks: int) -> float:
    """The inverse document frequency of a term in `frequency` of `chunks` chunks, never below 1e-6."""
    value = math.log((chunks - frequency + 0.5) / (frequency + 0.5))
    return value if value > 0 else _LEAST_IDF


def frequency_of(term: QueryTerm, vocabulary: Vocabulary) -> int:
    """In how many chunks a term stands, or begins another where it is a prefix."""
    return vocabulary.prefix_frequency(term.text) if term.prefix else vocabulary.frequency(term.text)


def score_chunks(
    reader: IndexReader, analyzer: Analyzer, terms: Sequence[QueryTerm], ids: Sequence[int]
) -> dict[int, float]:
    """The BM25 of each of these chunks for these terms, as SQLite would give it: negative, and 0 where none stands.

    `terms` are those that were searched (`KeywordAnswer.searched`). Unknown ids are left out. Costs the analysis of the
    chunks' texts, some 50 microseconds each.
    """
    vocabulary = reader.vocabulary
    totals = vocabulary.totals()
    weights = {term: idf(frequency_of(term, vocabulary), totals.chunks) for term in terms}
    average = totals.tokens / totals.chunks if totals.chunks else 0.0
    return {chunk.id: -_score(weights, *chunk.tokens(analyzer), average) for chunk in reader.chunk_words(ids)}


def _score(weights: Mapping[QueryTerm, float], body: str, context: str, average: float) -> float:
    words, around = body.split(), context.split()
    norm = _K1 * (1 - _B + _B * (len(words) + len(around)) / average)
    total = 0.0
    for term, weight in weights.items():
        frequency = BODY_WEIGHT * _count(term, words) + CONTEXT_WEIGHT * _count(term, around)
        total += weight * frequency * (_K1 + 1) / (frequency + norm)
    return total


def _count(term: QueryTerm, tokens: Sequence[str]) -> int:
    return sum(token.startswith(term.text) for token in tokens) if term.prefix else tokens.count(term.text)
