"""AgentLocks: the locks of the agents that this process uses."""

import hashlib
import select
import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg

from memoryd_server.errors import IndexBusy
from memoryd_server.postgres.errors import translated
from memoryd_server.postgres.session import Connection, Operation

_LOCK_WAIT = "1s"
_MAX_SECONDS = 5.0


class AgentLocks:
    """Advisory locks of agents, all held by one session of this process. Thread-safe. Blocks.

    The server releases them when the session ends. If the session was lost, `restore` acquires them again; a lock that
    another process has acquired stays lost, and the fence of the agent prevents writes.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._guard = threading.Lock()
        self._connection: Connection | None = None
        self._held: set[str] = set()
        self._waits = True

    def restore(self) -> None:
        """Acquire the locks of a lost session again, as far as possible. Sends nothing while the session lasts."""
        connection = self._connection
        if connection is not None and _may_have_ended(connection):
            with self._guard, translated():
                if self._held:
                    self._session()

    def acquire(self, agent_id: str) -> None:
        """Acquire the lock of an agent; IndexBusy if it is held."""
        with self._guard:
            if agent_id in self._held or not self._try_or_wait(agent_id):
                raise IndexBusy(
                    f"another process holds the index of the agent {agent_id!r}; stop it, or wait until it ends",
                    retry_after_seconds=1.0,
                )
            self._held.add(agent_id)

    def _try_or_wait(self, agent_id: str) -> bool:
        """Return whether the lock was acquired. The session of a process that was just killed may still hold it.

        After a wait in vain, later calls do not wait until one succeeds: another process probably holds all agents.
        """
        connection = self._session()
        if _try_lock(connection, agent_id):
            self._waits = True
        elif self._waits:
            try:
                connection.execute("SELECT pg_advisory_lock(%s)", (_key(agent_id),))
            except psycopg.errors.LockNotAvailable:
                self._waits = False
        else:
            return False
        return self._waits

    def release(self, agent_id: str) -> None:
        """Release the lock of an agent, if it is held."""
        with self._guard:
            if agent_id in self._held:
                self._held.discard(agent_id)
                if self._connection is not None:
                    with suppress(psycopg.Error):
                        self._connection.execute("SELECT pg_advisory_unlock(%s)", (_key(agent_id),))

    def close_unused(self) -> None:
        """End the session if it holds no lock."""
        with self._guard:
            if not self._held and self._connection is not None:
                self._connection.close()
                self._connection = None

    def _session(self) -> Connection:
        """Return the session, after a check; open it again with the held locks if it was lost."""
        if self._connection is not None:
            try:
                self._connection.execute("SELECT 1")
            except psycopg.Error:
                self._connection.close()
            else:
                return self._connection
        self._connection = connection = self._connect()
        connection.operation, connection.statement_seconds = Operation.LOCKS, _MAX_SECONDS
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (_LOCK_WAIT,))
        for agent_id in self._held:
            _try_lock(connection, agent_id)
        return connection


def _may_have_ended(connection: Connection) -> bool:
    """Return whether the server has closed an idle session, or has sent anything else."""
    try:
        arrived = select.poll()
        arrived.register(connection.fileno(), select.POLLIN)
        return bool(arrived.poll(0))
    except (psycopg.Error, OSError):
        return True


def _try_lock(connection: Connection, agent_id: str) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", (_key(agent_id),)).fetchone()
    return row is not None and bool(row[0])


def _key(agent_id: str) -> int:
    return int.from_bytes(hashlib.sha256(f"memoryd {agent_id}".encode()).digest()[:8], "big", signed=True)
