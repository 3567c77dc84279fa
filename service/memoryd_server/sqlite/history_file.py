"""The database file of the history of writes: opening, durability, damage and removal, and the translation of errors.

A file that is missing is created by the first write; until then, reads find nothing. A damaged file is set aside and a
new one is begun. The history of earlier writes is then lost, but new writes can be undone.
"""

import glob
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import apsw

from memoryd_server.errors import DiskFull, HistoryUnavailable, MemorydError, ShuttingDown
from memoryd_server.sqlite import opening
from memoryd_server.sqlite.connection import (
    APPLICATION_ID,
    FileIdentity,
    JournalMode,
    damage_reason,
    is_damage,
    is_full,
    journal_for,
    open_writer,
    scalar,
    transaction,
)
from memoryd_server.system import READ_ONLY, sync_folder

SCHEMA_VERSION = 1

_T = TypeVar("_T")


class HistoryFile:
    """One connection to the file of a history, for one caller at a time.

    `tables` are the statements that create an empty history, and `opened` is called with each new connection. The file
    is opened on first use, and again after `release_memory`. A commit is on the disk when it returns. `now_ms` is the
    wall clock in Unix milliseconds. `problem` describes damage that was found since this object was created.
    """

    def __init__(
        self,
        path: Path,
        tables: tuple[str, ...],
        opened: Callable[[apsw.Connection], None],
        journal: JournalMode | None,
        now_ms: Callable[[], int],
    ) -> None:
        self.problem = ""
        self._path = path
        self._tables = tables
        self._opened = opened
        self._journal = journal
        self._now_ms = now_ms
        self._guard = threading.RLock()
        self._identity: FileIdentity | None = None
        self._connection: apsw.Connection | None = None
        self._closed = False

    def write(self, work: Callable[[apsw.Connection], _T]) -> _T:
        """Return the result of `work`, which changes the history; create the file if it is missing.

        If `work` meets damage, the file is set aside and `work` is called again on an empty history.

        Raises:
            DiskFull, HistoryUnavailable: the file cannot be used; nothing of the last transaction of `work` is kept.
        """
        with self._guard:
            return self._use(work)

    def read(self, work: Callable[[apsw.Connection], _T], without_file: _T) -> _T:
        """Return the result of `work` as `write` does, or `without_file` if there is no file."""
        with self._guard:
            self._check_usable()
            if self._connection is None and not self._path.exists():
                return without_file
            return self._use(work)

    def _use(self, work: Callable[[apsw.Connection], _T]) -> _T:
        try:
            self._check_usable()
            try:
                return work(self._open())
            except apsw.Error as error:
                if not is_damage(error):
                    raise
                self._close()
                self._set_aside(error)
            return work(self._open())
        except (apsw.Error, OSError) as error:
            if is_full(error) and self._connection is not None:
                # Otherwise the log keeps the space that the failed transaction has taken.
                with suppress(apsw.Error):
                    truncate_log(self._connection)
            raise self._translate(error) from error
        except MemorydError as error:
            if isinstance(error, HistoryUnavailable | DiskFull | ShuttingDown):
                raise
            raise HistoryUnavailable(f"the history of writes {self._path} cannot be opened: {error.message}") from error

    def _check_usable(self) -> None:
        """Close the connection if the file was removed or replaced by another program."""
        if self._closed:
            words = "the history of writes is closed, because the daemon is stopping or reopens this agent; try again"
            raise ShuttingDown(words, retry_after_seconds=1.0)
        if self._identity is None or not self._identity.has_changed(self._path):
            return
        former_log = self._identity.log
        self._close()
        # The log of the former file must not be applied to its replacement, which may have a log of its own.
        is_former_log = former_log is not None and FileIdentity.of(self._path, is_local=True).log == former_log
        if is_former_log or not self._path.exists():
            opening.remove_journals(self._path)
        self.problem = (
            f"the history of writes {self._path} was removed or replaced while it was in use; writes that are not in "
            "the present file cannot be undone"
        )

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = self._connect()
            self._identity = FileIdentity.of(self._path, is_local=self._journal is JournalMode.LOG)
        return self._connection

    def _connect(self) -> apsw.Connection:
        if self._journal is None:
            # Only once: if the folder is missing later, its disk may not be mounted.
            folder = self._path.parent
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._journal, _ = journal_for(folder)
        connection = open_writer(self._path, self._journal)
        try:
            # The default of a write-ahead log, NORMAL, can lose the last transactions in a power failure.
            connection.execute("PRAGMA synchronous=FULL").fetchall()
            # A content is read once, so a larger page cache would only cost memory, for each agent.
            connection.execute("PRAGMA cache_size=-2000").fetchall()
            self._create_tables(connection)
            self._opened(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _create_tables(self, connection: apsw.Connection) -> None:
        if scalar(connection, "PRAGMA application_id") != APPLICATION_ID:
            raise HistoryUnavailable(f"{self._path} is another program's database; move it to another folder")
        version = int(scalar(connection, "PRAGMA user_version"))
        if version > SCHEMA_VERSION:
            raise HistoryUnavailable(
                f"the history of writes {self._path} has schema version {version}, but this memoryd supports at most "
                f"{SCHEMA_VERSION}; upgrade memoryd, or move the file to another folder to begin a new history"
            )
        if version == SCHEMA_VERSION:
            return
        with transaction(connection):
            for statement in self._tables:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        # The file and its name must be on the disk before a write relies on them: without pages in the file, SQLite
        # ignores the log.
        truncate_log(connection)
        sync_folder(self._path.parent)

    def _set_aside(self, error: apsw.Error) -> None:
        aside = opening.move_aside(self._path, self._now_ms() / 1000)
        self.problem = (
            f"the history of writes was damaged ({damage_reason(error)}) and set aside as {aside}; earlier writes "
            "cannot be undone"
        )

    def remove_set_aside(self) -> None:
        """Delete the damaged files that were set aside, because they may contain a forgotten text."""
        with self._guard:
            try:
                for aside in self._path.parent.glob(f"{glob.escape(self._path.name)}.damaged-*"):
                    aside.unlink(missing_ok=True)
                    if str(aside) in self.problem:
                        self.problem = (
                            "the history of writes was damaged and is deleted; earlier writes cannot be undone"
                        )
            except OSError as error:
                raise self._translate(error) from error

    def _translate(self, error: apsw.Error | OSError) -> MemorydError:
        if is_full(error):
            return DiskFull(f"the disk that holds the history of writes, {self._path}, is full; free some space")
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return HistoryUnavailable(
                f"the history of writes {self._path} is locked by another process ({error}); end that process",
                retry_after_seconds=1.0,
            )
        if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError) or getattr(error, "errno", None) in READ_ONLY:
            return HistoryUnavailable(
                f"the history of writes {self._path} cannot be opened or written ({error}); make the file and its "
                "folder writable for the daemon's user"
            )
        return HistoryUnavailable(
            f"the history of writes {self._path} cannot be used ({type(error).__name__}: {error}); check the disk and "
            "its file system"
        )

    def _close(self) -> None:
        self._identity = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def release_memory(self) -> None:
        """Close the file until it is used again."""
        with self._guard:
            self._close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._guard:
            self._closed = True
            self._close()


def truncate_log(connection: apsw.Connection) -> None:
    """Copy the write-ahead log to the database and truncate it, so that it holds no deleted text.

    Raises:
        apsw.BusyError: another process reads the log.
    """
    busy = scalar(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
    if busy:
        raise apsw.BusyError("the log cannot be truncated")
