"""Values of any type in the columns that are read of OpenClaw's database: a row is left out, and no reading fails."""

import contextlib
import itertools

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd_server.errors import MemorydError
from memoryd_server.sources.session_messages import last_session_messages
from memoryd_server.sources.session_source import (
    discover_sessions,
    has_session,
    open_transcript,
    stat_sessions,
)
from memoryd_server.sources.transcripts import START
from openclaw_home import ARCHIVED, MAIN, OpenClawIndex, copy_home

# The columns that are read.
COLUMNS = {
    "schema_meta": ["meta_key", "role", "agent_id"],
    "session_nodes": ["session_key", "current_session_id", "spawned_by", "parent_session_key", "entry_json"],
    "session_windows": ["session_id", "spawned_by", "parent_session_key", "transcript_updated_at", "updated_at"],
    "transcript_events": ["session_id", "seq", "event_json", "event_zstd", "event_utf8_bytes"],
    "transcript_event_identities": ["session_id", "event_id", "event_type", "seq", "parent_id"],
    "session_transcript_active_events": ["session_id", "event_seq"],
    "session_transcript_index_state": ["session_id", "needs_rebuild", "indexed_seq"],
    "transcript_rewrite_watermarks": ["session_id", "generation"],
    "session_transcript_archives": [
        *("archive_name", "session_id", "generation", "session_key", "created_at", "archive_blob", "encoding"),
    ],
    "session_transcript_cold_archives": [
        *("session_id", "generation", "archive_name", "archive_sha256", "last_seq", "storage", "archive_blob"),
    ],
    "memory_session_tombstones": ["session_id"],
}
VALUES = [None, b"", b"\xff\x00", "", "text", "[]", "\ud7ff/..\0", 0, -1, 7, 2**63 - 1, -(2**63), 2.5, 1e300]


@pytest.fixture
def database(tmp_path):
    """A copy of the fixture's database, whose tables accept values of any type, and are not indexed."""
    path = copy_home(tmp_path)
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        loosen(connection)
    return path


def loosen(connection):
    connection.execute("PRAGMA foreign_keys = OFF; PRAGMA legacy_alter_table = ON")
    for (name,) in list(connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")):
        connection.execute(f"DROP TRIGGER {name}")
    for table in COLUMNS:
        names = ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))
        # The former primary key is an index, or each case would take seconds.
        first = "seq, session_id" if table == "transcript_events" else COLUMNS[table][0]
        connection.execute(
            f"CREATE TABLE loose({names}); INSERT INTO loose SELECT * FROM {table}; DROP TABLE {table};"
            f"ALTER TABLE loose RENAME TO {table}; CREATE INDEX loose_{table} ON {table}({first})"
        )
    if not next(connection.execute("SELECT count(*) FROM memory_session_tombstones"))[0]:
        connection.execute("INSERT INTO memory_session_tombstones VALUES ('none', 'main', 'user', 1)")


def read_all(database):
    """Read everything of the database through every function; return the paths that were discovered, and failures."""
    folder = str(database.parents[1] / "sessions")
    discovery, excluded = discover_sessions(str(database), "main", folder)
    assert all(isinstance(session, str) for session in excluded)
    names = [file.parts[-1] for file in discovery.files]
    stats = stat_sessions(str(database), "main", [*names, f"{MAIN}.jsonl"])
    assert set(stats) <= {*names, f"{MAIN}.jsonl"}
    for file in discovery.files:
        with contextlib.suppress(OSError, MemorydError), open_transcript(file) as reader:
            for line in reader.lines(START):
                assert isinstance(line.after.offset, int)
                assert line.message is None or isinstance(line.message.line, int)
            reader.prefix_digest(line.after)
    with contextlib.suppress(OSError, MemorydError):
        has_session(str(database), "main", MAIN)
    last_session_messages(str(database), "main", folder, MAIN, 3)
    return {file.path for file in discovery.files}, discovery.failures


@contextlib.contextmanager
def changed(database, table, column, value, which="min"):
    """Set a value in the first or the last row of a table during the block."""
    with contextlib.closing(apsw.Connection(str(database))) as connection:
        mine = "WHERE session_id = ?" if "session_id" in COLUMNS[table] else "WHERE ? IS NOT NULL"
        (rowid,) = next(connection.execute(f"SELECT {which}(rowid) FROM {table} {mine}", (MAIN,)))
        if rowid is None:
            (rowid,) = next(connection.execute(f"SELECT {which}(rowid) FROM {table}"))
        (before,) = next(connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (rowid,)))
        update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
        connection.execute(update, (value, rowid))
        yield
        connection.execute(update, (before, rowid))


@pytest.mark.slow
@pytest.mark.attacks
@pytest.mark.parametrize("which", ["min", "max"])
@pytest.mark.parametrize("table", COLUMNS)
def test_a_value_of_any_type_affects_no_other_session(database, table, which):
    usual, none = read_all(database)
    assert (len(usual), none) == (9, ())
    wrong = []
    for column, value in itertools.product(COLUMNS[table], VALUES):
        with changed(database, table, column, value, which):
            try:
                found, failures = read_all(database)
            except Exception as error:  # noqa: BLE001 -- all violations are listed
                wrong.append((column, value, repr(error)))
                continue
        # Without its role, the database is not read.
        lost = usual - found
        if len(lost) > 1 and table != "schema_meta":
            wrong.append((column, value, sorted(lost), failures))
    assert wrong == []


def test_a_row_with_a_value_of_another_type_is_reported(database):
    with changed(database, "session_nodes", "session_key", b"\xff"):
        _, (failure,) = read_all(database)
    assert failure.path == "sessions/main"
    assert failure.error.startswith("rows with values of unexpected types in ")
    assert failure.error.endswith(": 1")


def test_an_archive_of_a_scheduled_run_is_excluded_also_if_it_has_a_value_of_another_type(database):
    with (
        changed(database, "session_transcript_archives", "session_key", "agent:main:cron:job:run:1"),
        changed(database, "session_transcript_archives", "created_at", "text"),
    ):
        _, excluded = discover_sessions(str(database), "main", str(database.parents[1] / "sessions"))
    assert ARCHIVED in excluded


@pytest.mark.attacks
def test_a_sync_with_values_of_any_type_indexes_the_notes_and_the_other_sessions(tmp_path):
    index = OpenClawIndex(tmp_path).open()
    index.write("memory/crane.md", "The harbour crane lifts containers.")
    index.sync()
    with contextlib.closing(apsw.Connection(str(index.database))) as connection:
        loosen(connection)
        for column, table in (("updated_at", "session_windows"), ("created_at", "session_transcript_archives")):
            connection.execute(f"UPDATE {table} SET {column} = 'text', session_key = NULL WHERE rowid = 1")
        connection.execute("UPDATE transcript_events SET seq = x'00' WHERE rowid = 3")
    index.sync()
    assert index.found_paths("crane") == ["memory/crane.md"]
    index.close()


ANY = st.one_of(st.none(), st.binary(), st.text(st.characters(codec="utf-8")), st.integers(-(2**63), 2**63 - 1))
CELLS = st.sampled_from([(table, column) for table, columns in COLUMNS.items() for column in columns])


@pytest.mark.attacks
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELLS, ANY | st.floats(allow_nan=False)), min_size=1, max_size=5))
def test_several_values_of_any_type_end_no_reading(database, changes):
    with contextlib.ExitStack() as stack:
        for (table, column), value in changes:
            stack.enter_context(changed(database, table, column, value))
        read_all(database)
