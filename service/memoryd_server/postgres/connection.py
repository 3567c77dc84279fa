"""Database: connections to one PostgreSQL database, transactions of one agent, and the leases of agents.

Each transaction sets `memoryd.agent`, which the policies of the tables compare, for its own duration only. So a
connection that is used again never shows the rows of another agent. A connection that was idle while the server
restarted is replaced without an error.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Final

import psycopg
from psycopg import pq

from memoryd_server.errors import DeadlineTooShort, IndexBusy, MemorydError
from memoryd_server.observe import DatabaseMetrics
from memoryd_server.postgres import schema
from memoryd_server.postgres.changes import ChangeListener
from memoryd_server.postgres.config import DatabaseConfig
from memoryd_server.postgres.errors import ServerNotAnswering, translated
from memoryd_server.postgres.leases import AgentLeases
from memoryd_server.postgres.pool import ConnectionPool
from memoryd_server.postgres.replica import REPLICA_ID_BYTES, Replica
from memoryd_server.postgres.session import STATEMENT_SECONDS, Connection, Operation, prepare_session
from memoryd_server.postgres.standby import Standby
from memoryd_server.postgres.vacuum import VacuumScheduler

_BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_VERSION: Final = "SELECT coalesce(max(version), 0) FROM schema_migrations"
_SET: Final = "SELECT set_config('memoryd.agent', %s, true), set_config('statement_timeout', %s, true)"

LONG_WRITE_WAIT_SECONDS: Final = 60.0
"""How long a long write waits while others use half of the connections."""


class Database:
    """Connections to one database, shared by the agents of a process. Thread-safe. Blocks.

    A user of the database is a part of the process that attaches to it, such as the index of an agent. Connections are
    opened when they are needed, and closed when no user is attached. `monotonic` is a clock in seconds. `vacuums`
    removes deleted text from the tables. `changes` sends and receives notifications of changes. `replica` is this
    process among those that use the database, and `leases` are its rights to change indexes.
    """

    def __init__(
        self,
        config: DatabaseConfig,
        monotonic: Callable[[], float] = time.monotonic,
        standby: DatabaseConfig | None = None,
    ) -> None:
        self._config = config
        self._monotonic = monotonic
        # psycopg reports lost connections as exceptions too.
        logging.getLogger("psycopg").addHandler(logging.NullHandler())
        replica_id = secrets.token_hex(REPLICA_ID_BYTES)
        self._pool = ConnectionPool(config, monotonic, replica_id)
        self._long_writes = threading.BoundedSemaphore(max(1, config.max_connections // 2))
        self._prepared = False
        self._using = threading.Lock()
        self.vacuums = VacuumScheduler(self._pool.connect, config.vacuum_seconds, monotonic)
        self.changes = ChangeListener(self._pool.connect, self.write, replica_id)
        self.replica = Replica(
            replica_id, self._pool.connect, monotonic, config.lease_seconds, renew_seconds=config.renew_seconds
        )
        self.leases = AgentLeases(self.replica, partial(self.write, operation=Operation.LEASES), self._pool.connection)
        self.standby: Standby | None = None
        if standby is not None:
            self.standby = Standby(Database(standby, monotonic), self.replica, self._pool.meter, monotonic)

    @property
    def location(self) -> str:
        """The hosts and the name of the database, without a user or password."""
        return self._config.location

    def metrics(self) -> DatabaseMetrics:
        """Return the current metrics."""
        return self._pool.metrics()

    def connect(self) -> Connection:
        """Open a connection that the caller closes, for long statements; it does not count towards the limit.

        Raises:
            psycopg.Error: the server refuses it or does not answer.
        """
        return self._pool.connect()

    def attach(self) -> None:
        """Keep connections for one more user. Waits while the last one ends."""
        with self._using:
            self._pool.attach()
            if self.standby is not None:
                self.standby.attach()

    def detach(self) -> None:
        """End the use of one user; close all connections, and end the leases, after the last one."""
        with self._using:
            if self.standby is not None:
                self.standby.detach()
            if self._pool.detach():
                self.vacuums.stop()
                self.changes.stop()
                self.replica.stop()

    def prepare(self, *, again: bool = False) -> None:
        """Create or upgrade the tables, once; `again` if they may have been removed. Raises as `schema.prepare`."""
        if self._prepared and not again:
            return
        with translated(), self._pool.connection() as (connection, _):
            schema.prepare(connection)
            # The type of vectors may be in another schema than when the connection was opened.
            prepare_session(connection)
        self._prepared = True

    @contextmanager
    def read(
        self, agent_id: str, deadline: float | None = None, *, operation: Operation = Operation.OTHER
    ) -> Iterator[Connection]:
        """Open a snapshot of an agent's rows; each statement ends when `deadline` (monotonic seconds) passes.

        Raises:
            DeadlineTooShort: the deadline has passed.
            IndexUnavailable, IndexBusy: the database cannot be used.
        """
        with self._measured(operation, deadline), self._begun(_BEGIN_READ, agent_id, operation, deadline) as connection:
            try:
                yield connection
            finally:
                # A read has nothing to commit, so an error has no effect.
                with suppress(psycopg.Error):
                    connection.execute("COMMIT")

    @contextmanager
    def write(
        self, agent_id: str, *, operation: Operation = Operation.OTHER, is_long: bool = False
    ) -> Iterator[Connection]:
        """Run the body in one transaction of an agent: committed as a whole, or rolled back.

        Transactions that are `is_long`, because they can take minutes, use half of the connections at most.

        If the body sets `deletes_text` of the connection, VACUUM removes the deleted text from the tables.

        Raises:
            IndexTooNew: a newer memoryd has upgraded the tables.
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the transaction is not committed. If the server was
                lost during the commit, it may be.
        """
        with (
            self._measured(operation, None),
            self._turn_of_long() if is_long else nullcontext(),
            self._begun(_BEGIN_WRITE, agent_id, operation, None) as connection,
        ):
            try:
                connection.deletes_text = False
                yield connection
                _commit(connection)
            except BaseException:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
                raise
            if connection.deletes_text:
                self.vacuums.record_deletion(agent_id)

    @contextmanager
    def _turn_of_long(self) -> Iterator[None]:
        if not self._long_writes.acquire(timeout=LONG_WRITE_WAIT_SECONDS):
            raise IndexBusy("other agents of this daemon are writing their indexes", retry_after_seconds=5.0)
        try:
            yield
        finally:
            self._long_writes.release()

    @contextmanager
    def _measured(self, operation: Operation, deadline: float | None) -> Iterator[None]:
        """Translate the errors of a transaction, and count it."""
        started, reason = self._monotonic(), ""
        try:
            with translated(has_deadline=deadline is not None):
                yield
        except MemorydError as error:
            reason = error.reason
            raise
        except BaseException as error:
            reason = "" if isinstance(error, GeneratorExit) else "OTHER"
            raise
        finally:
            self._pool.meter.transaction_ended(operation, self._monotonic() - started, reason)

    @contextmanager
    def _begun(self, begin: str, agent_id: str, operation: Operation, deadline: float | None) -> Iterator[Connection]:
        while True:
            with self._pool.connection(deadline) as (connection, is_used), connection.measured_as(operation):
                try:
                    self._start(connection, begin, agent_id, deadline)
                except psycopg.OperationalError as error:
                    if isinstance(error, ServerNotAnswering) or not (is_used and connection.broken):
                        raise
                    # The server has closed it, and probably the others too.
                    self._pool.drop_idle()
                    continue
                yield connection
                return

    def _start(self, connection: Connection, begin: str, agent_id: str, deadline: float | None) -> None:
        timeout_ms = int(1000 * STATEMENT_SECONDS)
        if deadline is not None:
            timeout_ms = int(1000 * (deadline - self._monotonic()))
            if timeout_ms <= 0:
                raise DeadlineTooShort("the deadline had passed before the search began")
        with connection.pipeline():
            connection.execute(begin)
            connection.execute(_SET, (agent_id, str(timeout_ms)))
            version = connection.execute(_VERSION) if begin == _BEGIN_WRITE else None
        if version is not None:
            row = version.fetchone()
            schema.require_supported(0 if row is None else int(row[0]))


def _commit(connection: Connection) -> None:
    if connection.info.transaction_status == pq.TransactionStatus.INERROR:
        # COMMIT would roll back, and report no error.
        raise psycopg.errors.InFailedSqlTransaction("a statement of the transaction failed, and nothing is committed")
    connection.execute("COMMIT")


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
