"""The metrics of a shared database: the pool of connections, transactions and statements by operation."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""The upper bounds of the classes of a duration; a last class has no bound."""


class Durations:
    """A histogram of durations. Not thread-safe."""

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self._total += seconds

    def copy(self) -> "Durations":
        """Return a copy, which does not change."""
        copy = Durations()
        copy._counts, copy._total = [*self._counts], self._total
        return copy

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add a sample with these durations to a metric."""
        buckets: list[tuple[str, float]] = []
        count = 0
        for bound, inside in zip((*map(str, SECONDS), "+Inf"), self._counts, strict=True):
            count += inside
            buckets.append((bound, count))
        family.add_metric(labels, buckets, self._total)


@dataclass(frozen=True, slots=True)
class DatabaseMetrics:
    """One database at one moment; everything but `in_use`, `idle` and `waiting` is counted since the daemon's start.

    `connects` are connections opened, `waits` the times until a call got a connection. The keys are operations;
    `errors` are failed transactions by operation and reason of the error. `standby_reads` are by their outcome,
    `replica_events` by the kind of event: leases, takeovers, notifications and connects of their listener.
    """

    in_use: int = 0
    idle: int = 0
    waiting: int = 0
    connects: int = 0
    waits: Durations = field(default_factory=Durations)
    transactions: Mapping[str, Durations] = field(default_factory=dict)
    statements: Mapping[str, Durations] = field(default_factory=dict)
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    standby_reads: Mapping[str, int] = field(default_factory=dict)
    replica_events: Mapping[str, int] = field(default_factory=dict)


class DatabaseMeter:
    """Counts the transactions and statements of one database. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._connects = 0
        self._waits = Durations()
        self._transactions: dict[str, Durations] = {}
        self._statements: dict[str, Durations] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self._standby_reads: Counter[str] = Counter()
        self._replica_events: Counter[str] = Counter()

    def connected(self) -> None:
        """Count an opened connection."""
        with self._guard:
            self._connects += 1

    def connection_taken(self, seconds: float) -> None:
        """Count how long a call waited for a connection, whether or not it got one."""
        with self._guard:
            self._waits.add(seconds)

    def transaction_ended(self, operation: str, seconds: float, error: str = "") -> None:
        """Count a transaction; `error` is the reason of its failure."""
        with self._guard:
            self._transactions.setdefault(operation, Durations()).add(seconds)
            if error:
                self._errors[operation, error] = self._errors.get((operation, error), 0) + 1

    def statement_ended(self, operation: str, seconds: float) -> None:
        """Count a statement, or several that were sent together."""
        with self._guard:
            self._statements.setdefault(operation, Durations()).add(seconds)

    def standby_read_ended(self, outcome: str) -> None:
        """Count a read for which a standby was tried."""
        with self._guard:
            self._standby_reads[outcome] += 1

    def replica_event(self, event: str) -> None:
        """Count a lease, a takeover of the lease of a lost replica, a notification, or a connect of the listener."""
        with self._guard:
            self._replica_events[event] += 1

    def measured(self, *, in_use: int, idle: int, waiting: int) -> DatabaseMetrics:
        """Return the current metrics, of a pool in this state."""
        with self._guard:
            return DatabaseMetrics(
                in_use,
                idle,
                waiting,
                self._connects,
                self._waits.copy(),
                {operation: durations.copy() for operation, durations in self._transactions.items()},
                {operation: durations.copy() for operation, durations in self._statements.items()},
                dict(self._errors),
                dict(self._standby_reads),
                dict(self._replica_events),
            )


def database_families(database: DatabaseMetrics) -> Iterable[Metric]:
    """Yield the metric families of a database, in a fixed order."""
    connections = GaugeMetricFamily("memoryd_database_connections", "Open connections of the pool.", labels=("state",))
    connections.add_metric(("in_use",), database.in_use)
    connections.add_metric(("idle",), database.idle)
    yield connections
    yield GaugeMetricFamily("memoryd_database_waiting", "Calls that wait for a connection.", database.waiting)
    yield CounterMetricFamily("memoryd_database_connects", "Connections that were opened.", database.connects)
    waits = HistogramMetricFamily("memoryd_database_wait_seconds", "Time until a call got a connection.")
    database.waits.add_to(waits, ())
    yield waits
    for name, description, by_operation in (
        ("transaction", "Time of transactions.", database.transactions),
        ("statement", "Time of statements, or of several that were sent together.", database.statements),
    ):
        family = HistogramMetricFamily(f"memoryd_database_{name}_seconds", description, labels=("operation",))
        for operation, durations in sorted(by_operation.items()):
            durations.add_to(family, (operation,))
        yield family
    errors = CounterMetricFamily(
        "memoryd_database_errors", "Transactions that failed, by the reason.", labels=("operation", "reason")
    )
    for labels, count in sorted(database.errors.items()):
        errors.add_metric(labels, count)
    yield errors
    standby_reads = CounterMetricFamily(
        "memoryd_database_standby_reads", "Reads for which the standby was tried, by outcome.", labels=("outcome",)
    )
    for outcome, count in sorted(database.standby_reads.items()):
        standby_reads.add_metric((outcome,), count)
    yield standby_reads
    replica_events = CounterMetricFamily(
        "memoryd_database_replica_events", "What this replica did because of others, by event.", labels=("event",)
    )
    for event, count in sorted(database.replica_events.items()):
        replica_events.add_metric((event,), count)
    yield replica_events
