"""Connections and transactions: unused ones are closed, and errors that were ignored are not."""

import resource
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from memoryd_server.errors import DeadlineTooShort, IndexBusy, IndexTooNew, IndexUnavailable
from memoryd_server.threads import on_thread
from postgres_server import DATABASE
from unit.store.contract import document, never
from waiting import wait_until

pytestmark = pytest.mark.postgres

psycopg = pytest.importorskip("psycopg")
schema = pytest.importorskip("memoryd_server.postgres.schema")


@pytest.fixture
def agent(request):
    return f"agent of {request.node.name}"


@pytest.fixture
def admin(postgres_module):
    with postgres_module.server.admin(DATABASE) as admin:
        yield admin


def sessions(admin, name):
    query = "SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, %s)"
    return admin.execute(query, (f"{name} ",)).fetchone()[0]


def test_unused_connections_are_closed_without_a_further_use(postgres_module, admin, agent):
    url = postgres_module.server.url + "&application_name=burst"
    database = postgres_module.database(url, idle_seconds=0.5)
    store = postgres_module.new_store(agent, database)
    store.open()
    with store.read(), store.read(), store.read():
        pass
    assert sessions(admin, "burst") == 4
    # The session with the heartbeat stays.
    wait_until(lambda: sessions(admin, "burst") == 1)
    found = database.metrics()
    assert (found.in_use, found.idle) == (0, 0)
    with store.read(), store.read():
        pass
    assert sessions(admin, "burst") == 3
    wait_until(lambda: sessions(admin, "burst") == 1)
    store.close()
    wait_until(lambda: sessions(admin, "burst") == 0)


def test_a_transaction_in_which_an_error_was_ignored_is_not_reported_as_committed(postgres_module, agent):
    store = postgres_module.new_store(agent)
    store.open()
    database = postgres_module.database()

    def write():
        with database.write(agent) as connection:
            connection.execute("UPDATE generations SET failover_record = 'written' WHERE agent_id = %s", (agent,))
            with suppress(psycopg.Error):
                connection.execute("SELECT 1 / 0")

    with pytest.raises(IndexUnavailable, match="nothing is committed"):
        write()
    with database.read(agent) as connection:
        rows = connection.execute("SELECT failover_record FROM generations WHERE agent_id = %s", (agent,))
        assert rows.fetchall() == [("",)]
    store.close()


def test_a_write_is_refused_after_another_daemon_has_upgraded_the_tables(postgres_module, request):
    own = postgres_module.server.create_database(f"d{abs(hash(request.node.name))}")
    database = postgres_module.database(own)
    store = postgres_module.new_store("main", database)
    store.open()
    writer = store.writer()
    writer.write([document("a.md", ("heron", ""))])
    cache = postgres_module.child.PostgresEmbeddingCache(database, "main", 10, lambda: 1)
    with psycopg.connect(own, autocommit=True) as connection:
        connection.execute("INSERT INTO memoryd.schema_migrations(version) VALUES(1000)")
    for call in (lambda: writer.write([document("b.md", ("heron", ""))]), cache.clear_refusals):
        with pytest.raises(IndexTooNew, match="1000"):
            call()
    with psycopg.connect(own, autocommit=True) as connection:
        connection.execute("DELETE FROM memoryd.schema_migrations WHERE version = 1000")
    writer.write([document("b.md", ("heron", ""))])
    cache.close()
    store.close()


def test_the_last_user_ends_the_leases_and_the_heartbeat(postgres_module, admin, agent):
    database = postgres_module.database(postgres_module.server.url + "&application_name=leaving")
    other = postgres_module.database()
    other.attach()
    database.attach()
    database.leases.acquire(agent, never)
    with pytest.raises(IndexBusy):
        other.leases.acquire(agent, lambda: True)
    database.detach()
    wait_until(lambda: sessions(admin, "leaving") == 0)
    other.leases.acquire(agent, lambda: True)
    other.leases.release(agent)
    other.detach()


def test_users_that_come_and_go_at_the_same_time_get_connections_and_leave_none(postgres_module, admin, agent):
    database = postgres_module.database(postgres_module.server.url + "&application_name=come-and-go", max_connections=3)
    failures = []

    def come_and_go(number):
        try:
            for _ in range(20):
                database.attach()
                database.leases.acquire(f"{agent} {number}", never)
                with database.read(agent) as connection:
                    connection.execute("SELECT 1")
                database.leases.release(f"{agent} {number}")
                database.detach()
        except BaseException as error:  # noqa: BLE001 -- reported below
            failures.append(error)

    threads = [threading.Thread(target=come_and_go, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    wait_until(lambda: sessions(admin, "come-and-go") == 0)
    assert database.metrics().in_use == 0


def test_a_call_does_not_wait_longer_than_its_deadline_for_a_slow_connection(postgres_module, agent):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        database = postgres_module.database(f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/d", connect_seconds=5)
        started = time.monotonic()
        with pytest.raises(DeadlineTooShort, match="PostgreSQL server"), database.read(agent, started + 0.3):
            pass
        assert time.monotonic() - started < 2


def test_writes_of_indexes_leave_connections_to_other_calls(postgres_module, admin, agent):
    database = postgres_module.database(max_connections=2)
    stores = [postgres_module.new_store(f"{agent} {number}", database) for number in range(2)]
    for store in stores:
        store.open()
    # Both writes wait until the transaction ends.
    with admin.transaction():
        admin.execute("SELECT 1 FROM memoryd.agents WHERE starts_with(agent_id, %s) FOR UPDATE", (agent,))
        writes = [
            on_thread("write", partial(store.writer().write, [document("a.md", ("heron", ""))])) for store in stores
        ]
        with pytest.raises(AssertionError, match="still false"):
            wait_until(lambda: database.metrics().in_use == 2, seconds=0.5)
        with stores[0].read() as reader:
            assert reader.files() == {}
    assert all(write.result(timeout=30) > 0 for write in writes)
    for store in stores:
        store.close()


def test_too_many_open_files_are_an_error_of_the_driver(postgres_module):
    """Any other exception would end the heartbeat for good."""
    database = postgres_module.database()
    database.prepare()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    refused = 0
    try:
        # One of these limits lets the driver open a socket, but not the file with which it waits.
        for most in range(3, max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 4):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            try:
                database.connect().close()
            except psycopg.OperationalError:
                refused += 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused
