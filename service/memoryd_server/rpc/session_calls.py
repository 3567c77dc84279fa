"""Requests about sessions, and what to forget, into values; or every violation at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from zoneinfo import ZoneInfo

from memoryd.v1 import memory_service_pb2
from memoryd_server.backend import AgentConfig
from memoryd_server.backend.forget_job import ForgetRequest
from memoryd_server.backend.session_keys import SessionKey, wants_citations
from memoryd_server.recall import TOOL_NAMES
from memoryd_server.rpc.fields import Fields
from memoryd_server.rpc.validation import (
    MOST_APPEND_BYTES,
    MOST_PATH_BYTES,
    MOST_SESSION_KEY_BYTES,
    citation_modes,
)
from memoryd_server.writing.archive import ArchiveRequest
from memoryd_server.writing.archive_name import slug_of

MOST_TOOLS = 1_024
MOST_NAME_BYTES = 255
MOST_SLUG_BYTES = 256
DEFAULT_MESSAGES = 15
MOST_MESSAGES = 200

# Whether there is a recall section in a system prompt of this mode.
_HAS_SECTION: Mapping[int, bool] = {
    memory_service_pb2.PROMPT_MODE_UNSPECIFIED: True,
    memory_service_pb2.PROMPT_MODE_FULL: True,
    memory_service_pb2.PROMPT_MODE_MINIMAL: False,
    memory_service_pb2.PROMPT_MODE_NONE: False,
}


@dataclass(frozen=True, slots=True)
class ContextCall:
    """What a session wants at its start. `tools` are the memory tools that its model is given.

    `section` is whether the recall section is wanted, `schemas` whether the tools' schemas are, and `cites` whether
    replies may name paths.
    """

    session_key: str
    main_session: bool
    today: date
    max_total_chars: int | None
    section: bool
    schemas: bool
    tools: tuple[str, ...]
    cites: bool


def archive_call(
    request: memory_service_pb2.SessionArchiveRequest, config: AgentConfig, now: datetime
) -> ArchiveRequest:
    """A checked SessionArchiveRequest; `now` serves when the request tells no time."""
    fields = Fields(request)
    now, time_zone = fields.moment(now, config.time_zone)
    slug = fields.text("slug", most_bytes=MOST_SLUG_BYTES)
    call = ArchiveRequest(
        transcript=fields.text("transcript", most_bytes=MOST_NAME_BYTES, required=True),
        count=fields.clamped("message_count", DEFAULT_MESSAGES, MOST_MESSAGES),
        slug=slug_of(slug),
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
    fields = Fields(request)
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


def context_call(request: memory_service_pb2.SessionContextRequest, config: AgentConfig, now: datetime) -> ContextCall:
    """A checked SessionContextRequest; `now` serves when the request tells no time."""
    fields = Fields(request)
    now, time_zone = fields.moment(now, config.time_zone)
    session_key = fields.text("session_key", most_bytes=MOST_SESSION_KEY_BYTES)
    key = SessionKey.parse(session_key)
    has_section = fields.choice("prompt_mode", _HAS_SECTION)
    citations = fields.choice("citations", citation_modes(config))
    if len(request.tools) > MOST_TOOLS:
        fields.violation("tools", f"names {len(request.tools):,} tools; at most {MOST_TOOLS:,} are allowed")
    call = ContextCall(
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
