"""The files that a session loads at its start, and what its session key says.

The files are the long-term memory and the facts about the user, in private sessions only, and the notes of some days.

A key is `agent:<agent id>:<rest>` or the rest alone. The rest is `main`, `main:thread:<thread>`,
`<channel>:<kind>:<peer>` with further parts, `subagent:<name>` or any other text.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.search import CitationMode, cut_text
from memoryd_server.sessions.daily_notes import StartupContext, log_paths, note_paths
from memoryd_server.sources import LONG_TERM_NAMES, USER_FILE, Corpus, FileTooLarge

MOST_CHARS = 65_536
MOST_TOTAL_CHARS = 8 * MOST_CHARS
"""The most code points of one file and of all files in a context, whatever the budget, so that a response stays below
4 MiB."""

USER_CHARS = 4_000
"""The most code points of `USER.md`, as in OpenClaw."""


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A file of a session's context. The lines are 0 if there is no text; `problem` says why the file was not read."""

    path: str
    text: str = ""
    start_line: int = 0
    end_line: int = 0
    truncated: bool = False
    exists: bool = True
    problem: str = ""


def load_context(
    corpus: Corpus,
    *,
    main_session: bool,
    today: date,
    max_total_chars: int | None,
    max_file_bytes: int,
    startup: StartupContext,
) -> tuple[ContextFile, ...]:
    """Return the files in the order in which to load them, with their texts within the budget in code points.

    Of a text that does not fit, a log keeps its last lines and any other file its first ones. Blocks.
    """
    curated = [_long_term(corpus, max_file_bytes), *_user_file(corpus, max_file_bytes)] if main_session else []
    notes = list(_load_notes(corpus, today, startup, max_file_bytes)) if startup.enabled else []
    of_curated = [min(len(file.text), USER_CHARS if file.path == USER_FILE else MOST_CHARS) for file in curated]
    of_notes = [min(len(file.text), startup.max_file_chars or MOST_CHARS) for file in notes]
    budget = MOST_TOTAL_CHARS if max_total_chars is None else min(max_total_chars, MOST_TOTAL_CHARS)
    shares = _shares([*of_curated, *_shares(of_notes, startup.max_total_chars)], budget)
    logs = log_paths(today, startup.daily_memory_days)
    files = [*curated, *notes]
    return tuple(_fit(file, share, keep_end=file.path in logs) for file, share in zip(files, shares, strict=True))


def _load_notes(corpus: Corpus, today: date, startup: StartupContext, max_file_bytes: int) -> Iterator[ContextFile]:
    most, key = max_file_bytes, _MAX_FILE_BYTES
    if startup.max_file_bytes is not None and startup.max_file_bytes < max_file_bytes:
        most, key = startup.max_file_bytes, "agents.defaults.startupContext.maxFileBytes"
    for path in note_paths(corpus, today, startup.daily_memory_days):
        yield _load(corpus, path, most, key)


def _user_file(corpus: Corpus, max_file_bytes: int) -> Iterator[ContextFile]:
    """Yield the file with facts about the user, if it exists."""
    file = _load(corpus, USER_FILE, max_file_bytes)
    if file.exists:
        yield file


_MAX_FILE_BYTES = "memoryd.limits.maxFileBytes"


def _long_term(corpus: Corpus, max_file_bytes: int) -> ContextFile:
    """Return the long-term memory under the first of its names that exists."""
    candidates = (_load(corpus, name, max_file_bytes) for name in LONG_TERM_NAMES)
    return next((file for file in candidates if file.exists), ContextFile(LONG_TERM_NAMES[0], exists=False))


def _load(corpus: Corpus, path: str, max_file_bytes: int, limit: str = _MAX_FILE_BYTES) -> ContextFile:
    """Return a whole file. `limit` is the setting with the maximum size."""
    try:
        data, _ = corpus.read(corpus.resolve(path), max_file_bytes)
    except FileNotFound:
        return ContextFile(path, exists=False)
    except FileTooLarge:
        problem = f"it has more than {max_file_bytes} bytes ({limit})"
        return ContextFile(path, truncated=True, problem=problem)
    except PathNotAllowed as error:
        return ContextFile(path, truncated=True, problem=error.message)
    except OSError as error:
        return ContextFile(path, truncated=True, problem=error.strerror or str(error))
    text = data.decode("utf-8", "replace")
    return ContextFile(path, text, 1, text.count("\n") + 1) if text else ContextFile(path)


def _shares(sizes: Sequence[int], budget: int | None) -> list[int]:
    """Return each size's share of the budget: an equal part, plus an equal part of what smaller sizes leave over."""
    if budget is None:
        return list(sizes)
    shares = [0] * len(sizes)
    for waiting, at in zip(range(len(sizes), 0, -1), sorted(range(len(sizes)), key=sizes.__getitem__), strict=True):
        shares[at] = min(sizes[at], budget // waiting)
        budget -= shares[at]
    return shares


def _fit(file: ContextFile, room: int, *, keep_end: bool) -> ContextFile:
    """Cut the file's text to `room`: whole lines from one of its ends, or the beginning of a line if none fits."""
    if len(file.text) <= room:
        return file
    lines = file.text.split("\n")
    kept = _fitting_lines(reversed(lines) if keep_end else lines, room)
    first = len(lines) - len(kept) if keep_end else 0
    if any(kept):
        text = "\n".join(lines[first : first + len(kept)])
        return replace(file, text=text, start_line=first + 1, end_line=first + len(kept), truncated=True)
    # The line that is too long follows the empty ones.
    at = first - 1 if keep_end else len(kept)
    number = at + 1 if room else 0
    return replace(file, text=cut_text(lines[at], room), start_line=number, end_line=number, truncated=True)


def _fitting_lines(lines: Iterable[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        room -= len(line) + bool(kept)
        if room < 0:
            break
        kept.append(line)
    return kept


_AGENT = "agent"
_MAIN = "main"
_THREAD = "thread"
_SUBAGENT = "subagent"
_SHARED_KINDS = ("group", "channel")
_KINDS = frozenset({*_SHARED_KINDS, "direct", "dm"})
_CHANNEL_PARTS = 3
_THREAD_PARTS = 3


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session key in lower case, without blanks around it.

    `raw` is the whole key. `agent_id` is None if the key does not begin with `agent:`. `parts` are the parts of the
    rest, separated by colons. `owner` is the id of the agent that the key names; empty if there is no id or no rest.
    """

    raw: str
    agent_id: str | None
    parts: tuple[str, ...]
    owner: str = ""

    @classmethod
    @lru_cache(maxsize=1_000)
    def parse(cls, text: str) -> "SessionKey":
        """Return the key of `text`; every text is a key."""
        raw = text.strip().lower()
        parts = tuple(raw.split(":"))
        if parts[0] != _AGENT:
            return cls(raw, None, parts)
        agent_id, rest = "".join(parts[1:2]), parts[2:]
        return cls(raw, agent_id, rest, agent_id.strip() if any(rest) else "")

    def is_main_session(self, agent_id: str) -> bool:
        """Return whether the key names the agent's private main session, or a thread of it.

        That is `main` or `agent:<agent_id>:main`. False for groups, channels, chats with a peer, scheduled jobs,
        sub-agents, another agent's main session and an empty key, because nothing shows that these are private.
        """
        if self.agent_id not in (None, agent_id):
            return False
        is_thread = len(self.parts) >= _THREAD_PARTS and self.parts[1] == _THREAD and all(self.parts)
        return self.parts[:1] == (_MAIN,) and (len(self.parts) == 1 or is_thread)

    @property
    def is_direct(self) -> bool:
        """True if no part of the rest is `group` or `channel`. True for an empty key, as in OpenClaw."""
        return not set(_SHARED_KINDS) & set(self.parts)

    @property
    def key(self) -> str:
        """The rest, or the whole key if there is no rest; empty for a sub-agent."""
        parts = self._known_parts
        return "" if parts[0] == _SUBAGENT else ":".join(parts)

    @property
    def channel(self) -> str:
        """The channel of a key `<channel>:<kind>:<peer>`, for example `slack`; else empty."""
        return self._known_parts[0] if self.key and self._has_channel else ""

    @property
    def chat_type(self) -> str:
        """`group`, `channel` or `direct`; empty for an empty key and for a sub-agent."""
        if not self.key:
            return ""
        if self._has_channel:
            return next((kind for kind in _SHARED_KINDS if kind in self._known_parts), "direct")
        return next((kind for kind in _SHARED_KINDS if f":{kind}:" in self.key), "direct")

    @property
    def _known_parts(self) -> tuple[str, ...]:
        return self.parts or tuple(self.raw.split(":"))

    @property
    def _has_channel(self) -> bool:
        parts = self._known_parts
        return len(parts) >= _CHANNEL_PARTS and parts[1] in _KINDS


@lru_cache(maxsize=1_000)
def wants_citations(mode: CitationMode, session_key: SessionKey) -> bool:
    """Return whether snippets carry citations; `auto` means in direct chats only."""
    return mode is CitationMode.ON or (mode is CitationMode.AUTO and session_key.is_direct)


REMEMBERED_SESSIONS = 10_000
"""The oldest sessions are dropped first; a dropped session causes one more sync when it is seen again."""


class SeenSessions:
    """One agent's sessions since the daemon's start, so that the start of each counts once.

    Used on the event loop's thread.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()

    def is_first(self, session_key: str) -> bool:
        """Return whether a session is seen for the first time; False for an empty key."""
        if not session_key or session_key in self._seen:
            return False
        self._seen[session_key] = None
        if len(self._seen) > REMEMBERED_SESSIONS:
            self._seen.popitem(last=False)
        return True
