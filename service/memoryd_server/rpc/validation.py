"""Requests into values, or every violation at once. Bounds and defaults are those of the contract's comments."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from google.protobuf.message import Message

from memoryd.v1 import memory_pb2, memory_service_pb2, sync_event_pb2
from memoryd_server.backend import AgentConfig, SyncTrigger
from memoryd_server.backend.session_keys import SessionKey, wants_citations
from memoryd_server.flush import FlushInputs, TurnKind, WorkspaceAccess
from memoryd_server.index.asks import EVERY_SOURCE, SyncAsk
from memoryd_server.index.progress import SyncMode
from memoryd_server.model import Source
from memoryd_server.rpc.fields import Fields
from memoryd_server.rpc.opaque import read_cursor
from memoryd_server.search.query import CitationMode, SearchMode, SearchQuery

MOST_QUERY_BYTES = 4_096
MOST_SESSION_KEY_BYTES = 1_024
MOST_RESULTS = 50
DEFAULT_SNIPPET_CHARS = 700
MOST_SNIPPET_CHARS = 4_000
DEFAULT_LINES = 120
MOST_LINES = 2_000
MOST_APPEND_BYTES = 256 * 1024
MOST_KEY_BYTES = 128
MOST_HEADING_CHARS = 200
MOST_PATH_BYTES = 4_096
DEFAULT_PAGE = 100
MOST_PAGE = 1_000

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


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A question with what the handler needs besides."""

    query: SearchQuery
    session_key: str
    min_revision: int | None
    explain: bool


@dataclass(frozen=True, slots=True)
class GetCall:
    """A line range."""

    path: str
    start_line: int
    line_count: int


@dataclass(frozen=True, slots=True)
class SyncCall:
    """A sync run to start, join or resume. `transcript` is the file name of the one that was compacted, if any.

    `session_key` is the session that starts, if any. `resume` is the run to resume and the sequence of its last event
    that the caller has.
    """

    mode: SyncMode
    trigger: SyncTrigger
    session_key: str
    ask: SyncAsk
    transcript: str
    resume: tuple[str, int] | None
    cancel_on_disconnect: bool
    heartbeat_seconds: float
    dry_run: bool


@dataclass(frozen=True, slots=True)
class AppendCall:
    """Text to append. `asked_path` is the path as the caller gave it, `path` the one with today's log filled in."""

    text: str
    path: str
    asked_path: str
    idempotency_key: str
    heading: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list: at most `size` items after `token`."""

    size: int
    token: str


def search_call(
    request: memory_service_pb2.MemorySearchRequest, config: AgentConfig, deadline: float, now: datetime
) -> SearchCall:
    """A checked MemorySearchRequest; `now` serves when the request tells no time."""
    fields = Fields(request)
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
    call = SearchCall(query, session_key, fields.optional_count("min_revision"), request.explain)
    fields.check()
    return call


def _sources(fields: Fields) -> tuple[Source, ...]:
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


def get_call(request: memory_service_pb2.MemoryGetRequest) -> GetCall:
    """A checked MemoryGetRequest. Which paths are allowed is decided where they are opened."""
    fields = Fields(request)
    call = GetCall(
        path=fields.text("path", most_bytes=MOST_PATH_BYTES, required=True),
        start_line=fields.clamped("start_line", 1, 2**31 - 1),
        line_count=fields.clamped("line_count", DEFAULT_LINES, MOST_LINES),
    )
    fields.check()
    return call


def sync_call(request: memory_service_pb2.SyncRequest, config: AgentConfig) -> SyncCall:
    """Return a checked SyncRequest.

    Raises:
        CursorMalformed: the cursor is not one of Sync.
    """
    fields = Fields(request)
    sources = _sources(fields)
    trigger = fields.choice("trigger", _TRIGGERS)
    transcript = fields.text("transcript", most_bytes=MOST_PATH_BYTES)
    fields.text("reason", most_bytes=256)
    cursor = fields.text("cursor", most_bytes=256)
    call = SyncCall(
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


def _sync_ask(sources: tuple[Source, ...], trigger: SyncTrigger, transcript: str, config: AgentConfig) -> SyncAsk:
    """What a run is to see to; a transcript that was compacted counts however little it has grown."""
    forced = transcript and config.sync.compaction_forces
    return SyncAsk(
        sources=frozenset(sources) or EVERY_SOURCE,
        every_transcript=trigger is SyncTrigger.MANUAL,
        transcripts=frozenset((transcript,) if forced else ()),
    )


def watch_heartbeat(request: memory_service_pb2.WatchIndexRequest) -> float:
    """The heartbeat interval of a WatchIndexRequest, in seconds."""
    fields = Fields(request)
    seconds = fields.heartbeat_seconds()
    fields.check()
    return seconds


def flush_inputs(request: memory_service_pb2.FlushDecisionRequest, config: AgentConfig, now: datetime) -> FlushInputs:
    """A checked FlushDecisionRequest; `now` serves when the request tells no time."""
    fields = Fields(request)
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


def append_call(request: memory_service_pb2.MemoryAppendRequest, config: AgentConfig, now: datetime) -> AppendCall:
    """A checked MemoryAppendRequest, its path filled in with today's log."""
    fields = Fields(request)
    now, time_zone = fields.moment(now, config.time_zone)
    day = now.astimezone(ZoneInfo(time_zone)).date()
    asked_path = fields.text("path", most_bytes=MOST_PATH_BYTES)
    call = AppendCall(
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


def page(request: Message) -> Page:
    """The page of a list request; the token is checked where it is decoded."""
    fields = Fields(request)
    size = fields.count("page_size")
    token = fields.text("page_token", most_bytes=MOST_PATH_BYTES * 2)
    fields.check()
    return Page(min(size or DEFAULT_PAGE, MOST_PAGE), token)
