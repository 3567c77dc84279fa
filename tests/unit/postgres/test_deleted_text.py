"""Deleted text is gone from the tables when VACUUM has run after the deletion, for all agents together."""

import pytest

from unit.store.contract import document, never
from waiting import wait_until

pytestmark = pytest.mark.postgres

psycopg = pytest.importorskip("psycopg")

RUNS = "SELECT vacuum_count FROM pg_stat_user_tables WHERE schemaname = 'memoryd' AND relname = 'chunks'"


@pytest.fixture
def server(postgres_module):
    return postgres_module.server


@pytest.fixture
def own_database(server, request):
    """The URL of a database in which no other test runs VACUUM."""
    return server.create_database(f"d{abs(hash(request.node.name))}")


def with_deleted_text(postgres_module, agent, database):
    store = postgres_module.new_store(agent, database)
    store.open()
    writer = store.writer()
    writer.write([document("a.md", ("heron", ""))])
    writer.write([], writer.files().values())
    assert store.has_deleted_text
    return store


def runs(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        return connection.execute(RUNS).fetchone()[0]


def test_a_run_of_vacuum_serves_all_agents_and_the_next_one_begins_minutes_later(postgres_module, own_database):
    database = postgres_module.database(own_database)
    first, second = (with_deleted_text(postgres_module, agent, database) for agent in ("first", "second"))
    assert not first.purge(never)
    wait_until(lambda: first.purge(never))
    assert not first.has_deleted_text
    assert runs(own_database) == 1
    # The deletion was before the run, but nothing has requested a run for it.
    assert not second.purge(never)
    third = with_deleted_text(postgres_module, "third", database)
    for store in (first, second, third):
        store.close()
    assert runs(own_database) == 1


def test_text_that_is_deleted_after_the_request_needs_another_run(postgres_module, own_database):
    database = postgres_module.database(own_database, vacuum_seconds=0.1)
    store = with_deleted_text(postgres_module, "main", database)
    assert not store.purge(never)
    wait_until(lambda: runs(own_database) == 1)
    writer = store.writer()
    writer.write([document("b.md", ("robin", ""))])
    writer.write([], writer.files().values())
    assert not store.purge(never)
    wait_until(lambda: store.purge(never))
    assert runs(own_database) == 2
    store.close()


def test_a_run_waits_for_a_snapshot_that_can_still_read_the_text(postgres_module, own_database):
    database = postgres_module.database(own_database, vacuum_seconds=0.1)
    store = with_deleted_text(postgres_module, "main", database)
    with psycopg.connect(own_database) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1 FROM memoryd.agents")
        writer = store.writer()
        writer.write([document("b.md", ("robin", ""))])
        writer.write([], writer.files().values())
        assert not store.purge(never)
        waits = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT EXISTS%backend_xmin%'"
        with psycopg.connect(own_database, autocommit=True) as other:
            wait_until(lambda: other.execute(waits).fetchone()[0] > 0)
        assert runs(own_database) == 0
        assert not store.purge(never)
    wait_until(lambda: store.purge(never))
    assert runs(own_database) == 1
    store.close()


def test_a_recorded_deletion_is_text_that_is_still_there(postgres_module, own_database):
    database = postgres_module.database(own_database)
    store = postgres_module.new_store("main", database)
    store.open()
    assert not store.has_deleted_text
    with database.write("main") as connection:
        connection.deletes_text = True
    assert store.has_deleted_text
    other = postgres_module.new_store("other", database)
    other.open()
    assert not other.has_deleted_text
    wait_until(lambda: not store.has_deleted_text)
    store.close()
    other.close()


def test_tables_of_another_role_are_not_reported_as_free_of_deleted_text(postgres_module, server, own_database):
    """The server skips them with a warning, unless the role owns the database or may maintain the table."""
    name = own_database.partition("@/")[2].partition("?")[0]
    database = postgres_module.database(own_database, vacuum_seconds=0.1)
    store = with_deleted_text(postgres_module, "main", database)
    with server.admin(name) as admin:
        admin.execute(f"ALTER DATABASE {name} OWNER TO postgres")
        admin.execute("ALTER TABLE memoryd.names OWNER TO postgres")
        admin.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON memoryd.names TO memoryd")
        assert not store.purge(never)
        wait_until(lambda: runs(own_database) > 1)
        assert not store.purge(never)
        admin.execute("ALTER TABLE memoryd.names OWNER TO memoryd")
    wait_until(lambda: store.purge(never))
    store.close()


def test_closing_does_not_wait_for_a_run(postgres_module, own_database):
    database = postgres_module.database(own_database, vacuum_seconds=0.1)
    store = with_deleted_text(postgres_module, "main", database)
    with psycopg.connect(own_database) as blocking:
        blocking.execute("LOCK TABLE memoryd.chunks IN SHARE UPDATE EXCLUSIVE MODE")
        assert not store.purge(never)
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ShareUpdateExclusiveLock'"
        with psycopg.connect(own_database, autocommit=True) as other:
            wait_until(lambda: other.execute(waits).fetchone()[0] > 0)
            store.close()
            wait_until(lambda: other.execute(waits).fetchone()[0] == 0)
