"""What each session has already seen, so that no recall repeats it. In memory only."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")
_V = TypeVar("_V")

IDLE_SECONDS = 24 * 3600.0
MOST_SESSIONS = 1_024
MOST_HASHES_PER_SESSION = 8_192
MOST_HASHES = 262_144
MOST_RANGES_PER_SESSION = 256


class FileLines(NamedTuple):
    """Lines of a file, 1-based and inclusive."""

    path: str
    start_line: int
    end_line: int

    def contains(self, other: "FileLines") -> bool:
        """Return whether all lines of `other` are within this range."""
        return self.path == other.path and self.start_line <= other.start_line and other.end_line <= self.end_line


@dataclass(slots=True)
class _Session:
    used_at: float
    # In the order in which they were shown, so that the oldest are dropped first.
    hashes: dict[int, None] = field(default_factory=dict)
    ranges: dict[FileLines, int] = field(default_factory=dict)


class SeenPassages(NamedTuple):
    """What a session has seen: the hashes of fingerprints, and ranges of files as they were at a time.

    A file that was modified after that time (Unix nanoseconds) may have other text in the same lines.
    """

    hashes: Collection[int] = frozenset()
    ranges: tuple[tuple[FileLines, int], ...] = ()

    def contains_lines(self, lines: FileLines, mtime_ns: int) -> bool:
        """Return whether these lines, of a file with this modification time, were seen as lines."""
        return any(seen.contains(lines) and mtime_ns <= seen_at for seen, seen_at in self.ranges)


class ShownPassages:
    """What one agent's sessions have seen. Use it only on the event loop's thread.

    A session is forgotten 24 hours after its last use, and the one that was not used for the longest time is forgotten
    if there are too many sessions or hashes. `monotonic` returns seconds.
    """

    def __init__(
        self, monotonic: Callable[[], float], *, most_sessions: int = MOST_SESSIONS, most_hashes: int = MOST_HASHES
    ) -> None:
        self._monotonic = monotonic
        self._most_sessions, self._most_hashes = most_sessions, most_hashes
        # By session key, the last used one at the end.
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._count = 0

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
        return SeenPassages(frozenset(session.hashes), tuple(session.ranges.items()))

    def add(self, session_key: str, hashes: Iterable[int]) -> None:
        """Record the fingerprints of passages that a session has been shown."""
        session = self._use(session_key)
        before = len(session.hashes)
        for value in hashes:
            session.hashes.pop(value, None)
            session.hashes[value] = None
        _drop_oldest(session.hashes, MOST_HASHES_PER_SESSION)
        self._count += len(session.hashes) - before
        self._limit()

    def add_lines(self, session_key: str, ranges: Iterable[FileLines], now_ns: int) -> None:
        """Record the lines of files that a session has read."""
        session = self._use(session_key)
        session.ranges |= dict.fromkeys(ranges, now_ns)
        _drop_oldest(session.ranges, MOST_RANGES_PER_SESSION)
        self._limit()

    def forget(self, session_key: str) -> None:
        """Forget what a session has seen."""
        session = self._sessions.pop(session_key, None)
        if session is not None:
            self._count -= len(session.hashes)

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
        while len(self._sessions) > (self._most_sessions if self._count <= self._most_hashes else 1):
            self.forget(next(iter(self._sessions)))


def _drop_oldest(values: dict[_T, _V], most: int) -> None:
    for key in list(values)[: max(0, len(values) - most)]:
        del values[key]
