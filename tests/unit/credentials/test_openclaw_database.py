"""Reading OpenClaw's databases: nothing is written, no writer waits, and each failure has a reason."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest

from memoryd_server.credentials import (
    AGENT_PROFILES,
    SHARED_PROFILES,
    OpenClawDatabaseError,
    agent_database,
    read_openclaw_value,
    shared_database,
)
from openclaw_rows import agent_file, open_state, opened, put_own_profiles, put_shared_profiles, state_file

PROFILES = '{"profiles": {}}'


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_the_databases_are_where_openclaw_has_them(tmp_path):
    assert shared_database(tmp_path) == state_file(tmp_path)
    assert agent_database(tmp_path, "bird") == agent_file(tmp_path, "bird")


def test_a_row_is_read_and_the_database_is_not_changed(tmp_path):
    put_shared_profiles(tmp_path, PROFILES)
    before = digest(state_file(tmp_path))
    for _ in range(20):
        assert read_openclaw_value(state_file(tmp_path), SHARED_PROFILES) == PROFILES
    assert digest(state_file(tmp_path)) == before


def test_what_is_in_the_write_ahead_log_alone_is_read(tmp_path):
    put_shared_profiles(tmp_path, PROFILES)
    with closing(open_state(tmp_path)) as host:
        host.wal_autocheckpoint(0)
        host.execute("UPDATE config_machine_state SET value_json = '{\"new\": 1}'")
        assert state_file(tmp_path).with_name("openclaw.sqlite-wal").stat().st_size > 0
        assert read_openclaw_value(state_file(tmp_path), SHARED_PROFILES) == '{"new": 1}'


def test_a_missing_file_table_or_row_is_no_value(tmp_path):
    assert read_openclaw_value(state_file(tmp_path), SHARED_PROFILES) is None
    assert not state_file(tmp_path).parent.exists()
    open_state(tmp_path).close()
    assert read_openclaw_value(state_file(tmp_path), SHARED_PROFILES) is None
    assert read_openclaw_value(state_file(tmp_path), AGENT_PROFILES) is None


def test_an_older_version_is_read_and_a_newer_one_is_not(tmp_path):
    put_own_profiles(tmp_path, PROFILES, version=11)
    assert read_openclaw_value(agent_file(tmp_path), AGENT_PROFILES) == PROFILES
    put_own_profiles(tmp_path, PROFILES, version=24)
    with pytest.raises(OpenClawDatabaseError, match="its schema has version 24, and memoryd knows up to 23"):
        read_openclaw_value(agent_file(tmp_path), AGENT_PROFILES)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("CREATE TABLE config_machine_state (state_key TEXT, value_text TEXT)", "cannot be read"),
        ("CREATE TABLE config_machine_state (key TEXT, value_json TEXT)", "cannot be read"),
        ("CREATE TABLE config_machine_state (state_key TEXT, value_json BLOB)", "is not a text"),
    ],
)
def test_a_table_of_another_form_has_a_reason(tmp_path, table, reason):
    with closing(opened(state_file(tmp_path), (table,), 18)) as host:
        if "BLOB" in table:
            host.execute("INSERT INTO config_machine_state VALUES ('authProfiles.store', x'00')")
    with pytest.raises(OpenClawDatabaseError, match=reason):
        read_openclaw_value(state_file(tmp_path), SHARED_PROFILES)


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_file_that_is_no_database_has_no_keys_or_a_reason(tmp_path, content):
    state_file(tmp_path).parent.mkdir()
    state_file(tmp_path).write_bytes(content)
    if not content:
        assert read_openclaw_value(state_file(tmp_path), SHARED_PROFILES) is None
        return
    with pytest.raises(OpenClawDatabaseError, match="the database cannot be read"):
        read_openclaw_value(state_file(tmp_path), SHARED_PROFILES)
    assert state_file(tmp_path).read_bytes() == content


def test_a_value_of_more_than_a_megabyte_is_refused(tmp_path):
    put_shared_profiles(tmp_path, " " * 2**20)
    assert len(read_openclaw_value(state_file(tmp_path), SHARED_PROFILES)) == 2**20
    put_shared_profiles(tmp_path, " " * (2**20 + 1))
    with pytest.raises(OpenClawDatabaseError, match="is larger than 1048576 bytes"):
        read_openclaw_value(state_file(tmp_path), SHARED_PROFILES)


def test_a_generated_column_is_not_computed_beyond_the_largest_value(tmp_path):
    table = "CREATE TABLE auth_profile_store (store_key, store_json TEXT GENERATED ALWAYS AS (printf('%.*c', {}, ' ')))"
    for size, reason in ((2**20 + 1, "is larger than 1048576 bytes"), (50 * 2**20, "TooBigError")):
        file = tmp_path / f"{size}.sqlite"
        with closing(opened(file, (table.format(size),), 23)) as connection:
            connection.execute("INSERT INTO auth_profile_store VALUES ('primary')")
        with pytest.raises(OpenClawDatabaseError, match=reason):
            read_openclaw_value(file, AGENT_PROFILES)


def test_a_folder_or_a_named_pipe_in_the_place_of_a_database_has_a_reason(tmp_path):
    state_file(tmp_path).mkdir(parents=True)
    with pytest.raises(OpenClawDatabaseError):
        read_openclaw_value(state_file(tmp_path), SHARED_PROFILES)
    state_file(tmp_path).rmdir()
    os.mkfifo(state_file(tmp_path))
    with pytest.raises(OpenClawDatabaseError, match="it is not a regular file"):
        read_openclaw_value(state_file(tmp_path), SHARED_PROFILES)


def test_the_host_writes_while_the_row_is_read(tmp_path):
    """Each write of the host succeeds without waiting for a reader, and each read gives a whole value."""
    put_shared_profiles(tmp_path, "0")
    stop, slowest = threading.Event(), [0.0]

    def write():
        with closing(open_state(tmp_path)) as host:
            host.set_busy_timeout(0)
            number = 0
            while not stop.is_set():
                number += 1
                began = time.thread_time()
                host.execute("UPDATE config_machine_state SET value_json = ?", (str(number) * 5000,))
                slowest[0] = max(slowest[0], time.thread_time() - began)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        values = [read_openclaw_value(state_file(tmp_path), SHARED_PROFILES) for _ in range(50)]
    finally:
        stop.set()
        writer.join()
    assert all(value == value[: len(value) // 5000] * 5000 for value in values[1:] if len(value) >= 5000)
    with closing(open_state(tmp_path)) as host:
        assert int(host.execute("SELECT value_json FROM config_machine_state").fetchone()[0][:1]) > 0
    assert slowest[0] < 1


READ_AS_A_USER = """
import os, sys
from pathlib import Path
from memoryd_server.credentials import SHARED_PROFILES, read_openclaw_value

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(read_openclaw_value(Path(sys.argv[1]), SHARED_PROFILES))
"""


def test_a_folder_that_cannot_be_written_is_read_while_the_host_is_down():
    with TemporaryDirectory() as folder:
        state = Path(folder)
        put_shared_profiles(state, PROFILES)
        state_file(state).chmod(0o444)
        state_file(state).parent.chmod(0o555)
        state.chmod(0o755)
        try:
            run = subprocess.run(
                [sys.executable, "-c", READ_AS_A_USER, str(state_file(state))],
                capture_output=True,
                text=True,
                check=True,
            )
            assert run.stdout.strip() == PROFILES
            assert os.listdir(state_file(state).parent) == ["openclaw.sqlite"]  # noqa: PTH208
        finally:
            state_file(state).parent.chmod(0o755)


def test_the_fixture_is_a_database_with_a_write_ahead_log(tmp_path):
    put_own_profiles(tmp_path, PROFILES)
    with closing(apsw.Connection(str(agent_file(tmp_path)))) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
