"""The tables of the database, as migrations in order. They belong to agents, except those of migrations and replicas.

`agent_id` leads every key, and every statement names it, so that the tables can be distributed by it. Each table has a
forced policy: a transaction sees and writes only the rows of the agent in the setting `memoryd.agent`, and none if it
is not set. There is no sequence: the counters of an agent are in its rows.

The rows of an index have a generation. Readers see the one that `agents` names; a rebuild writes the next one.
"""

from collections.abc import Mapping
from typing import Final

import psycopg

from memoryd_server.errors import IndexTooNew, IndexUnavailable
from memoryd_server.postgres.document_tables import DOCUMENT_STATEMENTS, DOCUMENT_TABLES
from memoryd_server.postgres.errors import translated
from memoryd_server.postgres.replica_tables import REPLICA_STATEMENTS

SCHEMA: Final = "memoryd"
"""The schema of the tables."""

# Two processes that start on an empty database apply the migrations one after the other.
_MIGRATION_LOCK = 0x6D6D7264

# Text is compared byte by byte, so that the terms that begin with a prefix are a range of the key. A path can be longer
# than a key, so keys have its hash: a column, because a policy hides rows from the functions of an index.
_INDEX_TABLES = (
    # `fence` rises with each lease of the agent; only the replica that has acquired the last one may write.
    """CREATE TABLE agents(
        agent_id text COLLATE "C" PRIMARY KEY CHECK (agent_id <> ''),
        generation integer NOT NULL,
        fence bigint NOT NULL)""",
    # `vector_set` is the stored set of vectors; `staged_set` is NULL if there is none. The counts are those of BM25.
    """CREATE TABLE generations(
        agent_id text COLLATE "C" NOT NULL,
        generation integer NOT NULL,
        revision bigint NOT NULL,
        identity text NOT NULL,
        mixed_chunking boolean NOT NULL DEFAULT false,
        analyzer_version text NOT NULL,
        chunk_count bigint NOT NULL DEFAULT 0,
        token_count bigint NOT NULL DEFAULT 0,
        next_file_id bigint NOT NULL DEFAULT 1,
        next_chunk_id bigint NOT NULL DEFAULT 1,
        vector_identity text NOT NULL DEFAULT '',
        vector_set integer NOT NULL DEFAULT 1,
        staged_identity text,
        staged_set integer,
        failover_record text NOT NULL DEFAULT '',
        last_sync_ms bigint,
        annotated boolean NOT NULL DEFAULT false,
        has_deleted_text boolean NOT NULL DEFAULT false,
        vector_centre bytea,
        vector_centre_revision bigint,
        PRIMARY KEY(agent_id, generation))""",
    # `reader_version`, `read_bytes` and `read_lines` are those of a transcript that was read.
    """CREATE TABLE files(
        agent_id text COLLATE "C" NOT NULL,
        generation integer NOT NULL,
        id bigint NOT NULL,
        source text COLLATE "C" NOT NULL,
        path text COLLATE "C" NOT NULL,
        path_key text COLLATE "C" GENERATED ALWAYS AS (md5(path)) STORED,
        hash bytea NOT NULL,
        size_bytes bigint NOT NULL,
        mtime_ns bigint NOT NULL,
        ctime_ns bigint NOT NULL,
        device bigint NOT NULL,
        inode bigint NOT NULL,
        chunk_count bigint NOT NULL,
        metadata text,
        language text NOT NULL,
        error text,
        day text COLLATE "C",
        date text COLLATE "C",
        rows_version integer NOT NULL,
        skipped bigint NOT NULL DEFAULT 0,
        reader_version text,
        read_bytes bigint,
        read_lines bigint,
        PRIMARY KEY(agent_id, generation, id),
        UNIQUE(agent_id, generation, source, path_key))""",
    "CREATE INDEX files_by_day ON files(agent_id, generation, day) WHERE day IS NOT NULL",
    """CREATE TABLE chunks(
        agent_id text COLLATE "C" NOT NULL,
        generation integer NOT NULL,
        id bigint NOT NULL,
        file_id bigint NOT NULL,
        start_line bigint NOT NULL,
        end_line bigint NOT NULL,
        token_count integer NOT NULL,
        content_hash bytea NOT NULL,
        breadcrumb text NOT NULL,
        text text NOT NULL,
        line_numbers text,
        line_origins text,
        origin text COLLATE "C",
        day text COLLATE "C",
        importance integer,
        triggers text,
        projects text,
        PRIMARY KEY(agent_id, generation, id))""",
    "CREATE INDEX chunks_by_file ON chunks(agent_id, generation, file_id, id) INCLUDE (origin)",
    "CREATE INDEX chunks_by_day ON chunks(agent_id, generation, day) WHERE day IS NOT NULL",
    """CREATE TABLE front_matter(
        agent_id text COLLATE "C" NOT NULL,
        generation integer NOT NULL,
        key text COLLATE "C" NOT NULL,
        value text COLLATE "C" NOT NULL,
        file_id bigint NOT NULL,
        PRIMARY KEY(agent_id, generation, key, value, file_id))""",
    "CREATE INDEX front_matter_by_file ON front_matter(agent_id, generation, file_id)",
    # How often a chunk has a term in its body and in its context. `chunk_tokens` is the length of the chunk, so that a
    # search reads this index alone.
    """CREATE TABLE postings(
        agent_id text COLLATE "C" NOT NULL,
        generation integer NOT NULL,
        term text COLLATE "C" NOT NULL,
        chunk_id bigint NOT NULL,
        in_body integer NOT NULL,
        in_context integer NOT NULL,
        chunk_tokens integer NOT NULL,
        PRIMARY KEY(agent_id, generation, term, chunk_id) INCLUDE (in_body, in_context, chunk_tokens))""",
    # The condition is always true, but keeps the planner from reading all postings of an agent for a term, which it
    # prefers as long as the statistics of the server do not know the agent. So only statements that repeat it use this
    # index.
    "CREATE INDEX postings_by_chunk ON postings(agent_id, generation, chunk_id) WHERE chunk_id > 0",
    # The terms with "_" or a digit, which searches for a piece of a name look through.
    """CREATE TABLE names(
        agent_id text COLLATE "C" NOT NULL,
        generation integer NOT NULL,
        term text COLLATE "C" NOT NULL,
        PRIMARY KEY(agent_id, generation, term))""",
    """CREATE TABLE vectors(
        agent_id text COLLATE "C" NOT NULL,
        generation integer NOT NULL,
        vector_set integer NOT NULL,
        chunk_id bigint NOT NULL,
        dimensions integer NOT NULL,
        embedding vector NOT NULL,
        PRIMARY KEY(agent_id, generation, vector_set, chunk_id))""",
    # A vector of up to some 2,000 dimensions stays in its row: a search reads all of them.
    "ALTER TABLE vectors SET (toast_tuple_target = 8160)",
)

_CACHE_TABLES = (
    """CREATE TABLE cached_vectors(
        agent_id text COLLATE "C" NOT NULL,
        provider text NOT NULL,
        model text NOT NULL,
        provider_key text NOT NULL,
        hash bytea NOT NULL,
        embedding bytea NOT NULL,
        used_at_ms bigint NOT NULL,
        PRIMARY KEY(agent_id, provider, model, provider_key, hash))""",
    "CREATE INDEX cached_vectors_by_use ON cached_vectors(agent_id, used_at_ms)",
    "CREATE INDEX cached_vectors_by_hash ON cached_vectors(agent_id, hash)",
    """CREATE TABLE refused_texts(
        agent_id text COLLATE "C" NOT NULL,
        provider text NOT NULL,
        model text NOT NULL,
        provider_key text NOT NULL,
        hash bytea NOT NULL,
        reason text NOT NULL,
        refused_at_ms bigint NOT NULL,
        PRIMARY KEY(agent_id, provider, model, provider_key, hash))""",
    """CREATE TABLE provider_usage(
        agent_id text COLLATE "C" NOT NULL,
        provider text NOT NULL,
        model text NOT NULL,
        calls bigint NOT NULL,
        tokens bigint NOT NULL,
        retries bigint NOT NULL,
        cache_hits bigint NOT NULL,
        PRIMARY KEY(agent_id, provider, model))""",
    """CREATE TABLE batch_jobs(
        agent_id text COLLATE "C" NOT NULL,
        name text NOT NULL,
        provider text NOT NULL,
        model text NOT NULL,
        provider_key text NOT NULL,
        job_id text NOT NULL,
        texts bigint NOT NULL,
        begun_at_ms bigint NOT NULL,
        attempt integer NOT NULL,
        PRIMARY KEY(agent_id, name))""",
    """CREATE TABLE batch_texts(
        agent_id text COLLATE "C" NOT NULL,
        name text NOT NULL,
        hash bytea NOT NULL,
        PRIMARY KEY(agent_id, name, hash))""",
    "CREATE INDEX batch_texts_by_hash ON batch_texts(agent_id, hash)",
)

_HISTORY_TABLES = (
    # One row per agent, which every change locks. `bytes` is what the records and contents count towards the limit.
    """CREATE TABLE histories(
        agent_id text COLLATE "C" PRIMARY KEY CHECK (agent_id <> ''),
        next_sequence bigint NOT NULL,
        bytes bigint NOT NULL)""",
    """CREATE TABLE history_records(
        agent_id text COLLATE "C" NOT NULL,
        sequence bigint NOT NULL,
        version_id text COLLATE "C" NOT NULL,
        path text COLLATE "C" NOT NULL,
        path_key text COLLATE "C" GENERATED ALWAYS AS (md5(path)) STORED,
        kind text NOT NULL,
        time_ms bigint NOT NULL,
        caller text NOT NULL,
        before bytea,
        before_bytes bigint NOT NULL,
        after bytea,
        after_bytes bigint NOT NULL,
        moved_from text COLLATE "C" NOT NULL,
        moved_from_key text COLLATE "C" GENERATED ALWAYS AS (md5(moved_from)) STORED,
        start_line bigint NOT NULL,
        end_line bigint NOT NULL,
        key text COLLATE "C" NOT NULL,
        request_sha256 text NOT NULL,
        draft text NOT NULL,
        is_done boolean NOT NULL,
        stored_bytes bigint NOT NULL,
        PRIMARY KEY(agent_id, sequence),
        UNIQUE(agent_id, version_id))""",
    "CREATE INDEX history_by_path ON history_records(agent_id, path_key, sequence)",
    "CREATE INDEX history_by_old_path ON history_records(agent_id, moved_from_key, sequence) WHERE moved_from <> ''",
    "CREATE INDEX history_by_key ON history_records(agent_id, key) WHERE key <> ''",
    "CREATE INDEX history_by_before ON history_records(agent_id, before) WHERE before IS NOT NULL",
    "CREATE INDEX history_by_after ON history_records(agent_id, after) WHERE after IS NOT NULL",
    "CREATE INDEX history_by_time ON history_records(agent_id, time_ms)",
    "CREATE INDEX history_unfinished ON history_records(agent_id, sequence) WHERE NOT is_done",
    """CREATE TABLE history_contents(
        agent_id text COLLATE "C" NOT NULL,
        digest bytea NOT NULL,
        bytes bigint NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY(agent_id, digest))""",
    # The contents are compressed.
    "ALTER TABLE history_contents ALTER COLUMN data SET STORAGE EXTERNAL",
)

_FIRST_TABLES = (
    "agents",
    "generations",
    "files",
    "chunks",
    "front_matter",
    "postings",
    "names",
    "vectors",
    "cached_vectors",
    "refused_texts",
    "provider_usage",
    "batch_jobs",
    "batch_texts",
    "histories",
    "history_records",
    "history_contents",
)

TABLES: Final = (*_FIRST_TABLES, *DOCUMENT_TABLES)
"""The tables with rows of agents."""

INDEX_TABLES: Final = ("files", "chunks", "front_matter", "postings", "names", "vectors")
"""The tables with the rows of a generation."""


def _policies(tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the statements that limit every role to the rows of its agent, the owner of the tables too."""
    own = "agent_id = current_setting('memoryd.agent', true)"
    return tuple(
        statement
        for table in tables
        for statement in (
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
            f"CREATE POLICY own_rows ON {table} USING ({own}) WITH CHECK ({own})",
        )
    )


_MIGRATIONS: Mapping[int, tuple[str, ...]] = {
    1: (*_INDEX_TABLES, *_CACHE_TABLES, *_HISTORY_TABLES, *_policies(_FIRST_TABLES)),
    2: (*DOCUMENT_STATEMENTS, *_policies(DOCUMENT_TABLES)),
    3: REPLICA_STATEMENTS,
}

SCHEMA_VERSION: Final = max(_MIGRATIONS)


@translated()
def prepare(connection: psycopg.Connection) -> None:
    """Create the tables, or upgrade those of an older memoryd. Changes nothing if they are current.

    Raises:
        IndexTooNew: a newer memoryd has upgraded the tables.
        IndexUnavailable: pgvector is missing, or the role may not create tables or is exempt from row-level
            security.
    """
    _check_role(connection)
    if tables_version(connection) == SCHEMA_VERSION:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        version = tables_version(connection)
        require_supported(version)
        if version == 0:
            _create_schema(connection)
        for number in range(version + 1, SCHEMA_VERSION + 1):
            for statement in _MIGRATIONS[number]:
                connection.execute(statement)
            connection.execute("INSERT INTO schema_migrations(version) VALUES(%s)", (number,))


def require_supported(version: int) -> None:
    """Raise IndexTooNew if a newer memoryd has upgraded the tables to `version`."""
    if version > SCHEMA_VERSION:
        raise IndexTooNew(
            f"the tables in the schema {SCHEMA} have version {version}, but this memoryd supports at most "
            f"{SCHEMA_VERSION}; upgrade memoryd"
        )


def _create_schema(connection: psycopg.Connection) -> None:
    if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
        raise IndexUnavailable(
            "the database has no pgvector; install pgvector on the server, and run CREATE EXTENSION vector in the "
            "database as a superuser"
        )
    # CREATE SCHEMA IF NOT EXISTS needs its privilege on the database even if the schema exists.
    if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,)).fetchone() is None:
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
    connection.execute(
        "CREATE TABLE schema_migrations(version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
    )


def tables_version(connection: psycopg.Connection) -> int:
    """Return the number of the last migration; 0 if there are no tables."""
    # to_regclass() would not see a table that another process has created while this one waited for the lock.
    query = """SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE relname = 'schema_migrations' AND nspname = %s"""
    if connection.execute(query, (SCHEMA,)).fetchone() is None:
        return 0
    row = connection.execute("SELECT coalesce(max(version), 0) FROM schema_migrations").fetchone()
    return 0 if row is None else int(row[0])


def _check_role(connection: psycopg.Connection) -> None:
    row = connection.execute("SELECT rolsuper OR rolbypassrls, rolname FROM pg_roles WHERE rolname = current_user")
    exempt, name = row.fetchone() or (False, "")
    if exempt:
        raise IndexUnavailable(
            f"the role {name!r} is exempt from row-level security, which keeps the agents apart; use a role with "
            "NOSUPERUSER and NOBYPASSRLS"
        )
