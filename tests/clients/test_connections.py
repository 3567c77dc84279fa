"""The connections of every client: closed at the end, kept open in use, presenting a certificate if required."""

import asyncio
import shutil
import subprocess
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from certificates import needs_openssl
from clients.languages import LANGUAGES, every_language
from clients.runner import Runner
from daemon_process import environment
from waiting import wait_until

pytestmark = [needs_openssl, pytest.mark.clients]

RECONNECTS = 200
# What a runtime makes once, at whatever moment. A leak of each connection of one kind would be five times as many.
SLACK = 20
PING_MS = 10_000
IDLE_SECONDS = 60


def descriptors(process):
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def sockets(process):
    """The names of its open sockets, such as `socket:[4711]`. Each socket has a number of its own."""
    names = set()
    for each in Path(f"/proc/{process.pid}/fd").iterdir():
        # A descriptor may be closed while the folder is read.
        with suppress(FileNotFoundError):
            names.add(str(each.readlink()))
    return {name for name in names if name.startswith("socket:")}


def threads(process):
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))


def settled(look):
    """The least of what is seen in a moment: what was closed may go a little later."""
    seen = []
    for _ in range(20):
        seen.append(look())
        time.sleep(0.05)
    return min(seen)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("runners", every_language(), indirect=True)
def test_two_hundred_connections_are_given_back(runners, daemons):
    daemon = daemons()
    ways = [daemon.connection("unix"), daemon.connection("tls")]

    def reconnect(runner, times):
        for number in range(times):
            runner.connect(**ways[number % len(ways)])
            runner.call("list_agents")
            assert runner.ask("close") == {"ok": {}}

    with runners() as runner:
        # What a runtime makes once is there after these.
        reconnect(runner, 30)
        served = settled(lambda: descriptors(daemon.process))
        mine, at_work = settled(lambda: descriptors(runner.process)), threads(runner.process)
        before = sockets(runner.process), sockets(daemon.process)
        runner.connect(**ways[0])
        runner.call("list_agents")
        # The process that is looked at is the one that connects, and an open connection shows.
        wait_until(lambda: sockets(runner.process) - before[0])
        wait_until(lambda: sockets(daemon.process) - before[1])
        reconnect(runner, RECONNECTS)
        wait_until(lambda: descriptors(runner.process) <= mine + SLACK)
        wait_until(lambda: threads(runner.process) <= at_work + SLACK)
        wait_until(lambda: descriptors(daemon.process) <= served + SLACK)


class Forwarder:
    """Stands between a client and the daemon, and counts connections and what the client sends."""

    def __init__(self, target):
        self.target = target
        self.connections = 0
        self.sent = 0
        self.open = 0

    @asynccontextmanager
    async def listening(self, folder):
        """Yields the address to dial instead of the target's."""
        if self.target.startswith("unix:"):
            server = await asyncio.start_unix_server(self._serve, folder / "f.sock")
            address = f"unix:{folder}/f.sock"
        else:
            server = await asyncio.start_server(self._serve, "127.0.0.1")
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield address
        finally:
            server.close()

    async def _serve(self, reader, writer):
        self.connections += 1
        self.open += 1
        if self.target.startswith("unix:"):
            there = await asyncio.open_unix_connection(self.target.removeprefix("unix:"))
        else:
            there = await asyncio.open_connection(*self.target.rsplit(":", 1))
        await asyncio.gather(self._pass(reader, there[1], count=True), self._pass(there[0], writer))
        self.open -= 1

    async def _pass(self, reader, writer, *, count=False):
        try:
            while data := await reader.read(65_536):
                self.sent += count
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest.mark.timeout(300)
async def test_a_client_that_pings_every_ten_seconds_for_a_minute_is_not_sent_away(daemons, tmp_path):
    """All languages at once, each over a socket and over TCP, so that it takes one minute in all."""
    daemon = daemons()
    ready = [language.or_skip() for language in LANGUAGES if not language.missing() or language.in_ci]
    watched = []
    async with AsyncExitStack() as stack:
        for number, (language, over) in enumerate((each, over) for each in ready for over in ("unix", "tls")):
            folder = tmp_path / str(number)
            folder.mkdir()
            connection = daemon.connection(over)
            forwarder = Forwarder(connection["address"])
            connection["address"] = await stack.enter_async_context(forwarder.listening(folder))
            runner = Runner(language.command, environment(folder), folder / "log")
            stack.push_async_callback(asyncio.to_thread, runner.close)
            await asyncio.to_thread(runner.connect, keepalive_ms=PING_MS, **connection)
            await asyncio.to_thread(runner.call, "list_agents", timeout_ms=30_000)
            watched.append((f"{language.name} over {over}", forwarder, runner))
        before = {name: forwarder.sent for name, forwarder, _ in watched}
        await asyncio.sleep(IDLE_SECONDS)
        pings = {name: forwarder.sent - before[name] for name, forwarder, _ in watched}
        assert [name for name, count in pings.items() if count < IDLE_SECONDS * 1000 / PING_MS / 2] == [], pings
        for name, forwarder, runner in watched:
            assert (forwarder.connections, forwarder.open) == (1, 1), f"{name} was sent away"
            await asyncio.to_thread(runner.call, "list_agents", timeout_ms=30_000)
            assert forwarder.connections == 1, f"{name} had to dial again"


@pytest.mark.parametrize("runners", every_language(), indirect=True)
def test_a_certificate_is_shown_where_the_daemon_asks_for_one(runners, daemons, tmp_path):
    daemon = daemons(mutual=True)
    certificate, key = daemon.authority.issue("gateway")
    connection = daemon.connection("tls")
    mine = {"cert_file": str(certificate), "key_file": str(key)}
    with runners() as runner:
        runner.connect(**connection | {"tls": connection["tls"] | mine})
        assert len(runner.call("list_agents")["agents"]) == 3
        runner.connect(**connection)
        refused = runner.ask("call", method="list_agents", request={}, timeout_ms=3000)
        assert refused["error"]["code"] in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}, refused


def trusted_by_all_runtimes(authority, folder):
    """The variables by which the runtimes take an authority for a public one; Java's, where it is here, has a store."""
    store = folder / "trusted.p12"
    flags = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=changeit"
    imported = ["-importcert", "-noprompt", "-file", authority, "-keystore", store, "-storepass", "changeit"]
    if shutil.which("keytool"):
        subprocess.run(["keytool", *map(str, imported)], check=True, capture_output=True, timeout=60)
    return {
        "SSL_CERT_FILE": str(authority),
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority),
        "JAVA_TOOL_OPTIONS": flags,
    }


@pytest.mark.parametrize("runners", every_language(), indirect=True)
def test_one_variable_has_a_client_trust_the_authorities_of_its_runtime(runners, daemons, tmp_path):
    daemon = daemons()
    values = daemon.values()
    given = {
        "MEMORYD_ADDRESS": values["tcp"],
        "MEMORYD_TOKEN_FILE": values["token_file"],
        "MEMORYD_TLS": "1",
        **trusted_by_all_runtimes(values["ca_file"], tmp_path),
    }
    with runners(given) as runner:
        runner.connect()
        assert len(runner.call("list_agents", timeout_ms=30_000)["agents"]) == 3
