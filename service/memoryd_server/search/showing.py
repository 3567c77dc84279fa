"""What a hit shows of its chunk: the part that answers, and how much of the question the chunk holds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from memoryd_server.index.keyword import KeywordAnswer
from memoryd_server.search.coverage import alternatives, coverage, weights
from memoryd_server.search.legs import Question
from memoryd_server.search.snippet import Snippet, best_snippet
from memoryd_server.store.rows import ChunkRow
from memoryd_server.text import Analyzer, WordFinder


@dataclass(frozen=True, slots=True)
class Shown:
    """A snippet, and the share of the question's words that the chunk holds; None where the question has none."""

    snippet: Snippet
    coverage: float | None


class Shower:
    """Looks at the hits of one question, each in its file's language."""

    def __init__(self, analyzer: Analyzer, question: Question, found: KeywordAnswer) -> None:
        self._analyzer = analyzer
        self._question = question
        self._found = found
        self._words = [term.text for term in question.terms]
        self._prefixes = [term.text for term in question.terms if term.prefix]
        self._needed = alternatives(question.terms)
        # SQLite's own weights vanish in a small index; these do not.
        self._weights = weights(found.frequencies, max(found.chunk_count, 1))
        self._finders: dict[str, WordFinder] = {}

    def show(self, row: ChunkRow) -> Shown:
        """The part of the chunk that answers the question."""
        finder = self._finders.get(row.language)
        if finder is None:
            finder = self._analyzer.finder(self._words, self._prefixes, row.language)
            self._finders[row.language] = finder
        held = _held(finder(f"{row.text} {row.breadcrumb}"), self._prefixes)
        snippet = best_snippet(
            row.text,
            1 if row.line_numbers else row.start_line,
            self._words,
            finder.in_part,
            self._question.query.max_snippet_chars,
            weights=self._found.idf,
            prefixes=self._prefixes,
        )
        if row.line_numbers:
            first, last = (row.line_numbers[line - 1] for line in (snippet.start_line, snippet.end_line))
            snippet = replace(snippet, start_line=first, end_line=last)
        if not self._found.frequencies:
            return Shown(snippet, None)
        return Shown(snippet, coverage(held, self._weights, self._needed))


def _held(words: Sequence[str], prefixes: Sequence[str]) -> Collection[str]:
    """The words of a chunk, and the prefixes that begin one of them."""
    held = set(words)
    return held | {prefix for prefix in prefixes if any(word.startswith(prefix) for word in held)}
