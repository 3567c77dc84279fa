"""Replicas of one database are killed or paused under load: no acknowledged write is lost or stored twice."""

import itertools
import random
import time

import pytest

from e2e.replica_fixture import ReplicaFixture, hits
from e2e.store_checks import check_index, check_writes, print_report
from e2e.store_workers import Finder, wait_for_progress, working, writes
from postgres_server import missing, running_server
from waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

SEED = 28
WRITES = 1000
NUMBERS = itertools.count()
LONGEST_SECONDS = 25
TAKEOVER_SECONDS = 20
"""A lease ends after five seconds. The rest is for the run of the replica that takes over, on a busy machine."""


@pytest.fixture(scope="module")
def server():
    """A server of this file alone, whose commits survive its kills."""
    with running_server(durable=True) as server:
        yield server


@pytest.fixture
def replicas(daemons, server):
    """Replicas of an empty database; none is started."""
    name = f"replicas{next(NUMBERS)}"
    return ReplicaFixture(daemons, server.create_database(name), lambda: server.admin(name))


@pytest.mark.parametrize("count", [2, 3])
def test_replicas_that_are_killed_in_turn_lose_no_write(replicas, count):
    replicas.import_notes(400)
    chance = random.Random(SEED)
    with working(*replicas.start(count), timeout=10.0) as workers:
        for number in range(2 * count):
            wait_for_progress(workers)
            killed = number % count
            if number < count:
                replicas.rebuild(killed)
            time.sleep(chance.uniform(0, 0.3))
            replicas.kill(killed)
            wait_for_progress(workers)
            replicas.start_again(killed)
        wait_until(lambda: writes(workers) >= WRITES, 100)
    print_report(workers)
    assert max(worker.longest_seconds for worker in workers) < LONGEST_SECONDS
    assert all(worker.found for worker in workers if isinstance(worker, Finder))
    check_writes(workers, replicas.rows)
    for number in range(count):
        with replicas.client(number) as connection:
            check_index(connection, replicas.rows, workers)
    assert len(replicas.rows("SELECT generation FROM generations")) == 1
    replicas.stop()


def test_a_write_that_a_killed_replica_has_not_indexed_is_found_through_another_one(replicas):
    replicas.import_notes(1000)
    replicas.start(2)
    with replicas.client(0) as holder, replicas.client(1) as other:
        replicas.rebuild(0)
        answer = holder.append(text="an osprey fishes", path="memory/osprey.md", timeout=0.3)
        replicas.kill(0)
        killed = time.monotonic()
        assert not answer.HasField("index_revision")
        # The other replica gets no call that could start a run.
        wait_until(lambda: replicas.indexed("memory/osprey.md"), TAKEOVER_SECONDS)
        print(f"indexed {time.monotonic() - killed:.1f} s after the kill")  # noqa: T201
        assert hits(other, "osprey")
    replicas.start_again(0)
    with replicas.client(0) as connection:
        assert hits(connection, "osprey")
        check_index(connection, replicas.rows, [])
    replicas.stop()


def test_a_replica_that_is_paused_until_it_has_lost_its_lease_cannot_write_afterwards(replicas):
    replicas.import_notes(1000)
    replicas.start(2)
    with replicas.client(0) as paused, replicas.client(1, timeout=60.0) as other:
        before = other.append(text="a falcon hunts", path="memory/bird.md")
        assert hits(paused, "falcon", before.index_revision)
        rebuild = replicas.rebuild(0)
        replicas.pause_in_transaction(0)
        assert not rebuild.has_ended()
        began = time.monotonic()
        try:
            seen = other.get(path="memory/bird.md").content_sha256
            edit = other.write(path="memory/bird.md", expected_sha256=seen, content="an osprey fishes\n")
            print(f"indexed through the other replica after {time.monotonic() - began:.1f} s")  # noqa: T201
            assert edit.HasField("index_revision")
            assert time.monotonic() - began < TAKEOVER_SECONDS
            fence = replicas.rows("SELECT fence FROM agents")
        finally:
            replicas.resume(0)
        rebuild.join(60)
        # It reports an error, or has begun again with a new lease.
        assert rebuild.error is not None or replicas.rows("SELECT fence FROM agents") > fence
        # The index that it had prepared has the old text.
        assert replicas.indexed("memory/bird.md") == ["an osprey fishes\n"]
        for connection in (paused, other):
            assert hits(connection, "osprey", edit.index_revision)
            assert not hits(connection, "falcon")
        after = paused.append(text="a heron waits", path="memory/heron.md", timeout=60)
        assert hits(other, "heron", after.index_revision)
        check_index(paused, replicas.rows, [])
    replicas.stop()
