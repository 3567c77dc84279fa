"""Requests of all edges: bounds, defaults, violations."""

from dataclasses import dataclass
from datetime import date

from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.search import SearchQuery
from memoryd_server.sync import SyncMode, SyncScope

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


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A question with what the handler needs besides."""

    query: SearchQuery
    session_key: str
    min_revision: int | None
    explain: bool


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A line range."""

    path: str
    start_line: int
    line_count: int


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A sync run to start, join or resume. `transcript` is the file name of the one that was compacted, if any.

    `session_key` is the session that starts, if any. `resume` is the run to resume and the sequence of its last event
    that the caller has.
    """

    mode: SyncMode
    trigger: SyncTrigger
    session_key: str
    ask: SyncScope
    transcript: str
    resume: tuple[str, int] | None
    cancel_on_disconnect: bool
    heartbeat_seconds: float
    dry_run: bool


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Text to append. `asked_path` is the path as the caller gave it, `path` the one with today's log filled in."""

    text: str
    path: str
    asked_path: str
    idempotency_key: str
    heading: str


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page of a list: at most `size` items after `token`."""

    size: int
    token: str


MOST_TOOLS = 1_024
MOST_NAME_BYTES = 255
MOST_SLUG_BYTES = 256
DEFAULT_MESSAGES = 15
MOST_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class SessionContextRequest:
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
