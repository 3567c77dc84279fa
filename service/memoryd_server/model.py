"""Value types that all stages share: sources, files, chunks, degradations and the clock. No I/O.

Line numbers are 1-based and inclusive. A `path` is the display path of a file: relative to the workspace, with "/" as
separator. Paths of extra files outside the workspace begin with "../".
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum


class Source(StrEnum):
    """The kind of an indexed text."""

    MEMORY = "memory"
    SESSIONS = "sessions"


@dataclass(frozen=True, slots=True)
class FileStat:
    """The metadata of a file. If two stats are equal, the file need not be read again."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A memory file: its location and its metadata.

    `root` is an absolute directory and `parts` the components below it; only `sources.files` opens them. `database` is
    the gateway's database that contains the transcript with this name; empty for a file.
    """

    path: str
    source: Source
    root: str
    parts: tuple[str, ...]
    stat: FileStat
    database: str = ""


@dataclass(frozen=True, slots=True)
class FileFailure:
    """A file that could not be indexed, and the error."""

    path: str
    source: Source
    error: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """A line range of a file, the unit of indexing.

    `content_hash` is the SHA-256 of the UTF-8 bytes of `text`. `breadcrumb` is the headings above the chunk's first
    line, joined by " > ", or empty. `line_numbers` maps each line of `text` to its line in the file. It is set if these
    lines are not consecutive, as in a transcript.
    """

    text: str
    start_line: int
    end_line: int
    content_hash: bytes
    breadcrumb: str = ""
    line_numbers: tuple[int, ...] = ()


class DegradationKind(StrEnum):
    """The kind of a degradation; the names of the wire's enum."""

    VECTOR_LEG_SKIPPED = "VECTOR_LEG_SKIPPED"
    EMBEDDING_FALLBACK = "EMBEDDING_FALLBACK"
    BACKEND_FALLBACK = "BACKEND_FALLBACK"
    VECTOR_EXTENSION_MISSING = "VECTOR_EXTENSION_MISSING"
    FULLTEXT_MISSING = "FULLTEXT_MISSING"
    IDENTITY_MISMATCH = "IDENTITY_MISMATCH"
    INDEX_IMPAIRED = "INDEX_IMPAIRED"
    SOURCE_SKIPPED = "SOURCE_SKIPPED"
    WATCHER_IMPAIRED = "WATCHER_IMPAIRED"
    VECTORS_PENDING = "VECTORS_PENDING"


@dataclass(frozen=True, slots=True)
class Degradation:
    """One way in which an answer or a service falls short of the request, and the reason."""

    kind: DegradationKind
    wanted: str
    used: str
    reason: str


# A file that changed less than this long before it was read may change again without a new stat, so it is hashed again.
RACY_NS = 1_000_000_000

# The ctime stored for a file whose stat does not prove that the index has its current bytes.
_UNSETTLED = 0

_MOST = (1 << 63) - 1


def identity_of(stat: FileStat) -> tuple[int, int]:
    """Return device and inode as the index stores them; they identify a file independently of its name."""
    return as_signed(stat.device), as_signed(stat.inode)


def differs(on_disk: FileStat, row: FileStat) -> bool:
    """Return whether the file changed since the row was stored.

    A row without a ctime is compared by its other fields.
    """
    now = stored(on_disk)
    return now != row and replace(now, ctime_ns=_UNSETTLED) != row


def stored(stat: FileStat) -> FileStat:
    """Return the stat as the index stores it: SQLite integers are signed 64-bit; nanoseconds end in the year 2262."""
    return FileStat(
        stat.size_bytes,
        min(stat.mtime_ns, _MOST),
        min(stat.ctime_ns, _MOST),
        as_signed(stat.device),
        as_signed(stat.inode),
    )


def settled(stat: FileStat, now_ns: int) -> FileStat:
    """Return the stat to store for a file read at `now_ns`, without the ctime if the file changed shortly before."""
    if now_ns - max(stat.mtime_ns, stat.ctime_ns) > RACY_NS:
        return stat
    return replace(stat, ctime_ns=_UNSETTLED)


def is_settled(row: FileStat) -> bool:
    """Return whether an equal stat of the file proves that it has not changed since `row` was stored."""
    return row.ctime_ns != _UNSETTLED


def as_signed(number: int) -> int:
    """Return an unsigned 64-bit number as the signed one that the index stores."""
    return number - (1 << 64) if number >= 1 << 63 else number


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks of a sync: wall time in Unix nanoseconds, and a monotonic clock in seconds."""

    now_ns: Callable[[], int] = time.time_ns
    monotonic: Callable[[], float] = time.monotonic
