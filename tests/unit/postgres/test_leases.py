"""Replicas of one database: one at a time changes an index, and another takes over when it has expired."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
from prometheus_client.core import HistogramMetricFamily

from memoryd_server.errors import IndexBusy, IndexUnavailable
from memoryd_server.threads import on_thread
from postgres_server import DATABASE, running_server
from unit.store.contract import TESTS, document, never
from waiting import wait_until

pytestmark = pytest.mark.postgres

psycopg = pytest.importorskip("psycopg")

# The heartbeat of such a replica renews its row only for a new lease, as if its process were stopped.
SILENT = {"renew_seconds": 1e9, "lease_seconds": 0.5}


@pytest.fixture
def agent(request):
    return f"agent of {request.node.name}"


@pytest.fixture
def admin(postgres_module):
    with postgres_module.server.admin(DATABASE) as admin:
        yield admin


@pytest.fixture
def new_replica(postgres_module, agent):
    """A function that opens a store of the agent as another replica does; `databases` are those of its stores."""
    stores = []

    def new(keeps_lease=False, name="", **options):
        url = postgres_module.server.url + (f"&application_name={name}" if name else "")
        database = postgres_module.database(url, **options)
        store = postgres_module.new_store(agent, database, keeps_lease=keeps_lease)
        store.open()
        stores.append(store)
        new.databases[store] = database
        return store

    new.databases = {}
    yield new
    for store in stores:
        store.close()


def write(store, path):
    until = time.monotonic() + 20
    with store.exclusive(lambda: time.monotonic() > until):
        return store.writer().write([document(path, ("heron", ""))])


def paths(store):
    with store.read() as reader:
        return sorted(path for _, path in reader.files())


def beats(database):
    """Return the number of statements of the heartbeat."""
    family = HistogramMetricFamily("statements", "", labels=["operation"])
    database.metrics().statements["heartbeat"].add_to(family, ["heartbeat"])
    return next(sample.value for sample in family.samples if sample.name == "statements_count")


def test_replicas_change_an_index_in_turn(new_replica):
    stores = [new_replica() for _ in range(3)]

    def write_some(number):
        for turn in range(10):
            write(stores[number], f"{number}-{turn}.md")

    threads = [on_thread("write", lambda number=number: write_some(number)) for number in range(3)]
    for thread in threads:
        thread.result(timeout=60)
    assert all(len(paths(store)) == 30 for store in stores)


def test_a_replica_waits_for_the_lease_until_it_should_stop(new_replica):
    first, second = new_replica(), new_replica()
    asked = threading.Event()

    def should_stop():
        asked.set()
        return False

    with first.exclusive(never):
        with pytest.raises(IndexBusy, match="another memoryd is indexing") as error:
            second.exclusive(lambda: True).__enter__()
        assert error.value.retry_after_seconds == 1.0

        def wait():
            with second.exclusive(should_stop):
                return paths(second)

        waiting = on_thread("wait", wait)
        assert asked.wait(10)
        first.writer().write([document("a.md", ("heron", ""))])
        assert not waiting.done()
    assert waiting.result(timeout=10) == ["a.md"]


def test_blocks_are_nested_and_the_lease_ends_with_the_outermost(new_replica):
    first, second = new_replica(), new_replica()
    with first.exclusive(never):
        with first.exclusive(never):
            pass
        assert first.on_sound_index(lambda _: write(first, "a.md"), never)
        with pytest.raises(IndexBusy):
            second.exclusive(lambda: True).__enter__()
    write(second, "b.md")
    assert paths(first) == ["a.md", "b.md"]


def test_a_change_without_a_lease_is_an_error_of_the_program(new_replica):
    store = new_replica()
    for call in (lambda: store.writer().write([document("a.md", ("heron", ""))]), store.rebuild().__enter__):
        with pytest.raises(RuntimeError, match="exclusive"):
            call()
    assert paths(store) == []


def test_what_another_replica_has_changed_is_loaded_before_the_block(new_replica):
    first, second = new_replica(), new_replica()
    reloads = []
    second.health.watch(lambda: reloads.append(second.has_completed_sync))
    with second.exclusive(never):
        assert not reloads
    first.on_sound_index(lambda _: first.writer().record_sync(7), never)
    assert not second.has_completed_sync
    with second.exclusive(never):
        assert reloads == [True]
        assert second.has_completed_sync
    with second.exclusive(never):
        pass
    assert len(reloads) == 1


def test_a_reload_is_reported_only_if_another_replica_has_changed_the_index(new_replica):
    first, second = new_replica(), new_replica()
    reports = []
    second.health.watch(lambda: reports.append(paths(second)))
    second.reload()
    with second.exclusive(never):
        second.writer().write([document("a.md", ("heron", ""))])
        # A run knows the state of what it writes.
        second.reload()
    second.reload()
    assert reports == []
    write(first, "b.md")
    second.reload()
    assert reports == [["a.md", "b.md"]]
    second.reload()
    assert len(reports) == 1


def test_a_lease_of_an_expired_replica_is_taken_over_and_its_writes_are_refused(new_replica):
    first = new_replica(**SILENT)
    block = first.exclusive(never)
    block.__enter__()
    first.writer().write([document("a.md", ("heron", ""))])
    second = new_replica()
    began = time.monotonic()
    write(second, "b.md")
    assert time.monotonic() - began < 5
    with pytest.raises(IndexBusy, match="taken over") as error:
        first.writer().write([document("c.md", ("heron", ""))])
    assert error.value.retry_after_seconds == 1.0
    block.__exit__(None, None, None)
    assert paths(first) == ["a.md", "b.md"]
    write(first, "d.md")
    assert paths(second) == ["a.md", "b.md", "d.md"]


def test_a_replica_that_expired_keeps_the_leases_that_were_not_taken(new_replica, admin):
    first = new_replica(**SILENT)
    with first.exclusive(never):
        query = """SELECT expires_at < clock_timestamp() FROM memoryd.leases JOIN memoryd.replicas USING (replica_id)
            WHERE agent_id LIKE %s"""
        wait_until(lambda: admin.execute(query, ("agent of test_a_replica_that_expired%",)).fetchone() == (True,))
        first.writer().write([document("a.md", ("heron", ""))])
    assert paths(first) == ["a.md"]


def test_a_process_that_was_stopped_cannot_write_when_it_continues(postgres_module, new_replica, agent):
    command = [sys.executable, "-m", "unit.postgres.lease_child", postgres_module.server.url, agent]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TESTS) as child:
        try:
            assert child.stdout.readline() == "holds\n"
            child.send_signal(signal.SIGSTOP)
            store = new_replica()
            began = time.monotonic()
            with store.exclusive(never):
                assert time.monotonic() - began < 5
                store.writer().write([document("own.md", ("heron", ""))])
                child.send_signal(signal.SIGCONT)
                child.stdin.write("write\n")
                child.stdin.flush()
                assert "INDEX_BUSY another memoryd has taken over" in child.stdout.readline()
                store.writer().write([document("own.md", ("kestrel", ""))])
            # Also after it has renewed its row, and the lease is free.
            child.stdin.write("write\n")
            child.stdin.flush()
            assert "INDEX_BUSY" in child.stdout.readline()
            child.stdin.close()
            assert child.wait(timeout=20) == 0
        finally:
            child.kill()
    assert paths(store) == ["child.md", "own.md"]


def test_a_transaction_of_an_expired_replica_that_keeps_the_row_locked_is_ended(postgres_module, new_replica, agent):
    first = new_replica(**SILENT)
    database = postgres_module.database(**SILENT)
    database.attach()
    database.leases.acquire(agent, never)
    second = new_replica()

    def hold_row(locked, over):
        with database.write(agent) as connection:
            connection.execute("SELECT 1 FROM agents WHERE agent_id = %s FOR UPDATE", (agent,))
            locked.set()
            over.wait(30)

    locked, over = threading.Event(), threading.Event()
    holding = on_thread("hold", lambda: hold_row(locked, over))
    assert locked.wait(10)
    began = time.monotonic()
    write(second, "b.md")
    assert time.monotonic() - began < 4
    over.set()
    with pytest.raises(IndexUnavailable):
        holding.result(timeout=10)
    database.detach()
    assert paths(first) == ["b.md"]


def test_a_rebuild_that_lost_its_lease_leaves_no_rows(new_replica, admin, agent):
    first = new_replica(**SILENT)
    block = first.exclusive(never)
    block.__enter__()
    first.writer().write([document("a.md", ("heron", ""))])
    second = new_replica()

    def rebuild():
        with first.rebuild() as beside:
            beside.write([document("b.md", ("heron", ""))])
            write(second, "c.md")
            beside.write([document("d.md", ("heron", ""))])

    with pytest.raises(IndexBusy, match="taken over"):
        rebuild()
    block.__exit__(None, None, None)
    for table in ("generations", "files", "chunks", "postings"):
        query = f"SELECT DISTINCT generation FROM memoryd.{table} WHERE agent_id = %s"
        assert admin.execute(query, (agent,)).fetchall() == [(1,)]
    assert paths(second) == ["a.md", "c.md"]


def test_a_kept_lease_excludes_another_replica_at_once_until_it_is_closed(postgres_module, new_replica, agent):
    first = new_replica(keeps_lease=True, renew_seconds=0.2)
    second = postgres_module.new_store(agent, postgres_module.database(), keeps_lease=True)
    for call in (second.reserve, second.open):
        began = time.monotonic()
        with pytest.raises(IndexBusy, match="another memoryd holds"):
            call()
        assert time.monotonic() - began < 3
    with pytest.raises(IndexBusy, match="another memoryd holds"):
        postgres_module.new_store(agent, new_replica.databases[first], keeps_lease=True).open()
    write(first, "a.md")
    first.close()
    second.open()
    assert paths(second) == ["a.md"]
    second.close()


def test_the_kept_lease_of_a_killed_replica_is_waited_for(new_replica):
    new_replica(keeps_lease=True, **SILENT)
    began = time.monotonic()
    second = new_replica(keeps_lease=True)
    assert time.monotonic() - began < 3
    write(second, "a.md")


def test_a_kept_lease_that_was_lost_is_acquired_again_when_it_is_free(new_replica):
    first = new_replica(keeps_lease=True, **SILENT)
    second = new_replica()
    write(second, "a.md")
    with pytest.raises(IndexBusy, match="taken over"):
        write(first, "b.md")
    write(first, "b.md")
    assert paths(second) == ["a.md", "b.md"]


def test_a_release_without_the_server_is_done_when_it_is_back(postgres_module):
    with running_server() as server:
        stores = [
            postgres_module.new_store("main", postgres_module.database(server.url), keeps_lease=False) for _ in "12"
        ]
        for store in stores:
            store.open()
        with suppress(IndexUnavailable), stores[0].exclusive(never):
            server.stop()
            stores[0].writer().write([document("a.md", ("heron", ""))])
        server.start()
        write(stores[1], "b.md")
        assert paths(stores[1]) == ["b.md"]
        for store in stores:
            store.close()


def test_failed_acquisitions_leave_one_statement_for_the_time_after_an_outage(postgres_module):
    with running_server() as server:
        database = postgres_module.database(server.url)
        database.attach()
        database.prepare()
        database.leases.acquire("first", never)
        server.stop()
        for number in range(200):
            with pytest.raises(IndexUnavailable):
                database.leases.acquire(f"agent {number % 100}", never)
        database.leases.release("first")
        server.start()
        before = beats(database)
        with server.admin(DATABASE) as admin:
            wait_until(lambda: not admin.execute("SELECT FROM memoryd.leases").fetchall(), seconds=20)
        database.leases.acquire("first", never)
        assert beats(database) - before < 20
        database.leases.release("first")
        database.detach()


def test_a_release_on_a_lost_connection_is_done_after_the_next_beat(new_replica, admin):
    first, second = new_replica(name="interrupted"), new_replica()
    with first.exclusive(never):
        lost = admin.execute(
            """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                WHERE starts_with(application_name, 'interrupted ') AND query NOT LIKE '%renewed%'"""
        )
        assert (True,) in lost.fetchall()
    write(second, "b.md")
    assert paths(first) == ["b.md"]


def test_a_row_that_a_failover_brought_back_is_deleted_after_the_next_connect(
    postgres_module, new_replica, admin, agent
):
    first = new_replica(name="brought-back")
    write(first, "a.md")
    replica_id = new_replica.databases[first].replica.replica_id
    admin.execute("INSERT INTO memoryd.leases VALUES(%s, %s)", (agent, replica_id))
    second = new_replica()
    with pytest.raises(IndexBusy):
        second.exclusive(lambda: True).__enter__()
    admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE starts_with(application_name, 'brought-')"
    )
    write(second, "b.md")
    assert paths(second) == ["a.md", "b.md"]


def test_abandoned_leases_are_reported(postgres_module, new_replica, agent):
    new_replica(keeps_lease=True, **SILENT)
    database = postgres_module.database(renew_seconds=0.1)
    reported, found = set(), threading.Event()

    def on_abandoned(agent_id):
        reported.add(agent_id)
        if agent in reported:
            found.set()

    database.replica.on_abandoned(on_abandoned)
    database.attach()
    database.replica.start()
    assert found.wait(10)
    database.detach()


def test_the_age_of_a_beat_is_measured_since_it_was_sent(postgres_module, admin):
    database = postgres_module.database()
    database.attach()
    began = time.monotonic()
    database.replica.require_beat()
    query = "SELECT beat FROM memoryd.replicas WHERE replica_id = %s"
    (beat,) = admin.execute(query, (database.replica.replica_id,)).fetchone()
    age = database.replica.beat_age(beat)
    assert 0 <= age <= time.monotonic() - began
    assert database.replica.beat_age(beat + 100) is None
    assert database.replica.beat_age(0) is None
    database.detach()
    assert admin.execute(query, (database.replica.replica_id,)).fetchone() is None


def test_replicas_that_expired_an_hour_ago_are_removed_with_their_leases(postgres_module, admin, agent):
    database = postgres_module.database(renew_seconds=0.01)
    database.prepare()
    for replica, age in ((f"old {agent}", "2 hours"), (f"new {agent}", "10 minutes")):
        admin.execute("INSERT INTO memoryd.replicas VALUES(%s, 1, now() - %s::interval)", (replica, age))
        admin.execute("INSERT INTO memoryd.leases VALUES(%s, %s)", (replica, replica))
    database.attach()
    database.replica.start()
    for table in ("leases", "replicas"):
        query = f"SELECT replica_id FROM memoryd.{table} WHERE replica_id LIKE %s"
        wait_until(lambda query=query: admin.execute(query, (f"%{agent}",)).fetchall() == [(f"new {agent}",)])
    database.detach()


def test_twenty_thousand_leases_are_renewed_by_one_row(postgres_module, admin, agent):
    database, other = postgres_module.database(renew_seconds=0.1), postgres_module.database()
    for each in (database, other):
        each.attach()
        each.prepare()
    database.leases.acquire(agent, never)
    admin.execute(
        "INSERT INTO memoryd.leases SELECT 'many ' || number, %s FROM generate_series(1, 20000) AS number",
        (database.replica.replica_id,),
    )
    query = "SELECT beat, expires_at > clock_timestamp() FROM memoryd.replicas WHERE replica_id = %s"
    (before, _) = admin.execute(query, (database.replica.replica_id,)).fetchone()
    wait_until(lambda: admin.execute(query, (database.replica.replica_id,)).fetchone()[0] >= before + 10, seconds=3)
    with pytest.raises(IndexBusy):
        other.leases.acquire("many 20000", lambda: True)
    began = time.monotonic()
    for number in range(100):
        other.leases.acquire(f"{agent} {number}", never)
        other.leases.release(f"{agent} {number}")
    assert time.monotonic() - began < 5
    # The end of the replica ends all of its leases.
    database.detach()
    other.leases.acquire("many 20000", lambda: True)
    other.leases.release("many 20000")
    other.detach()


def test_sessions_have_the_name_of_the_url_and_the_id_of_the_replica(postgres_module, new_replica, admin):
    names = ("short", "x" * 80, "n%C3%B6")
    stores = [new_replica(name=name) for name in names]
    ids = [new_replica.databases[store].replica.replica_id for store in stores]
    query = "SELECT DISTINCT application_name FROM pg_stat_activity WHERE right(application_name, 16) = %s"
    found = [admin.execute(query, (each,)).fetchall() for each in ids]
    assert found == [[(f"short {ids[0]}",)], [(f"{'x' * 46} {ids[1]}",)], [(f"n? {ids[2]}",)]]
