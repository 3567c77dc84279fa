"""Readiness as a fact: SERVING means that a real search, or a dataset of entries, has just answered."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from memoryd_server.backend import AgentDirectory
from memoryd_server.rpc.entry_health import EntryHealth
from memoryd_server.rpc.entry_service import ENTRY_SERVICE
from memoryd_server.rpc.grpc_types import Context

SERVICE = "memoryd.v1.MemoryService"
CHECK_INTERVAL_SECONDS = 5.0

_NAMES = ("", SERVICE)
_STATUS = health_pb2.HealthCheckResponse


class _Health(HealthServicer):
    """The library's service, with the method that it leaves out. What is SERVICE_UNKNOWN is known to watchers alone."""

    async def Check(
        self, request: "health_pb2.HealthCheckRequest", context: Context
    ) -> "health_pb2.HealthCheckResponse":
        """The state of a service that there is."""
        answer = await super().Check(request, context)
        if answer.status == _STATUS.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return answer

    async def List(self, _: "health_pb2.HealthListRequest", _context: Context) -> "health_pb2.HealthListResponse":
        """What `Check` answers for each service."""
        states = {name: status for name, status in self._server_status.items() if status != _STATUS.SERVICE_UNKNOWN}
        answers = {name: _STATUS(status=status) for name, status in states.items()}
        return health_pb2.HealthListResponse(statuses=answers)


class Readiness:
    """Keeps `grpc.health.v1` true to what the indexes and the entries answer; without `entries`, to the indexes alone.

    Entries that cannot be used do not make the daemon unfit: the overall state is that of the indexes.
    """

    def __init__(self, agents: AgentDirectory, entries: EntryHealth | None = None) -> None:
        self.servicer = _Health()
        self._agents = agents
        self._entries = entries
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Checks once, then at intervals until `stop`; entries, which may be slow to open, meanwhile."""
        await self.check()
        self._tasks.append(asyncio.get_running_loop().create_task(self._repeat(self.check)))
        if self._entries is not None:
            await self._set_entries(self._entries.first())
            self._tasks.append(asyncio.get_running_loop().create_task(self._repeat(self.check_entries, at_once=True)))

    async def _repeat(self, check: Callable[[], Awaitable[None]], *, at_once: bool = False) -> None:
        if at_once:
            await check()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            await check()

    async def check(self) -> None:
        """Searches every open index; one that does not answer makes the daemon NOT_SERVING.

        One that is at rest answered when it was last in use, and the reconcile pass goes on looking at it.
        """
        errors = [await memory.keyword_error() for memory in self._agents.opened().values() if not memory.at_rest]
        status = _STATUS.NOT_SERVING if any(errors) else _STATUS.SERVING
        for service in _NAMES:
            await self.servicer.set(service, status)

    async def check_entries(self) -> None:
        """Asks the entries in use; one that does not answer makes the EntryService NOT_SERVING."""
        if self._entries is not None:
            await self._set_entries(await self._entries.status())

    async def _set_entries(self, status: "health_pb2.HealthCheckResponse.ServingStatus") -> None:
        await self.servicer.set(ENTRY_SERVICE, status)

    async def stop(self) -> None:
        """Says NOT_SERVING, for good."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.servicer.enter_graceful_shutdown()
