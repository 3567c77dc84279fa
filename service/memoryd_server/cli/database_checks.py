"""The checks of `memoryd doctor` of the PostgreSQL database: the server, pgvector, the role, the tables, a standby."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from memoryd_server.app import database_of
from memoryd_server.doctor import Check, failure, warning, well
from memoryd_server.errors import MemorydError, SettingsError
from memoryd_server.settings import DatabaseSettings

if TYPE_CHECKING:
    from memoryd_server.postgres import Database, DatabaseInspection, StandbyInspection

_SERVER, _LATENCY, _ROLE, _TABLES = "PostgreSQL", "PostgreSQL, latency", "PostgreSQL, role", "PostgreSQL, tables"
_EXTENSION, _STANDBY = "pgvector", "PostgreSQL, standby"

# The oldest versions that the tests run with.
_MIN_SERVER = 18
_MIN_EXTENSION = (0, 8)
_SLOW_SECONDS = 0.02

_NO_START = "the daemon does not start"
_PRIMARY_ANSWERS = "the primary answers the calls that set max_staleness"


def check_database(settings: DatabaseSettings) -> Iterator[Check]:
    """Yield the checks of the database; none if the store is SQLite. If the server does not answer, only that one."""
    if settings.url is None:
        return
    try:
        database = database_of(settings)
        from memoryd_server.postgres import inspect_database  # noqa: PLC0415 -- an extra

        inspection = inspect_database(database)
    except SettingsError as error:
        yield failure(_SERVER, error.message, _NO_START, "install the package, or remove memoryd.store.url")
    except MemorydError as error:
        meaning = f"{_NO_START}; a running one cannot search or write until the server answers"
        advice = "start the server, or correct memoryd.store.url or memoryd.store.passwordFile; see docs/postgresql.md"
        yield failure(_SERVER, error.message, meaning, advice)
    else:
        yield from inspected_checks(inspection)
        if database.standby is not None:
            yield _standby(database, database.standby.database)


def inspected_checks(inspection: DatabaseInspection) -> Iterator[Check]:
    """Yield the checks of a database that answers."""
    yield _server(inspection)
    yield _latency(inspection)
    yield _extension(inspection)
    yield from _role(inspection)
    yield _tables(inspection)


def _server(found: DatabaseInspection) -> Check:
    detail = f"{found.server_version} at {found.location}"
    if found.server_number // 10_000 >= _MIN_SERVER:
        return well(_SERVER, detail)
    meaning = f"memoryd is not tested with versions before {_MIN_SERVER}"
    return warning(_SERVER, detail, meaning, f"upgrade the server to PostgreSQL {_MIN_SERVER} or newer")


def _latency(found: DatabaseInspection) -> Check:
    detail = f"a round trip takes {1000 * found.round_trip_seconds:.1f} ms"
    if found.round_trip_seconds <= _SLOW_SECONDS:
        return well(_LATENCY, detail)
    meaning = "each search and each write waits for several round trips"
    return warning(_LATENCY, detail, meaning, "run the daemon near the server, and check the load of both")


def _extension(found: DatabaseInspection) -> Check:
    if not found.extension:
        install = "" if found.is_installed else "install pgvector on the server, then "
        advice = f"{install}run CREATE EXTENSION vector in the database as a superuser"
        return failure(_EXTENSION, "the database does not have the extension vector", _NO_START, advice)
    if _numbers(found.extension) >= _MIN_EXTENSION:
        return well(_EXTENSION, found.extension)
    oldest = ".".join(map(str, _MIN_EXTENSION))
    meaning = f"memoryd is not tested with versions before {oldest}"
    advice = f"install pgvector {oldest} or newer on the server, then run ALTER EXTENSION vector UPDATE as a superuser"
    return warning(_EXTENSION, found.extension, meaning, advice)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _role(found: DatabaseInspection) -> Iterator[Check]:
    exemptions = {"is a superuser": found.is_superuser, "has BYPASSRLS": found.bypasses_policies}
    exempt = " and ".join(words for words, applies in exemptions.items() if applies)
    if exempt:
        meaning = f"row-level security, which keeps the agents apart, does not apply to it; {_NO_START}"
        advice = "use a role with NOSUPERUSER and NOBYPASSRLS in memoryd.store.url"
        yield failure(_ROLE, f"{found.role} {exempt}", meaning, advice)
    if not found.can_create:
        meaning = f"{_NO_START} if the tables have to be created or upgraded"
        grant = f"GRANT USAGE, CREATE ON SCHEMA memoryd TO {found.role}"
        create = f"CREATE SCHEMA memoryd AUTHORIZATION {found.role}"
        advice = f"as a superuser in the database: {grant if found.has_schema else create}"
        yield failure(_ROLE, f"{found.role} may not create tables in the schema memoryd", meaning, advice)
    if not exempt and found.can_create:
        yield well(_ROLE, f"{found.role} is subject to row-level security and may create tables")


def _tables(found: DatabaseInspection) -> Check:
    version, supported = found.tables_version, found.supported_tables_version
    if version is None:
        detail = f"{found.role} may not read the tables in the schema memoryd"
        return failure(_TABLES, detail, _NO_START, "use the role that owns the tables in memoryd.store.url")
    if version > supported:
        detail = f"version {version}; this memoryd supports at most {supported}"
        return failure(_TABLES, detail, _NO_START, "upgrade memoryd")
    if version == 0:
        return well(_TABLES, "none yet; the daemon creates them when it starts")
    if version < supported:
        return well(_TABLES, f"version {version}; the daemon upgrades them to version {supported} when it starts")
    return well(_TABLES, f"version {version} is current")


def _standby(database: Database, standby: Database) -> Check:
    from memoryd_server.postgres import inspect_standby  # noqa: PLC0415 -- an extra

    try:
        found = inspect_standby(database, standby)
    except MemorydError as error:
        advice = "start the standby, or correct memoryd.store.standbyUrl; see docs/scale.md"
        return warning(_STANDBY, error.message, _PRIMARY_ANSWERS, advice)
    return standby_check(found)


def standby_check(found: StandbyInspection) -> Check:
    """Return the check of a standby that answers."""
    if found.is_of_primary is False:
        detail = f"{found.location} does not have the database of memoryd.store.url"
        return warning(_STANDBY, detail, _PRIMARY_ANSWERS, "correct memoryd.store.standbyUrl")
    if not found.is_standby:
        detail = f"{found.location} is a primary"
        meaning = "reads with max_staleness do not relieve the primary, and fail with it"
        return warning(_STANDBY, detail, meaning, "set memoryd.store.standbyUrl to a standby of the primary")
    if found.replay_seconds is None:
        detail = f"{found.location} has not replayed within 5 s what the primary had written"
        advice = "check the replication: pg_stat_replication on the primary, and the log of the standby"
        return warning(_STANDBY, detail, f"{_PRIMARY_ANSWERS}, unless they accept this age", advice)
    return well(_STANDBY, f"{found.location} replayed the changes of the primary within {found.replay_seconds:.1f} s")
