"""Candidates into hits: read the rows, check the files, merge, share places between sources, render and cite."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from memoryd_server.model import Source
from memoryd_server.search.coverage import WeightedWords, alternatives, smoothed_idf, weights
from memoryd_server.search.keyword import KeywordAnswer
from memoryd_server.search.neighbours import RankedRow, merged_into
from memoryd_server.search.query import Candidate, Hit, clamp
from memoryd_server.search.ranking import Ranked
from memoryd_server.search.retrieval import AnalyzedQuery
from memoryd_server.search.score_parts import score_parts
from memoryd_server.search.snippet import Snippet, TermMatcher, best_snippet, cut_text
from memoryd_server.search.windows import LineMatcher
from memoryd_server.store import ChunkHead, ChunkRow, Reader
from memoryd_server.text import QueryTerm, TermKind

FileCheck = Callable[[Sequence[ChunkRow]], Sequence[tuple[bool, bool]]]
"""Returns for each chunk whether its file exists, and whether the file is as it was when it was indexed."""

# Shorter numbers are in many texts by chance.
_LEAST_DIGITS = 4
# Years have four digits.
_LEAST_DIGITS_OF_IDENTIFIER = 5

# Rows are read in batches of this size: about the number that a search with the default number of results needs.
_BATCH_SIZE = 8


class CheckedRow(NamedTuple):
    """A chunk, whether its file exists, and whether the file is unchanged since it was indexed."""

    row: ChunkRow
    exists: bool
    unchanged: bool


class RowCache:
    """The rows of one index snapshot, each read once."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._rows: dict[int, ChunkRow | None] = {}

    def get(self, ids: Sequence[int]) -> list[ChunkRow]:
        """Return the rows of these chunks, in this order; those that the index does not have are left out."""
        missing = [chunk_id for chunk_id in ids if chunk_id not in self._rows]
        if missing:
            self._rows |= dict.fromkeys(missing)
            self._rows |= self._reader.chunks(missing)
        return [row for chunk_id in ids if (row := self._rows[chunk_id]) is not None]


class LazyRows:
    """The rows of the chunks `ids`, checked in batches when they are needed, in about this order.

    A search needs about ten of a hundred candidates.
    """

    def __init__(self, cache: RowCache, ids: Sequence[int], check: FileCheck) -> None:
        self._cache = cache
        self._ids = ids
        self._check = check
        self._rows: dict[int, CheckedRow | None] = {}

    def get(self, chunk_id: int) -> CheckedRow | None:
        """Return a row; None if the index has no such chunk."""
        if chunk_id not in self._rows:
            start = self._ids.index(chunk_id)
            batch = self._ids[start : start + _BATCH_SIZE]
            rows = self._cache.get(batch)
            self._rows |= dict.fromkeys(batch)
            self._rows |= {row.id: CheckedRow(row, *state) for row, state in zip(rows, self._check(rows), strict=True)}
        return self._rows[chunk_id]


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """The rows of an answer, best first.

    `stale` is whether a file has changed since it was indexed; `gone` is the number of candidates without their file.
    """

    rows: list[RankedRow]
    stale: bool
    gone: int


def select(
    ranked: Sequence[Candidate],
    rows: LazyRows,
    max_results: int,
    merged_chars: int,
    heads: Mapping[int, ChunkHead] | None = None,
) -> SelectedRows:
    """Return the best `max_results` candidates whose files exist, with adjacent chunks merged.

    If `heads` is given, places are reserved for the hits of each source; see `reserved`.
    """
    if heads is None:
        return _select(ranked, rows, max_results, merged_chars)
    rank = {candidate.chunk_id: number for number, candidate in enumerate(ranked)}
    by_source: dict[Source, list[Candidate]] = {source: [] for source in Source}
    for candidate in ranked:
        if candidate.chunk_id in heads:
            by_source[heads[candidate.chunk_id].source].append(candidate)
    selected = {source: _select(part, rows, max_results, merged_chars) for source, part in by_source.items()}
    with_ranks = {
        source: [(rank[candidate.chunk_id], (candidate, row)) for candidate, row in part.rows]
        for source, part in selected.items()
    }
    return SelectedRows(
        shared(with_ranks, max_results),
        any(part.stale for part in selected.values()),
        sum(part.gone for part in selected.values()),
    )


def _select(ranked: Sequence[Candidate], rows: LazyRows, max_results: int, merged_chars: int) -> SelectedRows:
    # One row more than `max_results` is selected, because it may still merge with a better one.
    selected: list[RankedRow] = []
    stale, gone = False, 0
    for candidate in ranked:
        checked = rows.get(candidate.chunk_id)
        if checked is None:
            continue
        stale = stale or not checked.unchanged
        gone += not checked.exists
        if checked.exists:
            selected = merged_into(selected, candidate, checked.row, merged_chars)
        if len(selected) > max_results:
            break
    return SelectedRows(selected[:max_results], stale, gone)


_T = TypeVar("_T")


def reserved(places: int) -> int:
    """Return how many of `places` are reserved for each source: a third, but at least one of two or more."""
    return max(1, places // 3) if places > 1 else 0


def shared(by_source: Mapping[Source, Sequence[tuple[int, _T]]], places: int) -> list[_T]:
    """Return the best `places` hits, best first, with the reserved places of each source filled from that source.

    Each source's hits are given with their rank among all hits, best first.
    """
    own = reserved(places)
    reserved_ranks = sorted(rank for hits in by_source.values() for rank, _ in hits[:own])[:places]
    other_ranks = sorted(rank for hits in by_source.values() for rank, _ in hits[own:])
    chosen = {*reserved_ranks, *other_ranks[: places - len(reserved_ranks)]}
    by_rank = {rank: hit for hits in by_source.values() for rank, hit in hits if rank in chosen}
    return [by_rank[rank] for rank in sorted(by_rank)]


def best_rows(rows: Sequence[RankedRow], places: int, *, share: bool) -> list[RankedRow]:
    """Return the first `places` of the ranked rows. With `share`, each source has its reserved places."""
    if not share:
        return list(rows[:places])
    by_source: dict[Source, list[tuple[int, RankedRow]]] = {}
    for rank, (candidate, row) in enumerate(rows):
        by_source.setdefault(row.source, []).append((rank, (candidate, row)))
    return shared(by_source, places)


@dataclass(frozen=True, slots=True)
class RenderedHit:
    """A snippet, the words of the query that the chunk contains, and their shares; see `Hit`.

    The shares are None if keyword search did not run or the query has no words.
    """

    snippet: Snippet
    words: tuple[str, ...]
    coverage: float | None = None
    evidence: float | None = None
    evidence_words: int = 0
    identifiers: tuple[str, ...] = ()


class HitRenderer:
    """Renders the hits of one query, each in the language of its file."""

    def __init__(self, analyzed: AnalyzedQuery, keyword: KeywordAnswer, matcher: LineMatcher) -> None:
        self._query = analyzed.query
        self._keyword = keyword
        self._matcher = matcher
        self._terms = TermMatcher(matcher.words, keyword.idf, matcher.prefixes)
        # SQLite's weights are near 0 in a small index; these are not.
        idf_of = weights(keyword.frequencies, max(keyword.chunk_count, 1))
        self._required = WeightedWords(idf_of, alternatives(analyzed.terms))
        self._rarest = smoothed_idf(1, max(keyword.chunk_count, 1))
        evident = (term for term in analyzed.terms if _is_evident(term, self._query.common_words))
        self._evident = WeightedWords(idf_of, alternatives(evident))
        self._identifiers = [term.text for term in analyzed.terms if _is_identifier(term)]
        self._originals = {term.text: term.original or term.text for term in analyzed.terms}

    def render(self, row: ChunkRow) -> RenderedHit:
        """Return the part of the chunk that answers the query best, cited if requested, and the chunk's coverage."""
        matcher = self._matcher
        # Before `in_part`, which looks only for the words that these calls find.
        words, found = matcher.lines(row).words, matcher.terms(row)
        snippet = best_snippet(
            row.text,
            1 if row.line_numbers else row.start_line,
            self._terms,
            matcher.finder(row.language).in_part,
            self._query.max_snippet_chars,
            line_words=words,
        )
        if row.line_numbers:
            first, last = (row.line_numbers[line - 1] for line in (snippet.start_line, snippet.end_line))
            snippet = replace(snippet, start_line=first, end_line=last)
        if self._query.citations:
            snippet = replace(snippet, text=cited(snippet.text, citation(row.path, row.start_line, row.end_line)))
        shown = tuple(dict.fromkeys(word for term, word in self._originals.items() if term in found))
        if not self._keyword.frequencies:
            return RenderedHit(snippet, shown)
        evidence, evidence_words = self._evident.information(found)
        identifiers = tuple(term for term in self._identifiers if term in found)
        share = self._required.coverage(found)
        return RenderedHit(snippet, shown, share, evidence / self._rarest, evidence_words, identifiers)


def _is_evident(term: QueryTerm, common_words: Collection[str]) -> bool:
    word = term.original or term.text
    return word not in common_words and not (word.isdigit() and len(word) < _LEAST_DIGITS)


def _is_identifier(term: QueryTerm) -> bool:
    if term.kind is not TermKind.WORD:
        return term.kind is TermKind.WHOLE
    word = term.original or term.text
    letters = not word.isdigit()
    return any(map(str.isdigit, word)) and len(word) >= (_LEAST_DIGITS if letters else _LEAST_DIGITS_OF_IDENTIFIER)


def hits(
    rows: Sequence[RankedRow],
    renderer: HitRenderer,
    ranked: Ranked,
    rerank: Mapping[int, float | None],
    *,
    explain: bool = False,
) -> list[Hit]:
    """Return the hits of these rows, with the parts of their scores if `explain` is set.

    `ranked` has the factors of their scores, `rerank` the reranker's, by chunk.
    """
    found = [
        _hit(candidate, row, renderer.render(row), ranked, rerank.get(candidate.chunk_id)) for candidate, row in rows
    ]
    if not explain:
        return found
    return [replace(hit, parts=score_parts(candidate, ranked)) for hit, (candidate, _) in zip(found, rows, strict=True)]


def _hit(candidate: Candidate, row: ChunkRow, rendered: RenderedHit, ranked: Ranked, rerank: float | None) -> Hit:
    snippet = rendered.snippet
    return Hit(
        path=row.path,
        source=row.source,
        start_line=row.start_line,
        end_line=row.end_line,
        score=clamp(candidate.score),
        snippet=snippet.text,
        snippet_start_line=snippet.start_line,
        snippet_end_line=snippet.end_line,
        mtime_ns=row.mtime_ns,
        text_score=candidate.text_score,
        keyword_rank=candidate.keyword_rank,
        vector_score=candidate.vector_score,
        vector_rank=candidate.vector_rank,
        coverage=rendered.coverage,
        decay=ranked.decays.get(candidate.chunk_id),
        origin=row.origin,
        annotations=row.annotations,
        annotation_factor=ranked.annotation_factors.get(candidate.chunk_id),
        window=candidate.window,
        date=candidate.date or None,
        adjacent=candidate.adjacent or None,
        rerank=rerank,
        words=rendered.words,
        evidence=rendered.evidence,
        evidence_words=rendered.evidence_words,
        identifiers=rendered.identifiers,
        day=row.day,
    )


def within_budget(hits: Sequence[Hit], max_total_chars: int | None) -> tuple[Hit, ...]:
    """Return the hits whose snippets fit into `max_total_chars`; the first that does not fit is cut and is the last."""
    if max_total_chars is None:
        return tuple(hits)
    fitting: list[Hit] = []
    room = max_total_chars
    for hit in hits:
        if len(hit.snippet) > room:
            if room > 0:
                fitting.append(_shortened(hit, room))
            break
        fitting.append(hit)
        room -= len(hit.snippet)
    return tuple(fitting)


def _shortened(hit: Hit, max_chars: int) -> Hit:
    text = cut_text(hit.snippet, max_chars)
    last = min(hit.snippet_end_line, hit.snippet_start_line + text.count("\n"))
    return replace(hit, snippet=text, snippet_end_line=last)


def citation(path: str, start_line: int, end_line: int) -> str:
    """Return `path#L12-L30`, or `path#L12` for one line."""
    return f"{path}#L{start_line}" if start_line == end_line else f"{path}#L{start_line}-L{end_line}"


def cited(snippet: str, citation: str) -> str:
    """Return the snippet, a blank line, and a line with its citation."""
    return f"{snippet.rstrip()}\n\nSource: {citation}"
