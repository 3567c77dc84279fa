"""ChangeListener: notifications between the replicas of a database that an agent's index or documents have changed.

A replica is one running daemon. It sends a notification (NOTIFY) for each agent that it has changed, and receives those
of the others on a connection of its own (LISTEN). Notifications that are sent while this connection is interrupted are
lost, so each connect counts as a change of every agent that is watched.
"""

import json
import math
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from typing import Any, Final

import psycopg

from memoryd_server.errors import MemorydError
from memoryd_server.postgres.session import Connection
from memoryd_server.store import StopSign
from memoryd_server.threads import on_thread

_CHANNEL: Final = "memoryd_changes"

# Its commit does not wait for the disk: a server that loses it has also lost the connections that receive it.
_NOTIFY: Final = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"

_CHECK_SECONDS: Final = 5.0
"""How often a silent connection is checked, and how long the server may take to answer."""

ASK_SECONDS: Final = 2.0
"""How often a replica that waits for the lease of an agent notifies its holder."""

# A replica that waits longer sends another notification.
_REQUEST_SECONDS: Final = 1.5 * ASK_SECONDS

_FIRST_PAUSE_SECONDS: Final = 0.2
_MAX_PAUSE_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 3.0


class ChangeListener:
    """Sends and receives notifications, on a thread that exists while an agent is watched. Thread-safe.

    `connect` opens the connection that receives, and `transaction(agent_id)` begins one that sends. `replica_id` names
    this replica: its own notifications are ignored.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        transaction: Callable[[str], AbstractContextManager[Connection]],
        replica_id: str,
    ) -> None:
        self._connect = connect
        self._transaction = transaction
        self._replica_id = replica_id
        self._guard = threading.Lock()
        self._watchers: dict[str, dict[object, Callable[[], None]]] = {}
        # When another replica has last waited for the lease of a watched agent.
        self._wanted_at: dict[str, float] = {}
        self._thread: Future[None] | None = None
        self._waker: socket.socket | None = None

    def watch(self, agent_id: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` after another replica may have changed an agent; return the function that ends this.

        It is called on the thread of the listener, also after each connect, and must neither block nor raise.
        """
        token = object()
        with self._guard:
            self._watchers.setdefault(agent_id, {})[token] = on_change
            if self._thread is None:
                self._waker, woken = socket.socketpair()
                self._thread = on_thread("postgres-changes", partial(self._run, woken))
        return partial(self._end, agent_id, token)

    def _end(self, agent_id: str, token: object) -> None:
        with self._guard:
            watchers = self._watchers.get(agent_id, {})
            watchers.pop(token, None)
            if not watchers:
                self._watchers.pop(agent_id, None)
                self._wanted_at.pop(agent_id, None)
            if not self._watchers and self._waker is not None:
                self._waker.send(b"\0")

    def notify(self, agent_id: str, *, waits: bool = False) -> None:
        """Send a notification that this replica has changed an agent, or `waits` for its lease. Blocks.

        Its transaction writes nothing, because a commit with a notification waits for all others of the database.

        Raises:
            IndexUnavailable, IndexBusy: the database cannot be used.
        """
        payload = json.dumps({"agent": agent_id, "replica": self._replica_id, **({"waits": True} if waits else {})})
        with self._transaction(agent_id) as connection:
            connection.execute(_NOTIFY, (_CHANNEL, payload))

    def take_request(self, agent_id: str) -> bool:
        """Return whether another replica has asked for the lease of a watched agent lately, and since the last call."""
        with self._guard:
            wanted_at = self._wanted_at.pop(agent_id, -math.inf)
        return time.monotonic() - wanted_at < _REQUEST_SECONDS

    def stop(self) -> None:
        """Wait until the thread has ended, some seconds at most, if no agent is watched any more."""
        with self._guard:
            thread = None if self._watchers else self._thread
        if thread is not None:
            wait([thread], _STOP_SECONDS)

    def _run(self, woken: socket.socket) -> None:
        pause = _FIRST_PAUSE_SECONDS
        with woken:
            while not self._has_ended():
                with suppress(psycopg.Error, OSError, MemorydError), closing(self._connect()) as connection:
                    connection.statement_seconds = _CHECK_SECONDS
                    connection.add_notify_handler(lambda received: self._received(connection, received.payload))
                    connection.execute(f"LISTEN {_CHANNEL}")
                    _count(connection, "listen")
                    self._call_watchers()
                    pause = _FIRST_PAUSE_SECONDS
                    self._receive(connection, woken)
                    continue
                if _is_readable(woken, pause):
                    woken.recv(1)
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    def _has_ended(self) -> bool:
        """Return whether no agent is watched; the next `watch` then starts another thread."""
        with self._guard:
            if not self._watchers and self._waker is not None:
                self._waker.close()
                self._thread = self._waker = None
            return self._thread is None

    def _receive(self, connection: Connection, woken: socket.socket) -> None:
        """Receive notifications until no agent is watched, or the connection is lost, which raises an exception."""
        arrived = select.poll()
        for each in (connection.fileno(), woken.fileno()):
            arrived.register(each, select.POLLIN)
        while True:
            # Also those that arrived with the answer to a statement.
            while received := connection.pgconn.notifies():
                self._received(connection, received.extra)
            ready = [number for number, _ in arrived.poll(1000 * _CHECK_SECONDS)]
            if woken.fileno() in ready:
                woken.recv(1)
                if not self._watchers:
                    return
            elif ready:
                connection.pgconn.consume_input()
            else:
                # A server that is gone without closing the connection sends no notification either.
                connection.execute("SELECT 1")

    def _received(self, connection: Connection, payload: str | bytes) -> None:
        try:
            change: Any = json.loads(payload)
        except (ValueError, RecursionError):
            # Any role of the database may send notifications.
            return
        match change:
            case {"agent": str(agent_id), "replica": replica_id} if replica_id != self._replica_id:
                _count(connection, "notification")
                if change.get("waits") is True:
                    self._record_request(agent_id)
                self._call_watchers(agent_id)

    def _record_request(self, agent_id: str) -> None:
        with self._guard:
            if agent_id in self._watchers:
                self._wanted_at[agent_id] = time.monotonic()

    def _call_watchers(self, agent_id: str | None = None) -> None:
        """Call the watchers of an agent, or of all agents."""
        with self._guard:
            some = self._watchers.values() if agent_id is None else [self._watchers.get(agent_id, {})]
            found = [on_change for watchers in some for on_change in watchers.values()]
        for on_change in found:
            on_change()


def _count(connection: Connection, event: str) -> None:
    if connection.meter is not None:
        connection.meter.replica_event(event)


def _is_readable(woken: socket.socket, seconds: float) -> bool:
    arrived = select.poll()
    arrived.register(woken.fileno(), select.POLLIN)
    return bool(arrived.poll(1000 * seconds))


def notifying(
    should_stop: StopSign, notify: Callable[[], None], monotonic: Callable[[], float] = time.monotonic
) -> StopSign:
    """Return the stop sign of a wait for the lease of an agent, which notifies the holder while it is called.

    A holder that is making vectors, which can take hours, then looks for files and indexes them first. `monotonic` is a
    clock in seconds.
    """
    notified_at = monotonic()

    def is_over() -> bool:
        nonlocal notified_at
        if monotonic() - notified_at >= ASK_SECONDS:
            notified_at = monotonic()
            notify()
        return should_stop()

    return is_over
