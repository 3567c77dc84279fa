"""A daemon that dies, however it dies, takes every qmd process with it."""

import json
import signal
import time

import psutil
import pytest

from e2e.daemon_fixture import client
from fake_qmd.installs import make_fake
from memoryd.v1 import memory_pb2
from waiting import wait_until

DIRECT = "agent:main:cli:direct:test"
GONE_SECONDS = 40


@pytest.fixture
def fake(tmp_path):
    return make_fake(tmp_path / "bin")


def configure(daemons, fake):
    update = {"onBoot": False, "interval": "0s", "debounceMs": 0}
    qmd = {"command": str(fake.path), "limits": {"timeoutMs": 60_000}, "update": update}
    settings = json.loads(daemons.config.read_text())
    daemons.config.write_text(json.dumps({**settings, "memory": {"backend": "qmd", "qmd": qmd}}))


def is_gone(process):
    """Whether it has ended, also where another has its number by now; its new parent may not have reaped it yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_no_command_outlives_its_daemon(daemons, fake, number):
    daemons.write("memory/a.md", "a crane\n")
    configure(daemons, fake)
    served = daemons.start()
    with client(served) as connection:
        list(connection.sync(timeout=60))
    # An update is under way: nobody cancels it, and its time is not up.
    fake.faults(update="hang")
    daemons.write("memory/b.md", "a second crane\n")
    pids = wait_until(fake.hanging)
    daemon = psutil.Process(served.process.pid)
    children = daemon.children(recursive=True)
    assert set(pids) <= {child.pid for child in children}
    served.process.send_signal(number)
    served.process.wait(30)
    until = time.monotonic() + GONE_SECONDS
    for child in children:
        while not is_gone(child):
            assert time.monotonic() < until, f"a process was left: {child}"
            time.sleep(0.02)


@pytest.mark.slow
def test_a_daemon_that_starts_again_goes_on_with_the_index(daemons, fake):
    daemons.write("memory/a.md", "a crane\n")
    configure(daemons, fake)
    served = daemons.start()
    with client(served) as connection:
        list(connection.sync(timeout=60))
    served.process.kill()
    served.process.wait(30)
    with client(daemons.start()) as connection:
        answer = connection.search(query="crane", session_key=DIRECT)
        assert answer.info.backend == memory_pb2.BACKEND_QMD
        assert [hit.path for hit in answer.results] == ["memory/a.md"]
