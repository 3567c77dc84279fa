"""VacuumScheduler: runs VACUUM, which removes deleted rows from the tables, with a minimum time between two runs.

PostgreSQL marks a deleted row, and keeps its text until VACUUM frees its space. VACUUM keeps rows that an open snapshot
may still read, so the scheduler waits for the end of the older ones. The freed space keeps its bytes until it is used
again, and so do the write-ahead log, standbys and backups.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Final

import psycopg

from memoryd_server.errors import MemorydError
from memoryd_server.postgres import schema
from memoryd_server.postgres.session import Connection, Operation
from memoryd_server.threads import on_thread

SHARE_OF_TIME: Final = 0.05
"""How much of the time VACUUM may run: with large tables, less often than the shortest interval says."""

_SNAPSHOT_SECONDS: Final = 60.0
_SNAPSHOT_STEP_SECONDS: Final = 0.1
_STOP_SECONDS: Final = 5.0

# One process at a time. As with autovacuum, other work has precedence.
_LOCK: Final = 0x6D6D7276
_SETTINGS: Final = """SELECT set_config('statement_timeout', '0', false), set_config('lock_timeout', '60s', false),
    set_config('vacuum_cost_delay', '2ms', false), pg_try_advisory_lock(%s)"""
_NEXT_TRANSACTION: Final = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
# The server shows a role the snapshots of its own sessions only.
_HAS_OLDER_SNAPSHOT: Final = """SELECT EXISTS(SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND greatest(age(backend_xmin), age(backend_xid)) > age(%s::xid8::xid))"""
# Also removes the entries of indexes, which contain words, if they are few.
_VACUUM: Final = f"VACUUM (INDEX_CLEANUP ON) {', '.join(schema.TABLES)}"


class VacuumScheduler:
    """Runs of VACUUM on all tables, numbered from 1, on a thread that exists while one is due. Thread-safe.

    Deleted text is gone from the tables when a run that has started after the deletion has completed. `connect` opens a
    connection for a run; `seconds` is the shortest time between the starts of two runs.
    """

    def __init__(self, connect: Callable[[], Connection], seconds: float, monotonic: Callable[[], float]) -> None:
        self._connect = connect
        self._seconds = seconds
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._started = self._completed = self._requested = 0
        self._due_at = monotonic()
        self._is_stopped = False
        self._thread: Future[None] | None = None
        self._connection: Connection | None = None
        self._deletions: dict[str, int] = {}

    def request(self) -> int:
        """Request a run that starts after this call, and return its number."""
        with self._changed:
            self._requested = self._started + 1
            self._is_stopped = False
            if self._thread is None:
                self._thread = on_thread("postgres-vacuum", self._run)
            return self._requested

    def has_completed(self, number: int) -> bool:
        """Return whether a run, or a later one, has completed."""
        return self._completed >= number

    def record_deletion(self, agent_id: str) -> None:
        """Record that text of an agent was deleted outside its index, and request a run.

        The index records its deletions itself, in `generations.has_deleted_text`.
        """
        number = self.request()
        with self._changed:
            self._deletions[agent_id] = number

    def has_deletion(self, agent_id: str) -> bool:
        """Return whether a recorded deletion has not been followed by a run."""
        with self._changed:
            number = self._deletions.get(agent_id)
            if number is not None and self._completed >= number:
                del self._deletions[agent_id]
                number = None
            return number is not None

    def stop(self) -> None:
        """Cancel the current run and the requested ones. A later request starts runs again."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            thread, connection = self._thread, self._connection
        if connection is not None:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=_STOP_SECONDS)
        if thread is not None:
            wait([thread], _STOP_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_stopped and (left := self._due_at - self._monotonic()) > 0:
                    self._changed.wait(left)
                if self._is_stopped or self._requested <= self._started:
                    self._thread = None
                    return
                self._started += 1
                number = self._started
            began = self._monotonic()
            is_complete = False
            with suppress(psycopg.Error, MemorydError):
                is_complete = self._vacuum()
            with self._changed:
                if is_complete:
                    self._completed = number
                else:
                    self._requested = self._started + 1
                seconds = self._monotonic() - began
                self._due_at = began + max(self._seconds, seconds / SHARE_OF_TIME)

    def _vacuum(self) -> bool:
        """Remove the rows that were deleted before this call; return False if that is not possible now."""
        connection = self._connect()
        connection.operation = Operation.VACUUM
        connection.statement_seconds = float("inf")
        warnings: list[str] = []
        connection.add_notice_handler(lambda found: warnings.append(found.severity_nonlocalized or ""))
        with connection:
            with self._changed:
                if self._is_stopped:
                    return False
                self._connection = connection
            try:
                row = connection.execute(_SETTINGS, (_LOCK,)).fetchone()
                if row is None or not row[-1] or not self._has_no_older_snapshot(connection):
                    return False
                connection.execute(_VACUUM)
            finally:
                with self._changed:
                    self._connection = None
        # A table that belongs to another role is skipped with a warning.
        return "WARNING" not in warnings

    def _has_no_older_snapshot(self, connection: Connection) -> bool:
        """Wait until no snapshot can read what was deleted before this call; return False if it takes too long."""
        now = connection.execute(_NEXT_TRANSACTION).fetchone()
        until = self._monotonic() + _SNAPSHOT_SECONDS
        while connection.execute(_HAS_OLDER_SNAPSHOT, now).fetchone() != (False,):
            with self._changed:
                if self._monotonic() > until or self._is_stopped:
                    return False
                self._changed.wait(_SNAPSHOT_STEP_SECONDS)
        return True
