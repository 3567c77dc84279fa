"""memoryd as the first process of a container, which the kernel spares each signal that it does not handle."""

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from e2e import namespaces
from e2e.town import PATIENCE_SECONDS, client, eventually
from memoryd.client import MemorydError
from serving import COMMAND, environment

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
def daemon(town):
    """A daemon that listens, as the first process of its namespace."""
    town.configure(watch=False, limits={"shutdownGraceSeconds": GRACE_SECONDS})
    served = town.start(within=FIRST)
    yield served
    served.process.kill()
    served.process.wait(PATIENCE_SECONDS)


def test_a_sigterm_ends_it_with_0(town, daemon):
    terminate(daemon.process)
    assert daemon.process.wait(PATIENCE_SECONDS) == 0
    assert town.events("stop-daemon")


@pytest.mark.slow
def test_a_sigterm_that_comes_while_it_starts_ends_it(town):
    command = [*FIRST, *COMMAND, "serve", "--workspace", town.workspace, "--state-dir", town.state]
    with subprocess.Popen(
        [str(part) for part in command], env=environment(town.home), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            until = time.monotonic() + PATIENCE_SECONDS
            # The interpreter itself has to be there to hear one.
            while process.poll() is None and time.monotonic() < until:
                terminate(process)
                time.sleep(0.01)
        finally:
            process.kill()
        told, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, told, errors) == (ENDED, b"", b"")


@pytest.mark.slow
def test_the_second_sigterm_ends_it_at_once(town, daemon):
    def wait_for_what_never_comes():
        with client(daemon) as connection, pytest.raises(MemorydError):
            connection.search(query="heron", min_revision=2**62, timeout=PATIENCE_SECONDS)

    waiting = threading.Thread(target=wait_for_what_never_comes)
    waiting.start()
    time.sleep(0.2)
    terminate(daemon.process)
    eventually(lambda: town.events("stop-daemon"))
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.process.wait(0.5)
    terminate(daemon.process)
    assert daemon.process.wait(GRACE_SECONDS / 2) == ENDED
    waiting.join(PATIENCE_SECONDS)
