"""Search of an agent's entries: what the agent asks, and what the plug-in of entries answers."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import zip_longest

from memoryd_server.agent.config import AgentConfig
from memoryd_server.errors import MemorydError
from memoryd_server.model import Degradation, DegradationKind, Origin, utc_day
from memoryd_server.search import (
    BUILTIN,
    MOST_DROPPED,
    DroppedCandidate,
    EmptyReason,
    Hit,
    SearchAnswer,
    SearchQuery,
    cited,
    cut_text,
    displaced,
    within_budget,
)
from memoryd_server.store import FileFilter

ENTRY_FOLDER = "entries/"
"""The paths of entries in results begin with this and end with an id. The path of a file has the suffix `.md`."""


@dataclass(frozen=True, slots=True)
class EntryQuery:
    """A query for entries. `deadline` is in seconds of `time.monotonic()`.

    With `for_prompt`, only the few entries are wanted that concern the text, which is a prompt; otherwise up to `limit`
    with at least `min_score`. `since` and `until` are the first and the last day on which they were stored, in UTC.
    `embedding_seconds` is how long to wait for the query's vector; None means as long as the deadline allows.
    """

    text: str
    limit: int
    min_score: float
    deadline: float
    for_prompt: bool = False
    since: date | None = None
    until: date | None = None
    embedding_seconds: float | None = None

    @property
    def since_ms(self) -> int | None:
        """The start of `since` in Unix milliseconds."""
        return None if self.since is None else _unix_ms(self.since)

    @property
    def before_ms(self) -> int | None:
        """The end of `until` in Unix milliseconds."""
        return None if self.until is None or self.until == date.max else _unix_ms(self.until + timedelta(days=1))


@dataclass(frozen=True, slots=True)
class EntryHit:
    """An entry that a search found, with its score, 0..1."""

    entry_id: str
    text: str
    created_ms: int
    score: float

    @property
    def path(self) -> str:
        """What identifies the entry in results and citations."""
        return f"{ENTRY_FOLDER}{self.entry_id}"

    def as_hit(self, max_snippet_chars: int, *, citations: bool) -> Hit:
        """Return the entry as a search result, with at most this many code points of its text."""
        text = cut_text(self.text, max_snippet_chars)
        return Hit(
            path=self.path,
            source=None,
            start_line=0,
            end_line=0,
            score=self.score,
            snippet=cited(text, self.path) if citations else text,
            snippet_start_line=0,
            snippet_end_line=0,
            mtime_ns=self.created_ms * 1_000_000,
            origin=Origin.AGENT,
            day=utc_day(self.created_ms / 1000),
        )


@dataclass(frozen=True, slots=True)
class EntryAnswer:
    """Entries, best first, and the degradations of the search."""

    hits: tuple[EntryHit, ...] = ()
    degradations: tuple[Degradation, ...] = ()


@dataclass(frozen=True, slots=True)
class EntrySearch:
    """How the entries of an agent are searched.

    `find` raises MemorydError: NotImplementedYet if the agent has no entries, others if these cannot be searched.
    `recalls` returns whether a recall includes the agent's entries if the request names no sources.
    """

    find: Callable[[AgentConfig, EntryQuery], Awaitable[EntryAnswer]]
    recalls: Callable[[AgentConfig], bool]


@dataclass(slots=True)
class SharedEntrySearch:
    """The search of entries that all agents share; None if this daemon has no plug-in of entries."""

    current: EntrySearch | None = None

    async def find(self, config: AgentConfig, query: EntryQuery) -> EntryAnswer:
        """Return what the agent's entries contain about a query; a degradation instead if they cannot be searched."""
        if self.current is None:
            return _skipped("this daemon has no entries")
        try:
            return await self.current.find(config, query)
        except MemorydError as error:
            return _skipped(error.message)

    def recalls(self, config: AgentConfig) -> bool:
        """Return whether a recall includes the agent's entries if the request names no sources."""
        return self.current is not None and self.current.recalls(config)


def _skipped(reason: str) -> EntryAnswer:
    return EntryAnswer((), (Degradation(DegradationKind.SOURCE_SKIPPED, "entries", "", reason),))


def with_entries(answer: SearchAnswer, entries: EntryAnswer, query: SearchQuery) -> SearchAnswer:
    """Return the answer of a search of files together with the entries that were found, within the query's limits."""
    found = [hit.as_hit(query.max_snippet_chars, citations=query.citations) for hit in entries.hits]
    hits = within_budget(alternating(answer.hits, found)[: query.max_results], query.max_total_chars)
    dropped = answer.dropped
    if query.explain and answer.backend == BUILTIN:
        dropped = (*_displaced(answer, hits, query), *dropped)[:MOST_DROPPED]
    answer = replace(answer, hits=hits, degradations=(*answer.degradations, *entries.degradations), dropped=dropped)
    if hits:
        return replace(answer, empty_reason=None, empty_explanation="")
    if answer.empty_reason is None:
        return replace(answer, empty_reason=EmptyReason.NO_MATCH, empty_explanation="no entry matches the query")
    return answer


def _displaced(answer: SearchAnswer, hits: Sequence[Hit], query: SearchQuery) -> Iterator[DroppedCandidate]:
    """Yield the results of a search of files that are not among the results with entries."""
    places = {(hit.source, hit.path, hit.start_line) for hit in hits}
    for rank, hit in enumerate(answer.hits, 1):
        if (hit.source, hit.path, hit.start_line) not in places:
            miss = displaced(rank, query)
            yield DroppedCandidate(hit.path, hit.source, hit.start_line, hit.end_line, hit.score, miss)


def alternating(first: Sequence[Hit], second: Sequence[Hit]) -> list[Hit]:
    """Return the hits of two sources whose scores cannot be compared: each in its order, one of each in turn."""
    return [hit for pair in zip_longest(first, second) for hit in pair if hit is not None]


def can_match(files: FileFilter) -> bool:
    """Return whether an entry, which has no path and no front matter, can match a filter."""
    return not files.path_prefixes and not files.front_matter


def _unix_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
