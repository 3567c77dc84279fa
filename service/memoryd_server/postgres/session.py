"""What each connection is set up with: the settings of its session, and the type of vectors."""

from typing import Any, TypeAlias

import psycopg

from memoryd_server.postgres import schema
from memoryd_server.postgres.vector_format import register_vector

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

# Plans in parallel or with compilation cost a small query more than they gain. The chunks of a filter are read into a
# hash table only if it fits the memory. The server ends the session of a client that has vanished, and with it the
# locks.
_SESSION = """SELECT set_config('jit', 'off', false), set_config('max_parallel_workers_per_gather', '0', false),
    set_config('work_mem', '32MB', false),
    set_config('lock_timeout', '5s', false), set_config('tcp_keepalives_idle', '30', false),
    set_config('tcp_keepalives_interval', '10', false), set_config('tcp_keepalives_count', '3', false),
    set_config('search_path', %s, false)"""
_WITH_VECTORS = """SELECT pg_type.oid, typarray,
        set_config('search_path', %s || ', ' || typnamespace::regnamespace, false)
    FROM pg_type JOIN pg_extension ON extnamespace = typnamespace WHERE typname = 'vector' AND extname = 'vector'"""


def prepare_session(connection: Connection) -> None:
    """Set up a connection; again after the tables and the type of vectors may have been created."""
    connection.execute(_SESSION, (schema.SCHEMA,))
    row = connection.execute(_WITH_VECTORS, (schema.SCHEMA,)).fetchone()
    if row is not None:
        register_vector(connection, row[0], row[1])
