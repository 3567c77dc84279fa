"""qmd's rows into hits and an answer.

qmd answers from its index, which may be older than the files. So a hit takes only the position from its row. Its text
is read from the file, which must be within the row's collection; a file that no longer contains the row's text is not a
hit.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest

from memoryd_server.errors import MemorydError
from memoryd_server.model import Degradation, DegradationKind, Source
from memoryd_server.qmd.client import QmdResults, QmdRow, QmdSearchMode
from memoryd_server.qmd.home import Collection
from memoryd_server.search import (
    EmptyReason,
    Hit,
    RankingConfig,
    RetrieverReport,
    SearchAnswer,
    SearchMode,
    SearchQuery,
    citation,
    cited,
    cut_text,
    decay_of,
    within_budget,
)
from memoryd_server.sources import (
    IgnoreFileUnusable,
    Location,
    Roots,
    is_too_deep,
    origin_of_file,
    read_file,
    read_rules,
    resolve_path,
)

SCHEME = "qmd://"
# The prefix of paths that only qmd indexes, in hits and in MemoryGet.
PREFIX = "qmd/"
_INDEX_SUFFIX = re.compile(r"\?index=[^/?]*$")
_ELLIPSIS = "..."
# A line break and the remains of a character that was cut in two, at the start of a reversed text.
_CUT_END_REVERSED = re.compile("[\ud800-\udfff\ufffd]+\n?|\n[\ud800-\udfff\ufffd]*")
# The remains of a character that was cut in two, at the start of a text.
_CUT_START = re.compile("\\A[\ud800-\udfff\ufffd]+")


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Hits, best first, and the number of hits below `min_score` and of rows without a hit.

    `moved` is whether a file has changed since qmd indexed it.
    """

    hits: tuple[Hit, ...]
    dropped: int
    gone: int
    moved: bool


class CollectionFiles:
    """The files of an agent's collections. Files larger than `max_bytes` are not read.

    `is_hidden` is called with a file's path and bytes and returns whether the file is excluded from hits.
    """

    def __init__(
        self,
        roots: Roots,
        collections: Sequence[Collection],
        max_bytes: int,
        is_hidden: Callable[[str, bytes], bool] = lambda *_: False,
    ) -> None:
        self._roots = roots
        self._is_hidden = is_hidden
        self._collections = {collection.name: collection for collection in collections}
        self._max_bytes = max_bytes

    def collection_names(self, sources: Sequence[Source]) -> tuple[str, ...]:
        """Return the names of the collections of these sources; of all collections if `sources` is empty."""
        return tuple(c.name for c in self._collections.values() if not sources or c.source in sources)

    def locate(self, name: str, path: str) -> Location | None:
        """Return the location of a collection's file; None for an unknown collection, or a path outside of it."""
        collection = self._collections.get(name)
        if collection is None or not collection.may_contain(path):
            return None
        parts = tuple(path.split("/"))
        if is_too_deep(parts):
            return None
        try:
            return resolve_path(self._roots, f"{collection.root.rstrip('/')}/{path}")
        except MemorydError:
            if collection.builtin:
                # The pattern of an extra path may match files that are not memory.
                return None
            return Location(f"{PREFIX}{name}/{path}", collection.root, parts, collection.source)

    def location_of(self, row: QmdRow) -> Location | None:
        """Return the location of a row's file; None if it is in no collection or `.memoryignore` excludes it.

        The path in the row's URI is used as it is, without decoding.
        """
        if not row.uri.startswith(SCHEME):
            return None
        name, _, path = _INDEX_SUFFIX.sub("", row.uri.removeprefix(SCHEME)).partition("/")
        return None if self._is_ignored(name, path) else self.locate(name, path)

    def _is_ignored(self, name: str, path: str) -> bool:
        """Return whether `.memoryignore` excludes a file, as in the builtin engine. qmd does not read that file."""
        collection = self._collections.get(name)
        if collection is None or collection.source is not Source.MEMORY:
            return False
        if collection.is_one_file and not (collection.builtin and collection.root in self._roots.extras()):
            # The rules of a folder do not apply to a file that the settings list.
            return False
        try:
            return read_rules(collection.root, ()).ignores_file(path.split("/"))
        except IgnoreFileUnusable:
            return True

    def source_of(self, row: QmdRow) -> Source:
        """Return the source of the row's collection."""
        name = row.uri.removeprefix(SCHEME).partition("/")[0]
        collection = self._collections.get(name)
        return Source.MEMORY if collection is None else collection.source

    def hit(self, row: QmdRow, max_chars: int) -> tuple[Hit | None, bool]:
        """Return the hit of a row, or None, and whether the file has changed since qmd indexed it."""
        location = self.location_of(row)
        if location is None:
            return None, False
        try:
            data, stat = read_file(location, self._max_bytes)
        except (MemorydError, OSError):
            return None, True
        if self._is_hidden(location.path, data):
            return None, False
        lines = data.decode("utf-8", "replace").split("\n")
        start, moved = find_snippet(row, lines)
        if start is None:
            return None, True
        shown = _snippet_lines(lines, start, row)
        text = cut_text("\n".join(shown), max_chars)
        hit = Hit(
            path=location.path,
            source=self.source_of(row),
            start_line=start,
            end_line=start + len(shown) - 1,
            score=row.score,
            snippet=text,
            snippet_start_line=start,
            snippet_end_line=start + text.count("\n"),
            mtime_ns=stat.mtime_ns,
            origin=origin_of_file(self.source_of(row), location.path),
        )
        return hit, moved


def _snippet_lines(lines: Sequence[str], start: int, row: QmdRow) -> Sequence[str]:
    """Return the lines of the row's range, without the empty line at the end of a file."""
    shown = lines[start - 1 : start - 1 + max(1, row.line_count or row.snippet.count("\n") + 1)]
    return shown[:-1] if len(shown) > 1 and not shown[-1] and start - 1 + len(shown) == len(lines) else shown


def find_snippet(row: QmdRow, lines: Sequence[str]) -> tuple[int | None, bool]:
    """Return the line at which the row's snippet begins in the file, and whether it differs from qmd's line.

    The line is None if the file does not contain the snippet. A snippet may be cut short, and it may begin within a
    line, because qmd selects the lines of a long file from a part of it. qmd decodes bytes that are not UTF-8 as
    memoryd does.
    """
    snippet = remove_cut_end(row.snippet.removesuffix(_ELLIPSIS))
    start = row.start_line or max(1, row.line)
    if not snippet.strip():
        return (start, False) if start <= len(lines) and any(line.strip() for line in lines) else (None, True)
    shown = "\n".join(lines[start - 1 : start + snippet.count("\n")])
    if shown.startswith(snippet) or _begins_in_line(shown, snippet, cut=row.snippet.endswith(_ELLIPSIS)):
        return start, False
    text = "\n".join(("", *lines))
    at = text.find(f"\n{snippet}")
    return (None if at < 0 else text.count("\n", 0, at + 1)), True


def remove_cut_end(snippet: str) -> str:
    """Return the snippet without a line break and the remains of a character at its end."""
    end = _CUT_END_REVERSED.match(snippet[::-1])
    return snippet[: len(snippet) - end.end()] if end else snippet


def _begins_in_line(text: str, snippet: str, *, cut: bool) -> bool:
    """Return whether the snippet is in `text`, from any place in the first line. `cut` is whether its end is cut."""
    snippet = _CUT_START.sub("", snippet)
    first, line_break, _ = snippet.partition("\n")
    line = text.partition("\n")[0]
    if not line_break:
        return cut and first in line
    return line.endswith(first) and text.startswith(snippet, len(line) - len(first))


def rank(
    files: CollectionFiles,
    rows: Sequence[QmdRow],
    query: SearchQuery,
    ranking: RankingConfig,
    *,
    max_results: int,
    max_chars: int,
) -> RankedRows:
    """Return the best rows as hits: each file once, with decay if configured, alternating between both sources.

    `query.min_score` applies only if the caller set it: qmd's scores have another scale, on which a good hit in a small
    memory has 0.
    """
    min_score = query.min_score if query.min_score is not None and query.min_score_is_requested else 0.0
    now = query.now or datetime.now(UTC)
    best: dict[str, Hit] = {}
    gone, moved = 0, False
    for row in rows:
        hit, changed = files.hit(row, min(max_chars, query.max_snippet_chars))
        moved = moved or changed
        gone += hit is None
        if hit is not None:
            hit = _decayed(hit, now, ranking)
            if hit.path not in best or best[hit.path].score < hit.score:
                best[hit.path] = hit
    ordered = sorted(best.values(), key=lambda hit: -hit.score)
    passed = [hit for hit in ordered if hit.score >= min_score]
    shown = [_with_citation(hit, query) for hit in _alternate(passed)[:max_results]]
    return RankedRows(tuple(shown), len(ordered) - len(passed), gone, moved)


def _decayed(hit: Hit, now: datetime, ranking: RankingConfig) -> Hit:
    if not ranking.decay:
        return hit
    modified = datetime.fromtimestamp(hit.mtime_ns / 1e9, UTC)
    decay = decay_of(hit.path, modified, now, ranking.half_life_days, ranking.decay_floor)
    return replace(hit, score=hit.score * decay, decay=decay)


def _alternate(hits: Sequence[Hit]) -> list[Hit]:
    """Return hits of memory and transcripts alternately, best first, so that neither source displaces the other."""
    by_source: Mapping[Source, list[Hit]] = {source: [h for h in hits if h.source is source] for source in Source}
    lists = sorted((hits for hits in by_source.values() if hits), key=lambda hits: -hits[0].score)
    return [hit for turn in zip_longest(*lists) for hit in turn if hit is not None]


def _with_citation(hit: Hit, query: SearchQuery) -> Hit:
    if not query.citations:
        return hit
    return replace(hit, snippet=cited(hit.snippet, citation(hit.path, hit.start_line, hit.end_line)))


def within_budgets(hits: Sequence[Hit], query: SearchQuery, max_chars: int) -> tuple[Hit, ...]:
    """Return the hits that fit into the injection budgets of the caller and of the settings."""
    return within_budget(hits, min(max_chars, query.max_total_chars or max_chars))


NAME = "qmd"

SERVED: Mapping[QmdSearchMode, SearchMode] = {
    QmdSearchMode.SEARCH: SearchMode.KEYWORD,
    QmdSearchMode.VSEARCH: SearchMode.VECTOR,
    QmdSearchMode.QUERY: SearchMode.HYBRID,
}
_NOT_ALL_WORDS = "no file in the collections contains all the words"
_OTHER_MODE = "search with other words, or set memory.qmd.searchMode to query"
_NO_WORD = f"no file in the collections contains any of the words; {_OTHER_MODE}"
_NO_RESULTS = "qmd found no results in the collections that were searched"


def answer_of(
    results: QmdResults,
    ranked: RankedRows,
    hits: Sequence[Hit],
    query: SearchQuery,
    *,
    search_mode: QmdSearchMode,
    revision: int,
    documents: int,
    stale: bool,
    missing: Sequence[Source],
    elapsed_seconds: float,
) -> SearchAnswer:
    """Return the answer of a search.

    `documents` is the number of files in qmd's index, `missing` are the requested sources without a collection.
    """
    reason, explanation = _empty_reason(results, ranked, query, search_mode, documents) if not hits else (None, "")
    served, candidates = SERVED[search_mode], len(results.rows)
    return SearchAnswer(
        hits=tuple(hits),
        served_mode=served,
        revision=revision,
        indexed_files=documents,
        keyword_candidates=candidates if search_mode is QmdSearchMode.SEARCH else 0,
        vector_candidates=candidates if search_mode is QmdSearchMode.VSEARCH else 0,
        dropped_by_min_score=ranked.dropped,
        stale=stale or ranked.moved,
        degradations=tuple(_degradations(results, query, search_mode, missing)),
        retrievers=(
            RetrieverReport(
                served,
                ran=True,
                candidates=candidates,
                elapsed_seconds=elapsed_seconds,
                note=_note(results, search_mode),
            ),
        ),
        empty_reason=reason,
        empty_explanation=explanation,
        backend=NAME,
        matched_any_word=results.matched_any_word,
    )


def _note(results: QmdResults, search_mode: QmdSearchMode) -> str:
    if results.second_failure:
        return f"qmd {search_mode}; the search for any of the words failed: {results.second_failure}"
    return (
        f"qmd {search_mode}, then qmd query for any of the words" if results.matched_any_word else f"qmd {search_mode}"
    )


def scope_denied(query: SearchQuery) -> SearchAnswer:
    """Return the answer to a session that may not search."""
    return SearchAnswer(
        hits=(),
        served_mode=query.mode,
        revision=0,
        indexed_files=0,
        keyword_candidates=0,
        dropped_by_min_score=0,
        stale=False,
        empty_reason=EmptyReason.SCOPE_DENIED,
        empty_explanation="memory.qmd.scope forbids this session to search; set session_key, or change the rules",
        backend=NAME,
    )


def _empty_reason(
    results: QmdResults, ranked: RankedRows, query: SearchQuery, search_mode: QmdSearchMode, documents: int
) -> tuple[EmptyReason, str]:
    if ranked.gone:
        return EmptyReason.FILES_GONE, f"{ranked.gone} hits were in files that have since been removed or rewritten"
    if ranked.dropped:
        dropped = f"{ranked.dropped} hits score below min_score {query.min_score or 0:g}"
        return EmptyReason.FILTERED_BY_SCORE, f"{dropped}; lower it to see them"
    if not documents:
        return EmptyReason.EMPTY_INDEX, "qmd has indexed no file for this agent; check Status"
    if search_mode is not QmdSearchMode.SEARCH:
        return EmptyReason.NO_MATCH, _NO_RESULTS
    if results.second_failure:
        return (
            EmptyReason.NO_MATCH,
            f"{_NOT_ALL_WORDS}, and the search for any of them failed: {results.second_failure}",
        )
    return EmptyReason.NO_MATCH, _NO_WORD if results.matched_any_word else f"{_NOT_ALL_WORDS}; {_OTHER_MODE}"


def _degradations(
    results: QmdResults, query: SearchQuery, search_mode: QmdSearchMode, missing: Sequence[Source]
) -> list[Degradation]:
    degradations = [
        Degradation(DegradationKind.SOURCE_SKIPPED, source, "", f"no qmd collection contains {source}")
        for source in missing
    ]
    if query.mode is SearchMode.HYBRID and search_mode is not QmdSearchMode.QUERY:
        reason = f"memory.qmd.searchMode is {search_mode}"
        degradations.append(Degradation(DegradationKind.VECTOR_LEG_SKIPPED, "HYBRID", SERVED[search_mode], reason))
    if results.pending and search_mode is not QmdSearchMode.SEARCH:
        reason = f"{results.pending} of qmd's documents have no vector yet"
        degradations.append(Degradation(DegradationKind.VECTORS_PENDING, "a vector for each document", "", reason))
    return degradations
