"""Nothing of a call is done on the event loop's thread that could wait for a disk: no file is opened, no SQL is run."""

import contextlib
import sys
import threading

import apsw
import grpc
import pytest

from rpc.agent_calls import AGENT_CALLS, ENTRY_CALLS, call
from rpc.wire import paths

FILE_EVENTS = {
    "open",
    "os.listdir",
    "os.scandir",
    "os.mkdir",
    "os.rmdir",
    "os.remove",
    "os.rename",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.utime",
    "subprocess.Popen",
    "os.posix_spawn",
    "tempfile.mkstemp",
}
STREAMS = ("Sync", "WatchIndex")


class Overseer:
    """Notes who does what: `here` on the thread that made it, `elsewhere` on the others, while it is on."""

    def __init__(self):
        self.thread = threading.get_ident()
        self.on = False
        self.here, self.elsewhere = [], []

    def note(self, event, what):
        if self.on:
            (self.here if threading.get_ident() == self.thread else self.elsewhere).append((event, what))

    def audit(self, event, arguments):
        if event in FILE_EVENTS:
            self.note(event, arguments[0])

    def follow(self, connection):
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda told: self.note("sql", told["sql"]))

    def kinds_elsewhere(self):
        return {event for event, _ in self.elsewhere}


@pytest.fixture
def overseer():
    made = Overseer()
    # A hook cannot be taken away; switched off, it costs a call.
    sys.addaudithook(made.audit)
    apsw.connection_hooks.append(made.follow)
    yield made
    made.on = False
    apsw.connection_hooks.remove(made.follow)


async def make_every_call(running):
    for method, request in AGENT_CALLS.items():
        if method in ENTRY_CALLS or method == "MemoryForget":
            continue
        made = call(running, method, request)
        with contextlib.suppress(grpc.aio.AioRpcError):
            if method == "WatchIndex":
                await anext(aiter(made))
                made.cancel()
            elif method in STREAMS:
                assert [event async for event in made]
            else:
                await made
    await call(running, "MemoryForget", AGENT_CALLS["MemoryForget"])


async def test_no_call_opens_a_file_or_asks_sqlite_on_the_event_loop(serve, home, overseer):
    home.put("MEMORY.md", "the long-term heron")
    home.many(20)
    running = await serve()
    # What is imported when it is first needed is read now.
    await make_every_call(running)
    home.put("memory/new.md", "the kestrel hovers")
    overseer.on = True
    await make_every_call(running)
    await running.status(probe=True)
    await running.append("a stork in the meadow", path="memory/storks.md", idempotency_key="k")
    assert paths(await running.search("stork", min_revision=1)) == ["memory/storks.md"]
    overseer.on = False
    assert overseer.kinds_elsewhere() >= {"open", "os.scandir", "sql"}
    assert overseer.here == []


async def test_a_start_and_a_stop_ask_sqlite_elsewhere_too(serve, home, overseer):
    home.many(5)
    overseer.on = True
    running = await serve(background=True)
    await running.synced()
    await running.stop_daemon()
    overseer.on = False
    assert "sql" in overseer.kinds_elsewhere()
    assert [what for event, what in overseer.here if event == "sql"] == []
