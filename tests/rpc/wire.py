"""What the tests of the gRPC edge share: a running daemon, and what its answers and errors hold."""

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import grpc
from google.rpc import error_details_pb2, status_pb2

from memoryd.v1 import memory_pb2, sync_event_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs
from memoryd.v1.entry_service_pb2_grpc import EntryServiceStub
from memoryd_server.app.daemon import Daemon
from memoryd_server.observe.log import make_log
from memoryd_server.settings.loading import load
from memoryd_server.sources.watcher import open_inotify
from rpc.sqlite_files import SqliteFiles

# A machine that others use, too, may take this long for the first call that imports LanceDB.
TIMEOUT = 60

# The modes of a search; the first where the request sets none.
UNSET, HYBRID, KEYWORD, VECTOR = (
    memory_pb2.SEARCH_MODE_UNSPECIFIED,
    memory_pb2.SEARCH_MODE_HYBRID,
    memory_pb2.SEARCH_MODE_KEYWORD,
    memory_pb2.SEARCH_MODE_VECTOR,
)

# Nothing happens unless a test asks for it.
QUIET = {"watch": False, "onSearch": False, "onSessionStart": False}


def by_meaning(provider, **more):
    """Settings under which all agents search by meaning, too, with the vectors of `provider`."""
    remote = {"baseUrl": provider.url, "apiKey": "sk-of-this-test"}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote, **more}
    return {"agents": {"defaults": {"memorySearch": search}}}


@dataclass
class Home:
    """A state directory, a workspace and a socket, all of one test's own.

    With `databases`, which the tests with `--store=postgres` set, it has a database of its own, too. With
    `--store=documents`, that also has the memory files and transcripts, which are copied from and to the folders.
    """

    databases: ClassVar[Any] = None
    has_documents: ClassVar[bool] = False

    root: Path
    workspace: Path = field(init=False)
    state_dir: Path = field(init=False)
    socket: Path = field(init=False)
    environ: dict = field(default_factory=dict)
    _database: Any = field(init=False, default=None)
    _workspaces: dict = field(init=False, default_factory=dict)

    def __post_init__(self):
        self.workspace = self.root / "workspace"
        self.state_dir = self.root / "state"
        self.socket = self.root / "s"
        (self.workspace / "memory").mkdir(parents=True, exist_ok=True)
        self.state_dir.mkdir(exist_ok=True)

    def write(self, **files):
        """Files below memory/: `a="text"` is memory/a.md; text or bytes."""
        for name, text in files.items():
            self.put(f"memory/{name}.md", text)

    def put(self, path, text):
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def many(self, count, folder="many"):
        """Enough small files that a sync of them can be watched at work."""
        target = self.workspace / "memory" / folder
        target.mkdir(parents=True)
        body = "The harbour crane lifts containers while gulls circle over pier seven.\n" * 6
        for number in range(count):
            (target / f"{number:05}.md").write_text(f"# Note {number}\n\n{body}unique{number}\n")

    def say(self, name, *lines, agent_id="main"):
        """Makes `lines` the whole of an agent's transcript."""
        file = self.state_dir / "agents" / agent_id / "sessions" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines))
        return file

    def settings(self, settings=None, **flags):
        """`settings` as memoryd.json5, on this home's folders and socket unless `flags` say otherwise."""
        (self.state_dir / "memoryd.json5").write_text(json.dumps(self.with_store(settings or {})))
        given = {"workspace": str(self.workspace), "state_dir": str(self.state_dir), "listen": f"unix:{self.socket}"}
        settings = load(environ=self.environ, home=self.root, flags={**given, **flags})
        self._workspaces = {agent_id: str(agent.workspace) for agent_id, agent in settings.agents.items()}
        return settings

    @property
    def store(self):
        """What is stored, for tests that read or change it without the daemon."""
        if self.databases is None:
            return SqliteFiles(self)
        self._database = self._database or self.databases.new()
        return self._database

    def with_store(self, settings):
        """Return `settings` with the database of this home, if it has one and they name no other."""
        own = settings.get("memoryd", {})
        if self.databases is None or not isinstance(own, dict) or "store" in own:
            return settings
        store = {"url": self.store.url, "documents": "database" if self.has_documents else "folder"}
        return {**settings, "memoryd": {**own, "store": store}}

    def store_files(self):
        """Copy the files that have changed in the folders into the database, if that has the documents."""
        for agent_id, workspace in self._workspaces.items() if self.has_documents else ():
            self.store.documents.store(agent_id, workspace, self.state_dir)

    def load_files(self):
        """Copy the documents that have changed in the database into the folders, if it has documents."""
        for agent_id, workspace in self._workspaces.items() if self.has_documents else ():
            self.store.documents.load(agent_id, workspace)


def quiet(settings=None, **sync):
    """`settings` with background syncs off, but for those that `sync` names."""
    merged = json.loads(json.dumps(settings or {}))
    search = merged.setdefault("agents", {}).setdefault("defaults", {}).setdefault("memorySearch", {})
    search["sync"] = {**QUIET, **search.get("sync", {}), **sync}
    return merged


@dataclass
class Running:
    """A daemon at work and a stub that talks to it."""

    home: Home
    daemon: Daemon
    address: str
    channel: grpc.aio.Channel
    log: io.StringIO

    def __post_init__(self):
        self.stub = stubs.MemoryServiceStub(self.channel)
        self.entries = EntryServiceStub(self.channel)
        self.stopped = False

    async def stop_daemon(self):
        """Stops the daemon and leaves the channel open; once."""
        if not self.stopped:
            self.stopped = True
            await self.daemon.stop()

    async def stop(self):
        """Stops the daemon, also when a test has done so already."""
        await self.channel.close()
        await self.stop_daemon()

    @property
    def server(self):
        return self.daemon.server

    @property
    def readiness(self):
        return self.server._readiness

    @property
    def gate(self):
        return self.daemon.authorizer

    @property
    def threads(self):
        return self.daemon.resources

    @property
    def entry_memories(self):
        return self.daemon.extensions[0].directory

    def memory(self, agent_id="main"):
        return self.daemon.agents.agent(agent_id)

    def background(self, agent_id="main"):
        return self.memory(agent_id).index._background

    def engine(self, agent_id="main"):
        return self.memory(agent_id).index.runner

    def preparer(self, agent_id="main"):
        return self.engine(agent_id)._preparer

    def runs(self, agent_id="main"):
        """Return the active run, if any, and the past ones, newest first."""
        return self.memory(agent_id).index.coordinator.runs()

    async def release_memory(self, agent_id="main"):
        """Make an agent idle, as after its idle time."""
        await self.memory(agent_id).index.release_memory()

    def logged(self, event):
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]

    async def sync(self, **request):
        """Every event of a Sync, to its end."""
        return [event async for event in self.stub.Sync(pb.SyncRequest(**request), timeout=TIMEOUT)]

    async def synced(self, **request):
        """The `completed` of a Sync."""
        return (await self.sync(**request))[-1].completed

    async def search(self, query, **request):
        return await self.stub.MemorySearch(pb.MemorySearchRequest(query=query, **request), timeout=TIMEOUT)

    async def get(self, path, **request):
        return await self.stub.MemoryGet(pb.MemoryGetRequest(path=path, **request), timeout=TIMEOUT)

    async def status(self, **request):
        return await self.stub.Status(pb.StatusRequest(**request), timeout=TIMEOUT)

    async def append(self, text, **request):
        return await self.stub.MemoryAppend(pb.MemoryAppendRequest(text=text, **request), timeout=TIMEOUT)

    async def files(self, **request):
        return await self.stub.ListFiles(pb.ListFilesRequest(**request), timeout=TIMEOUT)


async def start(home, settings=None, *, background=False, open_native=open_inotify, **flags):
    """A daemon that listens, and a channel to its first address. `background` watches and syncs at the start."""
    log = io.StringIO()
    daemon = Daemon(
        home.settings(settings, **flags),
        make_log("debug", "json", log),
        background=background,
        open_native=open_native,
    )
    home.store_files()
    address, *_ = await daemon.start()
    channel = grpc.aio.insecure_channel(address, interceptors=home.store.interceptors(home))
    return Running(home, daemon, address, channel, log)


def paths(response):
    return [result.path for result in response.results]


def kinds(degradations):
    return [memory_pb2.DegradationKind.Name(d.kind).removeprefix("DEGRADATION_KIND_") for d in degradations]


def kinds_of(events):
    return [event.WhichOneof("event") for event in events]


def empty_reason(response):
    return memory_pb2.EmptyReason.Name(response.info.empty_reason).removeprefix("EMPTY_REASON_")


def trigger(value):
    return sync_event_pb2.SyncTrigger.Name(value).removeprefix("SYNC_TRIGGER_")


@dataclass(frozen=True)
class Refusal:
    """An error as a client decodes it."""

    code: str
    message: str
    reason: str
    domain: str
    metadata: dict
    violations: dict
    retry_seconds: float | None
    request_id: str


def refusal(error):
    """Decodes an RpcError; the details must be there and agree with the status."""
    trailing = dict(error.trailing_metadata() or ())
    assert "grpc-status-details-bin" in trailing, f"{error.code()} without details: {error.details()}"
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    assert (status.code, status.message) == (error.code().value[0], error.details())
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    has_info, _, has_retry = (
        any(detail.Unpack(message) for detail in status.details) for message in (info, bad, retry)
    )
    assert has_info, "no ErrorInfo"
    return Refusal(
        code=error.code().name,
        message=error.details(),
        reason=info.reason,
        domain=info.domain,
        metadata=dict(info.metadata),
        violations={violation.field: violation.description for violation in bad.field_violations},
        retry_seconds=retry.retry_delay.ToMilliseconds() / 1000 if has_retry else None,
        request_id=trailing.get("x-request-id", ""),
    )


async def refused(call):
    """The refusal that a call, or a stream read to its end, meets."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return refusal(error)
    raise AssertionError("the call was not refused")


async def check_refused(call, code, reason, *, violations=None, retry=False, mentions=""):
    """A call is refused with this code and reason, exactly these bad fields, and a hint to retry where one helps."""
    found = await refused(call)
    assert (found.code, found.reason, found.domain) == (code, reason, "memoryd")
    assert set(found.violations) == set(violations or ())
    assert (found.retry_seconds is not None and found.retry_seconds > 0) is retry
    assert mentions in found.message
    assert found.message
    assert found.request_id
    assert "Traceback" not in found.message
    return found
