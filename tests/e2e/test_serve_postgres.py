"""`make serve-postgres`: a daemon on a PostgreSQL server that keeps its data and ends with the daemon."""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

import serve_postgres
from daemon_process import end, start
from postgres_server import missing

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture
def folder():
    """A folder with a short path that every user can reach, as the path of a socket requires."""
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp", ignore_cleanup_errors=True) as found:
        yield Path(found) / "postgres"


# A process group of its own, as the shell of a terminal makes for each command.
OWN_GROUP = "import os, sys; os.setpgid(0, 0); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.parametrize("is_ctrl_c", [False, True])
def test_data_is_kept_and_the_server_ends_with_the_daemon(folder, places, is_ctrl_c):
    home, workspace, _ = places
    socket = folder / "server" / ".s.PGSQL.5432"
    revisions = []
    for _ in range(2):
        within = (sys.executable, "-c", OWN_GROUP, sys.executable, serve_postgres.__file__, folder, workspace)
        daemon = start(None, folder / "state", home=home, within=within, listen=f"unix:{folder}/m.sock")
        try:
            assert daemon.memoryd("index").returncode == 0
            assert "the red ferry" in daemon.memoryd("search", "ferry").stdout
            (agent,) = json.loads(daemon.memoryd("status", "--json").stdout)
            revisions.append(agent["status"]["index"]["revision"])
            checks = json.loads(daemon.memoryd("doctor", "--json").stdout)
            assert {each["verdict"] for each in checks if each["name"].startswith("PostgreSQL")} == {"ok"}
            assert socket.exists()
            if is_ctrl_c:
                os.killpg(daemon.process.pid, signal.SIGINT)
                daemon.process.wait(60)
        finally:
            code = end(daemon.process)
        assert code == 0
        assert not socket.exists()
    assert revisions[0] == revisions[1]
    assert not list((folder / "state").rglob("*.sqlite"))
