"""Why a search does not find a file or a line: the request, and the reasons that are outside the search.

The search itself answers with a trace (`search.trace`). Only if the index has no text of the file, the files on disk
are compared with the index, as for a list of all files.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.entry_search import EntryAnswer, with_entries
from memoryd_server.agent.file_listing import FileState, ListedFile, list_files
from memoryd_server.agent.index import AgentIndex, run_on
from memoryd_server.agent.requests import MOST_PATH_BYTES, FieldChecks, Request, SearchRequest
from memoryd_server.agent.search import IndexSearch, SearchResult
from memoryd_server.errors import InvalidRequest, PathNotAllowed
from memoryd_server.model import Source
from memoryd_server.search import (
    Hit,
    Miss,
    MissReason,
    SearchQuery,
    Target,
    TargetTrace,
    explain_miss,
)
from memoryd_server.sources import (
    OTHER_TRANSCRIPT,
    SECOND_NAME,
    Corpus,
    ForgottenSources,
    IgnoreFileUnusable,
    Location,
    is_session_path,
    pattern_rule,
    session_id,
)
from memoryd_server.sync import DiskComparison

_SEARCH: Final = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissRequest(Request):
    """A search, and the file or the line of it whose absence is to be explained. `search_agent_id` is its agent."""

    search: SearchRequest
    path: str
    line: int | None = None
    search_agent_id: str = ""

    def resolve(self, config: AgentConfig, now: datetime, deadline: float) -> SearchQuery:
        """Return the query; as `SearchRequest.resolve`. Its violations are those of fields of `search`."""
        checks = FieldChecks(self, self.unreadable)
        checks.text("path", most_bytes=MOST_PATH_BYTES, required=True)
        if self.line is not None and self.line < 1:
            checks.violation("line", f"is {self.line}; it must be at least 1 (leave it unset for the whole file)")
        if self.search_agent_id.strip() not in ("", config.agent_id):
            checks.violation(
                f"{_SEARCH}.agent_id", f"is another agent than {config.agent_id!r}, for which the request is"
            )
        try:
            query = self.search.resolve(config, now, deadline)
        except InvalidRequest as error:
            checks.violations += [replace(each, field=f"{_SEARCH}.{each.field}") for each in error.violations]
            raise InvalidRequest(checks.violations) from None
        checks.check()
        return query


@dataclass(frozen=True, slots=True)
class MissExplanation:
    """Why a search does not find a file or a line, or that it does.

    `path` is relative to the workspace, if it is that of a memory file. `hit` is the result, or else the chunk that
    came furthest, and None if no chunk was compared. `result` is None if no search was needed.
    """

    path: str
    miss: Miss
    hit: Hit | None = None
    result: SearchResult | None = None


class MissExplainer:
    """Explains the searches of an agent as it is configured now. For the event loop's thread.

    `find_entries` returns the entries that a query finds.
    """

    def __init__(
        self,
        config: AgentConfig,
        corpus: Corpus,
        index: AgentIndex,
        search: IndexSearch,
        *,
        find_entries: Callable[[SearchQuery], Awaitable[EntryAnswer]],
        monotonic: Callable[[], float],
    ) -> None:
        self._config, self._corpus = config, corpus
        self._index = index
        self._search = search
        self._find_entries = find_entries
        self._monotonic = monotonic

    async def explain(self, request: MissRequest, query: SearchQuery) -> MissExplanation:
        """Search for `query`, and return why the answer has no result in the file or at the line.

        Raises:
            MemorydError: as a search.
        """
        location = locate(self._corpus, request.path)
        if isinstance(location, Miss):
            return MissExplanation(request.path, location)
        target = Target(location.source, location.path, request.line)
        if target.source not in self._config.sources:
            return MissExplanation(target.path, _not_configured(target.source))
        if not request.search.search_files or target.source not in (query.sources or self._config.sources):
            return MissExplanation(target.path, _not_searched(target.source))
        began, trace = self._monotonic(), TargetTrace(target)
        answer = await self._search.search(query, trace)
        if request.search.entries:
            answer = with_entries(answer, await self._find_entries(query), query)
        result = self._search.result(answer, self._monotonic() - began)
        miss = explain_miss(trace, answer, query)
        if miss is None:
            miss = await self._index.read(lambda: run_on(self._index.slow, self._outside_the_index, location, target))
        hit = answer.hits[miss.rank - 1] if miss.reason is MissReason.FOUND and miss.rank else trace.hit
        return MissExplanation(target.path, miss, hit, result)

    def _outside_the_index(self, location: Location, target: Target) -> Miss:
        disk, forgotten = self._index.runner.compare(), self._index.forgotten
        return file_miss(self._corpus, target, location, disk, forgotten)


def locate(corpus: Corpus, path: str) -> Location | Miss:
    """Return the location of a memory file, or why there is none. Touches no file."""
    if is_session_path(path) and Source.SESSIONS not in corpus.sources:
        return _not_configured(Source.SESSIONS)
    try:
        return corpus.resolve(path)
    except PathNotAllowed as error:
        rule = pattern_rule(corpus.roots, path)
        if rule and path.endswith(".md"):
            return Miss(MissReason.EXCLUDED, f"the patterns of its extra path do not match it: {rule}", rule=rule)
        return Miss(MissReason.NOT_MEMORY, f"the path is not that of a memory file: {error.message}")


def _not_configured(source: Source) -> Miss:
    return Miss(
        MissReason.SOURCE_NOT_CONFIGURED, f"the settings do not name the source {source}, to which the file belongs"
    )


def _not_searched(source: Source) -> Miss:
    return Miss(
        MissReason.SOURCE_NOT_SEARCHED, f"the search does not include the source {source}, to which the file belongs"
    )


def file_miss(
    corpus: Corpus, target: Target, location: Location, disk: DiskComparison, forgotten: ForgottenSources
) -> Miss:
    """Return why the index has no text of a file, or none at its line. `disk` is compared with the index. Blocks."""
    if target.source is Source.SESSIONS and forgotten.has_session(session_id(location.parts[-1])):
        return Miss(MissReason.FORGOTTEN, "MemoryForget removed its session, which is not indexed again")
    for file in list_files(disk, forgotten):
        if (file.source, file.path) == (target.source, target.path):
            return _listed(file, target.line)
    return _hidden(target, disk) or _unlisted(corpus, location)


_BY_STATE: Mapping[FileState, Miss] = MappingProxyType(
    {
        FileState.FORGOTTEN: Miss(MissReason.FORGOTTEN, "MemoryForget removed it; it is indexed again if it changes"),
        FileState.GONE: Miss(
            MissReason.NOT_ON_DISK, "the file does not exist; the next sync removes it from the index"
        ),
        FileState.PENDING: Miss(MissReason.PENDING, "the file is not indexed yet"),
        FileState.STALE: Miss(MissReason.PENDING, "the file has changed since it was indexed"),
    }
)


def _listed(file: ListedFile, line: int | None) -> Miss:
    if file.state is FileState.FAILED:
        return Miss(MissReason.FAILED, f"it cannot be indexed: {file.error}")
    place = "" if line is None else f" at line {line}"
    return _BY_STATE.get(file.state) or Miss(MissReason.NO_TEXT, f"the file is indexed and has no text{place}")


def _hidden(target: Target, disk: DiskComparison) -> Miss | None:
    """Return the failure of a place that would contain the file; None if all such places were read."""
    for place in disk.discovery.unseen:
        if place.source is target.source and place.device is None and place.would_hold(target.path):
            return Miss(MissReason.FAILED, f"it cannot be indexed: {place.place} {place.reason}")
    return None


def _unlisted(corpus: Corpus, location: Location) -> Miss:
    """Return why discovery does not find a file whose folders it has read."""
    try:
        if corpus.stat([location]) == [None] and corpus.stat_file(location) is None:
            return Miss(MissReason.NOT_ON_DISK, "the file does not exist")
        rule = corpus.ignoring_rule(location) if location.source is Source.MEMORY else ""
    except PathNotAllowed as error:
        return Miss(MissReason.LINK, f"it is not read: {error.message}")
    except (OSError, IgnoreFileUnusable) as error:
        problem = error.strerror if isinstance(error, OSError) else f".memoryignore cannot be used: {error}"
        return Miss(MissReason.FAILED, f"it cannot be indexed: {problem}")
    if rule:
        return Miss(MissReason.EXCLUDED, f"the rule {rule} excludes it", rule=rule)
    if location.source is Source.SESSIONS:
        return Miss(MissReason.EXCLUDED, OTHER_TRANSCRIPT)
    return Miss(MissReason.EXCLUDED, SECOND_NAME)
