"""A provider that hangs keeps no daemon from ending."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest

from fake_providers import fake_provider

WAIT = 60


@pytest.fixture
def hanging():
    gate = threading.Event()
    with fake_provider("openai") as server:
        server.refuse = lambda _texts: gate.wait(120) and None
        yield server
        gate.set()


@pytest.mark.slow
def test_a_daemon_whose_provider_hangs_ends_soon_after_sigterm(tmp_path, hanging):
    workspace, state = tmp_path / "workspace", tmp_path / "state"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "memory" / "boat.md").write_text("the red ferry sails at dawn")
    state.mkdir()
    search = {"provider": "openai", "remote": {"baseUrl": hanging.url, "apiKey": "sk-of-this-test"}}
    (state / "memoryd.json5").write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}}}))
    command = [sys.executable, "-m", "memoryd_server", "serve"]
    flags = ["--workspace", workspace, "--state-dir", state, "--listen", f"unix:{tmp_path / 's'}"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen([*command, *flags], stdout=log, stderr=log) as daemon:
        try:
            until = time.monotonic() + WAIT
            while not hanging.requests:
                assert daemon.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < until
                time.sleep(0.05)
            began = time.monotonic()
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(WAIT) == 0
            assert time.monotonic() - began < 20
        finally:
            if daemon.poll() is None:
                daemon.kill()
