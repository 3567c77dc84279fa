"""Rows into hits and an answer.

Rows into hits: finds each row's file on disk, keeps it beneath its collection, and shows the lines that stand there.

qmd answers from its index, which may be older than the files. So nothing of a row is shown but its place: the text is
read from the file, and a file that has lost what qmd found in it gives no hit.

A search of qmd as an answer: how it came about, and why it is empty where it is. Pure.
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
from memoryd_server.sources import IgnoreFileUnusable, Location, Roots, read_file, read_rules, resolve_path

SCHEME = "qmd://"
# Paths of files that only qmd knows, as hits show them and MemoryGet takes them.
PREFIX = "qmd/"
_INDEX_SUFFIX = re.compile(r"\?index=[^/?]*$")
_CUT_OFF = "..."
# What a cut through a character leaves of it, and a line break, at the end of a text that is read backwards.
_CUT_END_REVERSED = re.compile("[\ud800-\udfff\ufffd]+\n?|\n[\ud800-\udfff\ufffd]*")


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Hits, best first, how many rows were below `min_score`, and how many had no file any more."""

    hits: tuple[Hit, ...]
    dropped: int
    gone: int
    moved: bool


class CollectionFiles:
    """The files of an agent's collections. `most_bytes` is the largest file that is read.

    `is_hidden` tells of a file's path and bytes whether it is to give no hit.
    """

    def __init__(
        self,
        roots: Roots,
        collections: Sequence[Collection],
        most_bytes: int,
        is_hidden: Callable[[str, bytes], bool] = lambda *_: False,
    ) -> None:
        self._roots = roots
        self._is_hidden = is_hidden
        self._collections = {collection.name: collection for collection in collections}
        self._most_bytes = most_bytes

    def names(self, sources: Sequence[Source]) -> tuple[str, ...]:
        """The collections of these sources; no sources for all."""
        return tuple(c.name for c in self._collections.values() if not sources or c.source in sources)

    def locate(self, name: str, path: str) -> Location | None:
        """Where the file `path` of a collection is; None for no collection of ours, and for a path it cannot hold."""
        collection = self._collections.get(name)
        if collection is None or not collection.may_hold(path):
            return None
        try:
            return resolve_path(self._roots, f"{collection.root.rstrip('/')}/{path}")
        except MemorydError:
            return Location(f"{PREFIX}{name}/{path}", collection.root, tuple(path.split("/")), collection.source)

    def location_of(self, row: QmdRow) -> Location | None:
        """Where a row's file is; None where the row names none of ours, or one that its folder's rules leave out.

        The path in it stands as it is.
        """
        if not row.uri.startswith(SCHEME):
            return None
        name, _, path = _INDEX_SUFFIX.sub("", row.uri.removeprefix(SCHEME)).partition("/")
        return None if self._leaves_out(name, path) else self.locate(name, path)

    def _leaves_out(self, name: str, path: str) -> bool:
        """Whether `.memoryignore` leaves a file out, as it does for the builtin engine; qmd knows nothing of it."""
        collection = self._collections.get(name)
        if collection is None or collection.source is not Source.MEMORY or collection.is_one_file:
            return False
        try:
            return read_rules(collection.root, ()).ignores_file(path.split("/"))
        except IgnoreFileUnusable:
            return True

    def source_of(self, row: QmdRow) -> Source:
        """The source of the row's collection."""
        name = row.uri.removeprefix(SCHEME).partition("/")[0]
        collection = self._collections.get(name)
        return Source.MEMORY if collection is None else collection.source

    def hit(self, row: QmdRow, most_chars: int) -> tuple[Hit | None, bool]:
        """The row's lines as they stand in its file, or None; and whether the file has changed since."""
        location = self.location_of(row)
        if location is None:
            return None, False
        try:
            data, stat = read_file(location, self._most_bytes)
        except (MemorydError, OSError):
            return None, True
        if self._is_hidden(location.path, data):
            return None, False
        lines = data.decode("utf-8", "replace").split("\n")
        start, moved = _place(row, lines)
        if start is None:
            return None, True
        shown = _shown(lines, start, row)
        text = cut_text("\n".join(shown), most_chars)
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
        )
        return hit, moved


def _shown(lines: Sequence[str], start: int, row: QmdRow) -> Sequence[str]:
    """The row's range, without the empty line that ends a file."""
    shown = lines[start - 1 : start - 1 + max(1, row.line_count or row.snippet.count("\n") + 1)]
    return shown[:-1] if len(shown) > 1 and not shown[-1] and start - 1 + len(shown) == len(lines) else shown


def _place(row: QmdRow, lines: Sequence[str]) -> tuple[int | None, bool]:
    """The line where the row's snippet begins in the file, and whether that is elsewhere than qmd says; None: nowhere.

    A snippet may be cut short, and qmd reads bytes that are no UTF-8 as we do.
    """
    wanted = _without_cut_end(row.snippet.removesuffix(_CUT_OFF))
    start = row.start_line or max(1, row.line)
    if not wanted.strip():
        return (start, False) if start <= len(lines) and any(line.strip() for line in lines) else (None, True)
    if "\n".join(lines[start - 1 : start + wanted.count("\n")]).startswith(wanted):
        return start, False
    text = "\n".join(("", *lines))
    at = text.find(f"\n{wanted}")
    return (None if at < 0 else text.count("\n", 0, at + 1)), True


def _without_cut_end(snippet: str) -> str:
    """Return the snippet without a line break and what is left of a character at its end."""
    end = _CUT_END_REVERSED.match(snippet[::-1])
    return snippet[: len(snippet) - end.end()] if end else snippet


def rank(
    shelf: CollectionFiles,
    rows: Sequence[QmdRow],
    query: SearchQuery,
    ranking: RankingConfig,
    *,
    most: int,
    most_chars: int,
) -> RankedRows:
    """The best `most` rows as hits: each file once, decayed as the settings say, both sources in turn.

    `query.min_score` cuts only where the caller asked for it: scores of qmd are on a scale of their own, where a good
    hit in a small memory has 0.
    """
    least = query.min_score if query.min_score is not None and query.min_score_is_strict else 0.0
    now = query.now or datetime.now(UTC)
    best: dict[str, Hit] = {}
    gone, moved = 0, False
    for row in rows:
        hit, changed = shelf.hit(row, min(most_chars, query.max_snippet_chars))
        moved = moved or changed
        gone += hit is None
        if hit is not None:
            hit = _decayed(hit, now, ranking)
            if hit.path not in best or best[hit.path].score < hit.score:
                best[hit.path] = hit
    ordered = sorted(best.values(), key=lambda hit: -hit.score)
    kept = [hit for hit in ordered if hit.score >= least]
    shown = [_finished(hit, query) for hit in _in_turn(kept)[:most]]
    return RankedRows(tuple(shown), len(ordered) - len(kept), gone, moved)


def _decayed(hit: Hit, now: datetime, ranking: RankingConfig) -> Hit:
    if not ranking.decay:
        return hit
    modified = datetime.fromtimestamp(hit.mtime_ns / 1e9, UTC)
    left = decay_of(hit.path, modified, now, ranking.half_life_days, ranking.decay_floor)
    return replace(hit, score=hit.score * left, decay=left)


def _in_turn(hits: Sequence[Hit]) -> list[Hit]:
    """Memory and transcripts by turns, best first, so that neither crowds the other out."""
    by_source: Mapping[Source, list[Hit]] = {source: [h for h in hits if h.source is source] for source in Source}
    lists = sorted((found for found in by_source.values() if found), key=lambda found: -found[0].score)
    return [hit for turn in zip_longest(*lists) for hit in turn if hit is not None]


def _finished(hit: Hit, query: SearchQuery) -> Hit:
    if not query.citations:
        return hit
    return replace(hit, snippet=cited(hit.snippet, citation(hit.path, hit.start_line, hit.end_line)))


def budgeted(hits: Sequence[Hit], query: SearchQuery, most_chars: int) -> tuple[Hit, ...]:
    """The hits within the injection budgets of the caller and of the settings."""
    return within_budget(hits, min(most_chars, query.max_total_chars or most_chars))


NAME = "qmd"

SERVED: Mapping[QmdSearchMode, SearchMode] = {
    QmdSearchMode.SEARCH: SearchMode.KEYWORD,
    QmdSearchMode.VSEARCH: SearchMode.VECTOR,
    QmdSearchMode.QUERY: SearchMode.HYBRID,
}
_ALL_WORDS = "no file of the collections holds all the words; ask with fewer, or set memory.qmd.searchMode to query"
_NOTHING = "qmd found nothing in the collections that were searched"


def answer_of(
    found: QmdResults,
    ranked: RankedRows,
    hits: Sequence[Hit],
    query: SearchQuery,
    *,
    verb: QmdSearchMode,
    revision: int,
    documents: int,
    stale: bool,
    missing: Sequence[Source],
    elapsed_seconds: float,
) -> SearchAnswer:
    """The answer. `documents` is how many files qmd holds, `missing` are the sources asked for and not collected."""
    reason, words = _emptiness(ranked, query, verb, documents) if not hits else (None, "")
    candidates = len(found.rows)
    return SearchAnswer(
        hits=tuple(hits),
        served_mode=SERVED[verb],
        revision=revision,
        indexed_files=documents,
        keyword_candidates=candidates if verb is QmdSearchMode.SEARCH else 0,
        vector_candidates=candidates if verb is QmdSearchMode.VSEARCH else 0,
        dropped_by_min_score=ranked.dropped,
        stale=stale or ranked.moved,
        degradations=tuple(_degradations(found, query, verb, missing)),
        retrievers=(
            RetrieverReport(
                SERVED[verb], ran=True, candidates=candidates, elapsed_seconds=elapsed_seconds, note=f"qmd {verb}"
            ),
        ),
        empty_reason=reason,
        empty_explanation=words,
        backend=NAME,
    )


def denied(query: SearchQuery) -> SearchAnswer:
    """The answer to a session that may not search."""
    return SearchAnswer(
        hits=(),
        served_mode=query.mode,
        revision=0,
        indexed_files=0,
        keyword_candidates=0,
        dropped_by_min_score=0,
        stale=False,
        empty_reason=EmptyReason.SCOPE_DENIED,
        empty_explanation="memory.qmd.scope does not let this session search; give session_key, or change the rules",
        backend=NAME,
    )


def _emptiness(ranked: RankedRows, query: SearchQuery, verb: QmdSearchMode, documents: int) -> tuple[EmptyReason, str]:
    if ranked.gone:
        return EmptyReason.FILES_GONE, f"{ranked.gone} hits were in files that have since been removed or rewritten"
    if ranked.dropped:
        dropped = f"{ranked.dropped} hits score below min_score {query.min_score or 0:g}"
        return EmptyReason.FILTERED_BY_SCORE, f"{dropped}; lower it to see them"
    if not documents:
        return EmptyReason.EMPTY_INDEX, "qmd has indexed no file for this agent; look at Status"
    return EmptyReason.NO_MATCH, _ALL_WORDS if verb is QmdSearchMode.SEARCH else _NOTHING


def _degradations(
    found: QmdResults, query: SearchQuery, verb: QmdSearchMode, missing: Sequence[Source]
) -> list[Degradation]:
    degradations = [
        Degradation(DegradationKind.SOURCE_SKIPPED, source, "", f"no collection of qmd holds {source}")
        for source in missing
    ]
    if query.mode is SearchMode.HYBRID and verb is not QmdSearchMode.QUERY:
        reason = f"memory.qmd.searchMode is {verb}"
        degradations.append(Degradation(DegradationKind.VECTOR_LEG_SKIPPED, "HYBRID", SERVED[verb], reason))
    if found.pending and verb is not QmdSearchMode.SEARCH:
        reason = f"{found.pending} of qmd's documents have no vector yet"
        degradations.append(Degradation(DegradationKind.VECTORS_PENDING, "a vector for each document", "", reason))
    return degradations
