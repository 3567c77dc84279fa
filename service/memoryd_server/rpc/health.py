"""grpc.health.v1: the health of each service, checked at intervals; and the services that extensions add.

SERVING means that a search of every index in use, or a dataset of entries, has just answered.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from memoryd_server.agent import Agent, AgentConfig, Agents
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.entries import EntryConfig, EntryMemories
from memoryd_server.errors import MemorydError
from memoryd_server.observe import Log
from memoryd_server.rpc.authorization import shutting_down
from memoryd_server.rpc.wire import Context


class ServiceHealth(Protocol):
    """The health of one gRPC service."""

    def first(self) -> "health_pb2.HealthCheckResponse.ServingStatus":
        """Return the state before the first check."""

    async def status(self) -> "health_pb2.HealthCheckResponse.ServingStatus":
        """Check now, and return the state."""


@dataclass(frozen=True, slots=True)
class ExtensionService:
    """A gRPC service by its full name. `add` is the generated function that adds `servicer` to a server.

    Without `health`, it is not checked.
    """

    name: str
    servicer: object
    add: Callable[[Any, grpc.aio.Server], None]
    health: ServiceHealth | None = None


SERVICE = "memoryd.v1.MemoryService"
CHECK_INTERVAL_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""An index that has not answered a search by then makes the daemon NOT_SERVING."""

_NAMES = ("", SERVICE)
_Response = health_pb2.HealthCheckResponse


class HealthServicer(health_pb2_grpc.HealthServicer):
    """The health of each service, for calls and watches. On the event loop's thread alone.

    A watch reads the state and writes it without a lock, so that a client that does not read delays neither another
    client nor a change. A service whose state is SERVICE_UNKNOWN is one that only watches know.
    """

    def __init__(self) -> None:
        self._states: dict[str, health_pb2.HealthCheckResponse.ServingStatus] = {}
        self._stopped = False
        self._changed = asyncio.Event()

    def set(self, service: str, state: "health_pb2.HealthCheckResponse.ServingStatus") -> None:
        """Set the state of a service; without effect after `stop`."""
        if not self._stopped and self._states.get(service) != state:
            self._states[service] = state
            self._wake_watches()

    def stop(self) -> None:
        """Set every service to NOT_SERVING for good, and end the watches."""
        self._states = dict.fromkeys(self._states, _Response.NOT_SERVING)
        self._stopped = True
        self._wake_watches()

    @property
    def is_serving(self) -> bool:
        """Whether the overall state is SERVING."""
        return bool(self._state("") == _Response.SERVING)

    def _wake_watches(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _state(self, service: str) -> "health_pb2.HealthCheckResponse.ServingStatus":
        return self._states.get(service, _Response.SERVICE_UNKNOWN)

    async def Check(
        self, request: "health_pb2.HealthCheckRequest", context: Context
    ) -> "health_pb2.HealthCheckResponse":
        """Return the state of one service, or NOT_FOUND."""
        state = self._state(request.service)
        if state == _Response.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return _Response(status=state)

    async def List(self, _: "health_pb2.HealthListRequest", _context: Context) -> "health_pb2.HealthListResponse":
        """Return what `Check` answers for each service."""
        known = {name: state for name, state in self._states.items() if state != _Response.SERVICE_UNKNOWN}
        return health_pb2.HealthListResponse(statuses={name: _Response(status=state) for name, state in known.items()})

    async def Watch(
        self, request: "health_pb2.HealthCheckRequest", _: Context
    ) -> AsyncGenerator["health_pb2.HealthCheckResponse", None]:
        """Yield the state of one service now and after each change; the last one is NOT_SERVING, at the daemon's stop.

        Raises:
            ShuttingDown: the daemon stops.
        """
        sent = None
        while True:
            changed, stopped, state = self._changed, self._stopped, self._state(request.service)
            if state != sent:
                sent = state
                yield _Response(status=state)
            if stopped:
                raise shutting_down()
            await changed.wait()


class HealthReporter:
    """Keeps the health in line with what the indexes and the services of `extensions` answer.

    An extension that cannot be used does not make the daemon unfit: the overall state is that of the indexes. An index
    gets `answer_seconds` to answer, which a busy daemon needs and a blocked one exceeds. A check that fails with an
    unexpected exception sets NOT_SERVING until one succeeds.
    """

    def __init__(
        self,
        agents: Agents,
        extensions: Sequence[ExtensionService] = (),
        *,
        log: Log,
        answer_seconds: float = ANSWER_SECONDS,
        check_seconds: float = CHECK_INTERVAL_SECONDS,
        failures: TaskFailures | None = None,
    ) -> None:
        self.servicer = HealthServicer()
        self._agents = agents
        self._extensions = {e.name: e.health for e in extensions if e.health is not None}
        self._answer_seconds = answer_seconds
        self._check_seconds = check_seconds
        self._tasks = BackgroundTasks(
            failures, report=lambda check, error: log.error("fail-health-check", check=check, exc_info=error)
        )

    @property
    def is_serving(self) -> bool:
        """Whether the last search of every index in use was answered, and the daemon does not stop."""
        return self.servicer.is_serving

    async def start(self) -> None:
        """Check once, then at intervals until `stop`; extensions, which may be slow to open, in the background."""
        await self.check()
        seconds = self._check_seconds
        self._tasks.repeat("health check", self.check, interval_seconds=seconds, delay_seconds=seconds)
        for name, health in self._extensions.items():
            self.servicer.set(name, health.first())
            check = partial(self._check_extension, name, health)
            self._tasks.repeat(f"health check of {name}", check, interval_seconds=seconds)

    async def check(self) -> None:
        """Search every open index; the daemon is NOT_SERVING if one does not answer.

        An idle index answered when it was last in use, and the reconcile pass continues to check it.
        """
        state = _Response.NOT_SERVING
        try:
            if await self._all_answer():
                state = _Response.SERVING
        finally:
            for service in _NAMES:
                self.servicer.set(service, state)

    async def _all_answer(self) -> bool:
        # If a disk hangs, none of its indexes answers, so the first one decides.
        for agent in self._agents.opened().values():
            if not (agent.index.is_idle or await self._answers(agent)):
                return False
        return True

    async def _answers(self, agent: Agent) -> bool:
        try:
            async with asyncio.timeout(self._answer_seconds):
                return not await agent.index.keyword_error()
        except TimeoutError:
            return False

    async def check_extensions(self) -> None:
        """Check the service of each extension; one that does not answer is NOT_SERVING."""
        for name, health in self._extensions.items():
            await self._check_extension(name, health)

    async def _check_extension(self, name: str, health: ServiceHealth) -> None:
        state = _Response.NOT_SERVING
        try:
            state = await health.status()
        finally:
            self.servicer.set(name, state)

    async def stop(self) -> None:
        """Set NOT_SERVING for good. Waits for no client."""
        await self._tasks.stop()
        self.servicer.stop()


REMOTE_SECONDS = 60.0
"""How long a good answer of an object store counts: each check is a request that costs money."""

DATASET_SECONDS = 15.0

_STATUS = health_pb2.HealthCheckResponse


class EntryHealth:
    """The state of the EntryService, from the datasets in use and that of the default agent."""

    def __init__(self, agents: Agents, entries: EntryMemories) -> None:
        self._agents = agents
        self._entries = entries
        self._good: dict[str, tuple[EntryConfig | None, float]] = {}

    def first(self) -> "health_pb2.HealthCheckResponse.ServingStatus":
        """Return the state before the first check."""
        return _STATUS.NOT_SERVING if self._checked_agents() else _STATUS.SERVICE_UNKNOWN

    async def status(self) -> "health_pb2.HealthCheckResponse.ServingStatus":
        """Return SERVICE_UNKNOWN if entries are disabled; SERVING if every checked dataset answers."""
        configs = self._checked_agents()
        if not configs:
            return _STATUS.SERVICE_UNKNOWN
        answers = await asyncio.gather(*map(self._answers, configs))
        return _STATUS.SERVING if all(answers) else _STATUS.NOT_SERVING

    def _checked_agents(self) -> list[AgentConfig]:
        """Return the agents whose entries have been used; if there are none, one agent with entries."""
        on = [
            config
            for config in self._agents.configs().values()
            if config.memory_enabled and self._entries.is_enabled(config)
        ]
        used = [config for config in on if self._entries.was_used(config.agent_id)]
        return used or sorted(on, key=lambda config: not config.default)[:1]

    async def _answers(self, config: AgentConfig) -> bool:
        now = time.monotonic()
        known, until = self._good.get(config.agent_id, (None, now))
        entries = EntryConfig.from_plugins(config.plugins)
        if known == entries and now < until:
            return True
        try:
            async with asyncio.timeout(DATASET_SECONDS), self._entries.use(config) as memory:
                await memory.count()
        except (MemorydError, TimeoutError):
            return False
        if entries is not None and not entries.location.is_local:
            self._good[config.agent_id] = (entries, now + REMOTE_SECONDS)
        return True
