"""Begun and finished appends.

Remembers which appends were begun and which were finished, so that a retry duplicates nothing.

The ledger is a file of JSON lines beside the disposable index and outlives it. A line is a whole entry; of several
lines with one key the last one counts. An entry is on disk before a byte of its block is written. It holds hashes of
texts, never a text.

The lines of the append ledger: one entry each, with a checksum. Pure.
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
    """How far an append came."""

    PENDING = "pending"
    DONE = "done"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One append: where its block of `length` bytes stands, or was to stand, and what it was asked to be.

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
    """Returns the line of an entry, with its newline."""
    fields = asdict(entry)
    if entry.copies_before is None:
        # Earlier builds read only lines without this field.
        del fields["copies_before"]
    return _json({**fields, "check": _checksum(fields)}) + b"\n"


def decode(line: bytes) -> LedgerEntry | None:
    """Returns the entry of a line, None when the line is not one that `encode` made."""
    try:
        fields = json.loads(line)
        # Ledgers of the first builds have no checksums.
        if fields.pop("check", None) not in {None, _checksum(fields)}:
            return None
        return LedgerEntry(**{**valid_tree(fields), "state": AppendState(fields["state"])})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def is_torn(tail: bytes) -> bool:
    """Whether bytes without a newline at a ledger's end are what a crash leaves of a line."""
    # A power cut can leave NULs where a file had grown and its bytes had not arrived.
    kept = tail.rstrip(b"\0")
    return kept.startswith(_OPENING[: len(kept)])


def _checksum(fields: dict[str, object]) -> int:
    return zlib.crc32(_json(fields))


def _json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


COMPACT_ABOVE_BYTES = 1 << 20
"""Size below which the ledger is never rewritten for its length."""

KEPT_KEYS = 10_000
"""Finished keys that a rewrite for length keeps, newest first. Older ones are no longer protected."""

# A rewrite must shed at least one line in so many, or a full ledger would be rewritten at each append.
_WORTHWHILE = 4


class Ledger:
    """The ledger of one agent. Its methods need the lock that `locked` holds.

    `trouble` says what was wrong with the file and what became of it, since this object was made; "" when nothing was.
    """

    def __init__(self, path: str, *, kept_keys: int = KEPT_KEYS) -> None:
        self.trouble = ""
        self._kept_keys = kept_keys
        self._path = Path(path)
        self._entries: dict[str, LedgerEntry] = {}
        self._file: tuple[int, int] | None = None
        self._position = 0
        self._lines = 0
        self._fd = -1

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the ledger against every other process, with its entries read and what a crash left of it repaired.

        Raises:
            DiskFull: there is no space for it.
            IndexUnavailable: it cannot be used for any other reason.
            FileBusy: another program holds a lock on it, or replaces it again and again. Never waits for that.
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
        """Whether there is a ledger yet. The one method that needs no lock."""
        return self._path.exists()

    def get(self, key: str) -> LedgerEntry | None:
        """Returns the entry of a key, if there is one."""
        return self._entries.get(key)

    def unfinished(self) -> list[LedgerEntry]:
        """Returns the appends that were begun and, as far as is known, not finished."""
        return [e for e in self._entries.values() if e.state is AppendState.PENDING]

    def pending(self, path: str) -> list[LedgerEntry]:
        """Returns the unfinished appends to a file."""
        return [e for e in self.unfinished() if e.path == path]

    def put(self, entry: LedgerEntry, *, durable: bool = False) -> None:
        """Write an entry; when `durable`, return only once it survives a power cut.

        Raises:
            FileBusy: the ledger was removed or replaced since its lock was taken, so a `durable` entry would be lost.
        """
        with ledger_errors(str(self._path)):
            self._append(encode(entry))
            if durable:
                os.fsync(self._fd)
                if not is_at(self._fd, self._path):
                    raise _replaced(self._path)
        self._position = os.fstat(self._fd).st_size
        self._remember(entry)

    def settle(self, entry: LedgerEntry, state: AppendState) -> LedgerEntry:
        """Writes down how an append ended, and returns it so."""
        settled = replace(entry, state=state, copies_before=None)
        self.put(settled)
        return settled

    def _append(self, data: bytes) -> None:
        try:
            write_all(self._fd, data)
        except OSError:
            # What stays of the line is torn, and cut off by whoever reads it next.
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
                    words = "is the append ledger and locked by another program; try again when that program is done"
                    raise FileBusy(str(self._path), words)  # noqa: TRY301 -- the descriptor is closed below
                if created:
                    sync_folders(str(self._path.parent))
                if is_at(fd, self._path) and self._read(fd):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            # The ledger was rewritten, by another process or by us: what is locked is the old file.
            os.close(fd)
        raise _replaced(self._path)

    def _read(self, fd: int) -> bool:
        """Brings the entries in line with the file; false when the file had to be replaced by a repaired one."""
        stat = os.fstat(fd)
        identity = (stat.st_dev, stat.st_ino)
        known, same = self._entries, identity == self._file
        # Another process that rewrites the ledger leaves another file, and never an empty one.
        lost = bool(known) and (stat.st_size == 0 or (same and stat.st_size < self._position))
        unreadable = self._read_on(fd, stat.st_size) if same and not lost else 0
        if not same or lost or unreadable:
            self._entries, self._position, self._lines, self._file = {}, 0, 0, identity
            self._beside(".new").unlink(missing_ok=True)
            unreadable = self._read_on(fd, stat.st_size)
        if not (lost or unreadable):
            return True
        # Too far on purpose: if the repair fails, the next look finds the file too short and tries again.
        self._position = stat.st_size + 1
        self._repair(known if lost or same else {}, unreadable)
        return False

    def _read_on(self, fd: int, size: int) -> int:
        """Reads the lines that are new, cuts a torn last one off, and returns how many could not be read."""
        data = read_range(fd, self._position, size)
        end = data.rfind(b"\n") + 1
        entries = [decode(line) for line in data[:end].splitlines()]
        for entry in entries:
            if entry is not None:
                self._remember(entry)
        self._position += end
        unreadable = entries.count(None)
        if end == len(data):
            return unreadable
        if not is_torn(data[end:]):
            return unreadable + 1
        os.ftruncate(fd, self._position)
        return unreadable

    def _remember(self, entry: LedgerEntry) -> None:
        self._lines += 1
        self._entries.pop(entry.key, None)
        self._entries[entry.key] = entry

    def _repair(self, known: dict[str, LedgerEntry], unreadable: int) -> None:
        """Replaces a ledger that lost lines by one of all that is known."""
        self._entries = {**known, **self._entries}
        if unreadable:
            aside = self._beside(".damaged")
            write_whole(aside, self._path.read_bytes())
            self.trouble = (
                f"the append ledger {self._path} was damaged: {unreadable} of its lines could not be read. It was set "
                f"aside as {aside.name} and goes on with {len(self._entries)} keys; a retry of an append that only "
                "the lost lines told of would be written a second time"
            )
        else:
            self.trouble = f"the append ledger {self._path} was emptied or removed, and written anew from memory"
        self._rewrite(self._entries.values())

    def _compact_if_worthwhile(self) -> None:
        shed = self._lines - min(len(self._entries), self._kept_keys)
        if self._position > COMPACT_ABOVE_BYTES and shed * _WORTHWHILE >= self._lines:
            # The append itself is done; a ledger that stays long is no reason to fail it.
            with suppress(OSError):
                self._compact()

    def _compact(self) -> None:
        finished = [e for e in self._entries.values() if e.state is not AppendState.PENDING]
        dropped = {e.key for e in islice(finished, max(0, len(finished) - self._kept_keys))}
        self._rewrite(e for e in self._entries.values() if e.key not in dropped)

    def _rewrite(self, entries: Iterable[LedgerEntry]) -> None:
        beside = self._beside(".new")
        write_whole(beside, b"".join(map(encode, entries)))
        beside.replace(self._path)
        sync_folders(str(self._path.parent))

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)


def _replaced(path: Path) -> FileBusy:
    return FileBusy(str(path), "was removed or replaced by another program during an append; try again")
