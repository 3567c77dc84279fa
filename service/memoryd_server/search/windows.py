"""Windows: the few consecutive lines of a chunk that match a query best, and their value. Pure.

BM25 compares whole chunks, in which unrelated words of the query count together. A window is about as long as an
answer, so its value distinguishes a line that has several words of the query from a chunk that has them far apart. The
score of keyword search is two thirds BM25 and one third the best window, each as a share of the best of the query.
Between shares of .3 and .5 for the window, results hardly differ.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from memoryd_server.search.query import Candidate, fused_score
from memoryd_server.store import ChunkRow
from memoryd_server.text import Analyzer, LineMatches, WordFinder

MIN_CHARS: Final = 250
"""A window has the fewest lines with at least this many characters, from a line with a word of the query on."""
MOST_READ: Final = 20
"""The number of candidates whose windows are compared."""
WINDOW_WEIGHT: Final = 1 / 3
"""The share of the best window in the score of keyword search."""

# The constants of BM25, with windows in place of documents.
_K1 = 1.2
_B = 0.75


class LineMatcher:
    """Finds the words of one query in the lines of chunks. Each text is searched once, however often it is needed."""

    def __init__(self, analyzer: Analyzer, words: Sequence[str], prefixes: Sequence[str]) -> None:
        self.words = words
        self.prefixes = prefixes
        self._analyzer = analyzer
        self._finders: dict[str, WordFinder] = {}
        self._found: dict[tuple[str, str], LineMatches] = {}

    def finder(self, language: str) -> WordFinder:
        """Return the finder of the words in texts of this language."""
        finder = self._finders.get(language)
        if finder is None:
            finder = self._finders[language] = self._analyzer.finder(self.words, self.prefixes, language)
        return finder

    def lines(self, row: ChunkRow) -> LineMatches:
        """Return the words of the query in each line of a chunk that has any."""
        return self.lines_of([row])[0]

    def lines_of(self, rows: Sequence[ChunkRow]) -> list[LineMatches]:
        """Return what `lines` returns for each of these chunks, at less cost."""
        missing: dict[str, dict[str, None]] = {}
        for row in rows:
            if (row.language, row.text) not in self._found:
                missing.setdefault(row.language, {})[row.text] = None
        for language, texts in missing.items():
            for text, found in zip(texts, self.finder(language).lines([*texts]), strict=True):
                self._found[language, text] = found
        return [self._found[row.language, row.text] for row in rows]

    def terms(self, row: ChunkRow) -> set[str]:
        """Return the words and prefixes of the query that a chunk or its headings contain."""
        found = {word for words in self.lines(row).words.values() for word in words}
        found.update(self.finder(row.language)(row.breadcrumb))
        return found | {prefix for prefix in self.prefixes if any(word.startswith(prefix) for word in found)}


def window_scores(rows: Sequence[ChunkRow], matcher: LineMatcher, weights: Mapping[str, float]) -> dict[int, float]:
    """Return the value of each chunk's best window as a share of the best, 0..1, by chunk; empty if all are 0.

    `weights` has the inverse document frequency of the terms that the index contains. The value of a window is BM25's
    sum over these terms, with the mean length of the query's windows as the mean length of a document.
    """
    terms = _KnownTerms(weights, [prefix for prefix in matcher.prefixes if prefix in weights])
    windows = [_windows(found, terms) for found in matcher.lines_of(rows)]
    lengths = [chars for each in windows for chars, _ in each]
    if not lengths:
        return {}
    per_char = _K1 * _B * len(lengths) / sum(lengths)
    best = [
        max((_value(counts, _K1 * (1 - _B) + per_char * chars, weights) for chars, counts in each), default=0.0)
        for each in windows
    ]
    highest = max(best)
    return {row.id: value / highest for row, value in zip(rows, best, strict=True)} if highest > 0 else {}


def _value(counts: Mapping[str, int], length: float, weights: Mapping[str, float]) -> float:
    """Return BM25 without its constant factor, which every value has."""
    value = 0.0
    for term, count in counts.items():
        value += weights[term] * count / (count + length)
    return value


class _KnownTerms:
    """Finds the terms of `weights` that words stand for; a word stands for each of `prefixes` that it begins with."""

    def __init__(self, weights: Mapping[str, float], prefixes: Sequence[str]) -> None:
        self._weights = weights
        self._prefixes = prefixes

    def of(self, words: Sequence[str]) -> list[str]:
        """Return the terms of these words, as often as they occur."""
        if not self._prefixes:
            return [word for word in words if word in self._weights]
        exact = [word for word in words if word in self._weights and word not in self._prefixes]
        return exact + [prefix for prefix in self._prefixes for word in words if word.startswith(prefix)]


def _windows(found: LineMatches, known: _KnownTerms) -> list[tuple[int, dict[str, int]]]:
    """Return the length and the terms of the window that begins at each line with a term.

    Each line is added to the counts and removed from them once.
    """
    matches = [(line, terms) for line, words in found.words.items() if (terms := known.of(words))]
    if not matches:
        return []
    ends = found.line_ends
    last_line = len(ends) - 1
    windows: list[tuple[int, dict[str, int]]] = []
    counts: dict[str, int] = {}
    added = 0
    for first, first_terms in matches:
        start = ends[first - 1] if first else 0
        last = min(bisect_left(ends, start + MIN_CHARS), last_line)
        while added < len(matches) and matches[added][0] <= last:
            for term in matches[added][1]:
                counts[term] = counts.get(term, 0) + 1
            added += 1
        windows.append((ends[last] - start, counts.copy()))
        for term in first_terms:
            counts[term] -= 1
            if not counts[term]:
                del counts[term]
    return windows


def with_windows(candidates: Sequence[Candidate], windows: Mapping[int, float], vector_share: float) -> list[Candidate]:
    """Return the candidates with their windows, and with scores that contain them; `windows` is by chunk.

    The window of a chunk that was not read is estimated: its BM25 share times the lowest ratio of window to BM25 share
    among the chunks that were read, limited to 1. So an unread chunk never has a higher ratio than one that was read.
    """
    if not windows:
        return list(candidates)
    ratios = (windows[c.chunk_id] / c.text_score for c in candidates if c.text_score and c.chunk_id in windows)
    least = min(1.0, min(ratios, default=1.0))

    rescored = []
    for chunk_id, _, bm25, cosine, keyword_rank, vector_rank, *_ in candidates:
        share = bm25 or 0.0
        window = windows.get(chunk_id, least * share)
        text = (1 - WINDOW_WEIGHT) * share + WINDOW_WEIGHT * window
        score = fused_score(cosine, text, vector_share)
        # `_replace` costs more than twice as much.
        rescored.append(Candidate(chunk_id, score, bm25, cosine, keyword_rank, vector_rank, window))
    return rescored
