"""An open memory file, and the block of one append.

`MemoryFile` reads the file and appends to it, which is the only way to change it. The functions below `AppendBlock`
compute and find the bytes of an append; they are pure.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from memoryd_server.errors import FileBusy, FileReplaced
from memoryd_server.sources import Location, is_named_by, open_for_append
from memoryd_server.system import exclusive_lease, try_lock
from memoryd_server.writing.files import MOST_REPLACEMENTS, read_range, sync_folders, write_all

_STEP_BYTES = 1 << 20
_SMALL_BYTES = 1 << 14

_LEASE_ATTEMPTS = 5
_LEASE_PAUSE_SECONDS = 0.01
_PART_LEFT = "a part of the text may be left at the end of the file, because another program has the file open"


class MemoryFile:
    """An open memory file, locked against other appenders."""

    def __init__(self, fd: int, location: Location) -> None:
        self._fd = fd
        self._location = location

    @property
    def path(self) -> str:
        """The file's display path."""
        return self._location.path

    def size(self) -> int:
        """Return the file's size in bytes."""
        return os.fstat(self._fd).st_size

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`, fewer at the end of the file."""
        return read_range(self._fd, start, end)

    def tail(self) -> bytes:
        """Return the last bytes, which `missing_newlines` needs."""
        size = self.size()
        return self.read(max(0, size - TAIL_BYTES), size)

    def count_newlines(self, end: int) -> int:
        """Count the newlines before the byte at `end`."""
        return sum(map(_newlines, self._steps(end)))

    def count_newlines_and_find(self, needle: bytes, end: int) -> tuple[int, bool]:
        """Count the newlines before the byte at `end`, and return whether `needle` occurs there, in one pass.

        `needle` begins with a newline, which may be missing at the start of the file. It is shorter than a step.
        """
        newlines, found, seam = 0, False, b"\n"
        for part in self._steps(end):
            newlines += _newlines(part)
            found = found or needle in part or needle in seam + part[: len(needle)]
            seam = part[-len(needle) :]
        return newlines, found

    def _steps(self, end: int) -> Iterator[bytes]:
        return (self.read(at, min(at + _STEP_BYTES, end)) for at in range(0, end, _STEP_BYTES))

    def find_added_copy(self, content: bytes, copies_before: int | None) -> tuple[int, int] | None:
        """Return the lines of the last copy of `content`, once it is durable, if there are more copies than before.

        Return None if `copies_before` is unknown: an equal text could have been in the file.
        """
        if copies_before is None:
            return None
        copies = find_copies(content, self.read(0, self.size()))
        if len(copies) <= copies_before:
            return None
        self.sync(names=True)
        return copies[-1]

    def torn_length(self, offset: int, block: bytes, *, whole_text: bool) -> int:
        """Return the length of the part of a block that is at `offset` and ends the file; 0 if there is none.

        The rest of the block can then be written. The part must also begin on a new line, which an edit can have
        changed. If the file contains the `whole_text`, only blanks can be missing: an edit can leave other parts at
        `offset`.
        """
        size = self.size()
        if not 0 < size - offset < len(block) or not block.startswith(self.read(offset, size)):
            return 0
        own_line = offset == 0 or block.startswith(b"\n") or self.read(offset - 1, offset) == b"\n"
        usable = own_line and (not whole_text or block[size - offset :].isspace())
        return size - offset if usable else 0

    def write(self, data: bytes, expected: int) -> int:
        """Append `data`, wait until it is on disk, and return its start.

        The start is `expected`, the file's size, unless a program that takes no locks appended in between.

        Raises:
            OSError: the system refuses the write. The message says if a part of `data` may be left in the file.
        """
        try:
            write_all(self._fd, data)
        except OSError as error:
            if self._remove_partial(data, expected):
                raise
            raise OSError(error.errno, f"{error.strerror} ({_PART_LEFT})") from error
        start = os.lseek(self._fd, 0, os.SEEK_CUR) - len(data)
        self.sync(names=expected == 0)
        return start

    def is_current(self) -> bool:
        """Return whether the path still names this file; False too if a folder above it was moved away.

        Raises:
            PathNotAllowed: the path now leads through a link, or to something other than a regular file.
        """
        return is_named_by(self._location, self._fd)

    def sync(self, *, names: bool) -> None:
        """Return once the file, and with `names` the folders above it, survive a power failure."""
        os.fsync(self._fd)
        if names:
            # `is_current` detects a folder that was moved away.
            with suppress(FileNotFoundError):
                sync_folders(self._location.root, self._location.parts[:-1])

    def _remove_partial(self, data: bytes, expected: int) -> bool:
        """Truncate a partly written block, if it certainly ends the file; return whether none of it is left.

        Between the look at the bytes and the truncation another program could append, and its bytes would be lost.
        Therefore the block stays if the file is open in another program: its retry completes it.
        """
        for _ in range(_LEASE_ATTEMPTS):
            with exclusive_lease(self._fd) as leased:
                size = self.size()
                if size <= expected:
                    return True
                if size - expected >= len(data) or not data.startswith(self.read(expected, size)):
                    return False
                if leased:
                    try:
                        os.ftruncate(self._fd, expected)
                    except OSError:
                        return False
                    return True
            # A sync or a call of this process may be reading the file.
            time.sleep(_LEASE_PAUSE_SECONDS)
        return False


def _newlines(data: bytes) -> int:
    # Several times as fast as bytes.count for large data, which compensates for the search in the same pass.
    if len(data) < _SMALL_BYTES:
        return data.count(b"\n")
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))


@contextmanager
def open_memory_file(location: Location) -> Iterator[MemoryFile]:
    """Open a memory file for appending, create it if it is missing, and hold its lock until the block ends.

    The ledger's lock does not cover a file that two agents share; the file's lock does. While it is held, no memoryd
    moves or replaces the file. Another program can: `MemoryFile.is_current` detects that after a write.

    Raises:
        FileBusy: another program holds a lock on it.
        FileReplaced: another program replaces it repeatedly.
    """
    for _ in range(MOST_REPLACEMENTS):
        fd = open_for_append(location)
        try:
            if not try_lock(fd):
                raise FileBusy(location.path, "is locked by another program; try again when that program has finished")
            # Without this look, an append that waited for an edit would write to the file that the edit moved away.
            if is_named_by(location, fd):
                yield MemoryFile(fd, location)
                return
        finally:
            os.close(fd)
    raise FileReplaced(location.path)


TAIL_BYTES = 4
"""The number of bytes at the file's end that determine the newlines before an appended block."""

_MOST_LEAD = 2
_MOST_NEEDLE_BYTES = 256
_MOST_HASHED_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class AppendBlock:
    """The bytes of an append: `lead`, the missing newlines, and `content`, whose lines are the append's lines."""

    lead: bytes
    content: bytes

    @property
    def data(self) -> bytes:
        """The bytes as written to the file."""
        return self.lead + self.content

    @property
    def sha256(self) -> str:
        """The SHA-256 of `data`, in hexadecimal."""
        return sha256(self.data).hexdigest()

    def lines_after(self, newlines_before: int) -> tuple[int, int]:
        """Return the first and last line of `content` in a file with `newlines_before` newlines above the lead."""
        start = newlines_before + self.lead.count(b"\n") + 1
        return start, start + self.content.count(b"\n") - 1


def encode_content(text: str, heading: str) -> bytes:
    """Return `text` in UTF-8 below its heading, ending in a newline."""
    titled = f"## {heading}\n\n{text}" if heading else text
    return (titled if titled.endswith("\n") else titled + "\n").encode()


def missing_newlines(tail: bytes, heading: str) -> bytes:
    """Return the newlines missing at the end of a file whose last `TAIL_BYTES` bytes are `tail`.

    A heading gets one blank line above it, except at the file's start.
    """
    if not tail:
        return b""
    ending = b"" if tail.endswith(b"\n") else b"\n"
    unix = tail.replace(b"\r\n", b"\n")
    blank = unix.endswith(b"\n\n") or unix == b"\n"
    return ending + b"\n" if heading and not blank else ending


def find_copies(content: bytes, data: bytes) -> list[tuple[int, int]]:
    """Return the first and last line of each copy of `content` in `data`, in order.

    Blanks at the ends of lines and newlines around `content` are ignored: editors change them when they save. Copies do
    not overlap. A blank text has no copies. Linear in the size of `data`.
    """
    wanted = _plain(content.strip(b"\n"))
    if wanted.isspace():
        return []
    if wanted.count(b"\n") == 2:  # noqa: PLR2004 -- the newlines around one line
        return _lines_equal(wanted[1:-1], data)
    found: list[tuple[int, int]] = []
    text, at, counted, line = _plain(data), 0, 0, 1
    while (at := text.find(wanted, at)) >= 0:
        line += text.count(b"\n", counted, at)
        found.append((line, line + wanted.count(b"\n") - 2))
        counted = at
        # The newline at the end may be the one before the next copy.
        at += len(wanted) - 1
    return found


def _lines_equal(wanted: bytes, data: bytes) -> list[tuple[int, int]]:
    """Return the places of a line as `find_copies` does, without copying `data`."""
    found: list[tuple[int, int]] = []
    sought, counted, line = b"\n" + wanted, 0, 1
    at = 0 if data.startswith(wanted) else data.find(sought) + 1 or -1
    while at >= 0:
        after = at + len(wanted)
        end = data.find(b"\n", after)
        if end == after or not data[after : end if end >= 0 else None].strip():
            line += data.count(b"\n", counted, at)
            counted = at
            found.append((line, line))
        at = data.find(sought, after) + 1 or -1
    return found


def _plain(data: bytes) -> bytes:
    """Return the lines of `data` without blanks at their ends, each between two newlines."""
    return b"\n%b\n" % b"\n".join(map(bytes.rstrip, data.split(b"\n")))


def needle_of_copies(content: bytes) -> bytes:
    """Return bytes that each copy of `content` contains, for a fast search; b"" for a blank text.

    They are a newline and the start of the longest line. At the start of a file, the newline is missing.
    """
    longest = max(map(bytes.rstrip, content.split(b"\n")), key=len)
    return (b"\n" + longest)[:_MOST_NEEDLE_BYTES] if longest else b""


def find_blocks(digest: str, length: int, data: bytes) -> list[tuple[int, int]]:
    """Return the first and last line of each place with the content of a block, of which only the hash is known.

    `length` and `digest` are those of the block with its lead. The places do not overlap. Stops after hashing 64 MiB,
    because a file can be made so that every line could begin a block.
    """
    # Keyed by the block's end: a block that begins with newlines matches at each of them.
    found: dict[int, tuple[int, int]] = {}
    hashed, line, at, last = 0, 1, 0, 0
    while at < len(data):
        for lead in range(min(_MOST_LEAD, length - 1) + 1):
            end = at + length - lead
            if (at >= last or end == last) and data[end - 1 : end] == b"\n" and hashed < _MOST_HASHED_BYTES:
                hashed += length
                if sha256(b"\n" * lead + data[at:end]).hexdigest() == digest:
                    found[end] = (line, line + data.count(b"\n", at, end) - 1)
                    last = end
        newline = data.find(b"\n", at)
        at, line = (newline + 1 if newline >= 0 else len(data)), line + 1
    return list(found.values())


def request_digest(*parts: str | bytes) -> str:
    """Return the hash that distinguishes requests: the SHA-256 of their lengths and contents, in hexadecimal."""
    digest = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
