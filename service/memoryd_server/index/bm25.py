"""What SQLite's BM25 weighs a term by."""

import math

# As in SQLite's fts5_aux.c, fts5Bm25GetData.
_LEAST_IDF = 1e-6


def idf(frequency: int, chunks: int) -> float:
    """The inverse document frequency of a term in `frequency` of `chunks` chunks, never below 1e-6."""
    value = math.log((chunks - frequency + 0.5) / (frequency + 0.5))
    return value if value > 0 else _LEAST_IDF
