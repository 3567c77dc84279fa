"""What SQLite's BM25 weighs a term by."""

import math

from memoryd_server.index.vocabulary import Vocabulary
from memoryd_server.text import QueryTerm

# As in SQLite's fts5_aux.c, fts5Bm25GetData.
_LEAST_IDF = 1e-6


def idf(frequency: int, chunks: int) -> float:
    """The inverse document frequency of a term in `frequency` of `chunks` chunks, never below 1e-6."""
    value = math.log((chunks - frequency + 0.5) / (frequency + 0.5))
    return value if value > 0 else _LEAST_IDF


def frequency_of(term: QueryTerm, vocabulary: Vocabulary) -> int:
    """In how many chunks a term stands, or begins another where it is a prefix."""
    return vocabulary.prefix_frequency(term.text) if term.prefix else vocabulary.frequency(term.text)
