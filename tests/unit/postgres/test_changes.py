"""Notifications between the replicas of a database, and the catch-up after a lost connection."""

import queue
import threading

import pytest

from waiting import wait_until

pytestmark = pytest.mark.postgres

psycopg = pytest.importorskip("psycopg")
changes = pytest.importorskip("memoryd_server.postgres.changes")

WAIT_SECONDS = 10.0
THREAD = "postgres-changes"


class Watched:
    """An agent that a replica watches; `change` waits for a call, and `others` counts those that were not awaited."""

    def __init__(self, database, agent):
        self._calls = queue.Queue()
        self.end = database.changes.watch(agent, lambda: self._calls.put(None))

    def change(self):
        self._calls.get(timeout=WAIT_SECONDS)

    @property
    def others(self):
        return self._calls.qsize()


@pytest.fixture
def replicas(postgres_module, request):
    """Two replicas of a database of the test alone, and a connection of a superuser to it."""
    name = f"c{abs(hash(request.node.name))}"
    url = postgres_module.server.create_database(name)
    first, second = (postgres_module.database(url) for _ in range(2))
    first.prepare()
    with postgres_module.server.admin(name) as admin:
        yield first, second, admin


@pytest.fixture
def watch(request):
    """A function that watches an agent until the end of the test, once the replica receives notifications."""
    watched, receiving = [], set()

    def watch(database, agent):
        watched.append(Watched(database, agent))
        if database not in receiving:
            watched[-1].change()
            receiving.add(database)
        return watched[-1]

    yield watch
    for each in watched:
        each.end()


def listening(admin):
    rows = admin.execute("SELECT pid FROM pg_stat_activity WHERE application_name <> 'admin' AND query LIKE 'LISTEN%'")
    return [row[0] for row in rows]


def test_a_replica_learns_of_the_changes_of_another_one(replicas, watch):
    first, second, _ = replicas
    harbour, ferry = watch(first, "harbour"), watch(first, "ferry")
    second.changes.notify("harbour")
    harbour.change()
    second.changes.notify("ferry")
    ferry.change()
    assert harbour.others == ferry.others == 0


def test_a_replica_learns_once_that_another_one_waits_for_a_lease(replicas, watch):
    first, second, _ = replicas
    harbour = watch(first, "harbour")
    second.changes.notify("harbour")
    harbour.change()
    assert not first.changes.take_request("harbour")
    second.changes.notify("harbour", waits=True)
    harbour.change()
    assert first.changes.take_request("harbour")
    assert not first.changes.take_request("harbour")
    ferry = watch(first, "ferry")
    harbour.end()
    second.changes.notify("harbour", waits=True)
    second.changes.notify("ferry")
    ferry.change()
    assert not first.changes.take_request("harbour")


def test_every_watcher_of_an_agent_is_called(replicas, watch):
    first, second, _ = replicas
    watched = [watch(first, "harbour"), watch(first, "harbour")]
    second.changes.notify("harbour")
    for each in watched:
        each.change()


def test_own_notifications_are_ignored(replicas, watch):
    first, second, _ = replicas
    harbour = watch(first, "harbour")
    first.changes.notify("harbour")
    # The server delivers in the order of commits.
    second.changes.notify("harbour")
    harbour.change()
    second.changes.notify("harbour")
    harbour.change()
    assert harbour.others == 0


@pytest.mark.parametrize(
    "payload", ["", "{", "[" * 7000, "[]", "null", '{"agent": ["harbour"]}', '{"agent": "harbour"}']
)
def test_foreign_notifications_are_ignored(replicas, watch, payload):
    first, second, admin = replicas
    harbour = watch(first, "harbour")
    admin.execute("SELECT pg_notify('memoryd_changes', %s)", [payload])
    second.changes.notify("harbour")
    harbour.change()
    assert harbour.others == 0


def test_every_agent_counts_as_changed_after_the_connection_was_lost(replicas, watch):
    first, second, admin = replicas
    harbour, ferry = watch(first, "harbour"), watch(first, "ferry")
    (pid,) = listening(admin)
    # What is sent before the replica is connected again is lost.
    admin.execute("SELECT pg_terminate_backend(%s)", [pid])
    second.changes.notify("harbour")
    for each in (harbour, ferry):
        each.change()
    assert listening(admin) != [pid]
    second.changes.notify("ferry")
    ferry.change()
    assert first.metrics().replica_events["listen"] == 2
    assert first.metrics().replica_events["notification"] >= 1


def test_a_server_that_refuses_connections_is_tried_again(replicas):
    first, second, _ = replicas
    failures = [psycopg.OperationalError("no connections are accepted")] * 2

    def connect():
        if failures:
            raise failures.pop()
        return first.connect()

    changed = threading.Semaphore(0)
    listener = changes.ChangeListener(connect, first.write, "first")
    end = listener.watch("harbour", changed.release)
    assert changed.acquire(timeout=WAIT_SECONDS)
    second.changes.notify("harbour")
    assert changed.acquire(timeout=WAIT_SECONDS)
    end()
    listener.stop()


def test_nothing_is_received_after_the_last_watcher_has_ended(replicas, watch):
    first, second, admin = replicas
    harbour = watch(first, "harbour")
    harbour.end()
    first.changes.stop()
    # The server and the thread report the end a moment later.
    wait_until(lambda: not listening(admin))
    wait_until(lambda: THREAD not in {thread.name for thread in threading.enumerate()})
    second.changes.notify("harbour")
    again = Watched(first, "harbour")
    again.change()
    second.changes.notify("harbour")
    again.change()
    assert harbour.others == again.others == 0
    again.end()


def test_a_wait_for_a_lease_notifies_its_holder_at_intervals():
    now, notified = [0.0], []
    should_stop = changes.notifying(lambda: now[0] >= 10, lambda: notified.append(now[0]), lambda: now[0])
    while not should_stop():
        now[0] += changes.ASK_SECONDS / 4
    assert notified == [2.0, 4.0, 6.0, 8.0, 10.0]
