"""Candidates into hits: read, merge, share, cite.

The chunks that a search shows, read when it comes to them: of a hundred candidates it looks at ten.

Neighbouring chunks of one file shown as one hit, where together they are no longer than a chunk of Latin text. Pure.

A chunk is bounded in tokens, and a character of Chinese or Japanese is a token: four such chunks hold as much text as
one in English. Shown apart, the parts of one passage would take the places of others.

Shares the places of an answer between sources, so that neither crowds the other out. Pure.

The injection budget: how much text all snippets together may hold. Pure.

What a hit shows of its chunk: the part that answers, and how much of the question the chunk holds.

Citations: how a line range is named, and how a snippet carries the name. Pure.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from memoryd_server.model import Source
from memoryd_server.search.coverage import alternatives, coverage, weights
from memoryd_server.search.keyword import KeywordAnswer
from memoryd_server.search.query import Candidate, Hit
from memoryd_server.search.retrieval import AnalyzedQuery
from memoryd_server.search.snippet import Snippet, best_snippet, cut_text
from memoryd_server.store import ChunkRow, Reader
from memoryd_server.text import Analyzer, WordFinder

# Whether the file of each of these chunks is still there, and as it was when it was indexed: (there, unchanged).
FileCheck = Callable[[Sequence[ChunkRow]], Sequence[tuple[bool, bool]]]

# As many as a search with the default number of results looks at, mostly.
_AT_ONCE = 8


class CheckedRow(NamedTuple):
    """A chunk, and what its file is like."""

    row: ChunkRow
    there: bool
    unchanged: bool


class LazyRows:
    """Rows of the chunks `ids`, which will be asked for in about this order, with a look at their files."""

    def __init__(self, reader: Reader, ids: Sequence[int], check: FileCheck) -> None:
        self._reader = reader
        self._ids = ids
        self._check = check
        self._found: dict[int, CheckedRow | None] = {}

    def get(self, chunk_id: int) -> CheckedRow | None:
        """One of them; None where the index holds no such chunk."""
        if chunk_id not in self._found:
            start = self._ids.index(chunk_id)
            some = self._ids[start : start + _AT_ONCE]
            rows = list(self._reader.chunks(some).values())
            self._found |= dict.fromkeys(some)
            self._found |= {row.id: CheckedRow(row, *seen) for row, seen in zip(rows, self._check(rows), strict=True)}
        return self._found[chunk_id]


Ranked = tuple[Candidate, ChunkRow]


def merged(ranked: Sequence[Ranked], max_chars: int) -> list[Ranked]:
    """The ranking with each chunk joined to a better one that it touches or overlaps, up to `max_chars` code points.

    A joined hit keeps the score, the ranks and the id of its best chunk.
    """
    kept: list[Ranked] = []
    for candidate, row in ranked:
        for place, (better, other) in enumerate(kept):
            union = _union(other, row, max_chars)
            if union is not None:
                kept[place] = (better, union)
                break
        else:
            kept.append((candidate, row))
    return kept


def _union(one: ChunkRow, other: ChunkRow, max_chars: int) -> ChunkRow | None:
    """Both as one chunk; None when they are apart, too long together, of a transcript, or not made of whole lines."""
    if one.path != other.path or one.source is not other.source or one.line_numbers or other.line_numbers:
        return None
    first, second = sorted((one, other), key=lambda row: (row.start_line, row.end_line))
    if second.start_line > first.end_line + 1 or len(one.text) + len(other.text) > 2 * max_chars:
        return None
    if not (_is_whole(first) and _is_whole(second)):
        return None
    new = max(0, first.end_line - second.start_line + 1)
    text = "\n".join([first.text, *second.text.split("\n")[new:]])
    if len(text) > max_chars:
        return None
    end_line = max(first.end_line, second.end_line)
    return one._replace(start_line=first.start_line, end_line=end_line, text=text, breadcrumb=first.breadcrumb)


def _is_whole(row: ChunkRow) -> bool:
    """Whether the text has a line for each line of the range; a chunk of a line that was cut has not."""
    return row.text.count("\n") == row.end_line - row.start_line


_T = TypeVar("_T")


def reserved(most: int) -> int:
    """How many of `most` places each source has for itself: a third, and one at least of two or more."""
    return max(1, most // 3) if most > 1 else 0


def shared(by_source: Mapping[Source, Sequence[tuple[int, _T]]], most: int) -> list[_T]:
    """The `most` best of all, but of each source as many as are reserved for it, where it has them.

    Each source's hits come with their rank among all, best first; so does the answer.
    """
    own = reserved(most)
    certain = sorted(hit for hits in by_source.values() for hit in _ranks(hits[:own]))[:most]
    others = sorted(hit for hits in by_source.values() for hit in _ranks(hits[own:]))
    chosen = {*certain, *others[: most - len(certain)]}
    ranked = {rank: hit for hits in by_source.values() for rank, hit in hits if rank in chosen}
    return [ranked[rank] for rank in sorted(ranked)]


def _ranks(hits: Sequence[tuple[int, _T]]) -> list[int]:
    return [rank for rank, _ in hits]


def within_budget(hits: Sequence[Hit], max_total_chars: int | None) -> tuple[Hit, ...]:
    """Whole snippets while they fit; the first that does not is cut and ends the list."""
    if max_total_chars is None:
        return tuple(hits)
    kept: list[Hit] = []
    room = max_total_chars
    for hit in hits:
        if len(hit.snippet) > room:
            if room > 0:
                kept.append(_shortened(hit, room))
            break
        kept.append(hit)
        room -= len(hit.snippet)
    return tuple(kept)


def _shortened(hit: Hit, room: int) -> Hit:
    text = cut_text(hit.snippet, room)
    last = min(hit.snippet_end_line, hit.snippet_start_line + text.count("\n"))
    return replace(hit, snippet=text, snippet_end_line=last)


@dataclass(frozen=True, slots=True)
class RenderedHit:
    """A snippet, and the share of the question's words that the chunk holds; None where the question has none."""

    snippet: Snippet
    coverage: float | None


class HitRenderer:
    """Looks at the hits of one question, each in its file's language."""

    def __init__(self, analyzer: Analyzer, question: AnalyzedQuery, found: KeywordAnswer) -> None:
        self._analyzer = analyzer
        self._question = question
        self._found = found
        self._words = [term.text for term in question.terms]
        self._prefixes = [term.text for term in question.terms if term.prefix]
        self._needed = alternatives(question.terms)
        # SQLite's own weights vanish in a small index; these do not.
        self._weights = weights(found.frequencies, max(found.chunk_count, 1))
        self._finders: dict[str, WordFinder] = {}

    def show(self, row: ChunkRow) -> RenderedHit:
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
            return RenderedHit(snippet, None)
        return RenderedHit(snippet, coverage(held, self._weights, self._needed))


def _held(words: Sequence[str], prefixes: Sequence[str]) -> Collection[str]:
    """The words of a chunk, and the prefixes that begin one of them."""
    held = set(words)
    return held | {prefix for prefix in prefixes if any(word.startswith(prefix) for word in held)}


def citation(path: str, start_line: int, end_line: int) -> str:
    """`path#L12-L30`, or `path#L12` for one line."""
    return f"{path}#L{start_line}" if start_line == end_line else f"{path}#L{start_line}-L{end_line}"


def cited(snippet: str, name: str) -> str:
    """The snippet, a blank line, and where it comes from."""
    return f"{snippet.rstrip()}\n\nSource: {name}"
