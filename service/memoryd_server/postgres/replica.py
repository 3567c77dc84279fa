"""Replica: this running daemon as one of those that use a database, with the heartbeat that renews its row.

The row expires if it is not renewed, and with it the leases of the replica. The heartbeat also finds the replicas that
have expired, reports the agents whose leases they held, and ends those of their sessions that are in a transaction:
the server would keep their locks until it notices that the other machine is gone.
"""

import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Final

import psycopg

from memoryd_server.errors import MemorydError
from memoryd_server.postgres.config import LEASE_SECONDS, RENEW_SECONDS
from memoryd_server.postgres.errors import ServerNotAnswering
from memoryd_server.postgres.session import Connection, Operation
from memoryd_server.threads import on_thread

_STATEMENT_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 3.0
_REMEMBERED_BEATS: Final = 3_600

# A commit of the heartbeat does not wait for a standby, so that a replica that waits for one keeps its leases. A beat
# that is lost in a failover lets the row expire a second earlier.
_SESSION: Final = """SELECT set_config('synchronous_commit', 'local', false), set_config('lock_timeout', '1s', false),
    set_config('statement_timeout', '2s', false)"""
# The rows that the statement returns are those before it.
_BEAT: Final = """WITH renewed AS (
        INSERT INTO replicas(replica_id, beat, expires_at)
            VALUES(%(own)s, %(beat)s, clock_timestamp() + make_interval(secs => %(seconds)s))
            ON CONFLICT (replica_id) DO UPDATE SET beat = excluded.beat, expires_at = excluded.expires_at)
    SELECT replica_id, expires_at > clock_timestamp() - interval '10 minutes',
            ARRAY(SELECT agent_id FROM leases WHERE leases.replica_id = replicas.replica_id
                ORDER BY random() LIMIT 100)
        FROM replicas WHERE expires_at < clock_timestamp() AND replica_id <> %(own)s"""
_STOP: Final = """WITH stopped AS (DELETE FROM replicas WHERE replica_id = %(own)s)
    DELETE FROM leases WHERE replica_id = %(own)s"""
# Replicas that expired long ago, with their leases.
_REMOVE_OLD: Final = """WITH expired AS (
        DELETE FROM replicas WHERE expires_at < clock_timestamp() - interval '1 hour' RETURNING replica_id)
    DELETE FROM leases USING expired WHERE leases.replica_id = expired.replica_id"""
_REMOVE_OLD_BEATS: Final = 60
# The server shows the transactions of the same role only, and lets a role end its own sessions.
_END_SESSIONS: Final = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND xact_start IS NOT NULL
        AND right(application_name, %(length)s) = ANY(%(replicas)s)"""

REPLICA_ID_BYTES: Final = 8


def end_sessions(connection: Connection, replica_ids: list[str]) -> None:
    """End the sessions of replicas that are in a transaction."""
    connection.execute(_END_SESSIONS, {"replicas": replica_ids, "length": 2 * REPLICA_ID_BYTES})


class Replica:
    """This process as a replica, with a heartbeat on a thread between `start` and `stop`. Thread-safe.

    `replica_id` is random, of `2 * REPLICA_ID_BYTES` hex digits. `connect` opens the connection of the heartbeat. The
    row is renewed every `renew_seconds`, and valid for `lease_seconds` after that. `monotonic` is a clock in seconds.
    """

    def __init__(
        self,
        replica_id: str,
        connect: Callable[[], Connection],
        monotonic: Callable[[], float],
        lease_seconds: float = LEASE_SECONDS,
        *,
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        self.replica_id = replica_id
        self._connect = connect
        self._monotonic = monotonic
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._changed = threading.Condition()
        self._thread: Future[None] | None = None
        self._is_stopped = False
        self._due_at = -math.inf
        self._beat = self._attempts = 0
        # The beats with the times at which they were sent.
        self._sent: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED_BEATS)
        self._renewed_at: float | None = None
        self._failure: Exception | None = None
        self._on_abandoned: list[Callable[[str], None]] = []
        self._on_connect: list[Callable[[Connection], None]] = []
        self._postponed: list[Callable[[Connection], None]] = []

    def on_abandoned(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with the id of each agent whose lease a replica held when it expired.

        It is called on the thread of the heartbeat, every second until the lease is taken over or an hour has passed,
        and must neither block nor raise.
        """
        self._on_abandoned.append(callback)

    def on_connect(self, callback: Callable[[Connection], None]) -> None:
        """Call `callback` on the thread of the heartbeat after each connect, with its connection."""
        self._on_connect.append(callback)

    def after_beat(self, work: Callable[[Connection], None]) -> None:
        """Call `work` after each beat, on the thread of the heartbeat, until it raises no error of psycopg.

        It gets the connection of the heartbeat. It is for short statements that failed because the server could not be
        reached.
        """
        with self._changed:
            self._postponed.append(work)

    def start(self) -> None:
        """Start the heartbeat, unless it is running. Does not wait for the first beat."""
        with self._changed:
            if self._thread is not None and not self._is_stopped:
                return
            # A thread that was stopped may be deleting the row.
            self._renewed_at, self._due_at = None, -math.inf
            self._is_stopped = False
            if self._thread is None:
                self._thread = on_thread("postgres-heartbeat", self._run)
            self._changed.notify_all()

    def stop(self) -> None:
        """End the heartbeat and delete the row, so that the leases of this replica end. Waits some seconds at most."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            wait([thread], _STOP_SECONDS)

    def require_beat(self) -> None:
        """Start the heartbeat, and wait until the row of this replica is valid.

        Raises:
            psycopg.Error, MemorydError: the row could not be renewed.
        """
        self.start()
        until = self._monotonic() + 2 * self._lease_seconds
        with self._changed:
            attempts = self._attempts
            while not self._is_valid():
                if self._failure is not None and self._attempts > attempts:
                    raise self._failure
                left = until - self._monotonic()
                if left <= 0:
                    raise ServerNotAnswering("it has not renewed the row of this replica in time")
                self._due_at = -math.inf
                self._changed.notify_all()
                self._changed.wait(left)

    def _is_valid(self) -> bool:
        return self._renewed_at is not None and self._monotonic() - self._renewed_at < self._lease_seconds / 2

    def beat_age(self, beat: int) -> float | None:
        """Return the seconds since this replica sent a beat; None if it is unknown, or older than an hour."""
        with self._changed:
            if not self._sent or not self._sent[0][0] <= beat <= self._sent[-1][0]:
                return None
            return self._monotonic() - self._sent[beat - self._sent[0][0]][1]

    def _run(self) -> None:
        connection: Connection | None = None
        while True:
            self._wait()
            if not self._is_stopped:
                connection = self._beaten(connection)
                continue
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.execute(_STOP, {"own": self.replica_id})
                connection.close()
                connection = None
            with self._changed:
                self._renewed_at = None
                if self._is_stopped:
                    self._thread = None
                    return

    def _wait(self) -> None:
        """Wait until the next beat is due."""
        with self._changed:
            while not self._is_stopped and (left := self._due_at - self._monotonic()) > 0:
                self._changed.wait(left)
            self._due_at = self._monotonic() + self._renew_seconds

    def _beaten(self, connection: Connection | None) -> Connection | None:
        """Renew the row, and do what depends on it; return the connection, None if it was lost."""
        failure: Exception | None = None
        try:
            is_new = connection is None
            connection = connection or self._connected()
            self._renew(connection)
            if is_new:
                for each in self._on_connect:
                    each(connection)
            self._do_postponed(connection)
        except (psycopg.Error, MemorydError) as error:
            failure = error
            if connection is not None:
                connection.close()
                connection = None
        with self._changed:
            self._failure = failure
            self._attempts += 1
            self._changed.notify_all()
        return connection

    def _connected(self) -> Connection:
        connection = self._connect()
        connection.operation, connection.statement_seconds = Operation.HEARTBEAT, _STATEMENT_SECONDS
        connection.execute(_SESSION)
        return connection

    def _renew(self, connection: Connection) -> None:
        with self._changed:
            self._beat += 1
            beat, sent_at = self._beat, self._monotonic()
            self._sent.append((beat, sent_at))
        values = {"own": self.replica_id, "beat": beat, "seconds": self._lease_seconds}
        expired = connection.execute(_BEAT, values).fetchall()
        with self._changed:
            self._renewed_at = sent_at
            self._changed.notify_all()
        if recent := [replica_id for replica_id, is_recent, _ in expired if is_recent]:
            end_sessions(connection, recent)
        for agent_id in {agent_id for *_, agents in expired for agent_id in agents}:
            for callback in self._on_abandoned:
                callback(agent_id)
        if expired and beat % _REMOVE_OLD_BEATS == 0:
            connection.execute(_REMOVE_OLD)

    def _do_postponed(self, connection: Connection) -> None:
        for work in list(self._postponed):
            try:
                work(connection)
            except psycopg.Error:
                if connection.closed:
                    raise
            else:
                with self._changed:
                    self._postponed.remove(work)
