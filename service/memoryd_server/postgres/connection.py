"""Database: connections to one PostgreSQL database, transactions of one agent, and the locks of agents.

Each transaction sets `memoryd.agent`, which the policies of the tables compare, for its own duration only. So a
connection that is used again never shows the rows of another agent.

A connection is opened by the thread that needs it, so that a server that refuses connections fails the call at once,
with the reason. A connection that was idle while the server restarted is replaced without an error.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import conninfo, pq

from memoryd_server.access import read_private
from memoryd_server.errors import DeadlineTooShort, IndexBusy, IndexUnavailable, SettingsError
from memoryd_server.postgres import schema
from memoryd_server.postgres.errors import translated
from memoryd_server.postgres.locks import AgentLocks
from memoryd_server.postgres.session import Connection, prepare_session

MAX_WAIT_SECONDS: Final = 10.0
"""How long a call without a deadline waits for a connection."""

SLOW_SECONDS: Final = 1.0
"""After a failure to connect that took longer, other calls fail for so long without another attempt.

Otherwise, the start of a daemon with many agents would wait for each of them.
"""

# Unless the URL sets them. A dead host is noticed within some 30 s.
_DEFAULTS = (
    ("application_name", "memoryd"),
    ("target_session_attrs", "read-write"),
    ("keepalives_idle", "10"),
    ("keepalives_interval", "5"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "30000"),
)

_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_SET = "SELECT set_config('memoryd.agent', %s, true), set_config('statement_timeout', %s, true)"


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """How to connect. `url` may contain a password, which is therefore not shown, and parameters of libpq.

    `password_file` contains the password alone, and is read for each connection. `idle_seconds` is how long unused
    connections are kept.
    """

    url: str = field(repr=False)
    password_file: Path | None = None
    max_connections: int = 10
    connect_seconds: int = 5
    idle_seconds: float = 60.0


class Database:
    """Connections to one database, shared by the agents of a process. Thread-safe. Blocks.

    `monotonic` is a clock in seconds. Connections are opened when they are needed, and closed when no user is
    attached.
    """

    def __init__(self, config: DatabaseConfig, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._monotonic = monotonic
        # psycopg reports lost connections as exceptions too.
        logging.getLogger("psycopg").addHandler(logging.NullHandler())
        self._changed = threading.Condition()
        self._idle: list[tuple[Connection, float]] = []
        self._waiting: deque[object] = deque()
        self._open = self._users = 0
        self._prepared = False
        self._slow_failure: tuple[float, psycopg.OperationalError] | None = None
        self._locks = AgentLocks(self._connect)

    @property
    def location(self) -> str:
        """The hosts and the name of the database, without a user or password."""
        found = self._url_parameters()
        hosts = str(found.get("host") or found.get("hostaddr") or "localhost")
        return f"postgresql://{hosts}/{found.get('dbname') or found.get('user') or ''}"

    def attach(self) -> None:
        """Keep connections for one more user."""
        with self._changed:
            self._users += 1

    def detach(self) -> None:
        """End the use of one user; close all connections after the last one."""
        with self._changed:
            self._users -= 1
            if self._users > 0:
                return
        self._drop_idle()
        self._locks.close()

    def prepare(self, *, again: bool = False) -> None:
        """Create or upgrade the tables, once; `again` if they may have been removed. Raises as `schema.prepare`."""
        if self._prepared and not again:
            return
        with translated(), self._connection(None) as (connection, _):
            schema.prepare(connection)
            # The type of vectors may be in another schema than when the connection was opened.
            prepare_session(connection)
        self._prepared = True

    def lock(self, agent_id: str) -> None:
        """Lock an agent for this process until `unlock`.

        Raises:
            IndexBusy: another process, or another store of this one, holds it.
        """
        with translated():
            self._locks.acquire(agent_id)

    def unlock(self, agent_id: str) -> None:
        """Release the lock of an agent. The server may be unreachable: it releases the lock itself."""
        self._locks.release(agent_id)

    @contextmanager
    def read(self, agent_id: str, deadline: float | None = None) -> Iterator[Connection]:
        """Open a snapshot of an agent's rows; each statement ends when `deadline` (monotonic seconds) passes.

        Raises:
            DeadlineTooShort: the deadline has passed.
            IndexUnavailable, IndexBusy: the database cannot be used.
        """
        with self._transaction(_BEGIN_READ, agent_id, deadline) as connection:
            yield connection

    @contextmanager
    def write(self, agent_id: str) -> Iterator[Connection]:
        """Run the body in one transaction of an agent: committed as a whole, or rolled back.

        Raises:
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the transaction is not committed. If the server was
                lost during the commit, it may be.
        """
        self._locks.restore()
        with self._transaction(_BEGIN_WRITE, agent_id, None) as connection:
            yield connection

    @contextmanager
    def _transaction(self, begin: str, agent_id: str, deadline: float | None) -> Iterator[Connection]:
        with translated(), self._begun(begin, agent_id, deadline) as connection:
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _begun(self, begin: str, agent_id: str, deadline: float | None) -> Iterator[Connection]:
        while True:
            with self._connection(deadline) as (connection, is_used):
                try:
                    self._start(connection, begin, agent_id, deadline)
                except psycopg.OperationalError:
                    if not (is_used and connection.broken):
                        raise
                    # The server has closed it, and probably the others too.
                    self._drop_idle()
                    continue
                yield connection
                return

    def _start(self, connection: Connection, begin: str, agent_id: str, deadline: float | None) -> None:
        timeout_ms = 0
        if deadline is not None:
            timeout_ms = int(1000 * (deadline - self._monotonic()))
            if timeout_ms <= 0:
                raise DeadlineTooShort("the deadline had passed before the search began")
        with connection.pipeline():
            connection.execute(begin)
            connection.execute(_SET, (agent_id, str(timeout_ms)))

    @contextmanager
    def _connection(self, deadline: float | None) -> Iterator[tuple[Connection, bool]]:
        """Lend a connection, and say whether it was used before."""
        connection, is_used = self._take(deadline)
        try:
            yield connection, is_used
        finally:
            self._give_back(connection)

    def _take(self, deadline: float | None) -> tuple[Connection, bool]:
        until = self._monotonic() + MAX_WAIT_SECONDS
        until = until if deadline is None else min(until, deadline)
        with self._changed, self._turn(until):
            if self._idle:
                return self._idle.pop()[0], True
            self._open += 1
        try:
            return self._connect(), False
        except BaseException:
            self._forget(1)
            raise

    @contextmanager
    def _turn(self, until: float) -> Iterator[None]:
        """Wait until a connection is free; those who wait get one in their order, which bounds the wait."""
        ticket = object()
        self._waiting.append(ticket)
        try:
            while self._waiting[0] is not ticket or not (self._idle or self._open < self._config.max_connections):
                left = until - self._monotonic()
                if left <= 0:
                    raise IndexBusy(
                        f"all {self._open} connections to the PostgreSQL server are in use", retry_after_seconds=1.0
                    )
                self._changed.wait(left)
            yield
        finally:
            self._waiting.remove(ticket)
            self._changed.notify_all()

    def _give_back(self, connection: Connection) -> None:
        usable = not connection.closed and connection.info.transaction_status == pq.TransactionStatus.IDLE
        now = self._monotonic()
        with self._changed:
            if usable and self._users > 0:
                self._idle.append((connection, now))
                self._changed.notify_all()
            else:
                usable = False
            expired = [each for each in self._idle if now - each[1] > self._config.idle_seconds]
            self._idle = [each for each in self._idle if each not in expired]
        surplus = [each for each, _ in expired] + ([] if usable else [connection])
        self._close(surplus)

    def _drop_idle(self) -> None:
        with self._changed:
            dropped, self._idle = self._idle, []
        self._close([connection for connection, _ in dropped])

    def _close(self, connections: list[Connection]) -> None:
        for connection in connections:
            with suppress(psycopg.Error):
                connection.close()
        self._forget(len(connections))

    def _forget(self, count: int) -> None:
        if count:
            with self._changed:
                self._open -= count
                self._changed.notify_all()

    def _connect(self) -> Connection:
        failure = self._slow_failure
        if failure is not None and self._monotonic() < failure[0]:
            raise failure[1]
        started = self._monotonic()
        try:
            return self._new_connection()
        except psycopg.OperationalError as error:
            ended = self._monotonic()
            self._slow_failure = (ended + SLOW_SECONDS, error) if ended - started > SLOW_SECONDS else None
            raise

    def _new_connection(self) -> Connection:
        # psycopg's statements that are prepared after some uses have plans that do not know the agent.
        connection = psycopg.connect(
            **self._parameters(), connect_timeout=self._config.connect_seconds, autocommit=True, prepare_threshold=None
        )
        try:
            prepare_session(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _url_parameters(self) -> dict[str, Any]:
        try:
            found = conninfo.conninfo_to_dict(self._config.url)
        except psycopg.Error:
            # The reason would contain parts of the URL.
            raise IndexUnavailable("the URL of the store is not a PostgreSQL URL: memoryd.store.url") from None
        if "@" in f"{found.get('host')}{found.get('dbname')}":
            # They contain a part of the password, and would be shown.
            raise IndexUnavailable(
                'the URL of the store is ambiguous: write "@" as %40 and "/" as %2F in the password in '
                "memoryd.store.url, or use memoryd.store.passwordFile"
            )
        return {**dict(_DEFAULTS), **found}

    def _parameters(self) -> dict[str, Any]:
        parameters = self._url_parameters()
        if self._config.password_file is not None:
            try:
                content = read_private(self._config.password_file, "the password file of the database")
                parameters["password"] = content.decode().rstrip("\r\n")
            except FileNotFoundError as error:
                raise IndexUnavailable(f"the password file of the database cannot be read: {error}") from error
            except SettingsError as error:
                raise IndexUnavailable(error.message) from error
            except UnicodeDecodeError:
                raise IndexUnavailable("the password file of the database is not UTF-8") from None
        return parameters


class DatabaseUse:
    """Whether one user is attached to a database. Thread-safe; both methods are idempotent."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._guard = threading.Lock()
        self._is_attached = False

    def begin(self) -> None:
        """Keep connections for this user."""
        with self._guard:
            if not self._is_attached:
                self._database.attach()
                self._is_attached = True

    def end(self) -> None:
        """Keep no connections for this user."""
        with self._guard:
            if self._is_attached:
                self._is_attached = False
                self._database.detach()
