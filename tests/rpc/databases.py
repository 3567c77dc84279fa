"""The PostgreSQL databases of the tests that run with `--store=postgres`: one for each home of a test."""

import itertools
import math
from contextlib import contextmanager

import psycopg

from memoryd_server.postgres import Database, DatabaseConfig, PostgresStore, PostgresWriteHistory
from memoryd_server.postgres.session import Operation
from postgres_server import ROLE, running_server
from rpc.document_mirror import DocumentMirror, Mirroring, MirroringStreams

TEMPLATE = "template_with_tables"
INDEX_TABLES = ("files", "chunks", "front_matter", "postings", "names", "vectors", "generations", "agents")
DOCUMENT_TABLES = {"documents", "transcript_parts"}
# Those of SQLite's FTS5.
K1, B, LEAST_IDF = 1.2, 0.75, 1e-6


class Databases:
    """Databases with empty tables, on one server. Creating one takes some 15 ms, because it is a copy of a template."""

    def __init__(self, server):
        self._server = server
        self._numbers = itertools.count()
        self._names = []
        Database(DatabaseConfig(server.create_database(TEMPLATE))).prepare()
        self._admin = server.admin()

    def new(self):
        """Create a database, and return what tests do with it."""
        name = f"home{next(self._numbers)}"
        self._admin.execute(f"CREATE DATABASE {name} OWNER {ROLE} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        self._names.append(name)
        return PostgresRows(self._server, name)

    @contextmanager
    def dropped(self):
        """Drop the databases that the block creates when it ends."""
        kept = len(self._names)
        yield
        while len(self._names) > kept:
            self._admin.execute(f"DROP DATABASE {self._names.pop()} WITH (FORCE)")

    def close(self):
        self._admin.close()


@contextmanager
def running_databases():
    """Start a server for databases, and stop it when the block ends."""
    with running_server() as server:
        databases = Databases(server)
        try:
            yield databases
        finally:
            databases.close()


class PostgresRows:
    """The rows of a database, with the methods of `SqliteFiles`."""

    is_sqlite = False
    store_class = PostgresStore
    vector_engines = frozenset({"pgvector"})
    operations = frozenset(Operation)

    def __init__(self, server, name):
        self._server = server
        self._name = name
        self.url = server.url_of(name)
        self.location = f"postgresql://{server.folder}/{name}"
        self.documents = DocumentMirror(self.url)

    @contextmanager
    def _connection(self):
        """Connect as the superuser, who sees the rows of all agents."""
        with self._server.admin(self._name) as connection:
            connection.execute("SET search_path = memoryd, public")
            yield connection

    def agent_of(self, store):
        return store._agent_id

    def interceptors(self, home):
        return (Mirroring(home), MirroringStreams(home)) if home.has_documents else ()

    def waiting_calls(self):
        return ((psycopg.Connection, "wait", "sql"), (psycopg, "connect", "sql"))

    def change(self, *values, sqlite=None, postgres=None, agent_id="main"):
        with self._connection() as connection:
            return connection.execute(postgres or sqlite.replace("?", "%s"), values).rowcount

    change_history = change

    def rows(self, *values, sqlite=None, postgres=None):
        with self._connection() as connection:
            return connection.execute(postgres or sqlite.replace("?", "%s"), values).fetchall()

    def lose_index(self, agent_id="main"):
        with self._connection() as connection, connection.transaction():
            for table in INDEX_TABLES:
                connection.execute(f"DELETE FROM {table} WHERE agent_id = %s", [agent_id])

    def damage_index(self, _running):
        self.lose_index()

    def remove_indexes(self):
        with self._connection() as connection:
            connection.execute("DROP SCHEMA memoryd CASCADE")

    def block(self, agent_id):
        with self._connection() as connection:
            policy = f"CREATE POLICY blocked_{agent_id} ON agents AS RESTRICTIVE USING (agent_id <> '{agent_id}')"
            connection.execute(policy)

    def unblock(self, agent_id):
        with self._connection() as connection:
            connection.execute(f"DROP POLICY blocked_{agent_id} ON agents")

    @contextmanager
    def held(self, agent_id):
        database = Database(DatabaseConfig(self.url))
        database.attach()
        try:
            database.leases.acquire(agent_id, lambda: True)
            yield
        finally:
            database.detach()

    def history(self, now_ms):
        database = Database(DatabaseConfig(self.url))
        return PostgresWriteHistory(database, "main", max_age_seconds=1e6, max_bytes=2**20, now_ms=now_ms)

    def history_rows(self, agent_id="main"):
        counts = [f"(SELECT count(*) FROM history_{each} WHERE agent_id = %s)" for each in ("records", "contents")]
        return self.rows(agent_id, agent_id, postgres=f"SELECT {', '.join(counts)}")[0]

    def places_of(self, word, *, within="", ignoring=()):
        """Return the tables with the word, whatever its case, as text or as bytes, but not those of the documents."""
        with self._connection() as connection:
            query = "SELECT tablename FROM pg_tables WHERE schemaname = 'memoryd'"
            tables = [row[0] for row in connection.execute(query) if within in row[0]]
            tables = [table for table in tables if table not in DOCUMENT_TABLES]
            assert connection.execute("SELECT count(*) FROM agents").fetchone()[0], "nothing is stored"
            found = "SELECT count(*) FROM {0} WHERE lower({0}::text) LIKE %s OR {0}::text LIKE %s"
            like = [f"%{word.lower()}%", f"%{word.encode().hex()}%"]
            return [table for table in tables if connection.execute(found.format(table), like).fetchone()[0]]

    def bm25(self, terms):
        """Return the BM25 of SQLite for some terms, negative, by path, computed from the stored frequencies."""
        of_index = "FROM generations JOIN agents USING (agent_id, generation) WHERE agent_id = 'main'"
        ((chunks, tokens),) = self.rows(postgres=f"SELECT chunk_count, token_count {of_index}")
        query = """SELECT files.path, in_body, in_context, chunk_tokens FROM postings
            JOIN chunks ON chunks.id = chunk_id JOIN files ON files.id = file_id
            WHERE postings.agent_id = 'main' AND term = %s"""
        scores = {}
        for term in terms:
            found = self.rows(term, postgres=query)
            idf = max(LEAST_IDF, math.log((chunks - len(found) + 0.5) / (len(found) + 0.5)))
            for path, in_body, in_context, length in found:
                frequency = in_body + in_context / 2
                damped = frequency + K1 * (1 - B + B * length / (tokens / chunks))
                scores[path] = scores.get(path, 0.0) - idf * frequency * (K1 + 1) / damped
        return scores
