"""A process that only searches the index of a running daemon. reader_prototypes.py starts it.

Reads one JSON object from standard input and prints a line when it is ready. Each kind of process has the daemon's own
rpc layer, agents and SearchEngine. `reader` opens the daemon's index for reading, and serves gRPC at a socket of its
own and at a TCP port that it shares with the other readers (SO_REUSEPORT). `worker` does the same without gRPC: it
answers frames on Unix sockets. `front` serves gRPC at a socket, and passes the bytes of each search to the worker with
the fewest unanswered searches. `workers` handles each call itself and passes only the query to a worker, through a
search backend; query and answer are pickled.

The process ends when its standard input is closed. It is only for measurements: it does not notice a rebuild, a repair
or a change of the settings.
"""

# ruff: noqa: E402 -- gRPC reads its settings when it is imported

import asyncio
import itertools
import json
import pickle
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from memoryd_server.settings import load, use_one_grpc_thread

# `memoryd serve` calls this before it imports gRPC.
use_one_grpc_thread()

import grpc

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1.memory_service_pb2_grpc import add_MemoryServiceServicer_to_server
from memoryd_server.access import Credentials, parse_address
from memoryd_server.agent import (
    Agent,
    AgentConfig,
    Agents,
    AgentStorage,
    AgentWorkspace,
    ProviderExecutors,
    ServiceInfo,
    SettingsReport,
    SharedResources,
)
from memoryd_server.app.config import agent_configs, call_limits, verifier_and_certificates
from memoryd_server.app.daemon import QUICK_THREADS, SLOW_THREADS
from memoryd_server.app.plugins import StorageFactory
from memoryd_server.app.process_limits import raise_descriptor_limit
from memoryd_server.model import Clock
from memoryd_server.observe import LogLevel, NoMeter, make_log
from memoryd_server.providers import ProviderPool
from memoryd_server.rpc import Authorizer, LocalCaller, MemoryService
from memoryd_server.rpc.interceptors import CallInterceptor
from memoryd_server.search import SearchAnswer, SearchQuery
from memoryd_server.sources import SharedInotify, open_inotify
from memoryd_server.sqlite import EmbeddingCache, SqliteStore, VectorIndex, bound_page_caches
from memoryd_server.sqlite.connection import FileIdentity, open_reader
from memoryd_server.sqlite.readers import ReaderPool
from memoryd_server.sqlite.store import READERS
from memoryd_server.store import BuildIdentity
from memoryd_server.system import limit_free_memory
from memoryd_server.threads import SharedPool
from memoryd_server.vectors import use_calling_thread_only

# The header of a frame: the number of the request, and the size of the body in bytes.
FRAME = struct.Struct("<II")
SEARCH_METHOD = "/memoryd.v1.MemoryService/MemorySearch"


class ReadingStore(SqliteStore):
    """The index of a running daemon, opened for reading, without the lock that the daemon holds."""

    def reserve(self) -> None:
        """Take no lock."""

    def open(self) -> None:
        """Open connections for reading. Every write fails."""
        self._pool = ReaderPool(self.path, READERS, open_reader)
        self._file_identity = FileIdentity.of(self.path, is_local=True)
        self.has_completed_sync = True


def reading_storage(config: AgentConfig, identity: BuildIdentity) -> AgentStorage:
    vectors = VectorIndex(
        sqlite_vec=config.vector_enabled,
        extension_path=config.vector_extension_path,
        memory_budget_bytes=config.vector_memory_bytes,
    )
    store = ReadingStore(config.index_path, identity, vectors)
    # Query vectors are cached in memory. The embedding cache is for indexed texts, so it is not opened.
    return AgentStorage(store, lambda now_ms: EmbeddingCache(None, 0, now_ms, store.journal), lambda: 0)


class Components:
    """The components of a daemon between its listener and the index, without background work."""

    def __init__(self, state: Path, workspace: Path, backend: Any) -> None:
        limit_free_memory()
        raise_descriptor_limit()
        use_calling_thread_only()
        flags = {"state_dir": str(state), "workspace": str(workspace), "listen": ["127.0.0.1:0"]}
        settings = load(environ={}, home=state, flags=flags)
        self.log = make_log(LogLevel("error"), settings.service.log.format)
        storage = StorageFactory(self.log, settings.service.store)
        configs = agent_configs(settings)
        bound_page_caches(len(configs))
        resources = SharedResources(
            quick=SharedPool(QUICK_THREADS, QUICK_THREADS - 1, "quick"),
            slow=SharedPool(SLOW_THREADS, SLOW_THREADS - 2, "slow"),
            embed=ProviderExecutors(),
            native=SharedInotify(open_inotify),
            make_storage=reading_storage,
            make_documents=storage.make_documents,
        )
        providers = ProviderPool(downloads=False, on_ready=lambda _: None)
        self.agents = Agents(
            configs,
            lambda config: Agent(
                config, providers.select(config.embedding), resources, Clock(), on_sync_end=lambda *_: None
            ),
            lambda _: backend,
            make_workspace=lambda config: AgentWorkspace(config, resources, Clock()),
        )
        addresses = [parse_address(address) for address in settings.service.listen]
        self._access = Credentials(
            *verifier_and_certificates(settings, addresses, self.log), failures=resources.failures
        )
        self.gate = Authorizer(self._access, call_limits(settings.service.limits))
        report = SettingsReport(time.time_ns())
        info = ServiceInfo(time.time_ns(), lambda: (), lambda: report, resources.failures.current)
        self.service = MemoryService(
            self.agents, info, self.gate.grant_of, ceiling_seconds=settings.service.limits.default_deadline_seconds
        )

    def server(self, *, over_tcp: bool) -> grpc.aio.Server:
        """Return a server without services that authorizes and logs calls as the daemon's servers do."""
        if over_tcp:
            self._access.start()
        return grpc.aio.server(
            ThreadPoolExecutor(2),
            interceptors=(CallInterceptor(self.gate, self.log, NoMeter(), over_tcp=over_tcp),),
            options=(("grpc.so_reuseport", 1), ("grpc.max_concurrent_streams", 4_096)),
        )


async def serve_reader(options: dict[str, Any], components: Components) -> list[Any]:
    await components.agents.start(background=False)
    own, shared = components.server(over_tcp=False), components.server(over_tcp=True)
    for server in (own, shared):
        add_MemoryServiceServicer_to_server(components.service, server)
    own.add_insecure_port(options["own"])
    for address in options["shared"]:
        shared.add_insecure_port(address)
    await own.start()
    await shared.start()
    return [own, shared]


async def serve_worker(options: dict[str, Any], components: Components) -> list[Any]:
    """Answer frames with requests and responses at the socket, and frames with queries and answers at `.queries`."""
    await components.agents.start(background=False)
    caller: Any = LocalCaller(None)

    async def respond(data: bytes) -> bytes:
        response = await components.service.MemorySearch(pb.MemorySearchRequest.FromString(data), caller)
        return bytes(response.SerializeToString())

    async def answer(data: bytes) -> bytes:
        async with components.agents.use("") as agent:
            query = pickle.loads(data)
            return pickle.dumps(await agent.search_builtin(query, session_key="", min_revision=None), 5)

    path = options["own"].removeprefix("unix:")
    return [
        await asyncio.start_unix_server(partial(serve_frames, respond), path),
        await asyncio.start_unix_server(partial(serve_frames, answer), f"{path}.queries"),
    ]


async def serve_frames(
    work: Callable[[bytes], Awaitable[bytes]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer the frames of one connection concurrently, until it is closed."""

    async def answer(number: int, data: bytes) -> None:
        body = await work(data)
        writer.write(FRAME.pack(number, len(body)) + body)

    answering = set()
    while True:
        try:
            number, size = FRAME.unpack(await reader.readexactly(FRAME.size))
        except asyncio.IncompleteReadError:
            return
        task = asyncio.create_task(answer(number, await reader.readexactly(size)))
        answering.add(task)
        task.add_done_callback(answering.discard)


class Worker:
    """A connection of the front to one worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count()
        self.unanswered: dict[int, asyncio.Future[bytes]] = {}

    async def read(self) -> None:
        while True:
            number, size = FRAME.unpack(await self._reader.readexactly(FRAME.size))
            body = await self._reader.readexactly(size)
            future = self.unanswered.pop(number)
            if not future.done():
                future.set_result(body)

    def ask(self, data: bytes) -> "asyncio.Future[bytes]":
        number = next(self._numbers) & 0xFFFF_FFFF
        future = self.unanswered[number] = asyncio.get_running_loop().create_future()
        self._writer.write(FRAME.pack(number, len(data)) + data)
        return future


class Workers:
    """The workers. The one with the fewest unanswered frames gets the next frame."""

    def __init__(self, workers: list[Worker]) -> None:
        self._workers = workers
        self.tasks = [asyncio.create_task(worker.read()) for worker in workers]

    @classmethod
    async def connect(cls, addresses: list[str], suffix: str = "") -> "Workers":
        paths = [address.removeprefix("unix:") + suffix for address in addresses]
        return cls([Worker(*await asyncio.open_unix_connection(path)) for path in paths])

    async def ask(self, data: bytes) -> bytes:
        return await min(self._workers, key=lambda each: len(each.unanswered)).ask(data)


async def serve_front(options: dict[str, Any], components: Components) -> list[Any]:
    """Serve searches at the socket. Only the request is parsed, to check its agent; the response is passed as bytes."""
    workers = await Workers.connect(options["workers"])

    async def search(request: pb.MemorySearchRequest, _: Any) -> bytes:
        return await workers.ask(request.SerializeToString())

    handler = grpc.unary_unary_rpc_method_handler(
        search, request_deserializer=pb.MemorySearchRequest.FromString, response_serializer=lambda data: data
    )
    server = components.server(over_tcp=False)
    service, method = SEARCH_METHOD.removeprefix("/").split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(options["own"])
    await server.start()
    return [server, workers]


class WorkerBackend:
    """A search backend that passes each query to a worker instead of the builtin search of the agent."""

    sync_runner = None

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    async def start(self, *, background: bool) -> None:  # noqa: ARG002 -- the protocol
        """Connect to the workers."""
        self._workers = await Workers.connect(self._addresses, ".queries")

    async def search(self, query: SearchQuery, *, session_key: str, min_revision: int | None) -> SearchAnswer:  # noqa: ARG002 -- the protocol
        """Return a worker's answer."""
        answer: SearchAnswer = pickle.loads(await self._workers.ask(pickle.dumps(query, 5)))
        return answer

    async def after_sync(self, run: Any, outcome: Any) -> Any:  # noqa: ARG002 -- the protocol
        """Change nothing."""
        return outcome


async def serve_daemon(options: dict[str, Any], components: Components) -> list[Any]:
    """Serve every call at the socket as the daemon does, except that workers answer the queries of searches."""
    await components.agents.start(background=False)
    server = components.server(over_tcp=False)
    add_MemoryServiceServicer_to_server(components.service, server)
    server.add_insecure_port(options["own"])
    await server.start()
    return [server]


async def main() -> None:
    options = json.loads(sys.stdin.readline())
    kind, addresses = options["kind"], options.get("workers", [])
    backend = WorkerBackend(addresses) if kind == "workers" else None
    components = Components(Path(options["state"]), Path(options["workspace"]), backend)
    serve = {"reader": serve_reader, "worker": serve_worker, "front": serve_front, "workers": serve_daemon}[kind]
    # A server ends when nothing refers to it.
    kept = await serve(options, components)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    del kept


if __name__ == "__main__":
    asyncio.run(main())
