"""What calls and agents need over their lifetime: configurations, deadlines, the opening queue, use counters.

Everything here belongs to the event loop's thread.
"""

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from zoneinfo import ZoneInfo

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.state import IndexState
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.errors import (
    AgentNotFound,
    DeadlineTooShort,
    FieldViolation,
    IndexUnavailable,
    InvalidRequest,
    MemorydError,
    MemoryDisabled,
    ShuttingDown,
)

_T = TypeVar("_T")
_Resolved_co = TypeVar("_Resolved_co", covariant=True)

LOCK_SECONDS = 10.0
"""How long an append waits for a file that another program locks, if the caller sets no deadline."""

# A call ends this long before its caller's deadline, or this share of a short one before it, so that its own error
# arrives instead of a bare timeout.
REPLY_MARGIN_SECONDS = 0.2
REPLY_MARGIN_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Deadline:
    """Until when a call may work. `at` is in `time.monotonic()` seconds; `is_default` if the caller set none."""

    at: float
    is_default: bool = False

    @classmethod
    def after(cls, seconds: float | None, ceiling_seconds: float) -> "Deadline":
        """Return the deadline of a call that its caller awaits for `seconds`; None for a caller without a deadline."""
        allowed = min(math.inf if seconds is None else seconds, ceiling_seconds)
        return cls(time.monotonic() + _less_margin(allowed), is_default=seconds is None)

    def within(self, seconds: float) -> float:
        """Return this deadline; a default one is at most `seconds` away."""
        return min(self.at, time.monotonic() + _less_margin(seconds)) if self.is_default else self.at

    def has_passed(self) -> bool:
        """Return whether a thread that works for the call has to end."""
        return time.monotonic() >= self.at

    async def limit(self, work: Awaitable[_T]) -> _T:
        """Return the result of `work`.

        Raises:
            DeadlineTooShort: `work` takes longer.
        """
        seconds = self.at - time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError as error:
            raise DeadlineTooShort(
                f"the answer was not ready after {seconds:.2g} s; call again with a longer deadline",
                retry_after_seconds=1.0,
            ) from error


def _less_margin(seconds: float) -> float:
    return seconds - min(REPLY_MARGIN_SECONDS, seconds * REPLY_MARGIN_SHARE)


class _ZonedRequest(Protocol[_Resolved_co]):
    @property
    def time_zone(self) -> str: ...

    def resolve(self, config: AgentConfig, now: datetime, /) -> _Resolved_co: ...


class RequestResolver:
    """Resolves requests that may name a time zone, whose rules are in a file. `now` returns the time in UTC.

    The zones of agents are loaded once; a request that names a zone itself is resolved on another thread.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._zones: dict[str, ZoneInfo] = {}

    async def resolve(self, request: _ZonedRequest[_T], config: AgentConfig) -> _T:
        """Return what `request.resolve` returns now.

        Raises:
            InvalidRequest: a field is invalid.
        """
        now = self._now()
        if config.time_zone in self._zones and not request.time_zone:
            return request.resolve(config, now)
        self._zones[config.time_zone] = await asyncio.to_thread(ZoneInfo, config.time_zone)
        return await asyncio.to_thread(request.resolve, config, now)


class OpeningQueue:
    """Agents that wait to be opened by `open_one(agent_id, requested)`; those that a call requests come first."""

    def __init__(self, open_one: Callable[[str, bool], Awaitable[None]], failures: TaskFailures | None = None) -> None:
        self._open_one = open_one
        self._waiting: dict[str, None] = {}
        self._tasks = BackgroundTasks(failures)

    def add(self, agent_ids: Iterable[str]) -> None:
        """Add agents to the end of the queue."""
        self._waiting |= dict.fromkeys(agent_ids)

    def __len__(self) -> int:
        return len(self._waiting)

    async def open_some(self, count: int, *, most_concurrent: int) -> None:
        """Open the next `count` agents as if a call had requested them.

        Raises what the first of them raised, once all have ended: an agent that is being opened cannot be closed.
        """
        turn = asyncio.Semaphore(most_concurrent)

        async def one(agent_id: str) -> None:
            async with turn:
                await self._open_one(agent_id, True)

        some = [self._next() for _ in range(min(count, len(self)))]
        for error in filter(None, await asyncio.gather(*map(one, some), return_exceptions=True)):
            raise error

    def open_rest(self, *, most_concurrent: int) -> None:
        """Open the remaining agents in the background."""
        for _ in range(min(most_concurrent, len(self))):
            self._tasks.spawn("opening of indexes", self._work())

    async def _work(self) -> None:
        while self._waiting:
            await self._open_quietly(self._next(), requested=False)

    def open_now(self, agent_id: str) -> None:
        """Open an agent that still waits, whatever else is being opened."""
        if agent_id in self._waiting:
            del self._waiting[agent_id]
            self._tasks.spawn("opening of an index", self._open_quietly(agent_id, requested=True))

    async def _open_quietly(self, agent_id: str, *, requested: bool) -> None:
        # `open_one` records why an agent could not be opened, for its callers; the others go on.
        try:
            await self._open_one(agent_id, requested)
        except MemorydError:
            return
        except Exception as error:  # noqa: BLE001 -- the other agents are opened all the same
            self._tasks.errors("opening of an index").failed(error)

    def _next(self) -> str:
        agent_id = next(iter(self._waiting))
        del self._waiting[agent_id]
        return agent_id

    def drop(self) -> list[str]:
        """Empty the queue; return the agents that waited, in order."""
        dropped, self._waiting = list(self._waiting), {}
        return dropped

    async def end(self, seconds: float) -> None:
        """Wait at most `seconds` for the agents that are being opened; after `drop`."""
        await self._tasks.wait(seconds)


class InUseCounter:
    """Counts the calls that use an agent, so that it is not closed during one."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @property
    def is_used(self) -> bool:
        """Whether a call uses the agent."""
        return self._count > 0

    @contextmanager
    def count(self) -> Iterator[None]:
        """Count one use until the block ends."""
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()

    async def end(self, seconds: float, stopping: asyncio.Event) -> bool:
        """Wait for the last use to end, at most `seconds` and until `stopping`; return whether it has ended."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._none, stopping)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._none.is_set()


class AgentUses:
    """The calls and streams that use each agent, and the order in which the agents were used last.

    A reload waits for the end of calls, and not for streams, which end by themselves when the agent is closed.
    """

    def __init__(self) -> None:
        self._calls: defaultdict[str, InUseCounter] = defaultdict(InUseCounter)
        self._streams: Counter[str] = Counter()
        # The agents in the order of their last use.
        self._recent: dict[str, None] = {}

    def note(self, agent_id: str) -> None:
        """Record that an agent is used now."""
        self._recent.pop(agent_id, None)
        self._recent[agent_id] = None

    @contextmanager
    def call(self, agent_id: str) -> Iterator[None]:
        """Count a call until the block ends."""
        with self._calls[agent_id].count():
            yield

    @contextmanager
    def stream(self, agent_id: str) -> Iterator[None]:
        """Count a stream until the block ends."""
        self._streams[agent_id] += 1
        try:
            yield
        finally:
            self._streams[agent_id] -= 1

    async def end(self, agent_id: str, seconds: float, stopping: asyncio.Event) -> None:
        """Wait for the last call to end, as `InUseCounter.end`."""
        if agent_id in self._calls:
            await self._calls[agent_id].end(seconds, stopping)

    def forget(self, agent_id: str) -> None:
        """Forget an agent that was closed, unless a call or a stream still uses it."""
        self._recent.pop(agent_id, None)
        if not self.is_used(agent_id):
            self._calls.pop(agent_id, None)
            self._streams.pop(agent_id, None)

    def unused(self) -> list[str]:
        """Return the agents that nothing uses, the one that was used least recently first."""
        return [agent_id for agent_id in self._recent if not self.is_used(agent_id)]

    def is_used(self, agent_id: str) -> bool:
        """Return whether a call or a stream uses an agent."""
        return self._streams.get(agent_id, 0) > 0 or (agent_id in self._calls and self._calls[agent_id].is_used)


class DetachedTasks:
    """Work that one call requests and others need: it continues when that call is cancelled.

    An index that is being opened holds a lock; abandoned halfway, it would keep out every later call. `name` is that of
    the work in logs and metrics.
    """

    def __init__(self, name: str, failures: TaskFailures | None = None) -> None:
        self._name = name
        self._tasks = BackgroundTasks(failures)

    @property
    def running(self) -> int:
        """The number of pieces of work under way."""
        return self._tasks.running

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work`; return when it is done, or is cancelled without it.

        Raises what it raises.
        """
        await asyncio.shield(self._tasks.spawn(self._name, work, expected=(MemorydError,)))

    async def end(self, seconds: float) -> None:
        """Wait at most `seconds` for the work under way."""
        await self._tasks.wait(seconds)


DEFAULT_AGENT = "main"

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """One configured agent. `state` is None for a disabled one, and UNAVAILABLE if its index could not be opened.

    That of an agent that is closed until a call uses it is the state when it was closed, or None before.
    """

    config: AgentConfig
    state: IndexState | None


class ConfiguredAgents:
    """The configurations of the agents, each found by the id of a request."""

    def __init__(self, configs: Iterable[AgentConfig]) -> None:
        # In the order of ids.
        self._configs = by_id(configs)

    def enabled_config(self, agent_id: str) -> AgentConfig:
        """Return the configuration of an agent whose memory search is enabled. Needs no open index.

        Raises:
            AgentNotFound: there is no such agent; the message lists the configured ones.
            MemoryDisabled: its memory, or only its memory search, is disabled.
        """
        config = self.memory_config(agent_id)
        if not config.enabled:
            raise MemoryDisabled(f"memory search is disabled for agent {config.agent_id!r}: {config.disabled_reason}")
        return config

    def memory_config(self, agent_id: str) -> AgentConfig:
        """Return the configuration of an agent whose memory is enabled, with or without memory search.

        Raises:
            AgentNotFound: there is no such agent; the message lists the configured ones.
            MemoryDisabled: its memory is disabled.
        """
        config = self.config(agent_id)
        if not config.memory_enabled:
            raise MemoryDisabled(f"memory is disabled for agent {config.agent_id!r}: {config.disabled_reason}")
        return config

    def config(self, agent_id: str) -> AgentConfig:
        """Return the configuration of an agent, enabled or not.

        Raises:
            AgentNotFound: there is no such agent; the message lists the configured ones.
            InvalidRequest: the id is empty, and there is no default agent.
        """
        wanted = agent_id.strip().lower() or self._default()
        if not wanted:
            named = _named(self._configs)
            raise InvalidRequest([FieldViolation("agent_id", f"must name one of {named}: no agent is the default")])
        try:
            return self._configs[wanted]
        except KeyError:
            known = _named(self._configs)
            raise AgentNotFound(f"there is no agent {agent_id[:64]!r}; configured are: {known}") from None

    def _default(self) -> str:
        """Return the id that an empty id means; empty if no agent is the default."""
        default = next((c.agent_id for c in self._configs.values() if c.default), "")
        return DEFAULT_AGENT if default and DEFAULT_AGENT in self._configs else default

    def configs(self) -> Mapping[str, AgentConfig]:
        """Return every agent's configuration by id, in the order of ids."""
        return MappingProxyType(self._configs)


def by_id(configs: Iterable[AgentConfig]) -> dict[str, AgentConfig]:
    """Return the configurations by id, in the order of ids."""
    return {config.agent_id: config for config in sorted(configs, key=lambda config: config.agent_id)}


def in_database(config: AgentConfig) -> bool:
    """Return whether the memory files of an agent are in a database."""
    return config.documents_driver != "folder"


def opened_in_database(configs: Mapping[str, AgentConfig]) -> int:
    """Return how many agents can be opened whose memory files are in a database."""
    return sum(config.enabled and in_database(config) for config in configs.values())


def _named(agent_ids: Collection[str]) -> str:
    """Return the first ids, and how many others there are."""
    named = ", ".join(list(agent_ids)[:_MOST_NAMED])
    return f"{named} and {len(agent_ids) - _MOST_NAMED} others" if len(agent_ids) > _MOST_NAMED else named


def shutting_down() -> ShuttingDown:
    """Return the error of calls that the daemon does not begin any more, because it stops."""
    return ShuttingDown("the daemon is stopping; try again", retry_after_seconds=1.0)


def unavailable(error: Exception) -> IndexUnavailable:
    """Return a bug in one agent as the error of its calls; the other agents are not affected."""
    return IndexUnavailable(f"{type(error).__name__}: {error}")
