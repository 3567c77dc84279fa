"""Standby: reads from a standby of the database, with a bound on their age.

The age of a snapshot follows from the row of this replica in it: the row contains the last beat of the heartbeat that
the standby has replayed, and the replica knows when it sent each beat. No clocks of two machines are compared.
"""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg

from memoryd_server.errors import (
    DeadlineTooShort,
    DiskFull,
    IndexBusy,
    IndexDamaged,
    IndexReadOnly,
    IndexUnavailable,
    MemorydError,
)
from memoryd_server.observe import DatabaseMeter
from memoryd_server.postgres.replica import Replica
from memoryd_server.postgres.session import Connection, Operation
from memoryd_server.store import ReadBound, StandbyOutcome, StandbyUnusable

if TYPE_CHECKING:
    from memoryd_server.postgres.connection import Database

PAUSE_SECONDS: Final = 5.0
"""How long after a failure the standby is not used. Then one call tries it, and the others wait for its success."""

PROBE_SECONDS: Final = 1.0
"""How long a call waits for a connection and the first answer of the standby."""

_SHARE_OF_TIME: Final = 0.5
"""The share of a call's time that the standby may take, so that the primary can still answer after it."""

# The time limit of the following statements is longer than that of this one.
_BEAT: Final = """SELECT (SELECT beat FROM replicas WHERE replica_id = %s),
    set_config('statement_timeout', %s, true)"""
_FAILURES: Final = (IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull, DeadlineTooShort)


class Standby:
    """A standby of a database, shared by the agents of a process. Thread-safe. Blocks.

    `database` are the connections to it, and `replica` is this process as a replica of the primary. `meter` counts the
    reads. `monotonic` is a clock in seconds. `on_failure` is called, on any thread, with the reason when the standby
    fails and the last read of it did not.
    """

    def __init__(
        self, database: "Database", replica: Replica, meter: DatabaseMeter, monotonic: Callable[[], float]
    ) -> None:
        self.database = database
        self._replica = replica
        self._meter = meter
        self._monotonic = monotonic
        self._guard = threading.Lock()
        self._paused_until = -math.inf
        self._has_failed = False
        self._users = 0
        self.on_failure: Callable[[str], None] = lambda _reason: None

    def attach(self) -> None:
        """Keep connections for one more user."""
        self.database.attach()
        with self._guard:
            self._users += 1

    def detach(self) -> None:
        """End the use of one user; after the last one, close all connections, and start no heartbeat any more."""
        with self._guard:
            self._users -= 1
        self.database.detach()

    @contextmanager
    def read(self, agent_id: str, bound: ReadBound) -> Iterator[Connection]:
        """Open a snapshot of an agent's rows on the standby that is not older than `bound` allows.

        Its statements end after half of the time until the bound's deadline, which is the deadline of the connection.

        Raises:
            StandbyUnusable: it is too old, or the standby failed, now or a few seconds ago.
        """
        outcome = StandbyOutcome.FAILED
        try:
            now = self._begin()
            until = now + _SHARE_OF_TIME * (bound.deadline - now)
            probe_until = min(until, now + PROBE_SECONDS)
            with self.database.read(agent_id, probe_until, operation=Operation.SEARCH) as connection:
                try:
                    self._require_age(connection, bound, until)
                    yield connection
                except psycopg.Error:
                    # The session may have begun before the type of vectors existed on the standby.
                    connection.close()
                    raise
            outcome = StandbyOutcome.ANSWERED
            self._record_success()
        except StandbyUnusable as error:
            outcome = error.outcome
            if outcome is StandbyOutcome.BEHIND:
                self._record_success()
            raise
        except _FAILURES as error:
            self._record_failure(error)
            raise StandbyUnusable(error.message) from error
        except Exception:
            # Of the caller, such as a file that does not exist.
            outcome = StandbyOutcome.ANSWERED
            self._record_success()
            raise
        finally:
            self._meter.standby_read_ended(outcome)

    def _begin(self) -> float:
        """Return the time; raise StandbyUnusable if the standby must not be used now."""
        now = self._monotonic()
        with self._guard:
            if self._users == 0 or now < self._paused_until:
                raise StandbyUnusable("the standby has failed, and is not used for some seconds", StandbyOutcome.PAUSED)
            if self._has_failed:
                self._paused_until = now + PAUSE_SECONDS
            self._replica.start()
        return now

    def _require_age(self, connection: Connection, bound: ReadBound, until: float) -> None:
        """Check the age of the snapshot, which this statement opens; the following ones end at `until`."""
        timeout_ms = max(1, int(1000 * (until - self._monotonic())))
        row = connection.execute(_BEAT, (self._replica.replica_id, str(timeout_ms))).fetchone()
        connection.deadline = until
        age = None if row is None or row[0] is None else self._replica.beat_age(row[0])
        if age is None or age > bound.max_staleness:
            shown = "of unknown age" if age is None else f"{age:.1f} s behind"
            raise StandbyUnusable(f"the standby is {shown}", StandbyOutcome.BEHIND)

    def _record_success(self) -> None:
        with self._guard:
            self._has_failed, self._paused_until = False, -math.inf

    def _record_failure(self, error: MemorydError) -> None:
        # A statement that was cancelled, by its deadline or for the replay of changes, shows that the server answers.
        answers = isinstance(error, IndexBusy | IndexDamaged | DiskFull) or (
            isinstance(error, DeadlineTooShort) and error.retry_after_seconds is None
        )
        with self._guard:
            begins = not answers and not self._has_failed
            self._has_failed = not answers
            self._paused_until = -math.inf if answers else self._monotonic() + PAUSE_SECONDS
        if begins:
            self.on_failure(error.message)
