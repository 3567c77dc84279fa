"""The ledger of begun and finished appends, so that a retry writes nothing twice.

The ledger is a file of JSON lines next to the index, and outlives it. A line is one entry with a checksum; of several
lines with one key, the last is valid. An entry is on disk before a byte of its block is written. It contains hashes of
texts, never a text.
"""

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path

from memoryd_server.errors import FileBusy
from memoryd_server.foreign_text import valid_tree
from memoryd_server.system import is_at, try_lock
from memoryd_server.writing.files import (
    MOST_REPLACEMENTS,
    ledger_errors,
    read_range,
    sync_folders,
    write_all,
    write_whole,
)

_OPENING = b'{"key":"'


class AppendState(StrEnum):
    """The state of an append."""

    PENDING = "pending"
    DONE = "done"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One append: the place of its block of `length` bytes in a file, and the hash of its request.

    `start_line` and `end_line` are the lines of its content. A void entry never reached the file. `copies_before` is
    the number of copies of the content in the file before the write. It is None for a blank text, in settled entries,
    and in entries of builds that did not count copies.
    """

    key: str
    path: str
    offset: int
    length: int
    block_sha256: str
    request_sha256: str
    start_line: int
    end_line: int
    state: AppendState = AppendState.PENDING
    copies_before: int | None = None


def encode(entry: LedgerEntry) -> bytes:
    """Return the line of an entry, with its newline."""
    fields = asdict(entry)
    if entry.copies_before is None:
        # Earlier builds read only lines without this field.
        del fields["copies_before"]
    return _json({**fields, "check": _checksum(fields)}) + b"\n"


def decode(line: bytes) -> LedgerEntry | None:
    """Return the entry of a line, or None if the line is not valid."""
    try:
        fields = json.loads(line)
        # Ledgers of the first builds have no checksums.
        if fields.pop("check", None) not in {None, _checksum(fields)}:
            return None
        return LedgerEntry(**{**valid_tree(fields), "state": AppendState(fields["state"])})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def is_torn(tail: bytes) -> bool:
    """Return whether bytes without a newline at the ledger's end look like a line that a crash truncated."""
    # A power failure can leave NULs at the end of a file that had grown before its bytes arrived.
    text = tail.rstrip(b"\0")
    return text.startswith(_OPENING[: len(text)])


def _checksum(fields: dict[str, object]) -> int:
    return zlib.crc32(_json(fields))


def _json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """The last entry of each key in a ledger, oldest first, and the number of lines that cannot be read."""

    entries: tuple[LedgerEntry, ...] = ()
    unreadable: int = 0


def stored_ledger(path: Path) -> StoredLedger:
    """Read a ledger without changing it; a missing one is empty. A last line that a crash truncated is ignored.

    Raises:
        OSError: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return StoredLedger()
    end = data.rfind(b"\n") + 1
    lines = data[:end].splitlines()
    if not is_torn(data[end:]):
        lines.append(data[end:])
    entries: dict[str, LedgerEntry] = {}
    unreadable = 0
    for entry in map(decode, lines):
        if entry is None:
            unreadable += 1
        else:
            entries.pop(entry.key, None)
            entries[entry.key] = entry
    return StoredLedger(tuple(entries.values()), unreadable)


COMPACT_ABOVE_BYTES = 1 << 20
"""A smaller ledger is never rewritten for its length."""

KEPT_KEYS = 10_000
"""The number of finished keys that a rewrite for length keeps, newest first. Older keys are no longer protected."""

# A rewrite must remove at least one line in four, or a full ledger would be rewritten at each append.
_LINES_PER_REMOVED = 4


class Ledger:
    """The ledger of one agent. Its methods need the lock of `lock`, except `exists` and `release_memory`.

    `problem` describes damage that was found since this object was created, and its repair; "" for none.
    """

    def __init__(self, path: str, *, kept_keys: int = KEPT_KEYS) -> None:
        self.problem = ""
        self._kept_keys = kept_keys
        self._path = Path(path)
        self._entries: dict[str, LedgerEntry] = {}
        self._file: tuple[int, int] | None = None
        self._position = 0
        self._lines = 0
        self._fd = -1

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the ledger against other processes, read its entries, and repair what a crash left.

        Raises:
            DiskFull: no space is left for it.
            IndexUnavailable: it cannot be used for another reason.
            FileBusy: another program locks it, or replaces it repeatedly. Does not wait for the lock.
        """
        with ledger_errors(str(self._path)):
            self._fd = self._open()
        try:
            yield
            self._compact_if_worthwhile()
        finally:
            os.close(self._fd)
            self._fd = -1

    def exists(self) -> bool:
        """Return whether the ledger exists."""
        return self._path.exists()

    def release_memory(self) -> None:
        """Drop the entries from memory; the next `lock` reads them again. Not to be called while `lock` is held."""
        self._entries, self._position, self._lines, self._file = {}, 0, 0, None

    def get(self, key: str) -> LedgerEntry | None:
        """Return the entry of a key, or None."""
        return self._entries.get(key)

    def unfinished(self) -> list[LedgerEntry]:
        """Return the appends that were begun and are not known to be finished."""
        return [e for e in self._entries.values() if e.state is AppendState.PENDING]

    def pending(self, path: str) -> list[LedgerEntry]:
        """Return the unfinished appends to a file."""
        return [e for e in self.unfinished() if e.path == path]

    def put(self, entry: LedgerEntry, *, durable: bool = False) -> None:
        """Write an entry; if `durable`, return once it survives a power failure.

        Raises:
            FileBusy: the ledger was removed or replaced since it was locked, so a `durable` entry would be lost.
        """
        with ledger_errors(str(self._path)):
            self._append(encode(entry))
            if durable:
                os.fsync(self._fd)
                if not is_at(self._fd, self._path):
                    raise _replaced(self._path)
        self._position = os.fstat(self._fd).st_size
        self._apply(entry)

    def settle(self, entry: LedgerEntry, state: AppendState) -> LedgerEntry:
        """Write the final state of an append, and return its entry."""
        settled = replace(entry, state=state, copies_before=None)
        self.put(settled)
        return settled

    def _append(self, data: bytes) -> None:
        try:
            write_all(self._fd, data)
        except OSError:
            # If this fails too, the next read removes the torn line.
            with suppress(OSError):
                os.ftruncate(self._fd, self._position)
            raise

    def _open(self) -> int:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(MOST_REPLACEMENTS):
            created = not self._path.exists()
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                if not try_lock(fd):
                    words = "(the append ledger) is locked by another program; try again when that program has finished"
                    raise FileBusy(str(self._path), words)  # noqa: TRY301 -- the descriptor is closed below
                if created:
                    sync_folders(str(self._path.parent))
                if is_at(fd, self._path) and self._read(fd):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            # Another process or this one rewrote the ledger: the lock is on the old file.
            os.close(fd)
        raise _replaced(self._path)

    def _read(self, fd: int) -> bool:
        """Update the entries from the file. Return False if the file was replaced by a repaired one."""
        stat = os.fstat(fd)
        identity = (stat.st_dev, stat.st_ino)
        known, same = self._entries, identity == self._file
        # A rewrite by another process leaves a new file, which is never empty.
        lost = bool(known) and (stat.st_size == 0 or (same and stat.st_size < self._position))
        unreadable = self._read_new(fd, stat.st_size) if same and not lost else 0
        if not same or lost or unreadable:
            self._entries, self._position, self._lines, self._file = {}, 0, 0, identity
            self._sibling(".new").unlink(missing_ok=True)
            unreadable = self._read_new(fd, stat.st_size)
        if not (lost or unreadable):
            return True
        # Deliberately past the end: if the repair fails, the next read finds the file too short and tries again.
        self._position = stat.st_size + 1
        self._repair(known if lost or same else {}, unreadable)
        return False

    def _read_new(self, fd: int, size: int) -> int:
        """Read the new lines, truncate a torn last one, and return the number of unreadable lines."""
        data = read_range(fd, self._position, size)
        end = data.rfind(b"\n") + 1
        entries = [decode(line) for line in data[:end].splitlines()]
        for entry in entries:
            if entry is not None:
                self._apply(entry)
        self._position += end
        unreadable = entries.count(None)
        if end == len(data):
            return unreadable
        if not is_torn(data[end:]):
            return unreadable + 1
        os.ftruncate(fd, self._position)
        return unreadable

    def _apply(self, entry: LedgerEntry) -> None:
        self._lines += 1
        self._entries.pop(entry.key, None)
        self._entries[entry.key] = entry

    def _repair(self, known: dict[str, LedgerEntry], unreadable: int) -> None:
        """Replace a ledger that lost lines by one with all known entries."""
        self._entries = {**known, **self._entries}
        if unreadable:
            aside = self._sibling(".damaged")
            write_whole(aside, self._path.read_bytes())
            self.problem = (
                f"the append ledger {self._path} was damaged: {unreadable} of its lines could not be read. The damaged "
                f"file was saved as {aside.name}, and {len(self._entries)} keys were kept. A retry of an append that "
                "was recorded only in the lost lines is written a second time"
            )
        else:
            self.problem = f"the append ledger {self._path} was emptied or removed, and rewritten from memory"
        self._rewrite(self._entries.values())

    def _compact_if_worthwhile(self) -> None:
        removable = self._lines - min(len(self._entries), self._kept_keys)
        if self._position > COMPACT_ABOVE_BYTES and removable * _LINES_PER_REMOVED >= self._lines:
            # The append itself is done and must not fail because the ledger stays long.
            with suppress(OSError):
                self._compact()

    def _compact(self) -> None:
        finished = [e for e in self._entries.values() if e.state is not AppendState.PENDING]
        dropped = {e.key for e in islice(finished, max(0, len(finished) - self._kept_keys))}
        self._rewrite(e for e in self._entries.values() if e.key not in dropped)

    def _rewrite(self, entries: Iterable[LedgerEntry]) -> None:
        new = self._sibling(".new")
        write_whole(new, b"".join(map(encode, entries)))
        new.replace(self._path)
        sync_folders(str(self._path.parent))

    def _sibling(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)


def _replaced(path: Path) -> FileBusy:
    return FileBusy(str(path), "was removed or replaced by another program during an append; try again")
