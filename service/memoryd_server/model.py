"""Shared values: Source, Chunk, FileStat, Degradation, Clock.

The value types that every stage shares. No I/O.

Lines are 1-based and inclusive. A `path` is always the display path of a file: relative to the workspace with "/"
separators, beginning with "../" for files of extra paths outside it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum


class Source(StrEnum):
    """The kind of text indexed."""

    MEMORY = "memory"
    SESSIONS = "sessions"


@dataclass(frozen=True, slots=True)
class FileStat:
    """What the file system says of a file; equal stats mean that its bytes need not be read again."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that counts as memory: where it is and what `stat` said.

    `root` is an absolute directory and `parts` the components below it; only `sources.contained` opens them.
    """

    path: str
    source: Source
    root: str
    parts: tuple[str, ...]
    stat: FileStat


@dataclass(frozen=True, slots=True)
class FileFailure:
    """A file that could not be indexed, and why."""

    path: str
    source: Source
    error: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """A line range of a file, the unit of indexing.

    `content_hash` is the SHA-256 of the UTF-8 bytes of `text`. `breadcrumb` is the headings above the chunk's first
    line, joined by " > ", empty when there are none. `line_numbers` holds the line of the file that each line of `text`
    comes from, where these do not simply follow one another: in a transcript.
    """

    text: str
    start_line: int
    end_line: int
    content_hash: bytes
    breadcrumb: str = ""
    line_numbers: tuple[int, ...] = ()


class DegradationKind(StrEnum):
    """In which way an answer is less than what was asked for; the names of the wire's enum."""

    VECTOR_LEG_SKIPPED = "VECTOR_LEG_SKIPPED"
    EMBEDDING_FALLBACK = "EMBEDDING_FALLBACK"
    BACKEND_FALLBACK = "BACKEND_FALLBACK"
    VECTOR_EXTENSION_MISSING = "VECTOR_EXTENSION_MISSING"
    FULLTEXT_MISSING = "FULLTEXT_MISSING"
    IDENTITY_MISMATCH = "IDENTITY_MISMATCH"
    INDEX_IMPAIRED = "INDEX_IMPAIRED"
    SOURCE_SKIPPED = "SOURCE_SKIPPED"
    DEADLINE_CUT = "DEADLINE_CUT"
    WATCHER_IMPAIRED = "WATCHER_IMPAIRED"
    VECTORS_PENDING = "VECTORS_PENDING"


@dataclass(frozen=True, slots=True)
class Degradation:
    """One way in which an answer or a service is less than what was wanted, and why."""

    kind: DegradationKind
    wanted: str
    used: str
    reason: str


# A file changed this shortly before it was read may change again without its stat telling; it is hashed once more.
RACY_NS = 1_000_000_000

# Stands for the ctime of a file whose stat is no proof that its bytes are those of the index.
_UNSETTLED = 0

_MOST = (1 << 63) - 1


def identity_of(stat: FileStat) -> tuple[int, int]:
    """What tells one file from another whatever their names are: device and inode, as the index holds them."""
    return _signed(stat.device), _signed(stat.inode)


def differs(on_disk: FileStat, row: FileStat) -> bool:
    """Whether a file's stat tells of another state than the row's; a row without a ctime is compared by the rest."""
    now = stored(on_disk)
    return now != row and replace(now, ctime_ns=_UNSETTLED) != row


def stored(stat: FileStat) -> FileStat:
    """The stat as the index keeps it: SQLite's integers are signed and end, in nanoseconds, in the year 2262."""
    return FileStat(
        stat.size_bytes,
        min(stat.mtime_ns, _MOST),
        min(stat.ctime_ns, _MOST),
        _signed(stat.device),
        _signed(stat.inode),
    )


def settled(stat: FileStat, now_ns: int) -> FileStat:
    """The stat to store for a file read at `now_ns`; without the ctime when the file had only just changed."""
    if now_ns - max(stat.mtime_ns, stat.ctime_ns) > RACY_NS:
        return stat
    return replace(stat, ctime_ns=_UNSETTLED)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks that a sync reads: wall time in Unix nanoseconds, and a steady one in seconds."""

    now_ns: Callable[[], int] = time.time_ns
    monotonic: Callable[[], float] = time.monotonic
