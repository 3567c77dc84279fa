"""No call does on the event loop's thread what could wait for a disk: it opens and stats no file, and runs no SQL."""

import contextlib
import fcntl
import functools
import importlib.util
import os
import posix
import shutil
import signal
import socket
import sys
import threading

import apsw
import grpc
import pytest

from fake_qmd.installs import make_fake
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.agent_calls import AGENT_CALLS, HAS_LANCEDB, call
from rpc.callers import bearer, health, new_token
from rpc.qmd_calls import QMD, ask, qmd_settings
from rpc.sync_streams import FULL
from rpc.wire import TIMEOUT, by_meaning, paths
from waiting import eventually

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
    "os.getxattr",
    "os.setxattr",
    "fcntl.flock",
    "fcntl.lockf",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "subprocess.Popen",
    "os.posix_spawn",
    "tempfile.mkstemp",
}
# Python raises no audit event for these. The import system calls those of `posix`, everything else those of `os`.
UNAUDITED = [
    *((os, name, f"os.{name}") for name in ("stat", "lstat", "access", "readlink", "statvfs", "fsync")),
    (posix, "stat", "os.stat"),
]
STREAMS = ("Sync", "WatchIndex")


class Overseer:
    """Notes who does what: `here` on the thread that made it, `elsewhere` on the others, while it is on."""

    def __init__(self):
        self.thread = threading.get_ident()
        self.on = False
        self.here, self.elsewhere = [], []

    def note(self, event, what):
        if not self.on:
            return
        if threading.get_ident() == self.thread:
            self.here.append((event, what, _ours()))
        else:
            self.elsewhere.append((event, what))

    def wrapped(self, event, function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            self.note(event, args[:1])
            return function(*args, **kwargs)

        return call

    def audit(self, event, arguments):
        if event in FILE_EVENTS:
            self.note(event, arguments[0])

    def follow(self, connection):
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda told: self.note("sql", told["sql"]))

    def kinds_elsewhere(self):
        return {event for event, _ in self.elsewhere}


def _ours():
    """The calls of the service that led here, innermost first."""
    found = []
    # `traceback` would read the source files.
    frame = sys._getframe()
    while frame is not None:
        _, is_ours, path = frame.f_code.co_filename.rpartition("memoryd_server/")
        if is_ours:
            found.append(f"{path}:{frame.f_lineno}")
        frame = frame.f_back
    return found


@pytest.fixture
def overseer(monkeypatch, home):
    made = Overseer()
    for module, name, event in [*UNAUDITED, *home.store.waiting_calls()]:
        monkeypatch.setattr(module, name, made.wrapped(event, getattr(module, name)))
    # A hook cannot be taken away; switched off, it costs a call.
    sys.addaudithook(made.audit)
    apsw.connection_hooks.append(made.follow)
    yield made
    made.on = False
    apsw.connection_hooks.remove(made.follow)


async def make_every_call(running):
    for method, request in AGENT_CALLS.items():
        if method == "MemoryForget":
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


def by_local_model(path):
    search = {"provider": "local", "local": {"modelPath": str(path)}}
    return {"agents": {"defaults": {"memorySearch": search}}}


@pytest.fixture(params=["no provider", "missing model", "local model", "remote provider", "qmd", "entries"])
def settings(request, tmp_path):
    """The settings of a daemon with each of what may look at the disk or ask another process."""
    match request.param:
        case "missing model":
            return by_local_model(tmp_path / "missing.gguf")
        case "local model":
            return by_local_model(request.getfixturevalue("model_path"))
        case "remote provider":
            return by_meaning(request.getfixturevalue("provider"))
        case "qmd":
            return qmd_settings(make_fake(tmp_path / "bin").path)
        case "entries":
            if not HAS_LANCEDB:
                pytest.skip("lancedb is missing: `make setup-lancedb` installs it")
            return {"plugins": {"slots": {"memory": "memory-lancedb"}}}
    return {}


async def make_detailed_calls(running):
    """Calls whose answers hold the most, and those whose requests name what must be looked up."""
    await running.status(probe=True)
    await ask(running, "stork", explain=True)
    await running.search("heron", mode=memory_pb2.SEARCH_MODE_HYBRID)
    await running.stub.SessionContext(pb.SessionContextRequest(include_recall_prompt=True), timeout=TIMEOUT)
    await make_edits(running)
    for path in ("memory/missing.md", "memory/stork.md", "../outside.md"):
        request = pb.ExplainMissRequest(search=pb.MemorySearchRequest(query="stork"), path=path)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await running.stub.ExplainMiss(request, timeout=TIMEOUT)
    for zone in ("Pacific/Chatham", "Nowhere/Land"):
        made = running.stub.FlushDecision(pb.FlushDecisionRequest(time_zone=zone), timeout=TIMEOUT)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await made


async def make_edits(running):
    stub, path = running.stub, "memory/edited.md"
    written = await stub.MemoryWrite(pb.MemoryWriteRequest(path=path, content="one\n" * 5_000), timeout=TIMEOUT)
    insert = {"after_line": 1, "text": "two"}
    request = pb.MemoryWriteRequest(path=path, expected_sha256=written.content_sha256, insert=insert)
    changed = await stub.MemoryWrite(request, timeout=TIMEOUT)
    request = pb.MemoryMoveRequest(path=path, new_path="memory/b/c.md", expected_sha256=changed.content_sha256)
    moved = await stub.MemoryMove(request, timeout=TIMEOUT)
    history = await stub.MemoryHistory(pb.MemoryHistoryRequest(path=moved.path, include_diffs=True), timeout=TIMEOUT)
    assert len(history.versions) == 3
    request = pb.MemoryRestoreRequest(
        version_id=written.version_id, path=moved.path, expected_sha256=moved.content_sha256
    )
    assert not (await stub.MemoryRestore(request, timeout=TIMEOUT)).content_sha256
    forgotten = await stub.MemoryForget(pb.MemoryForgetRequest(path=moved.path), timeout=TIMEOUT)
    assert forgotten.history_contents == 2


async def test_no_call_opens_a_file_or_asks_sqlite_on_the_event_loop(serve, home, overseer, settings):
    home.put("MEMORY.md", "the long-term heron")
    home.many(20)
    home.environ = {"PATH": os.defpath, "HOME": str(home.root)}
    running = await serve({**settings, "memoryd": {**settings.get("memoryd", {}), "writes": "edit"}})
    # What is imported when it is first needed is read now.
    await make_every_call(running)
    await make_detailed_calls(running)
    home.put("memory/new.md", "the kestrel hovers")
    overseer.on = True
    await make_every_call(running)
    await make_detailed_calls(running)
    await running.append("a stork in the meadow", path="memory/storks.md", idempotency_key="k")
    found = await running.search("stork", min_revision=1)
    overseer.on = False
    assert found.info.backend == QMD or "memory/storks.md" in paths(found)
    assert overseer.kinds_elsewhere() >= {"open", "os.scandir", "os.stat", "sql"}
    assert overseer.here == []


async def test_call_over_tcp_and_health_checks_do_no_io_on_the_event_loop(serve, home, overseer):
    home.many(5)
    running = await serve(listen="127.0.0.1:0")
    _, token = new_token(home)

    async def make_calls():
        assert await health(running, **bearer(token)) == 1
        await running.readiness.check()
        await running.readiness.check_extensions()
        await running.stub.ListAgents(pb.ListAgentsRequest(), timeout=TIMEOUT, **bearer(token))
        await running.stub.Status(pb.StatusRequest(), timeout=TIMEOUT, **bearer(token))

    # What is imported when it is first needed is read now.
    await make_calls()
    overseer.on = True
    await make_calls()
    overseer.on = False
    # The token files are read, and the health check searches the index.
    assert overseer.kinds_elsewhere() >= {"os.stat", "sql"}
    assert overseer.here == []


@pytest.mark.sqlite_only("reader processes search SQLite files")
async def test_calls_with_reader_processes_do_no_io_on_the_event_loop(serve, home, overseer):
    home.put("MEMORY.md", "the long-term heron")
    home.many(20)
    running = await serve({"memoryd": {"readers": 1, "writes": "edit"}}, background=True)
    readers = running.daemon.readers
    await eventually(lambda: readers.pids)
    # What is imported when it is first needed is read now.
    await make_every_call(running)
    await make_detailed_calls(running)
    overseer.on = True
    await make_every_call(running)
    await make_detailed_calls(running)
    await running.synced(mode=FULL)
    os.kill(killed := readers.pids[0], signal.SIGKILL)
    await eventually(lambda: readers.pids and readers.pids[0] != killed)
    await running.release_memory()
    overseer.on = False
    assert readers.measured().searches["answered"]
    assert overseer.kinds_elsewhere() >= {"subprocess.Popen", "sql"}
    assert overseer.here == []


@pytest.mark.slow
async def test_background_syncs_do_no_io_on_the_event_loop(serve, home, overseer):
    home.many(5)
    running = await serve({"memoryd": {"reconcileSeconds": 1}}, background=True)
    await running.synced()
    overseer.on = True
    home.put("memory/new.md", "the kestrel hovers")
    overseer.here.clear()
    await eventually(lambda: running.memory().snapshot.files == 6)
    await running.release_memory()
    await running.search("kestrel")
    overseer.on = False
    assert overseer.kinds_elsewhere() >= {"open", "os.scandir", "os.stat", "sql"}
    assert overseer.here == []


async def test_a_reload_does_no_io_on_the_event_loop(serve, home, overseer, provider):
    home.many(5)
    running = await serve(background=True)
    await running.synced()
    # What is imported when it is first needed is read now.
    await running.daemon.reload(lambda: home.settings(by_meaning(provider)))
    overseer.on = True
    report = await running.daemon.reload(lambda: home.settings(by_local_model(home.root / "missing.gguf")))
    again = await running.daemon.reload(lambda: home.settings(by_meaning(provider)))
    overseer.on = False
    assert (report.error, again.error) == ("", "")
    assert overseer.kinds_elsewhere() >= {"open", "os.stat", "sql"}
    assert overseer.here == []


async def test_the_overseer_sees_io_on_the_event_loop(overseer, tmp_path):
    overseer.on = True
    (tmp_path / "none").exists()
    importlib.util.find_spec("no_such_package")
    shutil.which("no-such-command", path=str(tmp_path))
    with socket.socket() as unconnected, contextlib.suppress(OSError):
        socket.getaddrinfo("127.0.0.1", 1)
        unconnected.connect(("127.0.0.1", 1))
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.fsync(file.fileno())
    overseer.on = False
    seen = [event for event, *_ in overseer.here]
    assert seen.count("os.stat") >= 3
    assert {"open", "fcntl.flock", "os.fsync", "socket.connect", "socket.getaddrinfo"} <= set(seen)


async def test_a_start_and_a_stop_ask_sqlite_elsewhere_too(serve, home, overseer):
    home.many(5)
    overseer.on = True
    running = await serve(background=True)
    await running.synced()
    await running.stop_daemon()
    overseer.on = False
    assert "sql" in overseer.kinds_elsewhere()
    assert [what for event, what, _ in overseer.here if event == "sql"] == []
