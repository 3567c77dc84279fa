"""The rows with keys in OpenClaw's databases, in tables with the columns that OpenClaw 2026.9.6 gives them."""

import json
from contextlib import closing

import apsw

STATE_VERSION, AGENT_VERSION = 18, 23

_STATE_TABLES = (
    """CREATE TABLE config_machine_state (
        state_key TEXT NOT NULL PRIMARY KEY, value_json TEXT NOT NULL, updated_at_ms INTEGER NOT NULL) STRICT""",
    """CREATE TABLE secret_store_entries (
        scope_kind TEXT NOT NULL, scope_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, kind TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL, updated_by TEXT, deleted_at_ms INTEGER,
        allowed_hosts TEXT, PRIMARY KEY (scope_kind, scope_id, name)) STRICT""",
)
_AGENT_TABLES = (
    """CREATE TABLE auth_profile_store (
        store_key TEXT NOT NULL PRIMARY KEY, store_json TEXT NOT NULL, updated_at INTEGER NOT NULL) STRICT""",
)


def state_file(state):
    return state / "state" / "openclaw.sqlite"


def agent_file(state, agent="main"):
    return state / "agents" / agent / "agent" / "openclaw-agent.sqlite"


def put_secret(state, name, value, *, deleted=None, scope=("team", "")):
    row = (*scope, name, value, "secret", 1, 1, "cli", deleted, None)
    with closing(open_state(state)) as connection:
        connection.execute("INSERT OR REPLACE INTO secret_store_entries VALUES (?,?,?,?,?,?,?,?,?,?)", row)


def put_shared_profiles(state, profiles):
    text = profiles if isinstance(profiles, str) else json.dumps({"version": 1, "profiles": profiles})
    with closing(open_state(state)) as connection:
        row = ("authProfiles.store", text, 1)
        connection.execute("INSERT OR REPLACE INTO config_machine_state VALUES (?,?,?)", row)


def put_own_profiles(state, profiles, agent="main", *, version=AGENT_VERSION):
    text = profiles if isinstance(profiles, str) else json.dumps({"version": 1, "profiles": profiles})
    with closing(opened(agent_file(state, agent), _AGENT_TABLES, version)) as connection:
        connection.execute("INSERT OR REPLACE INTO auth_profile_store VALUES (?,?,?)", ("primary", text, 1))


def open_state(state, version=STATE_VERSION):
    return opened(state_file(state), _STATE_TABLES, version)


def opened(file, tables, version):
    """Return a connection to a database with a write-ahead log, which OpenClaw uses; it is made if it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    is_new = not file.exists()
    connection = apsw.Connection(str(file))
    connection.set_busy_timeout(5_000)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    if is_new:
        file.chmod(0o600)
        for table in tables:
            connection.execute(table)
    connection.execute(f"PRAGMA user_version={version}")
    return connection
