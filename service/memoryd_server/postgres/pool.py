"""ConnectionPool: the connections of a process to one database, which its calls share.

A server that refuses connections fails a call immediately, with the reason. One that does not answer fails it at its
deadline, or after the time that is allowed for connecting.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import psycopg
from psycopg import pq

from memoryd_server.errors import DeadlineTooShort, IndexBusy
from memoryd_server.observe import DatabaseMeter, DatabaseMetrics
from memoryd_server.postgres.config import DatabaseConfig
from memoryd_server.postgres.errors import RETRY_SECONDS, ServerNotAnswering
from memoryd_server.postgres.session import STATEMENT_SECONDS, Connection, prepare_session, session_name
from memoryd_server.threads import on_thread

MAX_WAIT_SECONDS: Final = 10.0
"""How long a call without a deadline waits for a connection."""

SLOW_SECONDS: Final = 1.0
"""After a failure to connect that took longer, other calls fail for this time without an attempt to connect.

Otherwise, the start of a daemon with many agents would wait for each of them.
"""


class ConnectionPool:
    """The connections, opened when they are needed. Thread-safe. Blocks.

    Unused ones are closed after `idle_seconds`, by a thread that runs while there are any, and when the last user ends.
    The name of each session ends with `replica_id`.
    """

    def __init__(self, config: DatabaseConfig, monotonic: Callable[[], float], replica_id: str) -> None:
        self._config = config
        self._replica_id = replica_id
        self._monotonic = monotonic
        self._changed = threading.Condition()
        # Sorted by the time of the last use.
        self._idle: list[tuple[Connection, float]] = []
        self._waiting: deque[object] = deque()
        self._open = self._users = 0
        self._slow_failure: tuple[float, psycopg.OperationalError] | None = None
        self._no_users = threading.Event()
        self._has_closer = False
        self.meter = DatabaseMeter()

    def attach(self) -> None:
        """Keep connections for one more user."""
        with self._changed:
            self._users += 1
            self._no_users.clear()

    def detach(self) -> bool:
        """End the use of one user; close the unused connections after the last one, and return whether it was."""
        with self._changed:
            self._users -= 1
            if self._users > 0:
                return False
            self._no_users.set()
            dropped = self._take_idle()
        self._close(dropped)
        return True

    def metrics(self) -> DatabaseMetrics:
        """Return the current metrics."""
        with self._changed:
            idle, opened, waiting = len(self._idle), self._open, len(self._waiting)
        return self.meter.measured(in_use=opened - idle, idle=idle, waiting=waiting)

    @contextmanager
    def connection(self, deadline: float | None = None) -> Iterator[tuple[Connection, bool]]:
        """Lend a connection, and say whether it was used before. It must be outside a transaction at the end.

        Raises:
            IndexBusy: all connections are in use.
            DeadlineTooShort: the deadline passed before the server answered.
            psycopg.Error: the server refuses a new connection.
        """
        connection, is_used = self._take(deadline)
        connection.deadline = deadline
        try:
            yield connection, is_used
        except ServerNotAnswering:
            # It will not answer on the other connections either.
            self.drop_idle()
            raise
        finally:
            connection.deadline = None
            self._give_back(connection)

    def _take(self, deadline: float | None) -> tuple[Connection, bool]:
        started = self._monotonic()
        until = started + MAX_WAIT_SECONDS
        until = until if deadline is None else min(until, deadline)
        try:
            with self._changed, self._turn(until):
                if self._idle:
                    return self._idle.pop()[0], True
                self._open += 1
            return (self._opened() if deadline is None else self._opened_until(deadline)), False
        finally:
            self.meter.connection_taken(self._monotonic() - started)

    @contextmanager
    def _turn(self, until: float) -> Iterator[None]:
        """Wait until a connection is free. Waiting calls get one in the order of their requests."""
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

    def _opened(self) -> Connection:
        try:
            return self.connect()
        except BaseException:
            self._forget(1)
            raise

    def _opened_until(self, deadline: float) -> Connection:
        """Open a connection on another thread, which keeps it for later calls if it is opened after the deadline."""
        future = on_thread("postgres-connect", self._opened)
        try:
            return future.result(max(0.0, deadline - self._monotonic()))
        except TimeoutError:
            future.add_done_callback(self._adopt)
            raise DeadlineTooShort(
                "the PostgreSQL server did not accept a connection before the deadline",
                retry_after_seconds=RETRY_SECONDS,
            ) from None

    def _adopt(self, future: Future[Connection]) -> None:
        if future.exception() is None:
            self._give_back(future.result())

    def _give_back(self, connection: Connection) -> None:
        usable = not connection.closed and connection.info.transaction_status == pq.TransactionStatus.IDLE
        with self._changed:
            if usable and self._users > 0:
                self._idle.append((connection, self._monotonic()))
                self._changed.notify_all()
                if not self._has_closer:
                    self._has_closer = True
                    on_thread("postgres-idle", self._close_unused)
                return
        self._close([connection])

    def _close_unused(self) -> None:
        """Close each connection that has not been used for a while, until there is none."""
        wait = self._config.idle_seconds
        while True:
            self._no_users.wait(wait)
            with self._changed:
                since = self._monotonic() - self._config.idle_seconds
                expired = [connection for connection, used_at in self._idle if used_at <= since]
                self._idle = self._idle[len(expired) :]
                is_last = not self._idle
                if is_last:
                    self._has_closer = False
                else:
                    wait = max(0.01, self._idle[0][1] - since)
            self._close(expired)
            if is_last:
                return

    def drop_idle(self) -> None:
        """Close the connections that are not in use."""
        with self._changed:
            dropped = self._take_idle()
        self._close(dropped)

    def _take_idle(self) -> list[Connection]:
        dropped, self._idle = self._idle, []
        return [connection for connection, _ in dropped]

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

    def connect(self) -> Connection:
        """Open a connection that the caller closes, and that does not count towards the limit.

        Raises:
            psycopg.Error: the server refuses it or does not answer.
        """
        failure = self._slow_failure
        if failure is not None and self._monotonic() < failure[0]:
            raise failure[1]
        started = self._monotonic()
        try:
            connection = self._new_connection()
        except psycopg.OperationalError as error:
            ended = self._monotonic()
            self._slow_failure = (ended + SLOW_SECONDS, error) if ended - started > SLOW_SECONDS else None
            raise
        self._slow_failure = None
        self.meter.connected()
        return connection

    def _new_connection(self) -> Connection:
        parameters = self._config.parameters()
        parameters["application_name"] = session_name(parameters["application_name"], self._replica_id)
        # psycopg prepares statements after some uses. Their generic plans do not depend on the agent, and can be slow.
        try:
            connection: Connection = Connection.connect(**parameters, autocommit=True, prepare_threshold=None)
        except OSError as error:
            # psycopg opens a file to wait for the server, and the process may have too many.
            raise psycopg.OperationalError(f"a connection cannot be opened: {error.strerror}") from error
        try:
            connection.meter = self.meter
            connection.statement_seconds = self._config.connect_seconds
            prepare_session(connection)
            connection.statement_seconds = STATEMENT_SECONDS
            connection.check_seconds = self._config.check_seconds
            info = connection.info
            connection.check_server = partial(self._check_server, info.host, info.hostaddr, info.port)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_server(self, host: str, address: str, port: int) -> None:
        """Raise ServerNotAnswering if the server does not answer a new connection, not even with an error."""
        parameters = {**self._config.parameters(), "host": host, "port": port, "target_session_attrs": "any"}
        # The address of a Unix socket is its path, which is no `hostaddr`.
        parameters |= {"hostaddr": address} if address and not host.startswith("/") else {"hostaddr": None}
        try:
            psycopg.connect(**parameters).close()
        except psycopg.errors.ConnectionTimeout:
            raise ServerNotAnswering("it has stopped answering") from None
        except (psycopg.OperationalError, OSError):
            return
