"""The SQLite files of an agent that no daemon uses, opened for a copy. The files are read, and never changed.

SQLite creates files next to a database with a write-ahead log, and applies the log of a process that was killed. So a
database with a journal is copied to a temporary folder first, and any other one is opened as immutable.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from memoryd_server.errors import IndexBusy
from memoryd_server.sqlite import opening, relocation
from memoryd_server.sqlite.connection import (
    BUSY_TIMEOUT_MS,
    damage_reason,
    is_damage,
    scalar,
)
from memoryd_server.system import FileLock

_JOURNALS = ("-wal", "-journal")
_PAGE_CACHE = "PRAGMA cache_size=-4000"


class StoredFileUnusable(Exception):
    """A file cannot be read, or not completely; the message says why, and what to do."""


def lock_files(index_path: Path) -> list[Path]:
    """Return the lock files of an index: the one that its daemon locks, and that of memoryd 0.1.0."""
    former = relocation.former_path(index_path)
    return [path.with_name(f"{path.name}.lock") for path in (index_path, former) if path is not None]


@contextmanager
def unused(index_path: Path) -> Iterator[None]:
    """Let no daemon open an index until the block ends. Creates no lock file: without one, no daemon ran here.

    Raises:
        IndexBusy: a daemon uses the index; the message contains its process id.
        IndexUnavailable: the file system has no locks.
    """
    with ExitStack() as stack:
        for path in lock_files(index_path):
            lock = FileLock(path)
            try:
                lock.acquire_to_read()
            except IndexBusy as error:
                # A migration writes no process id.
                holder = path.read_text("ascii", "replace").strip()[:20] or "unknown"
                raise IndexBusy(
                    f"a daemon (process {holder}), or another migration, uses {index_path}; stop the daemon, then "
                    "repeat the command"
                ) from error
            stack.callback(lock.release)
        yield


def stored_index_path(index_path: Path) -> Path:
    """Return the file of an index, which memoryd 0.1.0 named differently, or which another program's file displaced."""
    used, _ = opening.usable_path(opening.former_index(index_path) or index_path)
    # A rebuild whose swap was interrupted is complete.
    return next((path for path in (opening.ready_path(used), used) if path.exists()), used)


def stored_cache_path(index_path: Path) -> Path:
    """Return the file of the embedding cache next to an index."""
    used, _ = opening.usable_path(opening.former_index(index_path) or index_path)
    # An interrupted relocation has moved the cache, but not the index.
    candidates = [_cache_of(path) for path in (used, index_path)]
    return next((path for path in candidates if path.exists()), candidates[0])


def _cache_of(index_path: Path) -> Path:
    return index_path.with_name(index_path.name.removesuffix(".sqlite") + ".embeddings.sqlite")


@contextmanager
def opened_file(path: Path, *, in_use: bool = False) -> Iterator[apsw.Connection | None]:
    """Open a database for reading until the block ends; yield None if it does not exist or is empty.

    A daemon may change the database only if it is `in_use`. Errors of the block are not translated; see `translated`.

    Raises:
        StoredFileUnusable: it cannot be read, or is damaged.
    """
    connection = None
    with translated():
        if path.exists() and path.stat().st_size:
            connection = _shared(path) if in_use else _copied(path) if _has_journal(path) else _unchanging(path)
    if connection is None:
        yield None
        return
    try:
        with translated():
            connection.execute(_PAGE_CACHE).fetchall()
            is_empty = not scalar(connection, "SELECT count(*) FROM sqlite_schema")
        yield None if is_empty else connection
    finally:
        connection.close()


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of SQLite and of the file system as `StoredFileUnusable`."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        if is_damage(error):
            words = f"it is damaged ({damage_reason(error)}), and was not copied, or not completely"
        else:
            words = f"it cannot be read ({error})"
        raise StoredFileUnusable(words) from error


def _has_journal(path: Path) -> bool:
    journals = (path.with_name(path.name + suffix) for suffix in _JOURNALS)
    return any(journal.exists() and journal.stat().st_size for journal in journals)


def _shared(path: Path) -> apsw.Connection:
    """Open a database that a daemon may be changing."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return connection


def _unchanging(path: Path) -> apsw.Connection:
    uri = f"file:{quote(str(path))}?immutable=1"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def _copied(path: Path) -> apsw.Connection:
    """Open a copy of a database, to which its journal is applied. The copy is deleted once it is open."""
    with tempfile.TemporaryDirectory(prefix="memoryd-migrate-") as folder:
        copy = Path(folder) / path.name
        try:
            for suffix in ("", *_JOURNALS):
                part = path.with_name(path.name + suffix)
                if part.exists():
                    shutil.copyfile(part, copy.with_name(copy.name + suffix))
        except OSError as error:
            raise StoredFileUnusable(
                f"a daemon was killed, and its log cannot be applied to a copy in {folder} ({error.strerror}); start "
                "and stop the daemon once, or set TMPDIR to a folder with more space"
            ) from error
        connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # Applies the journal, and deletes it.
            connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        finally:
            connection.close()
        return _unchanging(copy)
