"""The primary dies under load and its synchronous standby takes over: no acknowledged write is lost or stored twice."""

import time

import pytest

from e2e.daemon_fixture import client
from e2e.replica_fixture import ReplicaFixture
from e2e.store_checks import check_failures, check_index, check_writes, print_report
from e2e.store_workers import Finder, wait_for_progress, working, writes
from postgres_cluster import synchronous_pair
from postgres_server import missing
from waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

LONGEST_SECONDS = 25
WRITES = 1000


def test_a_failover_to_the_synchronous_standby_loses_no_write_and_ends_no_daemon(daemons):
    with synchronous_pair() as pair:
        replicas = ReplicaFixture(daemons, pair.create_database("failover"), lambda: pair.admin("failover"))
        with working(*replicas.start(2)) as workers:
            wait_until(lambda: writes(workers) >= WRITES // 2, 100)
            before = failures(workers)
            pair.kill_primary()
            # Not until each client fails: an append that was stored before the kill waits for its index.
            wait_until(lambda: failures(workers) >= before + 3 * len(workers))
            pair.promote()
            promoted = time.monotonic()
            wait_for_progress(workers)
            print(f"all clients continued {time.monotonic() - promoted:.1f} s after the promotion")  # noqa: T201
            wait_until(lambda: writes(workers) >= WRITES, 100)
        print_report(workers)
        assert max(worker.longest_seconds for worker in workers) < LONGEST_SECONDS
        check_failures(workers)
        assert all(worker.found for worker in workers if isinstance(worker, Finder))
        check_writes(workers, replicas.rows)
        for served in replicas.served:
            with client(served) as connection:
                check_index(connection, replicas.rows, workers)
        replicas.stop()


def failures(workers):
    return sum(len(worker.failures) for worker in workers)
