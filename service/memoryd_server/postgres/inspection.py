"""Inspects the database for `memoryd doctor`: the server, pgvector, the role and the tables. Changes nothing."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from memoryd_server.errors import IndexUnavailable
from memoryd_server.postgres import schema
from memoryd_server.postgres.connection import Database
from memoryd_server.postgres.session import Connection

TIMEOUT_SECONDS: Final = 10.0

_ROUND_TRIPS = 5

# The catalogs can be read without privileges. A privilege on an object that does not exist is NULL.
_FACTS = """SELECT current_setting('server_version'), current_setting('server_version_num')::integer,
        quote_ident(rolname), rolsuper, rolbypassrls, spaces.oid IS NOT NULL,
        CASE WHEN spaces.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
            ELSE has_schema_privilege(spaces.oid, 'USAGE') AND has_schema_privilege(spaces.oid, 'CREATE') END,
        (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
        EXISTS(SELECT 1 FROM pg_available_extensions WHERE name = 'vector'),
        tables.oid IS NOT NULL,
        has_schema_privilege(spaces.oid, 'USAGE') AND has_table_privilege(tables.oid, 'SELECT')
    FROM pg_roles LEFT JOIN pg_namespace AS spaces ON nspname = %s
        LEFT JOIN pg_class AS tables ON relnamespace = spaces.oid AND relname = 'schema_migrations'
    WHERE rolname = current_user"""


@dataclass(frozen=True, slots=True)
class DatabaseInspection:
    """The result of an inspection.

    `server_version` is the version in words, and `server_number` as a number such as 180001. `role` is quoted if SQL
    requires it. `extension` is the version of pgvector in the database, empty if it has none; `is_installed` is whether
    the server has the files of pgvector.
    `has_schema` is whether the schema of the tables exists, and `can_create` whether the role may create tables in it.
    `tables_version` is the version of the tables: 0 if there are none, None if the role may not read it.
    """

    location: str
    server_version: str
    server_number: int
    round_trip_seconds: float
    role: str
    is_superuser: bool
    bypasses_policies: bool
    has_schema: bool
    can_create: bool
    extension: str
    is_installed: bool
    tables_version: int | None
    supported_tables_version: int = schema.SCHEMA_VERSION


def inspect_database(database: Database, monotonic: Callable[[], float] = time.monotonic) -> DatabaseInspection:
    """Inspect the database in one transaction. Blocks for at most some seconds.

    Raises:
        IndexUnavailable, DeadlineTooShort: the database cannot be reached, or does not answer in time.
    """
    with database.read("", monotonic() + TIMEOUT_SECONDS) as connection:
        seconds = _round_trip(connection, monotonic)
        row = connection.execute(_FACTS, (schema.SCHEMA,)).fetchone()
        if row is None:
            raise IndexUnavailable("the role of the session no longer exists")
        version, number, role, is_superuser, bypasses, has_schema, can_create, extension, is_installed = row[:9]
        has_tables, is_readable = row[9:]
        tables_version: int | None = 0
        if has_tables:
            tables_version = schema.tables_version(connection) if is_readable else None
        return DatabaseInspection(
            location=database.location,
            server_version=version,
            server_number=number,
            round_trip_seconds=seconds,
            role=role,
            is_superuser=is_superuser,
            bypasses_policies=bypasses,
            has_schema=has_schema,
            can_create=can_create,
            extension=extension or "",
            is_installed=is_installed,
            tables_version=tables_version,
        )


def _round_trip(connection: Connection, monotonic: Callable[[], float]) -> float:
    """Return the median time of a statement that does nothing."""
    times = []
    for _ in range(_ROUND_TRIPS):
        started = monotonic()
        connection.execute("SELECT 1")
        times.append(monotonic() - started)
    return statistics.median(times)
