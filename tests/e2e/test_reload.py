"""Settings change under a running daemon: SIGHUP and `memoryd reload`, with real processes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from daemon_process import end, memoryd
from e2e.daemon_fixture import client, paths
from memoryd.client import MemorydError
from waiting import wait_until


def configure(daemons, *, max_results=6, agents=("main",), **ours):
    """Writes settings that a daemon of `daemons` was started with, or is to read again."""
    defaults = {"memorySearch": {"query": {"maxResults": max_results}, "sync": {"watchDebounceMs": 50}}}
    listed = [{"id": agent} for agent in agents]
    daemons.config.write_text(json.dumps({"agents": {"list": listed, "defaults": defaults}, "memoryd": ours}))


@pytest.fixture
def served(daemons):
    for number in range(5):
        daemons.write(f"memory/{number}.md", f"heron number {number}")
    configure(daemons)
    served = daemons.start()
    with client(served) as connection:
        wait_until(lambda: len(paths(connection, "heron")) == 5)
    return served


def hits(connection):
    return len(connection.search(query="heron").results)


def check_reload(served, code, *, out="", err=""):
    done = served.memoryd("reload")
    assert (done.returncode, out in done.stdout, err in done.stderr) == (code, True, True), (done.stdout, done.stderr)
    return done


def test_a_hangup_signal_brings_new_settings_into_force(daemons, served):
    with client(served) as connection:
        assert hits(connection) == 5
        configure(daemons, max_results=2)
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: hits(connection) == 2)
        service = connection.status().service
        assert (service.settings_loads, service.settings_error) == (2, "")
    (event,) = daemons.events("reload-settings")
    assert event["changed"] == ["agents.list[main].memorySearch.query.maxResults"]


@pytest.mark.slow
def test_memoryd_reload_reports_what_is_in_force_and_what_waits(daemons, served):
    configure(daemons, max_results=2, listen=["unix:/tmp/elsewhere.sock"], local={"threads": 1})
    done = check_reload(served, 0, out="in effect: agents.list[main].memorySearch.query.maxResults")
    # The listener is given by flag, which goes over the file.
    assert "needs a restart: memoryd.local.threads" in done.stdout
    assert "listen" not in done.stdout
    with client(served) as connection:
        assert hits(connection) == 2
        assert list(connection.status().service.settings_awaiting_restart) == ["memoryd.local.threads"]
    assert "memoryd.local.threads needs a restart" in served.memoryd("status").stdout
    told = json.loads(served.memoryd("reload", "--json").stdout)
    assert told == {"loads": 3, "error": "", "changed": [], "awaiting_restart": ["memoryd.local.threads"]}
    configure(daemons, max_results=2)
    check_reload(served, 0, out="no changes")


@pytest.mark.slow
def test_a_file_that_cannot_be_used_is_an_error_and_changes_nothing(daemons, served):
    daemons.config.write_text('{"memoryd": {"reconcileSecond": 3}}')
    check_reload(served, 1, err="did you mean")
    with client(served) as connection:
        assert hits(connection) == 5
        assert "reconcileSecond" in connection.status().service.settings_error
    assert "the last reload failed" in served.memoryd("status").stdout
    assert daemons.events("refuse-settings")
    configure(daemons, max_results=2)
    check_reload(served, 0, out="in effect")
    with client(served) as connection:
        assert (hits(connection), connection.status().service.settings_error) == (2, "")


@pytest.mark.slow
def test_agents_and_the_log_level_change_under_a_running_daemon(daemons, served):
    with client(served) as connection:
        with pytest.raises(MemorydError):
            connection.status(agent_id="bird")
        configure(daemons, agents=("main", "bird"), log={"level": "debug"})
        check_reload(served, 0, out="in effect: agents.list[bird]")
        assert connection.status(agent_id="bird").agent_id == "bird"
        wait_until(lambda: daemons.events("serve-call"))
        configure(daemons, log={"level": "error"})
        check_reload(served, 0)
        with pytest.raises(MemorydError, match="there is no agent"):
            connection.status(agent_id="bird")
        assert hits(connection) == 5


@pytest.mark.slow
def test_many_signals_while_searches_run_lose_no_call(daemons, served):
    errors = []
    with client(served) as connection:
        until = time.monotonic() + 2
        turn = 0
        while time.monotonic() < until:
            turn += 1
            configure(daemons, max_results=1 + turn % 5, vectorMemoryBytes=1_000_000 + turn)
            served.process.send_signal(signal.SIGHUP)
            for _ in range(20):
                try:
                    connection.search(query="heron")
                except MemorydError as error:
                    errors.append(str(error))
        configure(daemons, max_results=3)
        check_reload(served, 0)
        assert hits(connection) == 3
    assert errors == []
    assert served.process.poll() is None


@pytest.mark.slow
def test_without_a_daemon_reload_says_so(daemons):
    done = memoryd("reload", "--state-dir", daemons.state, home=daemons.home)
    assert (done.returncode, "no daemon is running" in done.stderr) == (5, True)


@pytest.mark.slow
def test_the_endpoint_file_of_a_killed_daemon_signals_no_other_process(daemons, served):
    end(served.process, signal.SIGKILL)
    note = daemons.state / "memoryd.endpoint.json"
    assert json.loads(note.read_text())["pid"] == served.process.pid
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        note.write_text(json.dumps({**json.loads(note.read_text()), "pid": bystander.pid}))
        done = memoryd("reload", "--state-dir", daemons.state, home=daemons.home)
        assert (done.returncode, "no daemon is running" in done.stderr) == (5, True)
        time.sleep(0.1)
        assert bystander.poll() is None
    finally:
        bystander.terminate()
        bystander.wait(10)


@pytest.mark.slow
def test_the_note_is_for_its_owner_alone_and_goes_with_the_daemon(daemons, served):
    note = daemons.state / "memoryd.endpoint.json"
    assert note.stat().st_mode & 0o777 == 0o600
    assert end(served.process) == 0
    assert not note.exists()
    assert os.path.lexists(daemons.state / "memoryd.endpoint.lock")
