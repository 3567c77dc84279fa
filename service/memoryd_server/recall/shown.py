"""What each session has already seen, so that no recall repeats it. In memory only."""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from memoryd_server.recall.duplicates import shown_text, statements

IDLE_SECONDS = 24 * 3600.0
MOST_SESSIONS = 1_024
MOST_CHARS_PER_SESSION = 256 * 1024
"""Characters of the statements that a session has seen; the oldest are dropped."""
MOST_CHARS = 8 * 2**20
"""The same for all sessions of an agent."""
MOST_RANGES_PER_SESSION = 256
MOST_PART_CHARS = 32 * 1024
"""Characters in which parts of statements are looked for: those that were seen last."""


class FileLines(NamedTuple):
    """Lines of a file, 1-based and inclusive."""

    path: str
    start_line: int
    end_line: int


@dataclass(slots=True)
class _Session:
    used_at: float
    # In the order in which they were shown, so that the oldest are dropped first.
    statements: dict[str, None] = field(default_factory=dict)
    texts: deque[str] = field(default_factory=deque)
    ranges: dict[FileLines, int] = field(default_factory=dict)
    chars: int = 0


class SeenPassages(NamedTuple):
    """What a session has seen: statements, the text of the last ones, and ranges of files as they were at a time.

    A file that was modified after that time (Unix nanoseconds) may have other text in the same lines.
    """

    statements: Collection[str] = frozenset()
    text: str = ""
    ranges: tuple[tuple[FileLines, int], ...] = ()

    def contains_lines(self, lines: FileLines, mtime_ns: int) -> bool:
        """Return whether all these lines, of a file with this modification time, were seen as lines."""
        line = lines.start_line
        for start, end in sorted(
            (seen.start_line, seen.end_line)
            for seen, seen_at in self.ranges
            if seen.path == lines.path and mtime_ns <= seen_at
        ):
            if start > line:
                break
            line = max(line, end + 1)
            if line > lines.end_line:
                return True
        return False


class ShownPassages:
    """What one agent's sessions have seen. Use it only on the event loop's thread.

    A session is forgotten 24 hours after its last use, and the one that was not used for the longest time is forgotten
    if there are too many sessions or characters. `monotonic` returns seconds.
    """

    def __init__(
        self, monotonic: Callable[[], float], *, most_sessions: int = MOST_SESSIONS, most_chars: int = MOST_CHARS
    ) -> None:
        self._monotonic = monotonic
        self._most_sessions, self._most_chars = most_sessions, most_chars
        # By session key, the last used one at the end.
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._chars = 0

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def seen(self, session_key: str) -> SeenPassages:
        """Return what a session has seen."""
        self._expire()
        session = self._sessions.get(session_key)
        if session is None:
            return SeenPassages()
        self._use(session_key)
        return SeenPassages(frozenset(session.statements), "".join(session.texts), tuple(session.ranges.items()))

    def add(self, session_key: str, texts: Iterable[str]) -> None:
        """Record the texts of passages that a session has been shown."""
        session = self._use(session_key)
        before = session.chars
        for text in texts:
            for statement in statements(text):
                if statement.words in session.statements:
                    del session.statements[statement.words]
                else:
                    session.chars += len(statement.words)
                session.statements[statement.words] = None
            session.texts.append(shown_text(text))
        while session.chars > MOST_CHARS_PER_SESSION and len(session.statements) > 1:
            oldest = next(iter(session.statements))
            del session.statements[oldest]
            session.chars -= len(oldest)
        while len(session.texts) > 1 and sum(map(len, session.texts)) > MOST_PART_CHARS:
            session.texts.popleft()
        self._chars += session.chars - before
        self._limit()

    def add_lines(self, session_key: str, ranges: Iterable[FileLines], now_ns: int) -> None:
        """Record the lines of files that a session has read."""
        session = self._use(session_key)
        session.ranges |= dict.fromkeys(ranges, now_ns)
        for seen in list(session.ranges)[: max(0, len(session.ranges) - MOST_RANGES_PER_SESSION)]:
            del session.ranges[seen]
        self._limit()

    def forget(self, session_key: str) -> None:
        """Forget what a session has seen."""
        session = self._sessions.pop(session_key, None)
        if session is not None:
            self._chars -= session.chars

    def _use(self, session_key: str) -> _Session:
        now = self._monotonic()
        session = self._sessions.setdefault(session_key, _Session(now))
        session.used_at = now
        self._sessions.move_to_end(session_key)
        return session

    def _expire(self) -> None:
        latest = self._monotonic() - IDLE_SECONDS
        while self._sessions:
            session_key, session = next(iter(self._sessions.items()))
            if session.used_at > latest:
                break
            self.forget(session_key)

    def _limit(self) -> None:
        while len(self._sessions) > (self._most_sessions if self._chars <= self._most_chars else 1):
            self.forget(next(iter(self._sessions)))
