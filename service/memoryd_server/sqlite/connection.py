"""SQLite connections: opening, transactions, journal modes, error translation and checkpoints.

A busy timeout is set before the first statement. A connection is used by one thread at a time; it may move between
threads.

SQLite restarts the write-ahead log at its beginning when a commit finds no reader in the log. If searches overlap,
there is always a reader, and the log would grow with every page that a long sync writes. Therefore, above a size, the
writer waits a moment until the readers of the log are done: while nothing is written, new readers do not need the log.
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

# "mmrd": marks a file as memoryd's (PRAGMA application_id), so that other programs' databases are never changed.
APPLICATION_ID = 0x6D6D7264

# The log's index is a few kilobytes; only a full disk prevents it from growing.
_ALSO_FULL = frozenset({apsw.SQLITE_IOERR_SHMSIZE})

# A page is missing or differs from what was written: the file or its log was truncated or overwritten.
_DAMAGE = frozenset({apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS})


class JournalMode(StrEnum):
    """How a transaction survives a crash: a write-ahead log, or a rollback journal if memory cannot be shared."""

    LOG = "WAL"
    ROLLBACK = "TRUNCATE"


# One call of execute per pragma: apsw runs only the first statement of a text until its cursor is consumed.
_WRITER_PRAGMAS = (
    "PRAGMA secure_delete=ON",
    # A writer mostly appends: with 16 MB, a first index took as much processor time, also in transactions of 4 MB.
    "PRAGMA cache_size=-4000",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA journal_size_limit=16777216",
)

_JOURNAL_PRAGMAS: Mapping[JournalMode, tuple[str, ...]] = {
    JournalMode.LOG: ("PRAGMA synchronous=NORMAL",),
    # Pages that spill before the end of a transaction would lock readers out until that end.
    JournalMode.ROLLBACK: ("PRAGMA synchronous=FULL", "PRAGMA cache_spill=OFF"),
}
# No memory mapping: if another program truncates a mapped file, the process is killed by SIGBUS. The larger cache
# compensates in part. The pool reuses the most recently used reader first, so usually only one fills its cache.
_READER_PRAGMAS = (
    "PRAGMA query_only=ON",
    "PRAGMA cache_size=-48000",
    "PRAGMA temp_store=MEMORY",
)

# The soft limit of SQLite's heap for all connections of the process, and the part added per agent: an idle agent's
# writer uses less than that.
HEAP_BYTES = 256 * 2**20
HEAP_BYTES_PER_AGENT = 96 * 2**10


def bound_page_caches(agents: int, *, shared_bytes: int = HEAP_BYTES) -> None:
    """Set SQLite's soft heap limit for the indexes of `agents` agents; above it, connections reuse their own pages.

    `shared_bytes` is the part of the limit that does not depend on the number of agents. Applies to the whole process.
    SQLite exceeds the limit if it cannot continue otherwise.
    """
    apsw.soft_heap_limit(shared_bytes + agents * HEAP_BYTES_PER_AGENT)


def open_writer(path: Path, journal: JournalMode = JournalMode.LOG) -> apsw.Connection:
    """Open `path` for writing; create it if it is missing. The file and its journals are accessible to the owner only.

    Raises:
        apsw.Error: the file cannot be opened, or is not a SQLite database.
        OSError: the file cannot be created, or belongs to another user.
    """
    _make_private(path)
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        _mark_if_new(connection)
        _set_journal(connection, journal)
        for pragma in (*_WRITER_PRAGMAS, *_JOURNAL_PRAGMAS[journal]):
            connection.execute(pragma).fetchall()
        bound_log(connection, BUSY_TIMEOUT_MS)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_journal(connection: apsw.Connection, journal: JournalMode) -> None:
    actual = str(scalar(connection, f"PRAGMA journal_mode={journal}"))
    if actual.upper() != journal:
        raise IndexUnavailable(
            f"the journal mode of {connection.filename} stays {actual!r}; SQLite refused to change it to {journal}"
        )


def scalar(connection: apsw.Connection, query: str, bindings: tuple[Any, ...] = ()) -> Any:
    """Return the first column of the first row of `query`; None if there is no row."""
    row: tuple[Any, ...] = connection.execute(query, bindings).fetchone() or (None,)
    return row[0]


def _make_private(path: Path) -> None:
    # Before SQLite opens the file: the -wal and -shm files, which hold note text too, get the mode of the file.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)


def _mark_if_new(connection: apsw.Connection) -> None:
    # Before WAL mode, so that the mark is in the file itself: if it were only in a WAL that is lost, the file would
    # count as another program's.
    if scalar(connection, "PRAGMA page_count") == 0:
        # The mark is one page of an otherwise empty file. If the power fails before the page is on disk, the file is
        # found empty and initialized again, so waiting for the disk, a dozen times per file, would gain nothing.
        for pragma in ("synchronous=OFF", "journal_mode=MEMORY", f"application_id={APPLICATION_ID}"):
            connection.execute(f"PRAGMA {pragma}").fetchall()


def open_reader(path: Path) -> apsw.Connection:
    """Open `path` for reading only, with temporary tables of the keyword index.

    `vocabulary` has the document frequency of each term, `occurrences` each occurrence of a term in a chunk.
    """
    return _prepare_reader(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY))


def open_present_reader(path: Path) -> apsw.Connection:
    """Open `path` as `open_reader` does.

    Raises:
        IndexDamaged: the file is missing.
        apsw.Error: the file cannot be opened.
    """
    try:
        return open_reader(path)
    except apsw.CantOpenError as error:
        if path.exists():
            raise
        raise file_lost(path) from error


def file_lost(path: Path) -> IndexDamaged:
    """Return the error for an index whose file is missing or is another file now."""
    return IndexDamaged(
        f"{path} was removed or replaced while it was in use; it is reopened, or rebuilt from the Markdown",
        retry_after_seconds=1.0,
    )


def open_unchanging(path: Path) -> apsw.Connection:
    """Open a file that no process can write as `open_reader` does, without locks and without looking for a log."""
    uri = f"file:{quote(str(path))}?immutable=1"
    return _prepare_reader(apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI))


def _prepare_reader(connection: apsw.Connection) -> apsw.Connection:
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        for pragma in _READER_PRAGMAS[1:]:
            connection.execute(pragma).fetchall()
        connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, keyword, row)")
        connection.execute("CREATE VIRTUAL TABLE temp.occurrences USING fts5vocab(main, keyword, instance)")
        connection.execute(_READER_PRAGMAS[0]).fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Run the body in one write transaction: committed as a whole, or rolled back."""
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
    """Run the body in one read transaction, against one unchanging state of the index."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of SQLite, and those of the system about index files, as errors of `memoryd_server.errors`."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise translate(error) from error


def translate(error: apsw.Error | OSError) -> MemorydError:
    """Return the error of `memoryd_server.errors` for an error of SQLite or of the system."""
    if isinstance(error, apsw.InterruptError):
        return DeadlineTooShort("the search did not finish before the deadline; allow more time or shorten the query")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return IndexBusy(f"the index is locked by another process: {error}", retry_after_seconds=1.0)
    if is_full(error):
        return index_disk_full()
    if is_damage(error):
        reason = f"the index is damaged ({damage_reason(error)}) and is being rebuilt from the Markdown"
        return IndexDamaged(reason, retry_after_seconds=1.0)
    return IndexUnavailable(f"the index cannot be used: {type(error).__name__}: {error}")


def is_full(error: BaseException) -> bool:
    """Return whether the error means a full disk."""
    return (
        isinstance(error, apsw.FullError)
        or getattr(error, "extendedresult", None) in _ALSO_FULL
        or getattr(error, "errno", None) in DISK_FULL
    )


def is_damage(error: BaseException) -> bool:
    """Return whether the error means that the file does not hold what was written to it."""
    return (
        isinstance(error, apsw.CorruptError | apsw.NotADBError)
        or getattr(error, "extendedresult", None) in _DAMAGE
        # Every index has every table. A file truncated to 0 bytes has none, and SQLite treats it as a new database.
        or (isinstance(error, apsw.SQLError) and str(error).startswith(("no such table", "no such fts5 table")))
    )


def damage_reason(error: BaseException) -> str:
    """Return a description of the damage, for error messages."""
    if getattr(error, "extendedresult", None) in _DAMAGE:
        return "a part of the file or of its log is missing"
    return str(error)


# In pages of 4 KiB. At this size the log is copied into the database after a commit, as SQLite does by default ...
CHECKPOINT_PAGES = 1_000

# ... and from this size on, it is truncated, which waits for readers.
TRUNCATE_PAGES = 4_000

# The longest wait for a reader; the next commit tries again.
_TRUNCATE_TIMEOUT_MS = 250


def bound_log(
    connection: apsw.Connection,
    busy_timeout_ms: int,
    *,
    checkpoint_pages: int = CHECKPOINT_PAGES,
    truncate_pages: int = TRUNCATE_PAGES,
) -> None:
    """Replace SQLite's automatic checkpoint of a writer's connection by one that bounds the size of the log."""

    def after_commit(committed: apsw.Connection, _database: str, pages: int) -> int:
        # As with SQLite's own checkpoint, a failure does not affect the commit.
        with suppress(apsw.Error):
            if pages >= truncate_pages:
                _truncate_log(committed, busy_timeout_ms)
            elif pages >= checkpoint_pages:
                committed.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return int(apsw.SQLITE_OK)

    connection.set_wal_hook(after_commit)


def _truncate_log(connection: apsw.Connection, busy_timeout_ms: int) -> None:
    connection.set_busy_timeout(_TRUNCATE_TIMEOUT_MS)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.set_busy_timeout(busy_timeout_ms)


def journal_for(folder: Path, table: Path = MOUNT_TABLE) -> tuple[JournalMode, str]:
    """Return the journal mode for databases in `folder`, and why it is not the write-ahead log; empty if it is.

    The readers and the writer of a log share memory through a mapped file. On network and virtual file systems they do
    not see the same memory, and databases were damaged within a minute in tests.
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
    """The device and inode of an open index and of its log, to notice when the files are removed or replaced.

    None means that the file is not compared. On network file systems, whose inode numbers may change, only the
    existence of the index is checked.
    """

    index: tuple[int, int] | None
    log: tuple[int, int] | None

    @classmethod
    def of(cls, path: Path, *, is_local: bool) -> Self:
        """Return the identity of the index that was just opened."""
        return cls(_identity(path), _identity(_log(path))) if is_local else cls(None, None)

    def is_gone(self, path: Path) -> bool:
        """Return whether the index is no longer at its path. Costs some microseconds."""
        current = _identity(path)
        return current is None or (self.index is not None and current != self.index)

    def has_changed(self, path: Path) -> bool:
        """Return whether the index or its log is no longer at its path."""
        return self.is_gone(path) or (self.log is not None and _identity(_log(path)) != self.log)


FileIds = tuple[tuple[int, int] | None, ...]
"""The device and inode of each file of an open index; None for a missing one."""


def file_ids(path: Path) -> FileIds:
    """Return the ids of an index, of its log, and of the file through which its connections share memory.

    Connections of several processes see the same commits only if they have all three files in common.
    """
    return _identity(path), _identity(f"{path}-wal"), _identity(f"{path}-shm")


def impaired(wanted: object, used: object, reason: str) -> Degradation:
    """Return the degradation that `used` is in use instead of `wanted`; both are paths or words."""
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


def _identity(path: Path | str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 -- a search does this, and Path.stat costs three times as much
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
