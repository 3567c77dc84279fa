"""Several `memoryd index --force` at the same time: each one waits for the run in progress."""

import json
import subprocess
import threading
from contextlib import ExitStack, contextmanager

import pytest

from daemon_process import COMMAND, environment, serving
from fake_providers import embedding_server
from waiting import WAIT_SECONDS, wait_until


@pytest.fixture
def held(tmp_path):
    """A daemon whose provider does not answer before the event is set."""
    go = threading.Event()
    (tmp_path / "w" / "memory").mkdir(parents=True)
    (tmp_path / "w" / "memory" / "a.md").write_text("The crane lifts containers.")
    (tmp_path / "s").mkdir()
    with embedding_server() as provider:
        provider.refuse = lambda _texts: go.wait(WAIT_SECONDS) and None
        remote = {"baseUrl": provider.url, "apiKey": "sk-of-this-test"}
        search = {"provider": "openai-compatible", "model": "words", "remote": remote}
        settings = {"agents": {"defaults": {"memorySearch": search}}}
        (tmp_path / "s" / "memoryd.json5").write_text(json.dumps(settings))
        try:
            with serving(tmp_path / "w", tmp_path / "s", home=tmp_path) as daemon:
                yield daemon, provider, go
        finally:
            go.set()


@contextmanager
def command(daemon, *arguments):
    process = subprocess.Popen(
        [*COMMAND, "index", *arguments, "--state-dir", str(daemon.state)],
        env=environment(daemon.home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def first_phase(process):
    return json.loads(process.stdout.readline())["progress"]["phase"]


def last_event(process):
    output, errors = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, errors) == (0, "")
    return json.loads(output.splitlines()[-1])


def test_all_of_them_succeed_and_those_that_wait_share_a_run(held):
    daemon, provider, go = held
    wait_until(lambda: provider.texts)
    with ExitStack() as stack:
        forced = [stack.enter_context(command(daemon, "--force", "--json")) for _ in range(2)]
        assert [first_phase(process) for process in forced] == ["SYNC_PHASE_WAITING"] * 2
        go.set()
        first, second = map(last_event, forced)
    assert first["syncId"] == second["syncId"]
    assert first["completed"]["indexedFiles"] == 1


@pytest.mark.slow
def test_a_command_that_is_ended_while_it_waits_starts_no_run(held):
    daemon, provider, go = held
    wait_until(lambda: provider.texts)
    with command(daemon, "--force", "--json") as process:
        assert first_phase(process) == "SYNC_PHASE_WAITING"
        process.terminate()
        process.wait(WAIT_SECONDS)
    go.set()
    with command(daemon, "--json") as process:
        last_event(process)
    log = (daemon.home / "daemon.log").read_text("utf-8")
    assert "FULL" not in log
