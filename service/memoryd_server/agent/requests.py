"""Requests of every edge: bounds, defaults and violations.

An edge fills in what the caller set; a field that is None was not set. `resolve` checks the fields, applies the
defaults of the agent's configuration and returns what the agent works with:

    query = SearchRequest(query="harbour crane").resolve(config, now, deadline)

Each `resolve` and `check` raises `InvalidRequest` with all violations of the request. A request has the names of the
contract's fields, because a violation names its field. Bounds and defaults are those of the contract's comments.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.filter_request import NO_FILTER, FilterRequest
from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.chunk import project_key
from memoryd_server.errors import FieldViolation, InvalidRequest
from memoryd_server.model import Source
from memoryd_server.search import CitationMode, SearchMode, SearchQuery
from memoryd_server.sessions import SessionKey, wants_citations
from memoryd_server.store import ALL_FILES, ChunkFilter, FileFilter
from memoryd_server.sync import EVERY_SOURCE, SyncMode, SyncScope
from memoryd_server.writing import AppendJob

MOST_QUERY_BYTES = 4_096
MOST_SESSION_KEY_BYTES = 1_024
MOST_SHOWN_CHARS = 64
MOST_RESULTS = 50
DEFAULT_SNIPPET_CHARS = 700
MOST_SNIPPET_CHARS = 4_000
DEFAULT_LINES = 120
MOST_LINES = 2_000
MOST_LINE_NUMBER = 2**31 - 1
MOST_APPEND_BYTES = 256 * 1024
MOST_KEY_BYTES = 128
MOST_HEADING_CHARS = 200
MOST_PATH_BYTES = 4_096
DEFAULT_PAGE = 100
MOST_PAGE = 1_000
MOST_PAGE_TOKEN_BYTES = 2 * MOST_PATH_BYTES
MOST_REASON_BYTES = 256
DEFAULT_HEARTBEAT_SECONDS = 10.0
LEAST_HEARTBEAT_SECONDS, MOST_HEARTBEAT_SECONDS = 1.0, 60.0
MOST_NAME_BYTES = 255
MOST_PROJECTS = 16
MOST_PROJECT_BYTES = 1_024

_NO_SESSIONS = (
    "session transcripts are not a source of this agent; in its settings of memory search, set "
    'experimental.sessionMemory, and name "sessions" in sources'
)
_NO_MEMORY = 'Markdown is not a source of this agent; in its settings of memory search, name "memory" in sources'


def agent_of_session(session_key: str) -> str:
    """Return the id of the agent that a session key names; empty if it names none, or is too long to be valid."""
    # A key that is too long is refused, and must not be kept in the cache of keys.
    return SessionKey.parse(session_key).owner if len(session_key) <= MOST_SESSION_KEY_BYTES else ""


class FieldChecks:
    """Checks the fields of one request and collects all violations.

    Each check returns a usable value even if it adds a violation. A field that is None was not set.
    """

    def __init__(self, request: object, violations: Iterable[FieldViolation] = ()) -> None:
        self._request = request
        self.violations = list(violations)

    def value(self, field: str) -> Any:
        """Return the value of a field; None if it was not set."""
        return getattr(self._request, field)

    def violation(self, field: str, description: str) -> None:
        """Add a violation of `field`."""
        self.violations.append(FieldViolation(field, description))

    def check(self) -> None:
        """End the checks.

        Raises:
            InvalidRequest: any field is invalid.
        """
        if self.violations:
            raise InvalidRequest(self.violations)

    def text(self, field: str, *, most_bytes: int, required: bool = False) -> str:
        """Return a string of at most `most_bytes` bytes of UTF-8; not blank if it is required."""
        value = str(self.value(field) or "")
        if required and not value.strip():
            self.violation(field, "must not be blank")
        if (size := len(value.encode())) > most_bytes:
            self.violation(field, f"is {size:,} bytes long; at most {most_bytes:,} are allowed")
        return value

    def session_key(self, agent_id: str) -> SessionKey:
        """Return the key in the field `session_key` of a request for this agent. It must not name another agent."""
        text = self.text("session_key", most_bytes=MOST_SESSION_KEY_BYTES)
        # A key that is too long is refused, and must not be kept in the cache of keys.
        key = SessionKey.parse(text if len(text) <= MOST_SESSION_KEY_BYTES else "")
        if key.owner not in ("", agent_id):
            shown = key.owner[:MOST_SHOWN_CHARS]
            self.violation("session_key", f"names the agent {shown!r}, but the request is for the agent {agent_id!r}")
        return key

    def idempotency_key(self) -> str:
        """Return the key in the field `idempotency_key`; empty if it was not set."""
        key = self.text("idempotency_key", most_bytes=MOST_KEY_BYTES)
        if not (key.isascii() and key.isprintable()):
            self.violation("idempotency_key", "must be printable ASCII")
        return key

    def clamped(self, field: str, default: int, most: int) -> int:
        """Return a positive number; `most` if it is larger, `default` if it was not set."""
        value = self.value(field)
        if value is None:
            return default
        if value < 1:
            self.violation(field, f"is {value}; it must be at least 1 (leave it unset for {default})")
        return int(max(1, min(value, most)))

    def positive(self, field: str) -> int | None:
        """Return a number that is at least 1; None if it was not set."""
        value = self.value(field)
        if value is None:
            return None
        if value < 1:
            self.violation(field, f"is {value}; it must be at least 1 (leave it unset for no limit)")
        return int(max(1, value))

    def count(self, field: str) -> int:
        """Return a number that is not negative; 0 if it was not set."""
        value = int(self.value(field) or 0)
        if value < 0:
            self.violation(field, f"is {value}; it must not be negative")
        return max(0, value)

    def optional_count(self, field: str) -> int | None:
        """Return a number that is not negative; None if it was not set."""
        return None if self.value(field) is None else self.count(field)

    def max_staleness(self) -> float | None:
        """Return the maximum age of an answer in seconds; None if it was not set."""
        seconds: float | None = self.value("max_staleness")
        if seconds is not None and seconds < 0:
            self.violation("max_staleness", f"is {seconds:g} s; it must not be negative")
        return seconds

    def share(self, field: str) -> float | None:
        """Return a number from 0 to 1; None if it was not set."""
        value = self.value(field)
        if value is None:
            return None
        if not 0.0 <= value <= 1.0:
            self.violation(field, f"is {value}; it must lie between 0 and 1")
            return None
        return float(value)

    def heartbeat(self) -> float:
        """Return the interval of heartbeats in seconds."""
        seconds = self.value("heartbeat_interval")
        if seconds is None:
            return DEFAULT_HEARTBEAT_SECONDS
        least, most = LEAST_HEARTBEAT_SECONDS, MOST_HEARTBEAT_SECONDS
        if not least <= seconds <= most:
            self.violation("heartbeat_interval", f"is {seconds:g} s; it must lie between {least:g} and {most:g} s")
        return float(min(max(seconds, least), most))

    def projects(self) -> frozenset[str]:
        """Return the keys of active projects as they are compared; a text that is not a key is left out."""
        keys = self.value("active_projects")
        if len(keys) > MOST_PROJECTS:
            self.violation("active_projects", f"has {len(keys):,} keys; at most {MOST_PROJECTS} are allowed")
        elif any(len(key.encode()) > MOST_PROJECT_BYTES for key in keys):
            self.violation("active_projects", f"has a key of more than {MOST_PROJECT_BYTES:,} bytes")
        else:
            return frozenset(filter(None, map(project_key, keys)))
        return frozenset()

    def files(self, conditions: FilterRequest | None = None) -> FileFilter:
        """Return the filter of the conditions on files, which are those of the field `filter` by default."""
        given: FilterRequest = conditions or self.value("filter")
        return ALL_FILES if given is NO_FILTER else given.resolve(self.violation)

    def moment(self, now: datetime, time_zone: str) -> tuple[datetime, str]:
        """Return the caller's clock in UTC and an IANA time zone that has this time; the arguments if unset. Blocks."""
        moment, zone = self.value("now") or now, self._time_zone(time_zone)
        try:
            moment.astimezone(ZoneInfo(zone))
        except OverflowError:
            self.violation("now", f"falls outside the years 1 to 9999 in the time zone {zone}")
            return now, zone
        return moment, zone

    def _time_zone(self, default: str) -> str:
        name = str(self.value("time_zone") or default)
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            self.violation("time_zone", f"{name[:MOST_SHOWN_CHARS]!r} is not an IANA time zone such as Europe/Berlin")
            return "UTC"
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`unreadable` are the violations of fields that the edge could not read; they are reported with the others."""

    unreadable: tuple[FieldViolation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest(Request):
    """A query. No `sources` means those that the agent's configuration searches by default.

    `entries` is whether entries are searched too, and `search_files` whether files are. `explain` and `max_staleness`
    are as in `SearchQuery`.
    """

    query: str
    max_results: int | None = None
    min_score: float | None = None
    sources: tuple[Source, ...] = ()
    mode: SearchMode = SearchMode.UNSPECIFIED
    max_snippet_chars: int | None = None
    citations: CitationMode | None = None
    max_total_chars: int | None = None
    session_key: str = ""
    min_revision: int | None = None
    now: datetime | None = None
    active_projects: tuple[str, ...] = ()
    abstain_below: float | None = None
    filter: FilterRequest = NO_FILTER
    entries: bool = False
    search_files: bool = True
    explain: bool = False
    max_staleness: float | None = None

    def resolve(self, config: AgentConfig, now: datetime, deadline: float) -> SearchQuery:
        """Return the query; `now` replaces an unset clock, and `deadline` is in `time.monotonic()` seconds."""
        checks = FieldChecks(self, self.unreadable)
        session_key = checks.session_key(config.agent_id)
        min_score = checks.share("min_score")
        query = SearchQuery(
            text=checks.text("query", most_bytes=MOST_QUERY_BYTES, required=True),
            max_results=checks.clamped("max_results", min(config.max_results, MOST_RESULTS), MOST_RESULTS),
            min_score=config.min_score if min_score is None else min_score,
            min_score_is_requested=min_score is not None,
            sources=self.sources or config.searched_sources,
            mode=self.mode,
            max_snippet_chars=checks.clamped("max_snippet_chars", DEFAULT_SNIPPET_CHARS, MOST_SNIPPET_CHARS),
            citations=wants_citations(self.citations or config.citations, session_key),
            max_total_chars=checks.positive("max_total_chars"),
            deadline=deadline,
            now=self.now or now,
            active_projects=checks.projects(),
            abstain_below=checks.share("abstain_below"),
            files=checks.files(),
            explain=self.explain,
            max_staleness=checks.max_staleness(),
        )
        checks.optional_count("min_revision")
        checks.check()
        return query


class LineRange(NamedTuple):
    """Lines of a file, counted from 1."""

    path: str
    start_line: int
    line_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest(Request):
    """A line range of a memory file. Which paths are allowed is decided when the file is opened.

    `from_line` and `lines` are OpenClaw's names of `start_line` and `line_count`, which take precedence.
    `include_chunks` requests the chunks of these lines. `max_staleness` is as in `SearchQuery`.
    """

    path: str
    start_line: int | None = None
    line_count: int | None = None
    from_line: int | None = None
    lines: int | None = None
    include_chunks: bool = False
    max_staleness: float | None = None

    def resolve(self) -> LineRange:
        """Return the lines to read."""
        checks = FieldChecks(self, self.unreadable)
        lines = LineRange(
            path=checks.text("path", most_bytes=MOST_PATH_BYTES, required=True),
            start_line=checks.clamped("from_line" if self.start_line is None else "start_line", 1, MOST_LINE_NUMBER),
            line_count=checks.clamped("lines" if self.line_count is None else "line_count", DEFAULT_LINES, MOST_LINES),
        )
        checks.max_staleness()
        checks.check()
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest(Request):
    """A sync run to start, join or resume. No `sources` means all sources of the agent.

    `transcript` is the file name of the transcript that was compacted, if any, `session_key` the session that starts,
    if any. `resume` is the run to resume and the sequence of the last event that the caller has. `heartbeat_interval`
    is in seconds. With `wait_on_conflict`, a FULL run waits for the end of a run under way.
    """

    mode: SyncMode = SyncMode.INCREMENTAL
    trigger: SyncTrigger = SyncTrigger.MANUAL
    session_key: str = ""
    sources: tuple[Source, ...] = ()
    transcript: str = ""
    reason: str = ""
    resume: tuple[str, int] | None = None
    cancel_on_disconnect: bool = False
    wait_on_conflict: bool = False
    heartbeat_interval: float | None = None
    dry_run: bool = False

    def resolve(self, config: AgentConfig) -> tuple[SyncScope, float]:
        """Return what the run has to index, and the interval of heartbeats in seconds."""
        checks = FieldChecks(self, self.unreadable)
        transcript = checks.text("transcript", most_bytes=MOST_PATH_BYTES)
        checks.text("reason", most_bytes=MOST_REASON_BYTES)
        checks.session_key(config.agent_id)
        heartbeat_seconds = checks.heartbeat()
        if transcript and self.trigger is not SyncTrigger.POST_COMPACTION:
            checks.violation("transcript", "is allowed with the trigger POST_COMPACTION only")
        elif transcript and Source.SESSIONS not in config.sources:
            checks.violation("transcript", _NO_SESSIONS)
        if any(source not in config.sources for source in self.sources):
            checks.violation("sources", _NO_SESSIONS if Source.SESSIONS not in config.sources else _NO_MEMORY)
        checks.check()
        # A transcript that was compacted is indexed however little it has grown.
        forced = transcript and config.sync.compaction_forces
        scope = SyncScope(
            sources=frozenset(self.sources) or EVERY_SOURCE,
            every_transcript=self.trigger is SyncTrigger.MANUAL,
            transcripts=frozenset((transcript,) if forced else ()),
        )
        return scope, heartbeat_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest(Request):
    """The state of an index to follow. `heartbeat_interval` is in seconds."""

    heartbeat_interval: float | None = None

    def resolve(self) -> float:
        """Return the interval of heartbeats in seconds."""
        checks = FieldChecks(self, self.unreadable)
        heartbeat_seconds = checks.heartbeat()
        checks.check()
        return heartbeat_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest(Request):
    """Text to append, to today's log if `path` is empty."""

    text: str
    path: str = ""
    idempotency_key: str = ""
    heading: str = ""
    now: datetime | None = None
    time_zone: str = ""

    def resolve(self, config: AgentConfig, now: datetime) -> AppendJob:
        """Return the append; `now` replaces an unset clock. Blocks."""
        checks = FieldChecks(self, self.unreadable)
        now, time_zone = checks.moment(now, config.time_zone)
        day = now.astimezone(ZoneInfo(time_zone)).date()
        path = checks.text("path", most_bytes=MOST_PATH_BYTES)
        text = checks.text("text", most_bytes=MOST_APPEND_BYTES, required=True)
        key = checks.idempotency_key()
        heading = self.heading.strip()
        if "\0" in text:
            checks.violation("text", "holds a NUL character, which would make the file unreadable as Markdown")
        if len(heading) > MOST_HEADING_CHARS or len(heading.splitlines()) > 1 or "\0" in heading:
            checks.violation("heading", f"must be one line of at most {MOST_HEADING_CHARS} characters")
        checks.check()
        return AppendJob(
            text,
            path=path or f"memory/{day.isoformat()}.md",
            requested_path=path,
            idempotency_key=key,
            heading=heading,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest(Request):
    """What to forget: a memory file by its path, a session by its id, or a text; exactly one of them is set.

    `delete_source` deletes the file or the transcripts too.
    """

    path: str | None = None
    session_id: str | None = None
    text: str | None = None
    delete_source: bool = False

    def check(self) -> None:
        """Raise `InvalidRequest` for a request that is not valid. Which paths are allowed is decided later."""
        checks = FieldChecks(self, self.unreadable)
        if self.path is None and self.session_id is None and self.text is None:
            checks.violation("target", "name what to forget: a path, a session_id or a text")
        checks.text("path", most_bytes=MOST_PATH_BYTES, required=self.path is not None)
        checks.text("session_id", most_bytes=MOST_NAME_BYTES, required=self.session_id is not None)
        checks.text("text", most_bytes=MOST_APPEND_BYTES, required=self.text is not None)
        if self.text is not None and self.delete_source:
            checks.violation("delete_source", "is allowed with a path or a session_id only: a text has no source file")
        checks.check()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest(Request):
    """A page of a list: at most `page_size` items after `page_token`. A `page_size` of 0 means the default."""

    page_size: int = 0
    page_token: str = ""

    def check(self) -> None:
        """Raise `InvalidRequest` for a request that is not valid. The edge that made the token checks it."""
        checks = FieldChecks(self, self.unreadable)
        checks.count("page_size")
        checks.text("page_token", most_bytes=MOST_PAGE_TOKEN_BYTES)
        checks.check()

    @property
    def size(self) -> int:
        """The most items of the page."""
        return min(self.page_size or DEFAULT_PAGE, MOST_PAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilesRequest(Request):
    """A page of the list of files. No `sources` means all. `include_excluded` lists what rules exclude, too."""

    page: PageRequest
    sources: tuple[Source, ...] = ()
    filter: FilterRequest = NO_FILTER
    include_excluded: bool = False

    def resolve(self) -> ChunkFilter:
        """Return the conditions on the files."""
        checks = FieldChecks(self.page, self.unreadable)
        checks.count("page_size")
        checks.text("page_token", most_bytes=MOST_PAGE_TOKEN_BYTES)
        among = ChunkFilter(checks.files(self.filter), self.sources)
        checks.check()
        return among
