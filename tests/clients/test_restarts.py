"""A daemon that is away for as long as a restart takes is bridged by every client's retries."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from certificates import needs_openssl
from clients.languages import every_language
from clients.runner import Runner
from daemon_process import environment

pytestmark = [needs_openssl, pytest.mark.clients]

# A daemon that is stopped and started is gone for about as long, on a machine with time to spare.
AWAY_SECONDS = 0.7
# On a busy machine it stays away for longer than the retries last, or the client comes late.
ROUNDS = 5


class SocketProxy:
    """A Unix socket behind which the daemon is; while it is shut there is no daemon for those who know the socket."""

    def __init__(self, path, daemon):
        self.path, self.daemon = path, daemon
        self.open_ends = set()
        self.server = None

    async def open(self):
        self.server = await asyncio.start_unix_server(self._serve, self.path)

    def shut(self):
        self.server.close()
        self.path.unlink()
        for writer in self.open_ends:
            writer.transport.abort()

    async def _serve(self, reader, writer):
        there = await asyncio.open_unix_connection(self.daemon)
        ends = {writer, there[1]}
        self.open_ends |= ends
        await asyncio.gather(_pass(reader, there[1]), _pass(there[0], writer))
        self.open_ends -= ends


async def _pass(reader, writer):
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def connected(language, folder, daemon):
    """A runner whose client has called the daemon through a proxy, and asks it in a thread."""
    proxy = SocketProxy(folder / "d.sock", daemon.values()["socket"])
    await proxy.open()
    runner = Runner(language.or_skip().command, environment(folder), folder / "log")
    try:
        await asyncio.to_thread(runner.connect, address=f"unix:{proxy.path}")
        await asyncio.to_thread(runner.call, "list_agents", timeout_ms=30_000)
        yield proxy, runner
    finally:
        await asyncio.to_thread(runner.close)
        proxy.shut()


async def call_through_a_restart(proxy, runner):
    """The answer of a call that begins while nobody is there."""
    proxy.shut()
    request = {"path": "memory/restart.md", "text": "- bridged"}
    called = asyncio.create_task(
        asyncio.to_thread(runner.ask, "call", method="append", request=request, timeout_ms=30_000)
    )
    await asyncio.sleep(AWAY_SECONDS)
    await proxy.open()
    return await called


@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", every_language())
async def test_a_call_made_during_a_restart_is_answered(language, daemons, tmp_path):
    daemon, ends = daemons(), []
    async with connected(language, tmp_path, daemon) as (proxy, runner):
        for _ in range(ROUNDS):
            answer = await call_through_a_restart(proxy, runner)
            if "ok" in answer:
                return
            ends.append(answer)
    pytest.fail(f"none of {ROUNDS} restarts was bridged: {ends}")
