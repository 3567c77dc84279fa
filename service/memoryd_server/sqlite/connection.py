"""Open connections, journal, error translation.

Opens SQLite connections the one way that memoryd opens them, and names what SQLite refuses.

A busy timeout is set before the first statement. A connection is used by one thread at a time; it may move between
threads.

Keeps the write-ahead log short, also while searches never rest.

SQLite goes back to the log's beginning when a commit finds no reader in the log. With searches that overlap there is
always one, and a long sync would let the log grow with every page that it writes. So above a size the writer waits,
for a moment, until those who read the log are through: while nothing is written, new readers do not need it.

Which journal the file system under an index can carry.

Whether an index holds what was written to it, as far as is known, and what happened to it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import apsw

from memoryd_server.errors import DeadlineTooShort, IndexBusy, IndexDamaged, IndexUnavailable, MemorydError
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.sources import MOUNT_TABLE, file_system_of, is_remote
from memoryd_server.system import DISK_FULL, index_disk_full

BUSY_TIMEOUT_MS = 5_000

# "mmrd": marks a file as memoryd's (PRAGMA application_id), so that no other program's database is ever touched.
APPLICATION_ID = 0x6D6D7264

# Only a full disk keeps the few kilobytes of a log's index from growing.
_FULL_TOO = frozenset({apsw.SQLITE_IOERR_SHMSIZE})

# A page that is not there, or not what was written: the file or its log was cut or overwritten.
_DAMAGE = frozenset({apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS})


class JournalMode(StrEnum):
    """How a transaction survives a crash: a write-ahead log, or a rollback journal where no memory can be shared."""

    LOG = "WAL"
    ROLLBACK = "TRUNCATE"


# One execute a pragma: apsw runs only the first statement of a text until its cursor is consumed.
_WRITER_PRAGMAS = (
    "PRAGMA secure_delete=ON",
    "PRAGMA cache_size=-16000",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA journal_size_limit=16777216",
)

_JOURNAL_PRAGMAS: Mapping[JournalMode, tuple[str, ...]] = {
    JournalMode.LOG: ("PRAGMA synchronous=NORMAL",),
    # Pages that spill before the end of a transaction would shut the readers out until that end.
    JournalMode.ROLLBACK: ("PRAGMA synchronous=FULL", "PRAGMA cache_spill=OFF"),
}
# No memory mapping: where a mapped file is cut short by somebody else, the process dies of SIGBUS. The larger cache
# makes up for some of it; the reader that was used last is used next, so that mostly one of them fills its own.
_READER_PRAGMAS = (
    "PRAGMA query_only=ON",
    "PRAGMA cache_size=-48000",
    "PRAGMA temp_store=MEMORY",
)

# What all connections of the process may take together before none of them keeps more pages; at rest an agent's writer
# has less than this of its own.
_HEAP_BYTES = 256 * 2**20
_HEAP_BYTES_OF_AN_AGENT = 96 * 2**10


def bound_page_caches(agents: int) -> None:
    """Bounds the page caches of so many agents' indexes together: beyond it each uses its own pages over again.

    For the whole process, and softly: what SQLite cannot do without it takes all the same.
    """
    apsw.soft_heap_limit(_HEAP_BYTES + agents * _HEAP_BYTES_OF_AN_AGENT)


def open_writer(path: Path, journal: JournalMode = JournalMode.LOG) -> apsw.Connection:
    """Opens `path` for writing, creating it when it is absent. It and its journals are its owner's alone.

    Raises:
        apsw.Error: the file cannot be opened, or is no SQLite database.
        OSError: the file cannot be made, or is another user's.
    """
    _make_private(path)
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        _mark_if_new(connection)
        _set_journal(connection, journal)
        for pragma in (*_WRITER_PRAGMAS, *_JOURNAL_PRAGMAS[journal]):
            connection.execute(pragma).fetchall()
        keep_short(connection, BUSY_TIMEOUT_MS)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_journal(connection: apsw.Connection, journal: JournalMode) -> None:
    found = str(scalar(connection, f"PRAGMA journal_mode={journal}"))
    if found.upper() != journal:
        raise IndexUnavailable(f"SQLite keeps the journal mode {found!r} where {journal} was asked for")


def scalar(connection: apsw.Connection, query: str, bindings: tuple[Any, ...] = ()) -> Any:
    """The first column of the one row that `query` gives."""
    row: tuple[Any, ...] = connection.execute(query, bindings).fetchone() or (None,)
    return row[0]


def _make_private(path: Path) -> None:
    # Before SQLite opens it: the -wal and -shm files, which hold notes too, get the mode of the file itself.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)


def _mark_if_new(connection: apsw.Connection) -> None:
    # Before WAL mode, so that the mark is in the file itself: one that stood in a lost WAL would make the file foreign.
    if scalar(connection, "PRAGMA page_count") == 0:
        # The mark is one page of a file that holds nothing: where the power fails before it has reached the disk, an
        # empty file is found and begun anew. To wait for the disk, a dozen times a file, would gain nothing.
        for pragma in ("synchronous=OFF", "journal_mode=MEMORY", f"application_id={APPLICATION_ID}"):
            connection.execute(f"PRAGMA {pragma}").fetchall()


def open_reader(path: Path) -> apsw.Connection:
    """Opens `path` for reading only, with a `vocabulary` table over the keyword leg for document frequencies."""
    return _for_reading(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY))


def open_unchanging(path: Path) -> apsw.Connection:
    """The same for a file that nobody can write: no lock is taken, and no log looked for."""
    uri = f"file:{quote(str(path))}?immutable=1"
    return _for_reading(apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI))


def _for_reading(connection: apsw.Connection) -> apsw.Connection:
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        for pragma in _READER_PRAGMAS[1:]:
            connection.execute(pragma).fetchall()
        connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, keyword, row)")
        connection.execute(_READER_PRAGMAS[0]).fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Runs its body in one write transaction: all of it, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """Runs its body against one unchanging state of the index."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


@contextmanager
def translated() -> Iterator[None]:
    """Turns what SQLite raises, and the system where index files are made and swapped, into our errors."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise translate(error) from error


def translate(error: apsw.Error | OSError) -> MemorydError:
    """The error of ours that tells a caller what SQLite or the system met."""
    if isinstance(error, apsw.InterruptError):
        return DeadlineTooShort(
            "the search did not finish before the deadline; allow more time or ask a shorter question"
        )
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return IndexBusy(f"the index is locked by another process: {error}", retry_after_seconds=1.0)
    if is_full(error):
        return index_disk_full()
    if is_damage(error):
        words = f"the index is damaged ({damage_words(error)}) and is built anew from the Markdown"
        return IndexDamaged(words, retry_after_seconds=1.0)
    return IndexUnavailable(f"the index cannot be used: {type(error).__name__}: {error}")


def is_full(error: BaseException) -> bool:
    """Whether no space is left."""
    return (
        isinstance(error, apsw.FullError)
        or getattr(error, "extendedresult", None) in _FULL_TOO
        or getattr(error, "errno", None) in DISK_FULL
    )


def is_damage(error: BaseException) -> bool:
    """Whether the file does not hold what was written to it."""
    return (
        isinstance(error, apsw.CorruptError | apsw.NotADBError)
        or getattr(error, "extendedresult", None) in _DAMAGE
        # Every index has every table; one that was cut to nothing has none, and SQLite takes it for a new one.
        or (isinstance(error, apsw.SQLError) and str(error).startswith("no such table"))
    )


def damage_words(error: BaseException) -> str:
    """What was found, for a person."""
    if getattr(error, "extendedresult", None) in _DAMAGE:
        return "a part of the file or of its log is missing"
    return str(error)


# Of 4 KiB each. Copied into the database from here on, as SQLite does by itself ...
_COPIED_PAGES = 1_000

# ... and from here on begun anew, at the price of the wait.
_MOST_PAGES = 4_000

# A search that takes longer is not waited for; the next commit tries again.
_PATIENCE_MS = 250


def keep_short(connection: apsw.Connection, busy_timeout_ms: int) -> None:
    """Looks after the log of a writer's connection from now on, in the place of SQLite's own automatic checkpoint."""

    def after_commit(committed: apsw.Connection, _database: str, pages: int) -> int:
        # As SQLite itself has it, the commit stands whatever becomes of the log.
        with suppress(apsw.Error):
            if pages >= _MOST_PAGES:
                _begin_anew(committed, busy_timeout_ms)
            elif pages >= _COPIED_PAGES:
                committed.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return int(apsw.SQLITE_OK)

    connection.set_wal_hook(after_commit)


def _begin_anew(connection: apsw.Connection, busy_timeout_ms: int) -> None:
    connection.set_busy_timeout(_PATIENCE_MS)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.set_busy_timeout(busy_timeout_ms)


def journal_for(folder: Path, table: Path = MOUNT_TABLE) -> tuple[JournalMode, str]:
    """The journal for databases in `folder`, and why it is not the write-ahead log; empty when it is.

    The log's readers and writer share memory through a mapped file. On network and virtual file systems that memory is
    not the same for all, and databases were seen to be damaged within a minute.
    """
    kind = file_system_of(folder, table)
    if not is_remote(kind):
        return JournalMode.LOG, ""
    reason = (
        f"{folder} is on a network or virtual file system ({kind}), where SQLite's write-ahead log is not safe; "
        "searches wait while a sync commits. A --state-dir on a local disk is faster and safer"
    )
    return JournalMode.ROLLBACK, reason


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Which files were opened, so that it is noticed when others stand in their place. None is not told apart.

    On network file systems, whose inode numbers may change, only being there counts.
    """

    index: tuple[int, int] | None
    log: tuple[int, int] | None

    @classmethod
    def of(cls, path: Path, *, is_local: bool) -> Self:
        """The mark of the index that was just opened."""
        return cls(_identity(path), _identity(_log(path))) if is_local else cls(None, None)

    def is_gone(self, path: Path) -> bool:
        """Whether the index itself is no longer at its path. Costs some microseconds."""
        found = _identity(path)
        return found is None or (self.index is not None and found != self.index)

    def has_changed(self, path: Path) -> bool:
        """Whether the index or its log is no longer at its path."""
        return self.is_gone(path) or (self.log is not None and _identity(_log(path)) != self.log)


def impaired(wanted: object, used: object, reason: str) -> Degradation:
    """Return the degradation that `used` serves instead of `wanted`; both are paths or words."""
    return Degradation(DegradationKind.INDEX_IMPAIRED, str(wanted), str(used), reason)


def size_bytes(path: Path) -> tuple[int, int]:
    """Return the bytes of a database file and of its write-ahead log; 0 for a missing file. Blocks."""
    return _file_bytes(path), _file_bytes(_log(path))


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 -- a search does this, and Path.stat costs three times as much
    except OSError:
        return None
    return found.st_dev, found.st_ino
