"""Rows of an agent are visible to that agent alone, whatever its id and its texts are."""

import importlib
from dataclasses import replace

import pytest

from memoryd_server.model import Source
from memoryd_server.store.filters import ALL_CHUNKS, ChunkFilter, FileFilter, FrontMatterCondition
from memoryd_server.store.history import WriteKind, WriteRecord
from memoryd_server.store.identity import VectorIdentity
from memoryd_server.store.rows import BatchJob, CacheKey
from memoryd_server.text.terms import QueryTerm
from postgres_server import DATABASE, ROLE
from unit.store.contract import chunk_ids, document, never, vectors

pytestmark = pytest.mark.postgres

psycopg = pytest.importorskip("psycopg")
sql = pytest.importorskip("psycopg.sql")
schema = pytest.importorskip("memoryd_server.postgres.schema")
REPLICA_TABLES = pytest.importorskip("memoryd_server.postgres.replica_tables").REPLICA_TABLES

HOSTILE = [
    "a'; DROP TABLE memoryd.chunks; --",
    "%s %(agent)s %(generation)s {among} {}",
    "\"quoted\" \\ $1 $$ E'\\x00'",
    "ünï-\u202e-\U0001f600",
    "*",
]


def fill(postgres, agent, word="heron"):
    """Store at least one row of the agent in every table; return the store."""
    store = postgres.new_store(agent)
    store.open()
    writer = store.writer()
    writer.write([replace(document("memory/a.md", (f"{word} a_name", "")), metadata={"tags": [word]})])
    writer.begin_vectors(VectorIdentity("p", "m", "", 16, "", ""))
    writer.put_vectors({number: vector.tobytes() for number, vector in vectors(chunk_ids(store)).items()})
    database, key = postgres.database(), CacheKey("p", "m", word)
    cache = postgres.child.PostgresEmbeddingCache(database, agent, 10, lambda: 1)
    cache.put(key, {b"h": b"vector"})
    cache.add_refusals(key, {b"r": word})
    cache.add_usage({("p", word): (1, 2, 3, 4)})
    cache.jobs.add(key, BatchJob(word, "", 1, 1), [b"j"])
    cache.close()
    history = postgres.child.PostgresWriteHistory(
        database, agent, max_age_seconds=1e9, max_bytes=1 << 30, now_ms=lambda: 1
    )
    history.begin(
        WriteRecord(version_id=word, path=word, kind=WriteKind.CREATE, time_ms=1, caller=word, after=b"d"),
        None,
        b"content",
    )
    history.close()
    fill_documents(database, agent, word)
    return store


def fill_documents(database, agent, word):
    """Store at least one row of the agent in every table of documents."""
    memory = importlib.import_module("unit.postgres.document_memory").DocumentMemory(database, agent)
    memory.append(word, idempotency_key=word)
    memory.transcripts.append("".join(filter(str.isprintable, word)).replace("/", ""), [word.encode()])
    memory.forgotten.add_file(word, "00")
    memory.forgotten.add_session(word)
    memory.close()


# Not of the module: pytest-xdist can run other tests between those of this file, and the agents exist once.
@pytest.fixture(scope="session")
def two(postgres_module):
    stores = [fill(postgres_module, agent) for agent in ("first", "second")]
    yield postgres_module
    for store in stores:
        store.close()


@pytest.fixture
def connection(two):
    with psycopg.connect(two.server.url, autocommit=True) as connection:
        connection.execute("SET search_path = memoryd, public")
        yield connection


def set_agent(connection, agent):
    connection.execute("SELECT set_config('memoryd.agent', %s, false)", (agent,))


def count(connection, table):
    return connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchone()[0]


def test_every_table_with_rows_of_agents_is_tested(two):
    with two.server.admin(DATABASE) as admin:
        admin.execute("SET search_path = memoryd")
        rows = admin.execute(
            "SELECT relname, relrowsecurity AND relforcerowsecurity FROM pg_class"
            " WHERE relkind IN ('r', 'p') AND relnamespace = 'memoryd'::regnamespace AND relname <> 'schema_migrations'"
            " AND relname <> ALL(%s)",
            [list(REPLICA_TABLES)],
        )
        found = dict(rows.fetchall())
        assert found == dict.fromkeys(schema.TABLES, True)
        assert all(count(admin, table) for table in schema.TABLES)


def test_the_key_of_every_table_begins_with_the_agent(two):
    query = """SELECT i.indrelid::regclass::text, a.attname FROM pg_index AS i
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = ANY(%s::regclass[])"""
    with two.server.admin(DATABASE) as admin:
        found = set(admin.execute(query, ([f"memoryd.{table}" for table in schema.TABLES],)).fetchall())
    assert found == {(f"memoryd.{table}", "agent_id") for table in schema.TABLES}


@pytest.mark.parametrize("table", schema.TABLES)
def test_a_connection_without_an_agent_sees_no_row(connection, table):
    assert count(connection, table) == 0
    set_agent(connection, "")
    assert count(connection, table) == 0
    set_agent(connection, "first")
    assert count(connection, table) > 0


@pytest.mark.parametrize("table", schema.TABLES)
def test_rows_of_another_agent_are_neither_seen_nor_written(connection, table):
    set_agent(connection, "first")
    name = sql.Identifier(table)
    agents = connection.execute(sql.SQL("SELECT DISTINCT agent_id FROM {}").format(name)).fetchall()
    assert agents == [("first",)]
    query = """SELECT column_name FROM information_schema.columns WHERE table_schema = 'memoryd' AND table_name = %s
        AND is_generated = 'NEVER' AND column_name <> 'agent_id'"""
    columns = sql.SQL(", ").join([sql.Identifier(row[0]) for row in connection.execute(query, (table,))])
    insert = sql.SQL("INSERT INTO {0}(agent_id, {1}) SELECT 'third', {1} FROM {0}").format(name, columns)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        connection.execute(insert)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        connection.execute(sql.SQL("UPDATE {} SET agent_id = 'third'").format(name))
    assert connection.execute(sql.SQL("DELETE FROM {} WHERE agent_id = 'second'").format(name)).rowcount == 0


def test_a_connection_that_is_used_again_has_no_agent(two):
    database = two.database(max_connections=1)
    database.attach()
    with database.read("first") as connection:
        process = connection.info.backend_pid
        assert connection.execute("SELECT count(*) FROM files").fetchone() == (1,)
    with database.read("nobody") as connection:
        assert connection.info.backend_pid == process
        assert connection.execute("SELECT count(*) FROM files").fetchone() == (0,)
        connection.execute("COMMIT")
        assert connection.execute("SELECT count(*) FROM files").fetchone() == (0,)
        connection.execute("BEGIN")
    database.detach()


def test_the_role_of_the_daemon_is_not_exempt_from_the_policies(two):
    with two.server.admin() as admin:
        query = "SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = %s"
        assert admin.execute(query, (ROLE,)).fetchone() == (False, False)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_ids_and_texts_are_values_everywhere(postgres_module, text):
    store = fill(postgres_module, text, text)
    writer = store.writer()
    hostile = document(f"memory/{text}.md", (f"otter {text}", text))
    writer.write([hostile])
    with store.read() as reader:
        (hit,) = reader.keyword_hits([QueryTerm("otter"), QueryTerm(text), QueryTerm(text, prefix=True)], ALL_CHUNKS, 9)
        row = reader.chunks([hit.chunk_id])[hit.chunk_id]
        assert (row.path, row.text) == (f"memory/{text}.md", f"otter {text}")
        files = FileFilter(path_prefixes=(f"memory/{text}",), front_matter=(FrontMatterCondition(text, (text,)),))
        assert reader.keyword_hits([QueryTerm("otter")], ChunkFilter(files), 9) == []
        assert reader.names_containing(text, 9) == []
        assert len(reader.hashes_containing(text)) == 2
    assert [path for _, path in writer.memory_files([f"memory/{text}.md"])] == [f"memory/{text}.md"]
    with store.rebuild() as rebuilt:
        rebuilt.write([hostile])
        rebuilt.copy_vectors(writer, never)
    assert writer.count_chunks() == 1
    store.close()


def test_a_text_with_a_null_character_is_stored_with_a_replacement(postgres_module):
    store = postgres_module.new_store("null characters")
    store.open()
    store.writer().write([document("a.md", ("heron \0 weir", "")), document("b.md", ("otter", "\0"))])
    with store.read() as reader:
        (hit,) = reader.keyword_hits([QueryTerm("weir")], ALL_CHUNKS, 9)
        assert reader.chunks([hit.chunk_id])[hit.chunk_id].text == "heron \ufffd weir"
        assert reader.hashes_containing("heron \0") != set()
        files = FileFilter(path_prefixes=("a\0",), front_matter=(FrontMatterCondition("k\0", ("v\0",)),))
        assert reader.keyword_hits([QueryTerm("weir")], ChunkFilter(files), 9) == []
        assert reader.chunks_of((Source.MEMORY, "a\0"), None, 9) == []
    store.close()


def test_paths_and_words_longer_than_a_key_are_stored(postgres_module):
    store = postgres_module.new_store("long names")
    store.open()
    path, word = "é/" * 2_000 + "a.md", "x1" * 4_000
    writer = store.writer()
    writer.write([document(path, (f"heron {word}", ""))])
    writer.write([document(path, (f"heron {word}", ""), ("weir", ""))])
    assert [row.path for row in writer.files().values()] == [path]
    with store.read() as reader:
        assert len(reader.keyword_hits([QueryTerm(word)], ALL_CHUNKS, 9)) == 1
        assert len(reader.chunks_of(next(iter(reader.files())), None, 9)) == 2
    store.close()
