"""Inspects the database for `memoryd doctor`: the server, pgvector, the role and the tables, and a standby.

Changes nothing.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from memoryd_server.errors import IndexUnavailable
from memoryd_server.postgres import schema
from memoryd_server.postgres.connection import Database
from memoryd_server.postgres.session import Connection

TIMEOUT_SECONDS: Final = 10.0

REPLAY_SECONDS: Final = 5.0
"""How long an inspection waits until a standby has replayed what the primary had written."""

_ROUND_TRIPS = 5
_REPLAY_PAUSE_SECONDS = 0.05

# A standby has the same identifiers as its primary.
_DATA = """SELECT system_identifier || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
    FROM pg_control_system()"""
_MAY_READ_SYSTEM = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
_HAS_REPLAYED = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"

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


@dataclass(frozen=True, slots=True)
class StandbyInspection:
    """The result of an inspection of a standby.

    `is_standby` is whether the server is in recovery. `is_of_primary` is whether it has the database of the primary;
    None if the role may not read that. `replay_seconds` is how long the standby took to replay what the primary had
    written when the inspection began; None if it had not after `REPLAY_SECONDS`, or is no standby.
    """

    location: str
    is_standby: bool
    is_of_primary: bool | None
    replay_seconds: float | None


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


def inspect_standby(database: Database, standby: Database) -> StandbyInspection:
    """Inspect a standby of a database. Blocks for at most some seconds.

    Raises:
        IndexUnavailable, DeadlineTooShort: one of the two cannot be reached, or does not answer in time.
    """
    # Keep the connections of the standby between the statements.
    standby.attach()
    try:
        data, position = _state_of(database, "SELECT pg_current_wal_lsn()")
        standby_data, is_standby = _state_of(standby, "SELECT pg_is_in_recovery()")
        is_of_primary = None if None in {data, standby_data} else data == standby_data
        replay_seconds = None
        if is_standby and is_of_primary is not False:
            replay_seconds = _replay_seconds(standby, position)
    finally:
        standby.detach()
    return StandbyInspection(standby.location, is_standby, is_of_primary, replay_seconds)


def _replay_seconds(standby: Database, position: str) -> float | None:
    """Return the time until a standby has replayed a position in the write-ahead log; None if that takes too long."""
    began = time.monotonic()
    while not _value(standby, _HAS_REPLAYED, position):
        if time.monotonic() - began > REPLAY_SECONDS:
            return None
        time.sleep(_REPLAY_PAUSE_SECONDS)
    return time.monotonic() - began


def _state_of(database: Database, query: str) -> tuple[str | None, Any]:
    """Return the identifier of a database, None if the role may not read it, and the value of a query."""
    data = _value(database, _DATA) if _value(database, _MAY_READ_SYSTEM) else None
    return data, _value(database, query)


def _value(database: Database, query: str, *values: object) -> Any:
    with database.read("", time.monotonic() + TIMEOUT_SECONDS) as connection:
        row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def _round_trip(connection: Connection, monotonic: Callable[[], float]) -> float:
    """Return the median time of a statement that does nothing."""
    times = []
    for _ in range(_ROUND_TRIPS):
        started = monotonic()
        connection.execute("SELECT 1")
        times.append(monotonic() - started)
    return statistics.median(times)
