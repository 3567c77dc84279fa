"""A memory file opened for appending: what is in it, and the one way to add to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from memoryd_server.errors import FileBusy
from memoryd_server.sources.contained import is_named_by, open_for_append
from memoryd_server.sources.roots import Location
from memoryd_server.system import try_lock
from memoryd_server.writing.block import TAIL_BYTES, copies_of
from memoryd_server.writing.files import read_range, sync_folders, write_all

_STEP_BYTES = 1 << 20
_SMALL_BYTES = 1 << 14


class Target:
    """An open memory file, locked against every other appender."""

    def __init__(self, fd: int, location: Location) -> None:
        self._fd = fd
        self._location = location

    @property
    def path(self) -> str:
        """The file's display path."""
        return self._location.path

    def size(self) -> int:
        """Returns the file's size in bytes."""
        return os.fstat(self._fd).st_size

    def read(self, start: int, end: int) -> bytes:
        """Returns the bytes from `start` up to `end`, fewer at the end of the file."""
        return read_range(self._fd, start, end)

    def tail(self) -> bytes:
        """Returns the last bytes, as many as `lead_of` wants."""
        size = self.size()
        return self.read(max(0, size - TAIL_BYTES), size)

    def newlines(self, end: int) -> int:
        """Counts the newlines before the byte at `end`."""
        return sum(map(_newlines, self._steps(end)))

    def newlines_and(self, sought: bytes, end: int) -> tuple[int, bool]:
        """Count the newlines before the byte at `end`, and return whether `sought` is there, in one pass.

        `sought` begins with a newline, which the first line of the file does not need. It is shorter than a step.
        """
        newlines, found, seam = 0, False, b"\n"
        for part in self._steps(end):
            newlines += _newlines(part)
            found = found or sought in part or sought in seam + part[: len(sought)]
            seam = part[-len(sought) :]
        return newlines, found

    def _steps(self, end: int) -> Iterator[bytes]:
        return (self.read(at, min(at + _STEP_BYTES, end)) for at in range(0, end, _STEP_BYTES))

    def added_copy(self, content: bytes, copies_before: int | None) -> tuple[int, int] | None:
        """Return the lines of the last copy of `content`, once it is durable, if there are more copies than before.

        None where the number of copies before is unknown: an equal text could have been in the file.
        """
        if copies_before is None:
            return None
        found = copies_of(content, self.read(0, self.size()))
        if len(found) <= copies_before:
            return None
        self.sync(names=True)
        return found[-1]

    def torn(self, offset: int, block: bytes, *, whole_text: bool) -> int:
        """Return how many bytes of a block, but not all, are at `offset` and end the file; 0 where that is not so.

        The rest of the block can be written then. It also needs a line of its own, which an edit can have taken away.
        Where the file has the `whole_text`, only blanks can be missing: an edit can leave other parts at `offset`.
        """
        size = self.size()
        if not 0 < size - offset < len(block) or not block.startswith(self.read(offset, size)):
            return 0
        own_line = offset == 0 or block.startswith(b"\n") or self.read(offset - 1, offset) == b"\n"
        usable = own_line and (not whole_text or block[size - offset :].isspace())
        return size - offset if usable else 0

    def write(self, data: bytes, expected: int) -> int:
        """Appends `data`, waits until the disk has it, and returns where it begins.

        That is `expected`, the file's size, unless a program that takes no locks appended in between.
        """
        try:
            write_all(self._fd, data)
        except OSError:
            self._take_back(data, expected)
            raise
        start = os.lseek(self._fd, 0, os.SEEK_CUR) - len(data)
        self.sync(names=expected == 0)
        return start

    def is_current(self) -> bool:
        """Return whether the path still names this file; a folder above it that was moved away counts too.

        Raises:
            PathNotAllowed: the path leads through a link now, or to something other than a regular file.
        """
        return is_named_by(self._location, self._fd)

    def sync(self, *, names: bool) -> None:
        """Returns once the file survives a power cut, and with `names` the folders that lead to it as well."""
        os.fsync(self._fd)
        if names:
            # A folder that was moved away is found by `is_current`.
            with suppress(FileNotFoundError):
                sync_folders(self._location.root, self._location.parts[:-1])

    def _take_back(self, data: bytes, expected: int) -> None:
        """Cuts off a block that was written in part, if those bytes are ours beyond doubt and still the last ones."""
        size = self.size()
        if 0 < size - expected < len(data) and data.startswith(self.read(expected, size)):
            with suppress(OSError):
                os.ftruncate(self._fd, expected)


def _newlines(data: bytes) -> int:
    # Several times as fast as bytes.count where there is much to count, which makes up for the search in the same pass.
    if len(data) < _SMALL_BYTES:
        return data.count(b"\n")
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))


@contextmanager
def opened(location: Location) -> Iterator[Target]:
    """Open a memory file for appending, create it when it is absent, and hold its lock until the block ends.

    The ledger's lock does not cover a file that two agents share; the file's own does. The path may name another file
    already: `Target.is_current` says so after a write, when it counts.

    Raises:
        FileBusy: another program holds a lock on it.
    """
    fd = open_for_append(location)
    try:
        if not try_lock(fd):
            raise FileBusy(location.path, "is locked by another program; try again when that program is done")
        yield Target(fd, location)
    finally:
        os.close(fd)
