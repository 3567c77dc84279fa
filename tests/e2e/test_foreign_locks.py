"""Another program locks memory files of two agents: everything else answers, and SIGTERM ends the daemon in time."""

import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from daemon_process import COMMAND, environment
from e2e.daemon_fixture import client, last_event, paths
from memoryd.client import MemorydError
from waiting import wait_until

pytestmark = pytest.mark.faults

LOG = "memory/log.md"
AGENTS = ("ada", "bob", "cyd")
TEXT = "decided to keep the cache"
GRACE_SECONDS = 3
# Two seconds are promised beyond the grace; a busy machine gets some more.
BEYOND_SECONDS = 4


@contextmanager
def locked(*files):
    descriptors = [os.open(file, os.O_RDWR) for file in files]
    try:
        for descriptor in descriptors:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def log_of(daemons, name):
    # What the command line names is the default agent's.
    return (daemons.workspace if name == "ada" else daemons.home / name) / LOG


@pytest.fixture
def served(daemons):
    """A daemon with three agents whose logs are indexed."""
    agents = [{"id": name, "default": name == "ada", "workspace": str(daemons.home / name)} for name in AGENTS]
    for name in AGENTS:
        log_of(daemons, name).parent.mkdir(parents=True, exist_ok=True)
        log_of(daemons, name).write_text(f"the heron of {name}\n")
    limits = {"limits": {"shutdownGraceSeconds": GRACE_SECONDS}, "log": {"format": "json"}}
    settings = {"agents": {"defaults": {"memorySearch": {"sync": {"watch": False}}}, "list": agents}, "memoryd": limits}
    daemons.config.write_text(json.dumps(settings))
    served = daemons.start()
    with client(served) as connection:
        for name in AGENTS:
            last_event(connection, agent_id=name)
    return served


class Appends:
    """Appends in threads of their own, and what they came to."""

    def __init__(self, served, agents, seconds, each=4):
        self.outcomes = []
        keys = [(agent, f"k{number}") for agent in agents for number in range(each)]
        self._threads = [threading.Thread(target=self._run, args=(served, *key, seconds)) for key in keys]
        for thread in self._threads:
            thread.start()

    def _run(self, served, agent, key, seconds):
        began = time.monotonic()
        try:
            with client(served) as connection:
                outcome = connection.append(agent_id=agent, text=TEXT, path=LOG, idempotency_key=key, timeout=seconds)
        except MemorydError as error:
            outcome = error
        self.outcomes.append((outcome, time.monotonic() - began))

    def join(self):
        for thread in self._threads:
            thread.join(60)
        return self.outcomes


def begun(daemons, agents):
    """Returns once appends of these agents have been tried."""
    for name in agents:
        wait_until((daemons.state / "memory" / f"{name}.appends").exists)
    time.sleep(0.2)


@pytest.mark.slow
def test_everything_but_the_locked_files_answers_and_the_retry_writes_once(daemons, served):
    files = [log_of(daemons, name) for name in ("ada", "bob")]
    with locked(*files):
        appends = Appends(served, ("ada", "bob"), seconds=8)
        begun(daemons, ("ada", "bob"))
        with client(served) as connection, grpc.insecure_channel(served.address) as channel:
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2)
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            for name in AGENTS:
                assert connection.status(agent_id=name, timeout=4).index.files == 1
                assert [file.path for file in connection.list_files(agent_id=name, timeout=4).files] == [LOG]
                assert [hit.path for hit in connection.search(agent_id=name, query="heron", timeout=4).results] == [LOG]
            assert connection.append(agent_id="cyd", text=TEXT, path=LOG, timeout=4).start_line == 2
        for outcome, seconds in appends.join():
            assert isinstance(outcome, MemorydError), outcome
            assert (outcome.code, outcome.reason) == (grpc.StatusCode.UNAVAILABLE, "INDEX_BUSY")
            assert outcome.retry_after_seconds
            assert LOG in str(outcome)
            assert seconds < 8
        for name, file in zip(AGENTS, files, strict=False):
            assert file.read_text() == f"the heron of {name}\n"
            assert (daemons.state / "memory" / f"{name}.appends").read_bytes() == b""
    for already in (False, True):
        for outcome, _ in Appends(served, ("ada", "bob"), seconds=10).join():
            assert outcome.already_appended is already
    for name, file in zip(AGENTS, files, strict=False):
        assert file.read_text() == f"the heron of {name}\n" + f"{TEXT}\n" * 4


@pytest.mark.slow
def test_sigterm_ends_the_process_while_appends_wait_for_locks(daemons, served):
    files = [log_of(daemons, name) for name in ("ada", "bob")]
    with locked(*files):
        appends = Appends(served, ("ada", "bob"), seconds=60)
        begun(daemons, ("ada", "bob"))
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 0
        assert time.monotonic() - began < GRACE_SECONDS + BEYOND_SECONDS
        for outcome, _ in appends.join():
            assert (outcome.code, outcome.reason) == (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
        # A start beside the locks does not wait either.
        with client(daemons.start()) as connection:
            assert paths(connection, "heron") == [LOG]
    for name, file in zip(AGENTS, files, strict=False):
        assert file.read_text() == f"the heron of {name}\n"


def fill(descriptor):
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(descriptor, b"x" * size)


@pytest.mark.slow
def test_sigterm_ends_the_process_although_its_log_reader_hangs(daemons):
    reading, writing = os.pipe()
    filler = None
    command = [
        *COMMAND,
        "serve",
        "--workspace",
        daemons.workspace,
        "--state-dir",
        daemons.state,
        "--config",
        daemons.config,
    ]
    settings = {"memoryd": {"limits": {"shutdownGraceSeconds": 1}, "listen": [f"unix:{daemons.state}/m.sock"]}}
    daemons.config.write_text(json.dumps(settings))
    process = subprocess.Popen(
        list(map(str, command)), env=environment(daemons.home), stdout=subprocess.PIPE, stderr=writing, text=True
    )
    try:
        assert process.stdout.readline().startswith("listening on ")
        # A description of our own, as a pipe that does not block us must block the daemon.
        filler = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
        fill(filler)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1
        assert time.monotonic() - began < 1 + BEYOND_SECONDS
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()
        for descriptor in filter(None, (reading, writing, filler)):
            os.close(descriptor)
