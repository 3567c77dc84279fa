"""The command with memory files in PostgreSQL: a machine without a workspace, and with one that is not read."""

import itertools
import json
import signal

import pytest

from daemon_process import end, start
from postgres_server import missing, postgres_server  # noqa: F401 -- a fixture

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]

NUMBERS = itertools.count()


@pytest.fixture
def settings(postgres_server, places):  # noqa: F811 -- the fixture
    """Write settings with an empty database into the state directory, and return their file."""
    _, _, state = places
    url = postgres_server.create_database(f"command{next(NUMBERS)}")
    file = state / "memoryd.json5"
    file.write_text(json.dumps({"memoryd": {"writes": "edit", "store": {"url": url}}}))
    return file


def test_commands_need_no_workspace_and_acknowledged_texts_survive_a_kill(places, settings):
    home, _, state = places
    daemon = start(None, state, home=home)
    try:
        assert "Appended: memory/log.md:1-1" in daemon.memoryd("append", "a heron", "--path", "memory/log.md").stdout
        end(daemon.process, signal.SIGKILL)
        daemon = start(None, state, home=home)
        daemon.memoryd("index")
        assert "memory/log.md:1" in daemon.memoryd("search", "heron").stdout
        assert "Workspace  postgresql://" in daemon.memoryd("status", "--config", settings).stdout
        checks = json.loads(daemon.memoryd("doctor", "--json").stdout)
        names = {check["name"] for check in checks}
        assert {check["verdict"] for check in checks} <= {"ok", "warning"}
        assert names.isdisjoint({"workspace of main", "inotify"})
        assert "PostgreSQL" in names
    finally:
        end(daemon.process)
    assert not (home / ".openclaw").exists()


def test_a_workspace_of_the_command_line_is_not_read_and_the_log_says_so(places, settings):
    home, workspace, state = places
    daemon = start(workspace, state, home=home)
    try:
        daemon.memoryd("index")
        assert "ferry" not in daemon.memoryd("search", "ferry").stdout
        checks = json.loads(daemon.memoryd("doctor", "--json").stdout)
    finally:
        end(daemon.process)
    logged = (home / "daemon.log").read_text("utf-8")
    assert f"{workspace} is not read, because the memory files are in the database" in logged
    command = f"memoryd import folder {workspace} --agent main"
    assert command in logged
    assert [check["name"] for check in checks if command in check["detail"]] == ["memory of main"]
