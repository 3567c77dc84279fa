"""The database of an OpenClaw agent: a read-only connection that never blocks the gateway for long.

OpenClaw writes to the database while it is read. Each read transaction is short, because a long one holds back the
gateway's checkpoints: rows are fetched until a limit of rows, of bytes or of time, and the next transaction continues
after the last row. Before each transaction, the file is compared with the one that was opened; a replaced file is
opened again.

Other programs may write to the file, too. Only ordinary tables are read, because a view can have any number of rows. A
query that takes too long is interrupted.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import apsw

from memoryd_server.errors import FileNotFound, PathNotAllowed

SCHEMA_VERSION = 23
"""The only schema that is read: version 23 compresses events, and a later one is unknown."""

PAGE_ROWS = 512
PAGE_BYTES = 4 << 20
# A transaction may take 50 ms; a last row of some megabytes and the commit need the rest.
PAGE_SECONDS = 0.02
BUSY_SECONDS = 5.0
QUERY_SECONDS = 10.0
"""How long a query may take, including the wait for a lock. In a sound database each row takes microseconds."""

_STEPS_BETWEEN_CHECKS = 10_000
_OPEN_ATTEMPTS = 3
_BLOB_BYTES = 4 << 20

_TABLES = frozenset(
    {
        "schema_meta",
        "session_nodes",
        "session_windows",
        "transcript_events",
        "transcript_event_identities",
        "session_transcript_active_events",
        "session_transcript_index_state",
        "transcript_rewrite_watermarks",
        "session_transcript_archives",
        "session_transcript_cold_archives",
        "memory_session_tombstones",
    }
)

_OWNER = "SELECT substr(role, 1, 100), substr(agent_id, 1, 100) FROM schema_meta WHERE meta_key = 'primary'"

Row = tuple[Any, ...]


class SessionDatabaseUnusable(OSError):
    """The database cannot be read now: it is locked, damaged, incomplete, or of another schema version."""


class SessionDatabase:
    """An open database; a context manager. `monotonic` is a clock in seconds.

    `agent_id` is the agent that must own the database; the owner is not compared if it is empty, or if the database
    names none.

    `longest_seconds`, `most_rows` and `most_bytes` are those of the largest read transactions so far.

    Raises:
        FileNotFound: the database does not exist.
        PathNotAllowed: it is a link or a special file.
        SessionDatabaseUnusable: it cannot be opened, has another schema version, or belongs to another agent.
    """

    def __init__(
        self,
        path: str,
        agent_id: str = "",
        *,
        monotonic: Callable[[], float] = time.monotonic,
        page_rows: int = PAGE_ROWS,
        page_bytes: int = PAGE_BYTES,
        page_seconds: float = PAGE_SECONDS,
        busy_seconds: float = BUSY_SECONDS,
        query_seconds: float = QUERY_SECONDS,
    ) -> None:
        self.path = path
        self._agent_id = agent_id
        self._monotonic = monotonic
        self._page_rows, self._page_bytes, self._page_seconds = page_rows, page_bytes, page_seconds
        self._busy_seconds, self._query_seconds = busy_seconds, query_seconds
        self._deadline = 0.0
        self._immutable: os.stat_result | None = None
        self.longest_seconds, self.most_rows, self.most_bytes = 0.0, 0, 0
        self._connection, self._identity = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a closed one may be closed again."""
        self._connection.close()

    def row(self, sql: str, bindings: Mapping[str, Any]) -> Row | None:
        """Return the first row of `sql`, or None."""
        with self._transaction():
            return self.row_within(sql, bindings)

    def pages(
        self, sql: str, bindings: Mapping[str, Any], after: Any, check: Callable[[Self], None] | None = None
    ) -> Iterator[list[Row]]:
        """Yield the rows of `sql` in lists, each read in one transaction.

        The first column must be unique, and the order; `sql` compares it with `:after`, and has no LIMIT. `check` is
        called in each transaction and raises if the rows no longer belong to those before.
        """
        ended = False
        while not ended:
            with self._transaction() as began:
                if check is not None:
                    check(self)
                rows, ended = self._page(sql, {**bindings, "after": after}, began)
            if rows:
                after = rows[-1][0]
                yield rows

    def repeat(self, step: Callable[[Self], bool]) -> None:
        """Call `step` until it returns False, in as many transactions as necessary."""
        more = True
        while more:
            with self._transaction() as began:
                while more and self._monotonic() - began < self._page_seconds:
                    more = step(self)

    def blob(self, table: str, column: str, rowid: Any, max_bytes: int) -> bytes:
        """Return a BLOB of at most `max_bytes` bytes, which is read in several transactions.

        Raises:
            SessionDatabaseUnusable: it is larger, its row has been removed, or `rowid` is no row id.
        """
        data = bytearray()
        size = 1
        if not isinstance(rowid, int):
            raise SessionDatabaseUnusable(f"{table}.rowid is not an integer")
        while len(data) < size:
            with self._transaction(), self._connection.blob_open("main", table, column, rowid, False) as blob:
                size = blob.length()
                if size > max_bytes:
                    raise SessionDatabaseUnusable(f"{table}.{column} has {size} bytes, more than the {max_bytes} read")
                blob.seek(len(data))
                data += blob.read(min(_BLOB_BYTES, size - len(data)))
        return bytes(data)

    def row_within(self, sql: str, bindings: Mapping[str, Any]) -> Row | None:
        """Return the first row of `sql`, or None, in the transaction that has called the caller."""
        return next(self._connection.execute(sql, bindings), None)

    def _page(self, sql: str, bindings: Mapping[str, Any], began: float) -> tuple[list[Row], bool]:
        """Return rows up to one of the limits, and whether there are no others."""
        rows: list[Row] = []
        size = 0
        cursor = self._connection.cursor()
        try:
            for row in cursor.execute(sql, bindings):
                rows.append(row)
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                late = self._monotonic() - began >= self._page_seconds
                if len(rows) >= self._page_rows or size >= self._page_bytes or late:
                    return rows, False
        finally:
            cursor.close(True)
            self.most_rows, self.most_bytes = max(self.most_rows, len(rows)), max(self.most_bytes, size)
        return rows, True

    @contextmanager
    def _transaction(self) -> Iterator[float]:
        """Begin a read transaction, and yield the time at which it began."""
        if self._file_identity() != self._identity:
            self._connection.close()
            self._connection, self._identity = self._open()
        with _translated(self.path):
            self._connection.execute("BEGIN")
            began = self._monotonic()
            self._deadline = began + self._query_seconds
            try:
                yield began
            finally:
                # A failed statement may have ended the transaction.
                with suppress(apsw.SQLError):
                    self._connection.execute("COMMIT")
                self.longest_seconds = max(self.longest_seconds, self._monotonic() - began)
        self._require_still_immutable()

    def _require_still_immutable(self) -> None:
        if self._immutable is not None and not _is_same_state(self._immutable, self._lstat(), self.path):
            raise SessionDatabaseUnusable(f"{self.path} was changed while it was read; the next sync reads it again")

    def _open(self) -> tuple[apsw.Connection, tuple[int, int]]:
        for _ in range(_OPEN_ATTEMPTS):
            before = self._file_identity()
            connection = self._connect()
            if self._file_identity() == before:
                return connection, before
            connection.close()
        raise SessionDatabaseUnusable(f"{self.path} is being replaced; the next sync reads it")

    def _connect(self) -> apsw.Connection:
        self._immutable = None
        with _translated(self.path):
            try:
                return self._verified("mode=ro")
            except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError):
                # The gateway is not running, and this user may not create the files of the write-ahead log.
                self._immutable = self._lstat()
                if has_journal(self.path):
                    raise
                return self._verified("mode=ro&immutable=1")

    def _verified(self, query: str) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(f"file:{quote(self.path)}?{query}", flags=flags)
        try:
            connection.set_busy_timeout(int(self._busy_seconds * 1000))
            connection.set_progress_handler(lambda: self._monotonic() > self._deadline, _STEPS_BETWEEN_CHECKS)
            self._deadline = self._monotonic() + self._query_seconds
            self._require_schema(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_schema(self, connection: apsw.Connection) -> None:
        version = next(connection.execute("PRAGMA user_version"))[0]
        if version != SCHEMA_VERSION:
            raise SessionDatabaseUnusable(
                f"{self.path} has schema version {version}, but this memoryd reads only version {SCHEMA_VERSION}"
            )
        # A virtual table has no root page.
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")
        missing = _TABLES.difference(name for (name,) in tables)
        if missing:
            raise SessionDatabaseUnusable(f"{self.path} has no table {', '.join(sorted(missing))}")
        role, owner = next(connection.execute(_OWNER), (None, None))
        if role != "agent":
            raise SessionDatabaseUnusable(f"{self.path} is not the database of an agent: its role is {role!r}")
        # The column can be NULL.
        if self._agent_id and owner is not None and owner != self._agent_id:
            raise SessionDatabaseUnusable(f"{self.path} belongs to the agent {owner!r}, not to {self._agent_id!r}")

    def _file_identity(self) -> tuple[int, int]:
        status = self._lstat()
        return status.st_dev, status.st_ino

    def _lstat(self) -> os.stat_result:
        return _regular_file(self.path)


def _regular_file(path: str) -> os.stat_result:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFound(f"no session database at {path!r}", metadata={"path": path}) from error
    if not stat.S_ISREG(status.st_mode):
        raise PathNotAllowed(path, "the session database is a link, a folder, a device or a pipe")
    return status


def _is_same_state(before: os.stat_result, now: os.stat_result, path: str) -> bool:
    fields = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    unchanged = all(getattr(before, field) == getattr(now, field) for field in fields)
    return unchanged and not has_journal(path)


def has_journal(path: str) -> bool:
    """Return whether the database has a write-ahead log, or the rollback journal that is used on network volumes.

    The gateway removes the log when it ends, and the journal when a transaction ends. While one of them exists, the
    file of the database alone may have a part of a transaction.
    """
    return any(os.path.lexists(path + suffix) for suffix in ("-wal", "-journal"))


def change_signature(path: str) -> tuple[tuple[int, int, int, int], ...]:
    """Return what differs after each change of the database: two calls of `stat`, and the database is not opened.

    A change is in the write-ahead log, or in the database itself if it has no such log or after a checkpoint.
    """
    return (_state(path), _state(f"{path}-wal"))


def _state(path: str) -> tuple[int, int, int, int]:
    try:
        status = os.lstat(path)
    except OSError:
        return (0, 0, 0, 0)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.InterruptError as error:
        raise SessionDatabaseUnusable(f"{path} cannot be read: a query took too long") from error
    except (apsw.Error, UnicodeDecodeError) as error:
        # The message of an error of SQLite may contain names of the database.
        raise SessionDatabaseUnusable(f"{path} cannot be read: {error!s:.300}") from error
