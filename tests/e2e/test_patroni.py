"""Patroni and etcd replace a leader that died under load, twice, without a person: no acknowledged write is lost."""

import os

import pytest

from e2e.daemon_fixture import client
from e2e.replica_fixture import ReplicaFixture
from e2e.store_checks import check_failures, check_index, check_writes, print_report
from e2e.store_workers import Finder, wait_for_progress, working, writes
from patroni_cluster import missing, patroni_cluster
from waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    # CI installs them, so that it does not skip the test.
    pytest.mark.skipif(bool(missing()) and os.environ.get("CI") != "true", reason=missing()),
]

LONGEST_SECONDS = 25
WRITES = 1000


def test_two_failovers_of_patroni_lose_no_write_and_need_no_person(daemons):
    assert not missing()
    with patroni_cluster() as cluster:
        leader = cluster.wait_until_synchronous()
        replicas = ReplicaFixture(daemons, cluster.create_database("failover"), lambda: cluster.admin("failover"))
        with working(*replicas.start(2)) as workers:
            for goal in (WRITES // 3, WRITES * 2 // 3):
                wait_until(lambda goal=goal: writes(workers) >= goal, 100)
                cluster.kill(leader)
                wait_for_progress(workers)
                cluster.start(leader)
                before, leader = leader, cluster.wait_until_synchronous()
                assert leader != before
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
