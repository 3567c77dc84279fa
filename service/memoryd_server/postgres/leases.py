"""AgentLeases: the leases of this replica, each of which is the right to change the index of one agent.

A lease is a row that names the replica. Each acquisition raises the fence of the agent, which every transaction that
changes the index checks; so a replica that was paused or cut off, and lost its lease to another one, cannot write.
"""

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from memoryd_server.errors import IndexBusy, IndexDamaged, MemorydError
from memoryd_server.postgres.errors import translated
from memoryd_server.postgres.replica import Replica, end_sessions
from memoryd_server.postgres.scope import NOW_MS
from memoryd_server.postgres.session import Connection, Operation
from memoryd_server.store import StopSign

_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 0.5
_PAUSE_GROWTH: Final = 1.1
_JITTER: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = _MAX_PAUSE_SECONDS * (1 + _JITTER)
_ANSWER_SECONDS: Final = 0.2

_HOLDER = """SELECT leases.replica_id, coalesce(beat, 0), coalesce(expires_at > clock_timestamp(), false)
    FROM leases LEFT JOIN replicas ON replicas.replica_id = leases.replica_id WHERE agent_id = %(agent)s"""
# A row of this replica can remain from a transaction whose end was not reported. The row of another one is not
# locked, so that waiting writes nothing.
_TAKE = """INSERT INTO leases(agent_id, replica_id) SELECT %(agent)s, %(own)s
    WHERE NOT EXISTS(SELECT 1 FROM leases AS present WHERE agent_id = %(agent)s
        AND present.replica_id NOT IN (%(own)s, %(expired)s))
    ON CONFLICT (agent_id) DO UPDATE SET replica_id = excluded.replica_id
        WHERE leases.replica_id = %(own)s OR (leases.replica_id = %(expired)s AND NOT EXISTS(
            SELECT 1 FROM replicas WHERE replicas.replica_id = %(expired)s AND expires_at > clock_timestamp()))"""
_IS_OWN = "EXISTS(SELECT 1 FROM leases WHERE leases.agent_id = %(agent)s AND replica_id = %(own)s)"
# Waits for a transaction of the earlier holder that is under way.
_FENCE = f"SELECT fence FROM agents WHERE agent_id = %(agent)s AND {_IS_OWN} FOR UPDATE"  # noqa: S608 -- a constant
# Never below the milliseconds of the server, so that no number is used again after a failover that has lost commits.
_RAISE = f"""INSERT INTO agents(agent_id, generation, fence) SELECT %(agent)s, 1, {NOW_MS} WHERE {_IS_OWN}
    ON CONFLICT (agent_id) DO UPDATE SET fence = greatest(agents.fence + 1, excluded.fence) RETURNING fence"""
# If the server loses this commit, the heartbeat repeats it after it has connected again.
_RELEASE = """DELETE FROM leases WHERE replica_id = %(own)s AND agent_id = ANY(%(agents)s)
    AND set_config('synchronous_commit', 'off', true) <> ''"""
_OWN = "SELECT agent_id FROM leases WHERE replica_id = %s"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that was acquired: the fence of its transactions, and the one before; None if the agent had no row."""

    fence: int
    before: int | None


@dataclass(frozen=True, slots=True)
class _Holder:
    """The replica that holds a lease, and the number of its last renewal."""

    replica_id: str
    beat: int = 0
    is_live: bool = True


class AgentLeases:
    """The leases of this replica. Thread-safe. Blocks.

    `transaction(agent_id)` begins a transaction of an agent, and `connect` lends a connection.
    """

    def __init__(
        self,
        replica: Replica,
        transaction: Callable[[str], AbstractContextManager[Connection]],
        connect: Callable[[], AbstractContextManager[tuple[Connection, bool]]],
    ) -> None:
        self._replica = replica
        self._transaction = transaction
        self._connect = connect
        self._changed = threading.Condition()
        # The agents whose rows a thread of this process may be changing too.
        self._held: set[str] = set()
        # Those whose rows may have remained.
        self._unreleased: set[str] = set()
        replica.on_connect(self._release_unknown)

    def acquire(self, agent_id: str, should_stop: StopSign) -> Lease:
        """Acquire the lease of an agent; wait while another replica, or another thread of this one, holds it.

        Raises:
            IndexBusy: `should_stop` returned true during the wait.
            IndexDamaged: the tables are missing.
            IndexUnavailable, IndexReadOnly, DiskFull: the database cannot be used.
        """
        reason = f"another memoryd is indexing the agent {agent_id!r}; try again when it has finished"
        return self._acquire(agent_id, lambda _: should_stop(), reason)

    def acquire_unused(self, agent_id: str) -> Lease:
        """Acquire the lease of an agent; wait only as long as its holder does not renew its row.

        Raises:
            IndexBusy: another replica holds it, or another thread of this one.
            IndexDamaged, IndexUnavailable, IndexReadOnly, DiskFull: as `acquire`.
        """
        seen: list[_Holder] = []

        def is_in_use(holder: _Holder) -> bool:
            seen.append(holder)
            return holder.replica_id == self._replica.replica_id or holder != seen[0]

        reason = f"another memoryd holds the index of the agent {agent_id!r}; stop it, or wait until it ends"
        return self._acquire(agent_id, is_in_use, reason)

    def leave_to_others(self, should_stop: StopSign) -> None:
        """Wait so long that a replica that waits for a lease, which this one has released, acquires it."""
        with self._changed:
            self._changed.wait_for(should_stop, _LONGEST_PAUSE_SECONDS + _ANSWER_SECONDS)

    def _acquire(self, agent_id: str, should_stop: Callable[[_Holder], bool], reason: str) -> Lease:
        pause = _FIRST_PAUSE_SECONDS
        while isinstance(found := self._try(agent_id), _Holder):
            if should_stop(found):
                raise IndexBusy(reason, retry_after_seconds=1.0)
            with self._changed:
                self._changed.wait(pause * random.uniform(1 - _JITTER, 1 + _JITTER))  # noqa: S311 -- no secret
            pause = min(pause * _PAUSE_GROWTH, _MAX_PAUSE_SECONDS)
        return found

    def _try(self, agent_id: str) -> "Lease | _Holder":
        """Return the lease if it was acquired, else its holder."""
        if not self._hold(agent_id):
            return _Holder(self._replica.replica_id)
        found: Lease | _Holder | None = None
        try:
            with translated():
                self._replica.require_beat()
            found = self._take(agent_id)
        except IndexDamaged:
            raise
        except BaseException:
            # The transaction may be committed.
            self._release_later(agent_id)
            raise
        finally:
            if not isinstance(found, Lease):
                self._let_go([agent_id])
        return found

    def _hold(self, agent_id: str) -> bool:
        """Keep other threads from the agent's row; return False if one has done that."""
        with self._changed:
            if agent_id in self._held:
                return False
            self._held.add(agent_id)
            return True

    def _let_go(self, agent_ids: Sequence[str]) -> None:
        with self._changed:
            self._held.difference_update(agent_ids)
            self._changed.notify_all()

    def _take(self, agent_id: str) -> "Lease | _Holder":
        found = self._take_from(agent_id, "")
        if isinstance(found, _Holder) and not found.is_live:
            found = self._take_from(agent_id, found.replica_id)
        return found

    def _take_from(self, agent_id: str, expired: str) -> "Lease | _Holder":
        """Acquire the lease if no replica holds it, or the replica `expired`, which has to have expired."""
        values = {"agent": agent_id, "own": self._replica.replica_id, "expired": expired}
        with self._transaction(agent_id) as connection:
            if expired:
                end_sessions(connection, [expired])
            with connection.pipeline():
                holder = connection.execute(_HOLDER, values)
                connection.execute(_TAKE, values)
                before = connection.execute(_FENCE, values)
                fence = connection.execute(_RAISE, values)
            if (raised := fence.fetchone()) is not None:
                known = before.fetchone()
                if connection.meter is not None:
                    connection.meter.replica_event("takeover" if expired else "lease")
                return Lease(raised[0], None if known is None else known[0])
            row = holder.fetchone()
        # Without a row, another replica has acquired it at the same time.
        return _Holder("") if row is None else _Holder(*row)

    def release(self, agent_id: str) -> None:
        """Release the lease of an agent, unless another replica has taken it over. Later, if that is not possible now.

        Raises nothing.
        """
        try:
            with translated(), self._connect() as (connection, _), connection.measured_as(Operation.LEASES):
                self._delete(connection, [agent_id])
        except MemorydError:
            self._let_go([agent_id])
            self._release_later(agent_id)
        else:
            self._let_go([agent_id])

    def _delete(self, connection: Connection, agent_ids: Sequence[str]) -> None:
        connection.execute(_RELEASE, {"own": self._replica.replica_id, "agents": list(agent_ids)})

    def _release_later(self, agent_id: str) -> None:
        # One statement for all of them: after a long outage, thousands would delay the next beats.
        with self._changed:
            is_first = not self._unreleased
            self._unreleased.add(agent_id)
        if is_first:
            self._replica.after_beat(self._release_late)

    def _release_late(self, connection: Connection) -> None:
        with self._changed:
            late, self._unreleased = self._unreleased, set()
        try:
            self._release_unheld(list(late), connection)
        except BaseException:
            with self._changed:
                self._unreleased |= late
            raise

    def _release_unheld(self, agent_ids: Sequence[str], connection: Connection) -> None:
        """Delete the rows of those agents whose leases no thread of this process holds now."""
        unheld = [agent_id for agent_id in agent_ids if self._hold(agent_id)]
        try:
            if unheld:
                self._delete(connection, unheld)
        finally:
            self._let_go(unheld)

    def _release_unknown(self, connection: Connection) -> None:
        """Delete the rows of this replica that do not belong to its leases, after the connection was lost."""
        rows = connection.execute(_OWN, (self._replica.replica_id,)).fetchall()
        self._release_unheld([row[0] for row in rows], connection)
