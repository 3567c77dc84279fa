"""Protobuf into `agent` requests; nothing else.

Checks request fields one by one and remembers every violation, so that a caller mends them all at once.

Requests into values, or every violation at once. Bounds and defaults are those of the contract's comments.

Requests about sessions, and what to forget, into values; or every violation at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.v1 import memory_pb2, memory_service_pb2, sync_event_pb2
from memoryd_server.agent import (
    DEFAULT_LINES,
    DEFAULT_MESSAGES,
    DEFAULT_PAGE,
    DEFAULT_SNIPPET_CHARS,
    MOST_APPEND_BYTES,
    MOST_HEADING_CHARS,
    MOST_KEY_BYTES,
    MOST_LINES,
    MOST_MESSAGES,
    MOST_NAME_BYTES,
    MOST_PAGE,
    MOST_PATH_BYTES,
    MOST_QUERY_BYTES,
    MOST_RESULTS,
    MOST_SESSION_KEY_BYTES,
    MOST_SLUG_BYTES,
    MOST_SNIPPET_CHARS,
    MOST_TOOLS,
    AgentConfig,
    AppendRequest,
    ForgetRequest,
    PageRequest,
    ReadRequest,
    SearchRequest,
    SessionContextRequest,
    SyncRequest,
    SyncTrigger,
)
from memoryd_server.errors import FieldViolation, InvalidRequest
from memoryd_server.model import Source
from memoryd_server.rpc.wire import read_cursor
from memoryd_server.search import CitationMode, SearchMode, SearchQuery
from memoryd_server.sessions import TOOL_NAMES, FlushInputs, SessionKey, TurnKind, WorkspaceAccess, wants_citations
from memoryd_server.sync import EVERY_SOURCE, SyncMode, SyncScope
from memoryd_server.writing import ArchiveRequest, make_slug

_T = TypeVar("_T")

DEFAULT_HEARTBEAT_SECONDS = 10.0
_HEARTBEAT_BOUNDS = (1.0, 60.0)


class FieldReader:
    """The fields of one request. Each check answers with a usable value even when it notes a violation."""

    def __init__(self, request: Message) -> None:
        self._request = request
        self._violations: list[FieldViolation] = []

    def violation(self, field: str, description: str) -> None:
        """Notes that `field` is wrong."""
        self._violations.append(FieldViolation(field, description))

    def check(self) -> None:
        """Ends the checks.

        Raises:
            InvalidRequest: anything was wrong.
        """
        if self._violations:
            raise InvalidRequest(self._violations)

    def has(self, field: str) -> bool:
        """Whether an optional field is set."""
        return self._request.HasField(field)

    def text(self, field: str, *, most_bytes: int, required: bool = False) -> str:
        """A string of at most `most_bytes` bytes of UTF-8; not blank when it is required."""
        value = str(getattr(self._request, field))
        if required and not value.strip():
            self.violation(field, "must not be blank")
        if (size := len(value.encode())) > most_bytes:
            self.violation(field, f"is {size:,} bytes long; at most {most_bytes:,} are allowed")
        return value

    def clamped(self, field: str, default: int, most: int) -> int:
        """An optional positive number; what is above `most` counts as `most`."""
        if not self.has(field):
            return default
        value = int(getattr(self._request, field))
        if value < 1:
            self.violation(field, f"is {value}; it must be at least 1 (leave it unset for {default})")
        return max(1, min(value, most))

    def positive(self, field: str) -> int | None:
        """An optional number that is at least 1."""
        if not self.has(field):
            return None
        value = int(getattr(self._request, field))
        if value < 1:
            self.violation(field, f"is {value}; it must be at least 1 (leave it unset for no limit)")
        return max(1, value)

    def count(self, field: str) -> int:
        """A number that is not negative."""
        value = int(getattr(self._request, field))
        if value < 0:
            self.violation(field, f"is {value}; it must not be negative")
        return max(0, value)

    def optional_count(self, field: str) -> int | None:
        """An optional number that is not negative."""
        return self.count(field) if self.has(field) else None

    def share(self, field: str) -> float | None:
        """An optional number from 0 to 1."""
        if not self.has(field):
            return None
        value = float(getattr(self._request, field))
        if not 0.0 <= value <= 1.0:
            self.violation(field, f"is {value}; it must lie between 0 and 1")
            return None
        return value

    def choice(self, field: str, choices: Mapping[int, _T]) -> _T:
        """An enum's value as ours; an unknown number is a violation."""
        return self._chosen(field, int(getattr(self._request, field)), choices)

    def choices(self, field: str, choices: Mapping[int, _T]) -> tuple[_T, ...]:
        """A repeated enum's values as ours, each once."""
        numbers: Iterable[int] = getattr(self._request, field)
        return tuple(dict.fromkeys(self._chosen(field, number, choices) for number in numbers))

    def _chosen(self, field: str, number: int, choices: Mapping[int, _T]) -> _T:
        if number not in choices:
            self.violation(field, f"has the value {number}, which cannot be asked for here")
            return next(iter(choices.values()))
        return choices[number]

    def heartbeat_seconds(self) -> float:
        """The heartbeat interval, 1..60 s; 10 s when it is unset."""
        if not self.has("heartbeat_interval"):
            return DEFAULT_HEARTBEAT_SECONDS
        interval: Duration = self._request.heartbeat_interval  # type: ignore[attr-defined]
        seconds = interval.seconds + interval.nanos / 1e9
        least, most = _HEARTBEAT_BOUNDS
        if not least <= seconds <= most:
            self.violation("heartbeat_interval", f"is {seconds:g} s; it must lie between {least:g} and {most:g} s")
        return min(max(seconds, least), most)

    def moment(self, now: datetime, time_zone: str) -> tuple[datetime, str]:
        """The caller's clock in UTC and an IANA time zone that has that time; the arguments where they are unset."""
        told, zone = self.now(now), self._time_zone(time_zone)
        try:
            told.astimezone(ZoneInfo(zone))
        except OverflowError:
            self.violation("now", f"falls outside the years 1 to 9999 in the time zone {zone}")
            return now, zone
        return told, zone

    def _time_zone(self, default: str) -> str:
        name = str(getattr(self._request, "time_zone", "")) or default
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            self.violation("time_zone", f"{name[:64]!r} is not an IANA time zone such as Europe/Berlin")
            return "UTC"
        return name

    def now(self, default: datetime) -> datetime:
        """The caller's clock in UTC; `default` when it is unset."""
        if not self.has("now"):
            return default
        stamp: Timestamp = self._request.now  # type: ignore[attr-defined]
        try:
            return stamp.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError):
            self.violation("now", "is not a time between the years 1 and 9999")
            return default


_NO_SESSIONS = (
    "session transcripts are not a source of this agent; set memorySearch.experimental.sessionMemory, and name "
    '"sessions" in memorySearch.sources'
)
_NO_MEMORY = 'Markdown is not a source of this agent; name "memory" in memorySearch.sources'

_SOURCES: Mapping[int, Source | None] = {
    memory_pb2.SOURCE_UNSPECIFIED: None,
    memory_pb2.SOURCE_MEMORY: Source.MEMORY,
    memory_pb2.SOURCE_SESSIONS: Source.SESSIONS,
}
_MODES: Mapping[int, SearchMode] = dict(enumerate(SearchMode))
_SYNC_MODES: Mapping[int, SyncMode] = {
    sync_event_pb2.SYNC_MODE_UNSPECIFIED: SyncMode.INCREMENTAL,
    sync_event_pb2.SYNC_MODE_INCREMENTAL: SyncMode.INCREMENTAL,
    sync_event_pb2.SYNC_MODE_FULL: SyncMode.FULL,
}
_TRIGGERS: Mapping[int, SyncTrigger] = {
    sync_event_pb2.SYNC_TRIGGER_UNSPECIFIED: SyncTrigger.MANUAL,
    sync_event_pb2.SYNC_TRIGGER_MANUAL: SyncTrigger.MANUAL,
    sync_event_pb2.SYNC_TRIGGER_SESSION_START: SyncTrigger.SESSION_START,
    sync_event_pb2.SYNC_TRIGGER_POST_COMPACTION: SyncTrigger.POST_COMPACTION,
}
_ON_DISCONNECT: Mapping[int, bool] = {
    sync_event_pb2.ON_DISCONNECT_UNSPECIFIED: False,
    sync_event_pb2.ON_DISCONNECT_CONTINUE: False,
    sync_event_pb2.ON_DISCONNECT_CANCEL: True,
}
_ACCESS: Mapping[int, WorkspaceAccess] = {
    memory_service_pb2.WORKSPACE_ACCESS_UNSPECIFIED: WorkspaceAccess.READ_WRITE,
    memory_service_pb2.WORKSPACE_ACCESS_READ_WRITE: WorkspaceAccess.READ_WRITE,
    memory_service_pb2.WORKSPACE_ACCESS_READ_ONLY: WorkspaceAccess.READ_ONLY,
    memory_service_pb2.WORKSPACE_ACCESS_NONE: WorkspaceAccess.NONE,
}
_TURNS: Mapping[int, TurnKind] = {
    memory_service_pb2.TURN_KIND_UNSPECIFIED: TurnKind.USER,
    memory_service_pb2.TURN_KIND_USER: TurnKind.USER,
    memory_service_pb2.TURN_KIND_HEARTBEAT: TurnKind.HEARTBEAT,
    memory_service_pb2.TURN_KIND_CLI: TurnKind.CLI,
}


def search_call(
    request: memory_service_pb2.MemorySearchRequest, config: AgentConfig, deadline: float, now: datetime
) -> SearchRequest:
    """A checked MemorySearchRequest; `now` serves when the request tells no time."""
    fields = FieldReader(request)
    session_key = fields.text("session_key", most_bytes=MOST_SESSION_KEY_BYTES)
    citations = fields.choice("citations", citation_modes(config))
    min_score = fields.share("min_score")
    query = SearchQuery(
        text=fields.text("query", most_bytes=MOST_QUERY_BYTES, required=True),
        max_results=fields.clamped("max_results", min(config.max_results, MOST_RESULTS), MOST_RESULTS),
        min_score=config.min_score if min_score is None else min_score,
        min_score_is_strict=min_score is not None,
        sources=_sources(fields),
        mode=fields.choice("mode", _MODES),
        max_snippet_chars=fields.clamped("max_snippet_chars", DEFAULT_SNIPPET_CHARS, MOST_SNIPPET_CHARS),
        citations=wants_citations(citations, SessionKey.parse(session_key)),
        max_total_chars=fields.positive("max_total_chars"),
        deadline=deadline,
        now=fields.now(now),
    )
    call = SearchRequest(query, session_key, fields.optional_count("min_revision"), request.explain)
    fields.check()
    return call


def _sources(fields: FieldReader) -> tuple[Source, ...]:
    """The sources asked for; none for all that are configured, which is also what UNSPECIFIED among them means."""
    asked = fields.choices("sources", _SOURCES)
    return () if None in asked else tuple(source for source in asked if source is not None)


def citation_modes(config: AgentConfig) -> Mapping[int, CitationMode]:
    """The wire's modes; the agent's own where none is told."""
    return {
        memory_pb2.CITATION_MODE_UNSPECIFIED: config.citations,
        memory_pb2.CITATION_MODE_AUTO: CitationMode.AUTO,
        memory_pb2.CITATION_MODE_ON: CitationMode.ON,
        memory_pb2.CITATION_MODE_OFF: CitationMode.OFF,
    }


def get_call(request: memory_service_pb2.MemoryGetRequest) -> ReadRequest:
    """A checked MemoryGetRequest. Which paths are allowed is decided where they are opened."""
    fields = FieldReader(request)
    call = ReadRequest(
        path=fields.text("path", most_bytes=MOST_PATH_BYTES, required=True),
        start_line=fields.clamped("start_line", 1, 2**31 - 1),
        line_count=fields.clamped("line_count", DEFAULT_LINES, MOST_LINES),
    )
    fields.check()
    return call


def sync_call(request: memory_service_pb2.SyncRequest, config: AgentConfig) -> SyncRequest:
    """Return a checked SyncRequest.

    Raises:
        CursorMalformed: the cursor is not one of Sync.
    """
    fields = FieldReader(request)
    sources = _sources(fields)
    trigger = fields.choice("trigger", _TRIGGERS)
    transcript = fields.text("transcript", most_bytes=MOST_PATH_BYTES)
    fields.text("reason", most_bytes=256)
    cursor = fields.text("cursor", most_bytes=256)
    call = SyncRequest(
        mode=fields.choice("mode", _SYNC_MODES),
        trigger=trigger,
        session_key=fields.text("session_key", most_bytes=MOST_SESSION_KEY_BYTES),
        ask=_sync_ask(sources, trigger, transcript, config),
        transcript=transcript,
        resume=None,
        cancel_on_disconnect=fields.choice("on_disconnect", _ON_DISCONNECT),
        heartbeat_seconds=fields.heartbeat_seconds(),
        dry_run=request.dry_run,
    )
    if transcript and trigger is not SyncTrigger.POST_COMPACTION:
        fields.violation("transcript", "goes with the trigger POST_COMPACTION only")
    elif transcript and Source.SESSIONS not in config.sources:
        fields.violation("transcript", _NO_SESSIONS)
    if any(source not in config.sources for source in sources):
        fields.violation("sources", _NO_SESSIONS if Source.SESSIONS not in config.sources else _NO_MEMORY)
    fields.check()
    return replace(call, resume=read_cursor(cursor)) if cursor else call


def _sync_ask(sources: tuple[Source, ...], trigger: SyncTrigger, transcript: str, config: AgentConfig) -> SyncScope:
    """What a run is to see to; a transcript that was compacted counts however little it has grown."""
    forced = transcript and config.sync.compaction_forces
    return SyncScope(
        sources=frozenset(sources) or EVERY_SOURCE,
        every_transcript=trigger is SyncTrigger.MANUAL,
        transcripts=frozenset((transcript,) if forced else ()),
    )


def watch_heartbeat(request: memory_service_pb2.WatchIndexRequest) -> float:
    """The heartbeat interval of a WatchIndexRequest, in seconds."""
    fields = FieldReader(request)
    seconds = fields.heartbeat_seconds()
    fields.check()
    return seconds


def flush_inputs(request: memory_service_pb2.FlushDecisionRequest, config: AgentConfig, now: datetime) -> FlushInputs:
    """A checked FlushDecisionRequest; `now` serves when the request tells no time."""
    fields = FieldReader(request)
    now, time_zone = fields.moment(now, config.time_zone)
    inputs = FlushInputs(
        total_tokens=fields.optional_count("total_tokens"),
        total_tokens_fresh=request.total_tokens_fresh if fields.has("total_tokens_fresh") else None,
        incoming_prompt_tokens=fields.count("incoming_prompt_tokens"),
        last_output_tokens=fields.count("last_output_tokens"),
        context_window_tokens=fields.count("context_window_tokens"),
        reserve_tokens_floor=fields.optional_count("reserve_tokens_floor"),
        effective_reserve_tokens=fields.optional_count("effective_reserve_tokens"),
        soft_threshold_tokens=fields.optional_count("soft_threshold_tokens"),
        transcript_bytes=fields.optional_count("transcript_bytes"),
        compaction_count=fields.count("compaction_count"),
        last_flush_compaction_count=fields.optional_count("last_flush_compaction_count"),
        workspace_access=fields.choice("workspace_access", _ACCESS),
        turn_kind=fields.choice("turn_kind", _TURNS),
        time_zone=time_zone,
        now=now,
    )
    fields.check()
    return inputs


def append_call(request: memory_service_pb2.MemoryAppendRequest, config: AgentConfig, now: datetime) -> AppendRequest:
    """A checked MemoryAppendRequest, its path filled in with today's log."""
    fields = FieldReader(request)
    now, time_zone = fields.moment(now, config.time_zone)
    day = now.astimezone(ZoneInfo(time_zone)).date()
    asked_path = fields.text("path", most_bytes=MOST_PATH_BYTES)
    call = AppendRequest(
        text=fields.text("text", most_bytes=MOST_APPEND_BYTES, required=True),
        path=asked_path or f"memory/{day.isoformat()}.md",
        asked_path=asked_path,
        idempotency_key=fields.text("idempotency_key", most_bytes=MOST_KEY_BYTES),
        heading=request.heading.strip(),
    )
    if "\0" in call.text:
        fields.violation("text", "holds a NUL character, which would make the file unreadable as Markdown")
    if not (call.idempotency_key.isascii() and (call.idempotency_key.isprintable() or not call.idempotency_key)):
        fields.violation("idempotency_key", "must be printable ASCII")
    if len(call.heading) > MOST_HEADING_CHARS or len(call.heading.splitlines()) > 1 or "\0" in call.heading:
        fields.violation("heading", f"must be one line of at most {MOST_HEADING_CHARS} characters")
    fields.check()
    return call


def page(request: Message) -> PageRequest:
    """The page of a list request; the token is checked where it is decoded."""
    fields = FieldReader(request)
    size = fields.count("page_size")
    token = fields.text("page_token", most_bytes=MOST_PATH_BYTES * 2)
    fields.check()
    return PageRequest(min(size or DEFAULT_PAGE, MOST_PAGE), token)


# Whether there is a recall section in a system prompt of this mode.
_HAS_SECTION: Mapping[int, bool] = {
    memory_service_pb2.PROMPT_MODE_UNSPECIFIED: True,
    memory_service_pb2.PROMPT_MODE_FULL: True,
    memory_service_pb2.PROMPT_MODE_MINIMAL: False,
    memory_service_pb2.PROMPT_MODE_NONE: False,
}


def archive_call(
    request: memory_service_pb2.SessionArchiveRequest, config: AgentConfig, now: datetime
) -> ArchiveRequest:
    """A checked SessionArchiveRequest; `now` serves when the request tells no time."""
    fields = FieldReader(request)
    now, time_zone = fields.moment(now, config.time_zone)
    slug = fields.text("slug", most_bytes=MOST_SLUG_BYTES)
    call = ArchiveRequest(
        transcript=fields.text("transcript", most_bytes=MOST_NAME_BYTES, required=True),
        count=fields.clamped("message_count", DEFAULT_MESSAGES, MOST_MESSAGES),
        slug=make_slug(slug),
        session_key=fields.text("session_key", most_bytes=MOST_SESSION_KEY_BYTES).strip(),
        local=now.astimezone(ZoneInfo(time_zone)),
    )
    if slug.strip() and not call.slug:
        fields.violation("slug", "holds no letter or digit; leave it empty to have one made")
    if not call.session_key.isprintable():
        fields.violation("session_key", "must be one line without control characters")
    fields.check()
    return call


def forget_call(request: memory_service_pb2.MemoryForgetRequest) -> ForgetRequest:
    """A checked MemoryForgetRequest. Which paths are allowed is decided where they are opened."""
    fields = FieldReader(request)
    named = request.WhichOneof("target")
    if named is None:
        fields.violation("target", "name what to forget: a path, a session_id or a text")
    call = ForgetRequest(
        path=fields.text("path", most_bytes=MOST_PATH_BYTES, required=named == "path"),
        session_id=fields.text("session_id", most_bytes=MOST_NAME_BYTES, required=named == "session_id"),
        text=fields.text("text", most_bytes=MOST_APPEND_BYTES, required=named == "text"),
        delete_source=request.delete_source,
    )
    if named == "text" and request.delete_source:
        fields.violation("delete_source", "goes with a path or a session_id: a text has no source of its own")
    fields.check()
    return call


def context_call(
    request: memory_service_pb2.SessionContextRequest, config: AgentConfig, now: datetime
) -> SessionContextRequest:
    """A checked SessionContextRequest; `now` serves when the request tells no time."""
    fields = FieldReader(request)
    now, time_zone = fields.moment(now, config.time_zone)
    session_key = fields.text("session_key", most_bytes=MOST_SESSION_KEY_BYTES)
    key = SessionKey.parse(session_key)
    has_section = fields.choice("prompt_mode", _HAS_SECTION)
    citations = fields.choice("citations", citation_modes(config))
    if len(request.tools) > MOST_TOOLS:
        fields.violation("tools", f"names {len(request.tools):,} tools; at most {MOST_TOOLS:,} are allowed")
    call = SessionContextRequest(
        session_key=session_key,
        main_session=key.is_main_session(config.agent_id),
        today=now.astimezone(ZoneInfo(time_zone)).date(),
        max_total_chars=fields.positive("max_total_chars"),
        section=request.include_recall_prompt and has_section,
        schemas=request.include_recall_prompt,
        tools=tuple(name for name in TOOL_NAMES if name in request.tools) if request.tools else TOOL_NAMES,
        cites=wants_citations(citations, key),
    )
    fields.check()
    return call
