"""A server that is lost, restarted or read-only; missing rows and tables; schemas of other versions."""

import socket
import threading
import time

import pytest

from memoryd_server.errors import (
    DeadlineTooShort,
    HistoryUnavailable,
    IndexBusy,
    IndexDamaged,
    IndexReadOnly,
    IndexTooNew,
    IndexUnavailable,
)
from memoryd_server.store.filters import ALL_CHUNKS
from memoryd_server.text.terms import QueryTerm
from postgres_server import DATABASE, running_server
from unit.store.contract import document, never

pytestmark = pytest.mark.postgres

psycopg = pytest.importorskip("psycopg")
schema = pytest.importorskip("memoryd_server.postgres.schema")

HERON = [QueryTerm("heron")]


def heron(store):
    with store.read() as reader:
        return len(reader.keyword_hits(HERON, ALL_CHUNKS, 100))


@pytest.fixture
def store(postgres_module, request):
    store = postgres_module.new_store(f"agent of {request.node.name}")
    store.open()
    store.writer().write([document("a.md", ("heron", ""))])
    yield store
    store.close()


@pytest.fixture
def agent(request):
    return f"agent of {request.node.name}"


@pytest.fixture
def own_database(postgres_module, request):
    """The URL of a database that the test may damage."""
    name = f"d{abs(hash(request.node.name))}"
    return postgres_module.server.create_database(name)


def test_a_lost_server_is_reported_with_a_time_to_retry_and_used_again_when_it_is_back(postgres_module):
    with running_server(durable=True) as server:
        url = server.url.replace("postgresql://memoryd@", "postgresql://memoryd:the-password@")
        database = postgres_module.database(url)
        store = postgres_module.new_store("main", database)
        store.open()
        store.writer().write([document("a.md", ("heron", ""))])
        server.stop()
        for call in (lambda: heron(store), lambda: store.writer().write([document("b.md", ("heron", ""))])):
            started = time.monotonic()
            with pytest.raises(IndexUnavailable, match="PostgreSQL server") as error:
                call()
            assert type(error.value) is IndexUnavailable
            assert error.value.retry_after_seconds
            assert "the-password" not in str(error.value)
            assert time.monotonic() - started < 3
        history = postgres_module.child.PostgresWriteHistory(
            database, "main", max_age_seconds=1e9, max_bytes=1, now_ms=lambda: 1
        )
        with pytest.raises(HistoryUnavailable, match="PostgreSQL server"):
            history.unfinished()
        assert store.health.damage is None
        server.start()
        assert heron(store) == 1
        store.writer().write([document("b.md", ("heron", ""))])
        assert heron(store) == 2
        other = postgres_module.new_store("main", postgres_module.database(url))
        with pytest.raises(IndexBusy, match="another memoryd"):
            other.open()
        history.close()
        store.close()
        other.open()
        assert heron(other) == 2
        other.close()


def test_an_absent_server_is_reported_at_once_and_reserve_leaves_it_to_open(postgres_module, tmp_path):
    store = postgres_module.new_store("main", postgres_module.database(f"postgresql://u:pw@/d?host={tmp_path}"))
    store.reserve()
    with pytest.raises(IndexUnavailable, match="PostgreSQL server") as error:
        store.open()
    assert "pw" not in str(error.value)
    assert store.location == f"postgresql://{tmp_path}/d"
    store.close()


def test_a_server_that_does_not_answer_is_waited_for_once(postgres_module):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        database = postgres_module.database(f"postgresql://u@127.0.0.1:{port}/d", connect_seconds=2)
        stores = [postgres_module.new_store(f"agent {number}", database) for number in range(20)]
        started = time.monotonic()
        for store in stores:
            store.reserve()
        assert 1 < time.monotonic() - started < 10
        with pytest.raises(IndexUnavailable, match="PostgreSQL server"):
            stores[0].open()
        for store in stores:
            store.close()


def test_a_url_that_is_none_is_reported_without_its_text(postgres_module):
    store = postgres_module.new_store("main", postgres_module.database("server of u with secret"))
    with pytest.raises(IndexUnavailable, match=r"memoryd\.store\.url") as error:
        store.open()
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("password", ["p@s3cr3t", "p/s3cr3t"])
def test_a_password_that_is_not_encoded_is_not_shown_as_a_host(postgres_module, password):
    store = postgres_module.new_store("main", postgres_module.database(f"postgresql://u:{password}@localhost/d"))
    for call in (store.open, lambda: store.location):
        with pytest.raises(IndexUnavailable, match="%40") as error:
            call()
        assert "s3cr3t" not in str(error.value)


def test_the_password_file_is_read_for_each_connection(postgres_module, tmp_path):
    password = tmp_path / "password"
    database = postgres_module.database(password_file=password)
    store = postgres_module.new_store("passwords", database)
    with pytest.raises(IndexUnavailable, match="passwordFile"):
        store.open()
    password.write_text("secret\n")
    password.chmod(0o644)
    with pytest.raises(IndexUnavailable, match="passwordFile"):
        store.open()
    password.chmod(0o600)
    store.open()
    assert heron(store) == 0
    store.close()


def test_a_statement_ends_at_the_deadline(postgres_module, store):
    with postgres_module.server.admin(DATABASE) as admin, admin.transaction():
        admin.execute("LOCK TABLE memoryd.chunks IN ACCESS EXCLUSIVE MODE")
        started = time.monotonic()
        with pytest.raises(DeadlineTooShort), store.read(started + 0.3) as reader:
            reader.hashes_containing("heron")
        assert 0.2 < time.monotonic() - started < 3
    assert heron(store) == 1


def test_a_later_statement_ends_at_the_deadline_too(postgres_module, store):
    started = time.monotonic()

    def search():
        with store.read(started + 2) as reader:
            # As if the first statements had taken most of the time.
            threading.Event().wait(1.5)
            reader.hashes_containing("heron")

    with postgres_module.server.admin(DATABASE) as admin, admin.transaction():
        admin.execute("LOCK TABLE memoryd.chunks IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(DeadlineTooShort):
            search()
    assert time.monotonic() - started < 3


def test_a_search_that_finds_no_free_connection_is_told_so(postgres_module, agent):
    database = postgres_module.database(max_connections=2)
    store = postgres_module.new_store(agent, database)
    store.open()
    with (
        store.read(),
        store.read(),
        pytest.raises(IndexBusy, match="2 connections"),
        store.read(time.monotonic() + 0.1),
    ):
        pass
    assert heron(store) == 0
    store.close()


def test_a_write_gets_its_turn_among_searches(postgres_module, agent):
    store = postgres_module.new_store(agent, postgres_module.database(max_connections=2))
    store.open()
    stop, found = threading.Event(), []

    def search():
        while not stop.is_set():
            found.append(heron(store))

    threads = [threading.Thread(target=search) for _ in range(5)]
    for thread in threads:
        thread.start()
    writer = store.writer()
    try:
        for number in range(20):
            writer.write([document(f"{number}.md", ("heron", ""))])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert heron(store) == 20
    assert found
    store.close()


def test_connections_are_closed_with_the_last_store(postgres_module, agent):
    database = postgres_module.database(postgres_module.server.url + "&application_name=counted")
    stores = [postgres_module.new_store(f"{agent} {number}", database) for number in range(2)]
    for store in stores:
        store.open()
    stores[0].close()
    assert heron(stores[1]) == 0
    stores[1].close()
    with postgres_module.server.admin() as admin:
        query = "SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, 'counted ')"
        deadline = time.monotonic() + 10
        while admin.execute(query).fetchone() != (0,):
            assert time.monotonic() < deadline


def test_missing_rows_are_damage_and_are_created_again_with_a_higher_revision(postgres_module, store, agent):
    with store.read() as reader:
        before = reader.counts().revision
    with postgres_module.server.admin(DATABASE) as admin:
        for table in ("agents", "generations", *schema.INDEX_TABLES):
            admin.execute(f"DELETE FROM memoryd.{table} WHERE agent_id = %s", (agent,))
    with pytest.raises(IndexDamaged):
        heron(store)
    assert store.health.damage is not None
    assert store.repair()
    assert (heron(store), store.health.damage) == (0, None)
    assert "rebuilt" in store.degradations()[0].reason
    with store.read() as reader:
        assert reader.revision > before


def test_a_run_is_repeated_after_the_tables_were_dropped(postgres_module, own_database):
    store = postgres_module.new_store("main", postgres_module.database(own_database))
    store.open()
    runs = []

    def run(_):
        if not runs:
            with psycopg.connect(own_database, autocommit=True) as connection:
                connection.execute("DROP SCHEMA memoryd CASCADE")
        runs.append(1)
        store.writer().write([document("a.md", ("heron", ""))])

    store.on_sound_index(run, never)
    assert (len(runs), heron(store)) == (2, 1)
    assert store.health.past_incident is not None
    store.close()


def test_the_rows_of_a_rebuild_that_was_killed_are_removed(postgres_module, agent):
    first = postgres_module.new_store(agent, postgres_module.database())
    first.open()
    first.writer().write([document("a.md", ("heron", ""))])
    unfinished = first.rebuild()
    unfinished.__enter__().write([document("b.md", ("heron", ""))])
    first.close()
    second = postgres_module.new_store(agent, postgres_module.database())
    second.open()
    query = "SELECT DISTINCT generation FROM memoryd.chunks WHERE agent_id = %s"
    with postgres_module.server.admin(DATABASE) as admin:
        assert admin.execute(query, (agent,)).fetchall() == [(1,)]
    assert heron(second) == 1
    second.close()


def test_a_newer_schema_is_refused(postgres_module, own_database):
    store = postgres_module.new_store("main", postgres_module.database(own_database))
    store.open()
    store.close()
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute("INSERT INTO memoryd.schema_migrations(version) VALUES(1000)")
    with pytest.raises(IndexTooNew, match="1000"):
        postgres_module.new_store("main", postgres_module.database(own_database)).open()


def test_a_role_that_is_exempt_from_the_policies_is_refused(postgres_module):
    server = postgres_module.server
    store = postgres_module.new_store("main", postgres_module.database(server.url_of(DATABASE, "postgres")))
    with pytest.raises(IndexUnavailable, match="row-level security"):
        store.open()


def test_a_database_without_pgvector_is_refused_with_what_to_do(postgres_module):
    server = postgres_module.server
    with server.admin() as admin:
        admin.execute("CREATE DATABASE no_vectors OWNER memoryd")
    store = postgres_module.new_store("main", postgres_module.database(server.url_of("no_vectors")))
    with pytest.raises(IndexUnavailable, match="CREATE EXTENSION vector"):
        store.open()


def test_a_server_that_accepts_no_writes_is_reported(postgres_module, own_database):
    url = f"{own_database}&target_session_attrs=any&options=-c%20default_transaction_read_only%3Don"
    store = postgres_module.new_store("main", postgres_module.database(url))
    with pytest.raises(IndexReadOnly, match="accepts no writes"):
        store.open()


def test_processes_that_start_together_create_the_tables_once(postgres_module, own_database):
    stores = [postgres_module.new_store(f"agent {n}", postgres_module.database(own_database)) for n in range(4)]
    threads = [threading.Thread(target=store.open) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [heron(store) for store in stores] == [0, 0, 0, 0]
    for store in stores:
        store.close()
