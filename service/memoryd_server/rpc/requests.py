"""The bytes of a request into a protobuf message, and protobuf messages into the requests of `agent`.

Only what belongs to the wire is checked here: numbers of enums, timestamps and cursors. A violation found here goes
into the request's `unreadable`, so that `agent` reports it together with its own.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.v1 import memory_pb2, memory_service_pb2, sync_event_pb2
from memoryd_server.agent import (
    NO_FILTER,
    AppendRequest,
    CitationMode,
    FieldChecks,
    FileLines,
    FilterRequest,
    ForgetRequest,
    ListFilesRequest,
    MemoryRecallRequest,
    MissRequest,
    PageRequest,
    ReadRequest,
    SearchMode,
    SearchRequest,
    SyncMode,
    SyncRequest,
    SyncTrigger,
    WatchRequest,
    agent_of_session,
)
from memoryd_server.errors import DeadlineTooShort, FieldViolation, InvalidRequest
from memoryd_server.model import Source
from memoryd_server.rpc.wire import Context, read_cursor

_T = TypeVar("_T")


class RequestDecoder:
    """Decodes the requests of one method into the type that `deserialize` returns.

    gRPC itself would deserialize before the interceptor runs, even for callers without a token, and would answer
    UNKNOWN to bytes that are not a message. A call waits `seconds` for its first request, which has at most
    `most_bytes`.
    """

    def __init__(
        self, deserialize: Callable[[bytes], Any] | None, seconds: float, *, most_bytes: int | None = None
    ) -> None:
        self._deserialize = deserialize
        self._seconds = seconds
        self._most_bytes = most_bytes

    def request(self, data: Any) -> Any:
        """Return the request in `data`.

        Raises:
            InvalidRequest: the bytes are not a message of the method's type, or are too many.
        """
        if self._deserialize is None:
            return data
        if self._most_bytes is not None and len(data) > self._most_bytes:
            words = f"has {len(data):,} bytes; requests of this method have at most {self._most_bytes:,}"
            raise InvalidRequest([FieldViolation("request", words)])
        try:
            request = self._deserialize(data)
            return _without_unknown_fields(request) if len(data) > SMALL_REQUEST_BYTES else request
        except DecodeError as error:
            words = "the bytes are not a message of this method's type; regenerate the client from memoryd's protos"
            raise InvalidRequest([FieldViolation("request", words)]) from error

    async def only(self, context: Context) -> Any:
        """Return the one request of a call.

        Raises:
            DeadlineTooShort: it did not arrive in time.
            InvalidRequest: it is not a message of the method's type, or the client sent none.
        """
        data = await self._first(context)
        if data is grpc.aio.EOF:
            raise InvalidRequest([FieldViolation("request", "the call ended without a request; send one message")])
        return self.request(data)

    async def each(self, context: Context) -> AsyncIterator[Any]:
        """Return an iterator over the requests of a stream, which raises as `only` does, but for a stream of none."""
        return self._each(context)

    async def _each(self, context: Context) -> AsyncGenerator[Any, None]:
        data = await self._first(context)
        while data is not grpc.aio.EOF:
            yield self.request(data)
            data = await context.read()

    async def _first(self, context: Context) -> Any:
        try:
            async with asyncio.timeout(self._seconds):
                return await context.read()
        except TimeoutError:
            raise DeadlineTooShort(
                f"no request arrived within {self._seconds:g} s of the call's headers; send it together with them"
            ) from None


SMALL_REQUEST_BYTES = 64 * 2**10
"""A stream keeps its request as long as it runs, so its request has at most this size."""


def _without_unknown_fields(request: Any) -> Any:
    """Return a copy that does not keep the memory of fields that memoryd does not know."""
    request.DiscardUnknownFields()
    return type(request).FromString(request.SerializeToString())


MOST_CURSOR_BYTES = 256


class FieldReader(FieldChecks):
    """Reads the fields of one protobuf message. An optional field that is not set is None."""

    def __init__(self, message: Message) -> None:
        super().__init__(message)
        self._message = message

    def value(self, field: str) -> Any:
        """Return the value of a field; None if the field tracks whether it is set, and is not."""
        if self._message.DESCRIPTOR.fields_by_name[field].has_presence and not self._message.HasField(field):
            return None
        return getattr(self._message, field)

    def choice(self, field: str, choices: Mapping[int, _T]) -> _T:
        """Return the value of an enum; an unknown number is a violation."""
        return self._chosen(field, int(getattr(self._message, field)), choices)

    def choices(self, field: str, choices: Mapping[int, _T]) -> tuple[_T, ...]:
        """Return the values of a repeated enum, each of them once."""
        numbers: Iterable[int] = getattr(self._message, field)
        return tuple(dict.fromkeys(self._chosen(field, number, choices) for number in numbers))

    def _chosen(self, field: str, number: int, choices: Mapping[int, _T]) -> _T:
        if number not in choices:
            self.violation(field, f"has the value {number}, which is not allowed here")
            return next(iter(choices.values()))
        return choices[number]

    def sources(self) -> tuple[Source, ...]:
        """Return the named sources; none for all sources, which UNSPECIFIED among them means as well."""
        named = self.choices("sources", _SOURCES)
        return () if None in named else tuple(source for source in named if source is not None)

    def sources_and_entries(self) -> tuple[tuple[Source, ...], bool, bool]:
        """Return the named sources of files as `sources` does, whether entries are named, and whether files are."""
        named = self.choices("sources", _SOURCES_AND_ENTRIES)
        sources = tuple(source for source in named if isinstance(source, Source))
        entries = _ENTRIES in named
        return (() if None in named else sources), entries, None in named or bool(sources) or not entries

    def filter(self) -> FilterRequest:
        """Return the conditions on files."""
        message: memory_service_pb2.MemoryFilter | None = self.value("filter")
        if message is None:
            return NO_FILTER
        return FilterRequest(
            since=message.since,
            until=message.until,
            path_prefixes=tuple(message.path_prefixes),
            front_matter=tuple((each.key, tuple(each.values)) for each in message.front_matter),
        )

    def now(self) -> datetime | None:
        """Return the caller's clock in UTC; None if it is not set."""
        stamp: Timestamp | None = self.value("now")
        if stamp is None:
            return None
        try:
            return stamp.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError):
            self.violation("now", "is not a time between the years 1 and 9999")
            return None

    def citations(self) -> CitationMode | None:
        """Return whether to cite; None for the default."""
        return self.choice("citations", _CITATIONS)

    def seconds(self, field: str) -> float | None:
        """Return a duration in seconds; None if it is not set."""
        duration: Duration | None = self.value(field)
        return None if duration is None else duration.seconds + duration.nanos / 1e9


_SOURCES: Mapping[int, Source | None] = {
    memory_pb2.SOURCE_UNSPECIFIED: None,
    memory_pb2.SOURCE_MEMORY: Source.MEMORY,
    memory_pb2.SOURCE_SESSIONS: Source.SESSIONS,
}
_ENTRIES = "entries"
_SOURCES_AND_ENTRIES: Mapping[int, Source | str | None] = {**_SOURCES, memory_pb2.SOURCE_ENTRIES: _ENTRIES}
_MODES: Mapping[int, SearchMode] = dict(enumerate(SearchMode))
_CITATIONS: Mapping[int, CitationMode | None] = {
    memory_pb2.CITATION_MODE_UNSPECIFIED: None,
    memory_pb2.CITATION_MODE_AUTO: CitationMode.AUTO,
    memory_pb2.CITATION_MODE_ON: CitationMode.ON,
    memory_pb2.CITATION_MODE_OFF: CitationMode.OFF,
}
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
_ON_CONFLICT: Mapping[int, bool] = {
    sync_event_pb2.ON_CONFLICT_UNSPECIFIED: False,
    sync_event_pb2.ON_CONFLICT_ABORT: False,
    sync_event_pb2.ON_CONFLICT_WAIT: True,
}


def name_agent(request: Any) -> None:
    """Set an empty `agent_id` to the agent that the session key of the request, or of its search, names, if any."""
    key = getattr(getattr(request, "search", request), "session_key", "")
    if key and not request.agent_id.strip():
        request.agent_id = agent_of_session(key)


def search_request(message: memory_service_pb2.MemorySearchRequest) -> SearchRequest:
    """Return the request of a MemorySearch."""
    fields = FieldReader(message)
    sources, entries, files = fields.sources_and_entries()
    return SearchRequest(
        query=message.query,
        max_results=fields.value("max_results"),
        min_score=fields.value("min_score"),
        sources=sources,
        entries=entries,
        search_files=files,
        filter=fields.filter(),
        mode=fields.choice("mode", _MODES),
        max_snippet_chars=fields.value("max_snippet_chars"),
        citations=fields.citations(),
        max_total_chars=fields.value("max_total_chars"),
        session_key=message.session_key,
        min_revision=fields.value("min_revision"),
        now=fields.now(),
        active_projects=tuple(message.active_projects),
        abstain_below=fields.value("abstain_below"),
        explain=message.explain,
        max_staleness=fields.seconds("max_staleness"),
        unreadable=tuple(fields.violations),
    )


def miss_request(message: memory_service_pb2.ExplainMissRequest) -> MissRequest:
    """Return the request of an ExplainMiss."""
    return MissRequest(
        search=search_request(message.search),
        path=message.path,
        line=FieldReader(message).value("line"),
        search_agent_id=message.search.agent_id,
    )


def recall_request(message: memory_service_pb2.MemoryRecallRequest) -> MemoryRecallRequest:
    """Return the request of a MemoryRecall."""
    fields = FieldReader(message)
    sources, entries, files = fields.sources_and_entries()
    return MemoryRecallRequest(
        text=message.text,
        session_key=message.session_key,
        recent_messages=tuple(message.recent_messages),
        max_tokens=fields.value("max_tokens"),
        max_chars=fields.value("max_chars"),
        sources=sources,
        entries=entries,
        search_files=files,
        filter=fields.filter(),
        seen=tuple(FileLines(seen.path, seen.start_line, seen.end_line) for seen in message.seen),
        remember_shown=message.remember_shown,
        now=fields.now(),
        active_projects=tuple(message.active_projects),
        min_confidence=fields.value("min_confidence"),
        max_staleness=fields.seconds("max_staleness"),
        unreadable=tuple(fields.violations),
    )


def read_request(message: memory_service_pb2.MemoryGetRequest) -> ReadRequest:
    """Return the request of a MemoryGet."""
    fields = FieldReader(message)
    return ReadRequest(
        path=message.path,
        start_line=fields.value("start_line"),
        line_count=fields.value("line_count"),
        from_line=fields.value("from_line"),
        lines=fields.value("lines"),
        include_chunks=message.include_chunks,
        max_staleness=fields.seconds("max_staleness"),
    )


def sync_request(message: memory_service_pb2.SyncRequest) -> SyncRequest:
    """Return the request of a Sync.

    Raises:
        CursorMalformed: the cursor is not one of Sync, and no field is unreadable.
    """
    fields = FieldReader(message)
    mode = fields.choice("mode", _SYNC_MODES)
    trigger = fields.choice("trigger", _TRIGGERS)
    sources = fields.sources()
    cancel_on_disconnect = fields.choice("on_disconnect", _ON_DISCONNECT)
    wait_on_conflict = fields.choice("on_conflict", _ON_CONFLICT)
    cursor = fields.text("cursor", most_bytes=MOST_CURSOR_BYTES)
    return SyncRequest(
        mode=mode,
        trigger=trigger,
        session_key=message.session_key,
        sources=sources,
        transcript=message.transcript,
        reason=message.reason,
        resume=read_cursor(cursor) if cursor and not fields.violations else None,
        cancel_on_disconnect=cancel_on_disconnect,
        wait_on_conflict=wait_on_conflict,
        heartbeat_interval=fields.seconds("heartbeat_interval"),
        dry_run=message.dry_run,
        unreadable=tuple(fields.violations),
    )


def watch_request(message: memory_service_pb2.WatchIndexRequest) -> WatchRequest:
    """Return the request of a WatchIndex."""
    return WatchRequest(heartbeat_interval=FieldReader(message).seconds("heartbeat_interval"))


def append_request(message: memory_service_pb2.MemoryAppendRequest) -> AppendRequest:
    """Return the request of a MemoryAppend."""
    fields = FieldReader(message)
    return AppendRequest(
        text=message.text,
        path=message.path,
        idempotency_key=message.idempotency_key,
        heading=message.heading,
        now=fields.now(),
        time_zone=message.time_zone,
        unreadable=tuple(fields.violations),
    )


def forget_request(message: memory_service_pb2.MemoryForgetRequest) -> ForgetRequest:
    """Return the request of a MemoryForget."""
    fields = FieldReader(message)
    return ForgetRequest(
        path=fields.value("path"),
        session_id=fields.value("session_id"),
        text=fields.value("text"),
        delete_source=message.delete_source,
    )


def list_files_request(message: memory_service_pb2.ListFilesRequest) -> ListFilesRequest:
    """Return the request of a ListFiles."""
    fields = FieldReader(message)
    return ListFilesRequest(
        page=page_request(message),
        sources=fields.sources(),
        filter=fields.filter(),
        include_excluded=message.include_excluded,
        unreadable=tuple(fields.violations),
    )


def page_request(message: Any) -> PageRequest:
    """Return the page that the request of a list names."""
    return PageRequest(page_size=message.page_size, page_token=message.page_token)
