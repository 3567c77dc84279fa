"""memoryd as the first process of a container, which the kernel spares each signal that it does not handle."""

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from daemon_process import COMMAND, environment
from e2e import namespaces
from e2e.daemon_fixture import client
from memoryd.client import MemorydError
from waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.faults

FIRST = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
# What a shell makes of a process that SIGTERM ended, and a container's engine shows.
ENDED = 128 + signal.SIGTERM
GRACE_SECONDS = 50


@pytest.fixture(scope="module", autouse=True)
def _namespaces():
    namespaces.require(FIRST)


def terminate(process):
    """Sends SIGTERM to the first process within, once there is one."""
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split():
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGTERM)


@pytest.fixture
def daemon(daemons):
    """A daemon that listens, as the first process of its namespace."""
    daemons.configure(watch=False, limits={"shutdownGraceSeconds": GRACE_SECONDS})
    served = daemons.start(within=FIRST)
    yield served
    served.process.kill()
    served.process.wait(WAIT_SECONDS)


def test_a_sigterm_ends_it_with_0(daemons, daemon):
    terminate(daemon.process)
    assert daemon.process.wait(WAIT_SECONDS) == 0
    assert daemons.events("stop-daemon")


@pytest.mark.slow
def test_a_sigterm_that_comes_while_it_starts_ends_it(daemons):
    command = [*FIRST, *COMMAND, "serve", "--workspace", daemons.workspace, "--state-dir", daemons.state]
    with subprocess.Popen(
        [str(part) for part in command], env=environment(daemons.home), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            until = time.monotonic() + WAIT_SECONDS
            # The interpreter itself has to be there to hear one.
            while process.poll() is None and time.monotonic() < until:
                terminate(process)
                time.sleep(0.01)
        finally:
            process.kill()
        told, errors = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, told, errors) == (ENDED, b"", b"")


@pytest.mark.slow
def test_the_second_sigterm_ends_it_at_once(daemons, daemon):
    def wait_for_what_never_comes():
        with client(daemon) as connection, pytest.raises(MemorydError):
            connection.search(query="heron", min_revision=2**62, timeout=WAIT_SECONDS)

    waiting = threading.Thread(target=wait_for_what_never_comes)
    waiting.start()
    # The call has to arrive first.
    time.sleep(1)
    terminate(daemon.process)
    wait_until(lambda: daemons.events("stop-daemon"))
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.process.wait(0.5)
    terminate(daemon.process)
    assert daemon.process.wait(GRACE_SECONDS / 2) == ENDED
    waiting.join(WAIT_SECONDS)
