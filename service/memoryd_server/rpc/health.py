"""Readiness as a fact: SERVING means that a real keyword search has just answered."""

import asyncio

from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from memoryd_server.backend import AgentDirectory
from memoryd_server.rpc.grpc_types import Context

SERVICE = "memoryd.v1.MemoryService"
CHECK_INTERVAL_SECONDS = 5.0
_NAMES = ("", SERVICE)


class _Health(HealthServicer):
    """The library's service, with the method that it leaves out."""

    async def List(self, _: "health_pb2.HealthListRequest", context: Context) -> "health_pb2.HealthListResponse":
        """What `Check` answers for each service."""
        answers = {name: await self.Check(health_pb2.HealthCheckRequest(service=name), context) for name in _NAMES}
        return health_pb2.HealthListResponse(statuses=answers)


class Readiness:
    """Keeps `grpc.health.v1` true to what the indexes answer."""

    def __init__(self, agents: AgentDirectory) -> None:
        self.servicer = _Health()
        self._agents = agents
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Checks once, then at intervals until `stop`."""
        await self.check()
        self._task = asyncio.get_running_loop().create_task(self._repeat())

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Searches every open index; one that does not answer makes the daemon NOT_SERVING."""
        errors = [await memory.keyword_error() for memory in self._agents.opened().values()]
        await self._set(
            health_pb2.HealthCheckResponse.NOT_SERVING if any(errors) else health_pb2.HealthCheckResponse.SERVING
        )

    async def stop(self) -> None:
        """Says NOT_SERVING, for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.servicer.enter_graceful_shutdown()

    async def _set(self, status: "health_pb2.HealthCheckResponse.ServingStatus") -> None:
        for service in _NAMES:
            await self.servicer.set(service, status)
