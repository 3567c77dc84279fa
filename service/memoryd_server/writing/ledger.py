"""Remembers which appends were begun and which were finished, so that a retry duplicates nothing.

The ledger is a file of JSON lines beside the disposable index and outlives it. A line is a whole entry; of several
lines with one key the last one counts. An entry is on disk before a byte of its block is written.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path

from memoryd_server.writing.faults import ledger_errors
from memoryd_server.writing.files import read_range, sync_folders, write_all

COMPACT_ABOVE_BYTES = 1 << 20
"""Size below which the ledger is never rewritten."""

KEPT_KEYS = 10_000
"""Finished keys that a rewrite keeps, newest first. Older ones are no longer protected."""

# A rewrite must shed at least one line in so many, or a full ledger would be rewritten at each append.
_WORTHWHILE = 4


class State(StrEnum):
    """How far an append came."""

    PENDING = "pending"
    DONE = "done"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Entry:
    """One append: where its block of `length` bytes stands, or was to stand, and what it was asked to be.

    `start_line` and `end_line` are the lines of its content. A void entry never reached the file.
    """

    key: str
    path: str
    offset: int
    length: int
    block_sha256: str
    request_sha256: str
    start_line: int
    end_line: int
    state: State = State.PENDING


class Ledger:
    """The ledger of one agent. Its methods need the lock that `locked` holds."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._entries: dict[str, Entry] = {}
        self._file: tuple[int, int] | None = None
        self._position = 0
        self._lines = 0
        self._torn = False
        self._fd = -1

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the ledger against every other process, with its entries read."""
        with ledger_errors(str(self._path)):
            self._fd = self._open()
        try:
            with ledger_errors(str(self._path)):
                self._refresh()
            yield
            self._compact_if_worthwhile()
        finally:
            os.close(self._fd)
            self._fd = -1

    def get(self, key: str) -> Entry | None:
        """Returns the entry of a key, if there is one."""
        return self._entries.get(key)

    def pending(self, path: str) -> list[Entry]:
        """Returns the appends to a file that were begun and, as far as is known, not finished."""
        return [e for e in self._entries.values() if e.state is State.PENDING and e.path == path]

    def put(self, entry: Entry, *, durable: bool = False) -> None:
        """Writes an entry; when `durable`, returns only once it survives a power cut."""
        line = _encode(entry)
        # A line torn by a crash becomes a line of its own, which reading passes over.
        data = b"\n" + line if self._torn else line
        with ledger_errors(str(self._path)):
            self._append(data)
            if durable:
                os.fsync(self._fd)
        self._torn = False
        self._position = os.fstat(self._fd).st_size
        self._remember(entry)

    def settle(self, entry: Entry, state: State) -> Entry:
        """Writes down how an append ended, and returns it so."""
        settled = replace(entry, state=state)
        self.put(settled)
        return settled

    def _append(self, data: bytes) -> None:
        try:
            write_all(self._fd, data)
        except OSError:
            # What stays of the line is torn, and passed over like any other.
            with suppress(OSError):
                os.ftruncate(self._fd, self._position)
            raise

    def _open(self) -> int:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            created = not self._path.exists()
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if created:
                    sync_folders(str(self._path.parent))
                if self._is_current(fd):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            # Another process rewrote the ledger while we waited: what we have locked is the old file.
            os.close(fd)

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self._path.stat())
        except FileNotFoundError:
            return False

    def _refresh(self) -> None:
        stat = os.fstat(self._fd)
        if self._file != (stat.st_dev, stat.st_ino) or stat.st_size < self._position:
            self._entries, self._position, self._lines = {}, 0, 0
            self._file = (stat.st_dev, stat.st_ino)
        data = read_range(self._fd, self._position, stat.st_size)
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            entry = _decode(line)
            if entry is not None:
                self._remember(entry)
        self._position = stat.st_size
        self._torn = read_range(self._fd, max(0, stat.st_size - 1), stat.st_size) not in {b"", b"\n"}

    def _remember(self, entry: Entry) -> None:
        self._lines += 1
        self._entries.pop(entry.key, None)
        self._entries[entry.key] = entry

    def _compact_if_worthwhile(self) -> None:
        shed = self._lines - min(len(self._entries), KEPT_KEYS)
        if self._position > COMPACT_ABOVE_BYTES and shed * _WORTHWHILE >= self._lines:
            # The append itself is done; a ledger that stays long is no reason to fail it.
            with suppress(OSError):
                self._compact()

    def _compact(self) -> None:
        finished = [e for e in self._entries.values() if e.state is not State.PENDING]
        dropped = {e.key for e in islice(finished, max(0, len(finished) - KEPT_KEYS))}
        kept = [e for e in self._entries.values() if e.key not in dropped]
        beside = self._path.with_name(self._path.name + ".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(beside, flags, 0o600)
        try:
            write_all(fd, b"".join(map(_encode, kept)))
            os.fsync(fd)
        finally:
            os.close(fd)
        beside.replace(self._path)
        sync_folders(str(self._path.parent))


def _encode(entry: Entry) -> bytes:
    return json.dumps(asdict(entry), separators=(",", ":")).encode() + b"\n"


def _decode(line: bytes) -> Entry | None:
    try:
        fields = json.loads(line)
        return Entry(**{**fields, "state": State(fields["state"])})
    except (ValueError, TypeError, KeyError):
        return None
