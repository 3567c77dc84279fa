"""What a hit shows of its chunk: the part that answers, and how much of the question the chunk holds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from memoryd_server.index.keyword import KeywordAnswer
from memoryd_server.index.rows import ChunkRow
from memoryd_server.search.coverage import alternatives, coverage, weights
from memoryd_server.search.legs import Question
from memoryd_server.search.snippet import Snippet, best_snippet
from memoryd_server.text import Analyzer


@dataclass(frozen=True, slots=True)
class Shown:
    """A snippet, and the share of the question's words that the chunk holds; None where the question has none."""

    snippet: Snippet
    coverage: float | None


class Shower:
    """Looks at chunks with the analyzer that indexed them."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer

    def show(self, row: ChunkRow, question: Question, found: KeywordAnswer) -> Shown:
        """The part of the chunk that answers the question."""

        def words_of(text: str) -> Sequence[str]:
            return self._analyzer.index_tokens(text, row.language).split()

        prefixes = [term.text for term in question.terms if term.prefix]
        snippet = best_snippet(
            row.text,
            row.start_line,
            [term.text for term in question.terms],
            words_of,
            question.query.max_snippet_chars,
            weights=found.idf,
            prefixes=prefixes,
        )
        if not found.frequencies:
            return Shown(snippet, None)
        held = _held(words_of(f"{row.text} {row.breadcrumb}"), prefixes)
        # SQLite's own weights vanish in a small index; these do not.
        of_terms = weights(found.frequencies, max(found.chunk_count, 1))
        return Shown(snippet, coverage(held, of_terms, alternatives(question.terms)))


def _held(words: Sequence[str], prefixes: Sequence[str]) -> Collection[str]:
    """The words of a chunk, and the prefixes that begin one of them."""
    held = set(words)
    return held | {prefix for prefix in prefixes if any(word.startswith(prefix) for word in held)}
