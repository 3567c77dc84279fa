"""A memory file opened for appending: what is in it, and the one way to add to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256

from memoryd_server.errors import FileBusy
from memoryd_server.locks import try_lock
from memoryd_server.sources.contained import is_named_by, open_for_append
from memoryd_server.sources.roots import Location
from memoryd_server.writing.block import TAIL_BYTES
from memoryd_server.writing.files import read_range, sync_folders, write_all

_STEP_BYTES = 1 << 20


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
        steps = range(0, end, _STEP_BYTES)
        return sum(self.read(at, min(at + _STEP_BYTES, end)).count(b"\n") for at in steps)

    def holds(self, offset: int, length: int, digest: str) -> bool:
        """Says whether the `length` bytes at `offset` have this SHA-256."""
        data = self.read(offset, offset + length)
        return len(data) == length and sha256(data).hexdigest() == digest

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
