"""`read_openclaw_value`: one value of a row of OpenClaw's databases, which OpenClaw may be writing at the same time.

A read opens the database read-only, reads one value in one short transaction, and closes it, so OpenClaw's writes and
checkpoints wait for microseconds at most. Nothing is written. The immutable mode, which takes no locks and does not see
the write-ahead log, is used only if there is no log and the folder cannot be written: SQLite cannot open the database
otherwise, and OpenClaw is not running then.
"""

import os
import stat
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from memoryd_server.credentials.private_file import within

_MAX_BYTES = 2**20
# More than the largest value that is read, so that one a little larger has a reason of its own.
_MAX_LENGTH = 4 * _MAX_BYTES
_BUSY_MS = 1_000
_SECONDS = 3.0
_STEPS_BETWEEN_CHECKS = 10_000
_CACHE_KIB = 256


@dataclass(frozen=True, slots=True)
class OpenClawValue:
    """A value in OpenClaw's databases: the newest known version of the schema, the table, and where the value is."""

    version: int
    table: str
    column: str
    where: str


_STATE_VERSION, _AGENT_VERSION = 18, 23
SHARED_PROFILES = OpenClawValue(
    _STATE_VERSION, "config_machine_state", "value_json", "state_key = 'authProfiles.store'"
)
"""The auth profiles that all agents share, as JSON."""
AGENT_PROFILES = OpenClawValue(_AGENT_VERSION, "auth_profile_store", "store_json", "store_key = 'primary'")
"""The auth profiles of one agent, as JSON."""
STORED_SECRET = OpenClawValue(
    _STATE_VERSION,
    "secret_store_entries",
    "value",
    "scope_kind = 'team' AND scope_id = '' AND name = ?1 AND deleted_at_ms IS NULL",
)
"""The secret of a name."""


class OpenClawDatabaseError(Exception):
    """A database cannot be read. The message says why, and contains nothing of its content."""


def shared_database(state_dir: Path) -> Path:
    """Return the database that all agents share."""
    return state_dir / "state" / "openclaw.sqlite"


def agent_database(state_dir: Path, agent_id: str) -> Path:
    """Return the database of an agent, which `agentDir` does not move."""
    return state_dir / "agents" / agent_id / "agent" / "openclaw-agent.sqlite"


def read_openclaw_value(file: Path, value: OpenClawValue, *arguments: str) -> str | None:
    """Return a value of `file`; None if there is no such file, table or row. Blocks for a few seconds at most.

    Raises:
        OpenClawDatabaseError: the database cannot be read, is of an unknown version, or the value is larger than 1 MiB.
    """
    try:
        return within(_SECONDS + 1, lambda: _read(file, value, arguments))
    except TimeoutError:
        raise OpenClawDatabaseError(f"the database did not answer within {_SECONDS:g} s") from None


def _read(file: Path, value: OpenClawValue, arguments: tuple[str, ...]) -> str | None:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise OpenClawDatabaseError("it is not a regular file")
        return _query(file, value, arguments)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise OpenClawDatabaseError(
            f"the database cannot be opened: {getattr(error, 'strerror', None) or error}"
        ) from None


def _query(file: Path, value: OpenClawValue, arguments: tuple[str, ...]) -> str | None:
    import apsw  # noqa: PLC0415 -- only settings with keys in a database need it

    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        with closing(apsw.Connection(_uri(file), flags=flags)) as connection:
            deadline = time.monotonic() + _SECONDS
            connection.set_busy_timeout(_BUSY_MS)
            # A generated column could otherwise be computed as a text of a gigabyte.
            connection.limit(apsw.SQLITE_LIMIT_LENGTH, _MAX_LENGTH)
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CHECKS)
            for pragma in ("query_only=ON", "trusted_schema=OFF", f"cache_size=-{_CACHE_KIB}"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.execute("BEGIN").fetchall()
            return _value(connection, value, arguments)
    except apsw.Error as error:
        # The messages of SQLite may quote the content of the schema.
        raise OpenClawDatabaseError(f"the database cannot be read ({type(error).__name__})") from None


def _value(connection: Any, value: OpenClawValue, arguments: tuple[str, ...]) -> str | None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > value.version:
        raise OpenClawDatabaseError(f"its schema has version {version}, and memoryd knows up to {value.version}")
    if not connection.table_exists("main", value.table):
        return None
    where = f"FROM {value.table} WHERE {value.where}"
    size = connection.execute(f"SELECT octet_length({value.column}), typeof({value.column}) {where}", arguments)
    found = size.fetchone()
    size.close()
    if found is None:
        return None
    if found[1] != "text":
        raise OpenClawDatabaseError(f"{value.table}.{value.column} is not a text")
    if found[0] > _MAX_BYTES:
        raise OpenClawDatabaseError(f"{value.table}.{value.column} is larger than {_MAX_BYTES} bytes")
    return str(connection.execute(f"SELECT {value.column} {where}", arguments).fetchone()[0])


def _uri(file: Path) -> str:
    has_log = any(file.with_name(file.name + suffix).exists() for suffix in ("-wal", "-journal"))
    immutable = "" if has_log or os.access(file.parent, os.W_OK) else "&immutable=1"
    return f"file:{quote(os.fspath(file))}?mode=ro{immutable}"
