"""DatabaseConnection: a session with the server, with a limit for each wait, and the settings of the session."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, TypeAlias

import psycopg

from memoryd_server.observe import DatabaseMeter
from memoryd_server.postgres import schema
from memoryd_server.postgres.config import LEASE_SECONDS
from memoryd_server.postgres.errors import ServerIsLate, ServerNotAnswering
from memoryd_server.postgres.vector_format import register_vector

STATEMENT_SECONDS: Final = 1800.0
"""How long a statement without a deadline may take. The deletion of the rows of a large agent takes less."""

LOCK_SECONDS: Final = 2 * LEASE_SECONDS
"""How long a statement waits for a lock. The locks of a replica that is cut off remain until its lease expires."""

MARGIN_SECONDS: Final = 0.5
"""How long after the deadline the server may still report that it has ended a statement."""

_MOST_NAME_BYTES: Final = 63

# Parallel plans and JIT compilation make small queries slower. The chunks of a filter are read into a
# hash table only if it fits the memory. The server ends the session of a client that has vanished, and with it the
# locks.
_SESSION = """SELECT set_config('jit', 'off', false), set_config('max_parallel_workers_per_gather', '0', false),
    set_config('work_mem', '32MB', false),
    set_config('lock_timeout', %s, false), set_config('tcp_keepalives_idle', '30', false),
    set_config('tcp_keepalives_interval', '10', false), set_config('tcp_keepalives_count', '3', false),
    set_config('search_path', %s, false)"""
_WITH_VECTORS = """SELECT pg_type.oid, typarray,
        set_config('search_path', %s || ', ' || typnamespace::regnamespace, false)
    FROM pg_type JOIN pg_extension ON extnamespace = typnamespace WHERE typname = 'vector' AND extname = 'vector'"""


Steps: TypeAlias = Generator[Any, Any, Any]
"""A running statement of psycopg: a generator that yields what it waits for, and receives what is ready."""


class Operation(StrEnum):
    """What transactions and statements are for, as a label of the metrics."""

    SEARCH = "search"
    SEARCH_KEYWORD = "search_keyword"
    SEARCH_VECTOR = "search_vector"
    INDEX_READ = "index_read"
    INDEX_WRITE = "index_write"
    CACHE_READ = "cache_read"
    CACHE_WRITE = "cache_write"
    HISTORY_READ = "history_read"
    HISTORY_WRITE = "history_write"
    DOCUMENTS_READ = "documents_read"
    DOCUMENTS_WRITE = "documents_write"
    LEASES = "leases"
    HEARTBEAT = "heartbeat"
    VACUUM = "vacuum"
    OTHER = "other"


class DatabaseConnection(psycopg.Connection[tuple[Any, ...]]):  # type: ignore[misc] # psycopg is optional, and not followed by mypy
    """A session with the server. A wait that exceeds its limit closes it.

    A wait ends `MARGIN_SECONDS` after `deadline`, in seconds of `time.monotonic`, and after `statement_seconds`.
    `check_server`, which is called every `check_seconds` of a wait without a deadline, may end it with an exception.
    `meter` counts the statements of `operation`. `deletes_text` is whether the transaction deletes text for good.
    """

    deadline: float | None = None
    statement_seconds: float = STATEMENT_SECONDS
    check_seconds: float = STATEMENT_SECONDS
    check_server: Callable[[], None] | None = None
    operation: Operation = Operation.OTHER
    meter: DatabaseMeter | None = None
    deletes_text: bool = False

    def wait(self, gen: Steps, *args: Any, **options: Any) -> Any:
        """Wait for the end of a statement, or of several that were sent together. Called by psycopg.

        Raises:
            ServerIsLate: the deadline has passed; the connection is closed.
            ServerNotAnswering: the server does not answer; the connection is closed.
        """
        started = time.monotonic()
        try:
            return super().wait(self._limited(gen, started), *args, **options)
        except (ServerIsLate, ServerNotAnswering):
            # The answer may still arrive, and would be that of the next statement.
            self.pgconn.finish()
            raise
        finally:
            if self.meter is not None:
                self.meter.statement_ended(self.operation, time.monotonic() - started)

    def _limited(self, steps: Steps, started: float) -> Steps:
        """Take the same steps, but end them when the limit is exceeded. psycopg takes one every 0.1 s."""
        check_at = started + self.check_seconds
        try:
            state = next(steps)
            while True:
                ready = yield state
                now = time.monotonic()
                if not ready:
                    self._end_if_late(started, now)
                    if self.deadline is None and self.check_server is not None and now > check_at:
                        self.check_server()
                        check_at = time.monotonic() + self.check_seconds
                state = steps.send(ready)
        except StopIteration as end:
            return end.value

    def _end_if_late(self, started: float, now: float) -> None:
        if self.deadline is not None and now > self.deadline + MARGIN_SECONDS:
            raise ServerIsLate("it did not answer before the deadline")
        if now > started + self.statement_seconds + MARGIN_SECONDS:
            raise ServerNotAnswering(f"it did not answer within {self.statement_seconds:g} s")

    @contextmanager
    def measured_as(self, operation: Operation) -> Iterator[None]:
        """Count the statements of the body as those of an operation."""
        before, self.operation = self.operation, operation
        try:
            yield
        finally:
            self.operation = before


Connection: TypeAlias = DatabaseConnection


def session_name(name: str, replica_id: str) -> str:
    """Return the `application_name` of the sessions of a replica: a name, shortened if necessary, and the id."""
    # The server stores other characters as several.
    ascii_name = name.encode("ascii", "replace").decode()
    return f"{ascii_name[: _MOST_NAME_BYTES - 1 - len(replica_id)]} {replica_id}"


def prepare_session(connection: Connection) -> None:
    """Set up a connection; again after the tables and the type of vectors may have been created."""
    connection.execute(_SESSION, (f"{LOCK_SECONDS:g}s", schema.SCHEMA))
    row = connection.execute(_WITH_VECTORS, (schema.SCHEMA,)).fetchone()
    if row is not None:
        register_vector(connection, row[0], row[1])
