"""Requests about a session: context, flush, archive and transcript. As in `requests`, `resolve` checks the fields."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.requests import MOST_NAME_BYTES, FieldChecks, Request
from memoryd_server.search import CitationMode
from memoryd_server.sessions import TOOL_NAMES, FlushInputs, SessionKey, TurnKind, WorkspaceAccess
from memoryd_server.sources import session_id_problem
from memoryd_server.writing import ArchiveRequest, make_slug

MOST_TOOLS = 1_024
MOST_SLUG_BYTES = 256
DEFAULT_MESSAGES = 15
MOST_MESSAGES = 200
MOST_RECORDS = 1_000
MOST_RECORD_BYTES = 3 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushRequest(Request):
    """The state of a session that may have to write its notes; see `FlushInputs`."""

    total_tokens: int | None = None
    total_tokens_fresh: bool | None = None
    incoming_prompt_tokens: int = 0
    last_output_tokens: int = 0
    context_window_tokens: int = 0
    reserve_tokens_floor: int | None = None
    effective_reserve_tokens: int | None = None
    soft_threshold_tokens: int | None = None
    transcript_bytes: int | None = None
    compaction_count: int = 0
    last_flush_compaction_count: int | None = None
    workspace_access: WorkspaceAccess = WorkspaceAccess.READ_WRITE
    turn_kind: TurnKind = TurnKind.USER
    now: datetime | None = None
    time_zone: str = ""

    def resolve(self, config: AgentConfig, now: datetime) -> FlushInputs:
        """Return the inputs of the decision; `now` replaces an unset clock. Blocks."""
        checks = FieldChecks(self, self.unreadable)
        now, time_zone = checks.moment(now, config.time_zone)
        inputs = FlushInputs(
            total_tokens=checks.optional_count("total_tokens"),
            total_tokens_fresh=self.total_tokens_fresh,
            incoming_prompt_tokens=checks.count("incoming_prompt_tokens"),
            last_output_tokens=checks.count("last_output_tokens"),
            context_window_tokens=checks.count("context_window_tokens"),
            reserve_tokens_floor=checks.optional_count("reserve_tokens_floor"),
            effective_reserve_tokens=checks.optional_count("effective_reserve_tokens"),
            soft_threshold_tokens=checks.optional_count("soft_threshold_tokens"),
            transcript_bytes=checks.optional_count("transcript_bytes"),
            compaction_count=checks.count("compaction_count"),
            last_flush_compaction_count=checks.optional_count("last_flush_compaction_count"),
            workspace_access=self.workspace_access,
            turn_kind=self.turn_kind,
            time_zone=time_zone,
            now=now,
        )
        checks.check()
        return inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionArchiveRequest(Request):
    """The last messages of a transcript, to be written to a memory file. An empty `slug` is replaced by a made one."""

    transcript: str
    message_count: int | None = None
    slug: str = ""
    session_key: str = ""
    now: datetime | None = None
    time_zone: str = ""

    def resolve(self, config: AgentConfig, now: datetime) -> ArchiveRequest:
        """Return the archive to write; `now` replaces an unset clock. Blocks."""
        checks = FieldChecks(self, self.unreadable)
        now, time_zone = checks.moment(now, config.time_zone)
        slug = checks.text("slug", most_bytes=MOST_SLUG_BYTES)
        checks.session_key(config.agent_id)
        archive = ArchiveRequest(
            transcript=checks.text("transcript", most_bytes=MOST_NAME_BYTES, required=True),
            count=checks.clamped("message_count", DEFAULT_MESSAGES, MOST_MESSAGES),
            slug=make_slug(slug),
            session_key=self.session_key.strip(),
            local=now.astimezone(ZoneInfo(time_zone)),
        )
        if slug.strip() and not archive.slug:
            checks.violation("slug", "holds no letter or digit; leave it empty for a generated one")
        if not archive.session_key.isprintable():
            checks.violation("session_key", "must be one line without control characters")
        checks.check()
        return archive


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAppendRequest(Request):
    """Records to append to the transcript of a session, if it has `expected_records` or that is None."""

    session_id: str
    records: tuple[str, ...]
    expected_records: int | None = None
    session_key: str = ""

    def resolve(self, agent_id: str) -> tuple[bytes, ...]:
        """Return the records as they are stored. Parses up to 3 MiB, so it is called on another thread."""
        checks = FieldChecks(self, self.unreadable)
        checks.session_key(agent_id)
        checks.optional_count("expected_records")
        if problem := session_id_problem(self.session_id):
            checks.violation("session_id", problem)
        records = tuple(record.encode() for record in self.records)
        size = sum(map(len, records))
        if not 1 <= len(records) <= MOST_RECORDS:
            checks.violation("records", f"has {len(records):,} records; 1 to {MOST_RECORDS:,} are allowed")
        elif size > MOST_RECORD_BYTES:
            checks.violation("records", f"has {size:,} bytes in total; at most {MOST_RECORD_BYTES:,} are allowed")
        else:
            for index, record in enumerate(self.records):
                if problem := _record_problem(record):
                    checks.violation(f"records[{index}]", problem)
        checks.check()
        return records


def _record_problem(record: str) -> str:
    """Return why a text cannot be a line of a transcript, or "" if it can."""
    if "\n" in record or "\r" in record:
        return "contains a line break; write the object on one line"
    try:
        value = json.loads(record, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        return f"is not valid JSON: {error.msg} at character {error.pos}"
    except ValueError:
        return "has a number that cannot be read: NaN, an infinity, or one of thousands of digits"
    except RecursionError:
        return "is nested too deeply"
    return "" if isinstance(value, dict) else "is not a JSON object"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


class PromptMode(StrEnum):
    """How much of its system prompt a session gets; the names of the wire's enum."""

    FULL = "FULL"
    MINIMAL = "MINIMAL"
    NONE = "NONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContextRequest(Request):
    """What a session loads at its start. No `tools` means that its model has all memory tools."""

    session_key: str = ""
    max_total_chars: int | None = None
    include_recall_prompt: bool = False
    prompt_mode: PromptMode = PromptMode.FULL
    tools: tuple[str, ...] = ()
    citations: CitationMode | None = None
    now: datetime | None = None
    time_zone: str = ""

    def resolve(self, config: AgentConfig, now: datetime) -> tuple[SessionKey, datetime]:
        """Return the session and its local time; `now` replaces an unset clock. Blocks."""
        checks = FieldChecks(self, self.unreadable)
        now, time_zone = checks.moment(now, config.time_zone)
        key = checks.session_key(config.agent_id)
        if len(self.tools) > MOST_TOOLS:
            checks.violation("tools", f"names {len(self.tools):,} tools; at most {MOST_TOOLS:,} are allowed")
        checks.positive("max_total_chars")
        checks.check()
        return key, now.astimezone(ZoneInfo(time_zone))

    @property
    def memory_tools(self) -> tuple[str, ...]:
        """The memory tools that the session's model has, in the order of `TOOL_NAMES`."""
        return tuple(name for name in TOOL_NAMES if name in self.tools) if self.tools else TOOL_NAMES
