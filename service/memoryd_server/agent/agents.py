"""Agents: open, use, reload and close all configured agents."""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from memoryd_server.agent.agent import Agent
from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.lifecycle import DetachedTasks, InUseCounter, OpeningQueue, RequestResolver
from memoryd_server.agent.search import SearchBackend
from memoryd_server.agent.session_requests import FlushRequest
from memoryd_server.agent.state import IndexState
from memoryd_server.agent.workspace import AgentWorkspace, Workspaces
from memoryd_server.background_tasks import TaskFailures
from memoryd_server.errors import (
    AgentNotFound,
    FieldViolation,
    IndexBusy,
    IndexUnavailable,
    InvalidRequest,
    MemorydError,
    MemoryDisabled,
    ShuttingDown,
)
from memoryd_server.providers import EmbeddingProvider
from memoryd_server.sessions import FlushDecision, decide_flush

DEFAULT_AGENT = "main"

# Opening an index mostly waits for the disk.
MOST_OPENING = 8

OPENED_FIRST = 16
"""How many agents are open before the daemon listens. The others follow; a call opens its agent immediately."""

# Fewer once calls may come, so that these do not wait.
OPENED_DURING_CALLS = 3

MOST_CLOSING = 16

REOPEN_SECONDS = 10.0
"""How long after a failure the next call tries to open the index again."""

PURGE_SECONDS = 0.5
"""How long a stop overwrites deleted text on the disk, for all agents together; the next start continues."""

OPENING_SECONDS = 10.0
"""How long a stop waits for an index that is being opened."""


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """One configured agent. `state` is None for a disabled one, and UNAVAILABLE if its index is not open."""

    config: AgentConfig
    state: IndexState | None


class Agents:
    """The agents by id.

    `make_agent` makes an enabled one, and `make_backend` the search backend in front of it; None if it has none. `now`
    returns the time in UTC. `make_workspace` makes what answers for an agent whose memory search is disabled.
    """

    def __init__(
        self,
        configs: Sequence[AgentConfig],
        make_agent: Callable[[AgentConfig], Agent],
        make_backend: Callable[[Agent], SearchBackend | None] = lambda _: None,
        *,
        make_workspace: Callable[[AgentConfig], AgentWorkspace],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        failures: TaskFailures | None = None,
    ) -> None:
        # In the order of ids.
        self._configs = _by_id(configs)
        self._make_agent, self._make_backend = make_agent, make_backend
        self._resolver = RequestResolver(now)
        # Replaced and never changed, because other threads iterate over it.
        self._agents = {config.agent_id: self._with_backend(make_agent(config)) for config in configs if config.enabled}
        self._workspaces = Workspaces(make_workspace)
        self._unopened: dict[str, MemorydError] = {}
        self._tried_at: dict[str, float] = {}
        self._uses: defaultdict[str, InUseCounter] = defaultdict(InUseCounter)
        self._changing: dict[str, asyncio.Event] = {}
        self._tasks = DetachedTasks("opening of an index", failures)
        self._queue = OpeningQueue(self._open_first_time, failures)
        self.reopen_seconds = REOPEN_SECONDS
        self.stopping = asyncio.Event()
        self._never_opened: list[Agent] = []
        self._background = False

    def _with_backend(self, agent: Agent) -> Agent:
        backend = self._make_backend(agent)
        if backend is not None:
            agent.use_backend(backend)
        return agent

    async def start(self, *, background: bool) -> None:
        """Take the lock of every enabled agent's index and open the first ones; the others follow in the background.

        An index that cannot be opened does not affect the other agents; calls to its agent fail with the reason until
        one of them can open it. A call to an agent that is not open yet opens it, and waits for that.

        Raises:
            IndexBusy: another process holds one of the indexes.
            MemorydError: no index could be opened at all.
        """
        self._background = background
        waiting = sorted(self._agents, key=lambda agent_id: agent_id != self._default())
        self._queue.add(waiting)
        self._changing |= {agent_id: asyncio.Event() for agent_id in waiting}
        try:
            await self._workspaces.add(self._configs.values())
            await asyncio.to_thread(self._reserve, [self._agents[agent_id] for agent_id in waiting])
            while self._queue and not self._open():
                await self._queue.open_some(OPENED_FIRST, most_concurrent=MOST_OPENING)
            if self._unopened and len(self._unopened) == len(self._agents):
                raise next(iter(self._unopened.values()))  # noqa: TRY301 -- the opened ones are closed below
        except BaseException:
            await self.stop()
            raise
        self._queue.open_rest(most_concurrent=OPENED_DURING_CALLS)

    @staticmethod
    def _reserve(agents: Sequence[Agent]) -> None:
        for agent in agents:
            agent.reserve()

    def _release(self) -> None:
        while self._never_opened:
            self._never_opened.pop().release()

    async def _open_first_time(self, agent_id: str, requested: bool) -> None:
        done = self._changing[agent_id]
        try:
            await self._start(agent_id, self._agents[agent_id], requested=requested)
        finally:
            del self._changing[agent_id]
            done.set()

    async def _start(self, agent_id: str, agent: Agent, *, requested: bool) -> None:
        try:
            await agent.start(background=self._background, requested=requested)
        except IndexBusy as error:
            self._record_failure(agent_id, error)
            raise
        except MemorydError as error:
            self._record_failure(agent_id, error)
        except Exception as error:
            self._record_failure(agent_id, _unavailable(error))
            raise

    def _record_failure(self, agent_id: str, error: MemorydError) -> None:
        self._unopened[agent_id] = error
        self._tried_at[agent_id] = time.monotonic()

    async def change(self, configs: Sequence[AgentConfig], *, grace_seconds: float) -> tuple[str, ...]:
        """Continue with other configurations; return a message for each that could not be brought into force.

        An agent that can stays open. The others are closed, once the calls that use them have ended or `grace_seconds`
        have passed, and reopened; calls that come in between wait. An agent whose index cannot be opened keeps its old
        configuration. A stop of the daemon ends this once the agent that is being opened is open; calls to agents that
        are closed by then fail with `ShuttingDown`.
        """
        while self._changing:
            await next(iter(self._changing.values())).wait()
        if self.stopping.is_set():
            return ()
        wanted = _by_id(configs)
        kept = {agent_id for agent_id in wanted if self._stays_open(agent_id, wanted[agent_id])}
        closing = [agent_id for agent_id in self._agents if agent_id not in kept]
        outdated = self._workspaces.outdated(wanted)
        opening = [config for agent_id, config in wanted.items() if config.enabled and agent_id not in kept]
        changing = {
            agent_id: asyncio.Event() for agent_id in (*closing, *outdated, *(config.agent_id for config in opening))
        }
        self._changing |= changing
        try:
            for agent_id in kept:
                await self._agents[agent_id].change_config(wanted[agent_id])
            await asyncio.gather(
                *(self._close(agent_id, grace_seconds) for agent_id in closing),
                *(self._close_workspace(agent_id, grace_seconds) for agent_id in outdated),
            )
            if self.stopping.is_set():
                self._leave_closed(agent_id for agent_id in closing if agent_id not in self._agents)
                return ()
            before, self._configs = self._configs, wanted
            await self._workspaces.add_missing(wanted)
            return await self._open_in_order(opening, before)
        finally:
            for agent_id, done in changing.items():
                del self._changing[agent_id]
                done.set()

    async def _open_in_order(
        self, opening: Sequence[AgentConfig], before: Mapping[str, AgentConfig]
    ) -> tuple[str, ...]:
        """Open agents one after the other, because two of them may have changed places; return messages as `change`."""
        problems = []
        for at, config in enumerate(opening):
            if self.stopping.is_set():
                self._leave_closed(config.agent_id for config in opening[at:])
                break
            problems.append(await self._open_or_restore(config, before.get(config.agent_id)))
        return tuple(filter(None, problems))

    def _leave_closed(self, agent_ids: Iterable[str]) -> None:
        """Let the calls of agents that a stop leaves closed fail with `ShuttingDown`."""
        for agent_id in agent_ids:
            self._record_failure(agent_id, _shutting_down())

    def _stays_open(self, agent_id: str, config: AgentConfig) -> bool:
        opened = agent_id in self._agents and agent_id not in self._unopened
        return opened and config.enabled and self._agents[agent_id].config.can_become(config)

    async def _close(self, agent_id: str, grace_seconds: float) -> None:
        await self._uses[agent_id].end(grace_seconds, self.stopping)
        if self.stopping.is_set():
            # Its calls get the grace of the stop, which then closes it.
            return
        agent = self._agents[agent_id]
        self._agents = dict(self._agents)
        del self._agents[agent_id]
        await agent.stop_backend()
        if self._unopened.pop(agent_id, None) is None:
            # A stop of the daemon that waits for this change has no time to lose.
            await agent.stop(-math.inf if self.stopping.is_set() else time.monotonic() + PURGE_SECONDS)

    async def _close_workspace(self, agent_id: str, grace_seconds: float) -> None:
        await self._uses[agent_id].end(grace_seconds, self.stopping)
        if not self.stopping.is_set():
            await self._workspaces.remove(agent_id)

    async def _open_or_restore(self, config: AgentConfig, old: AgentConfig | None) -> str:
        agent_id = config.agent_id
        error = await self._try_to_open(config)
        if error is None:
            return ""
        # The old settings never send texts to a provider that the new ones exclude.
        old = None if old is None else old.with_providers_of(config)
        if self.stopping.is_set() or old == config:
            old = None
        if old is not None and old.enabled and await self._try_to_open(old) is None:
            self._configs[agent_id] = old
            return f"agent {agent_id} keeps its old settings: {error.message}"
        self._record_failure(agent_id, error)
        return f"the memory of agent {agent_id} cannot be opened: {error.message}"

    async def _try_to_open(self, config: AgentConfig) -> MemorydError | None:
        # On a thread: it looks for a model's file and reads certificates.
        agent = await asyncio.to_thread(self._make_agent, config)
        self._agents = {**self._agents, config.agent_id: self._with_backend(agent)}
        try:
            await agent.start(background=self._background)
        except MemorydError as error:
            return error
        except Exception as error:  # noqa: BLE001 -- the other agents go on, and the caller reports it
            return _unavailable(error)
        return None

    @asynccontextmanager
    async def use(self, agent_id: str) -> AsyncIterator[Agent]:
        """Yield an agent, which stays open until the block ends. Waits while the agent is being opened.

        Raises:
            AgentNotFound, MemoryDisabled, MemorydError: as `agent`.
        """
        agent = await self.wait_for(agent_id)
        with self._uses[agent.config.agent_id].count():
            yield agent

    @asynccontextmanager
    async def use_workspace(self, agent_id: str) -> AsyncIterator[Agent | AgentWorkspace]:
        """Yield what answers the calls of an agent that need no index, as `use`.

        That is the agent, or only its workspace if its memory search is disabled.

        Raises:
            AgentNotFound, MemoryDisabled: as `memory_config`.
            MemorydError: as `agent`.
        """
        while changing := self._changing.get(self.memory_config(agent_id).agent_id):
            self._queue.open_now(self.memory_config(agent_id).agent_id)
            await changing.wait()
        config = self.memory_config(agent_id)
        if config.enabled:
            async with self.use(agent_id) as agent:
                yield agent
            return
        with self._uses[config.agent_id].count():
            yield self._workspaces[config.agent_id]

    async def wait_for(self, agent_id: str) -> Agent:
        """Return an agent, for a stream, which does not keep it open. Waits while the agent is being opened.

        Raises:
            AgentNotFound, MemoryDisabled, MemorydError: as `agent`.
        """
        while changing := self._changing.get(self.enabled_config(agent_id).agent_id):
            self._queue.open_now(self.enabled_config(agent_id).agent_id)
            await changing.wait()
        await self._open_again(self.enabled_config(agent_id).agent_id)
        return self.agent(agent_id)

    async def _open_again(self, agent_id: str) -> None:
        """Try again to open an index that could not be opened, if `REOPEN_SECONDS` have passed since."""
        if agent_id not in self._unopened or time.monotonic() - self._tried_at[agent_id] < self.reopen_seconds:
            return
        if self.stopping.is_set():
            raise _shutting_down()
        self._changing[agent_id] = asyncio.Event()
        await self._tasks.run(self._open_now(agent_id))

    async def _open_now(self, agent_id: str) -> None:
        done = self._changing[agent_id]
        try:
            error = await self._try_to_open(self._configs[agent_id])
            if error is None:
                del self._unopened[agent_id]
            else:
                self._record_failure(agent_id, error)
        finally:
            del self._changing[agent_id]
            done.set()

    async def interrupt_syncs(self) -> None:
        """End every sync run at its next file boundary, and every write that waits for a lock; start no others."""
        self._workspaces.stop_writes()
        for agent in self._open():
            agent.workspace.stop_writes()
        # The backends first: what follows a run waits for them.
        await self._stop_backends()
        await asyncio.gather(*(agent.index.coordinator.stop() for agent in self._open()))

    async def _stop_backends(self) -> None:
        await asyncio.gather(*(agent.stop_backend() for agent in self._agents.values()))

    def _open(self) -> list[Agent]:
        return [
            agent for agent_id, agent in self._agents.items() if agent_id not in self._unopened and agent.index.is_open
        ]

    def open_no_more(self) -> None:
        """Open no further agent; calls that wait for one fail with `ShuttingDown`."""
        self.stopping.set()
        dropped = self._queue.drop()
        self._leave_closed(dropped)
        for agent_id in dropped:
            self._never_opened.append(self._agents[agent_id])
            self._changing.pop(agent_id).set()

    async def stop(self) -> None:
        """Close every index that is open."""
        self.open_no_more()
        await asyncio.to_thread(self._release)
        await self._queue.end(OPENING_SECONDS)
        await self._tasks.end(OPENING_SECONDS)
        await self._stop_backends()
        await self._workspaces.stop()
        turn = asyncio.Semaphore(MOST_CLOSING)
        purge_until = time.monotonic() + PURGE_SECONDS

        async def close(agent: Agent) -> None:
            async with turn:
                await agent.stop(purge_until)

        await asyncio.gather(*map(close, self._open()))

    def sync_vectors(self, provider: EmbeddingProvider) -> None:
        """Make the missing vectors of each agent of this provider, which was not available before."""
        for agent in self._open():
            agent.index.sync_vectors(provider)

    def agent(self, agent_id: str) -> Agent:
        """Return an agent; an empty id means `main`, or the default agent if there is no `main`.

        Raises:
            AgentNotFound: there is no such agent; the message lists the configured ones.
            MemoryDisabled: its memory is disabled.
            MemorydError: its index could not be opened.
        """
        config = self.enabled_config(agent_id)
        if config.agent_id in self._unopened:
            raise self._unopened[config.agent_id]
        return self._agents[config.agent_id]

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
            named = ", ".join(self._configs)
            raise InvalidRequest([FieldViolation("agent_id", f"must name one of {named}: no agent is the default")])
        try:
            return self._configs[wanted]
        except KeyError:
            known = ", ".join(sorted(self._configs))
            raise AgentNotFound(f"there is no agent {agent_id[:64]!r}; configured are: {known}") from None

    def _default(self) -> str:
        """Return the id that an empty id means; empty if no agent is the default."""
        default = next((c.agent_id for c in self._configs.values() if c.default), "")
        return DEFAULT_AGENT if default and DEFAULT_AGENT in self._configs else default

    def configs(self) -> Mapping[str, AgentConfig]:
        """Return every agent's configuration by id, in the order of ids."""
        return MappingProxyType(self._configs)

    async def flush_decision(self, agent_id: str, request: FlushRequest) -> FlushDecision:
        """Return whether a session of an agent should write its notes now. Needs no open index.

        Raises:
            AgentNotFound, MemoryDisabled: as `memory_config`.
            InvalidRequest: a field is invalid.
        """
        config = self.memory_config(agent_id)
        return decide_flush(await self._resolver.resolve(request, config), config.flush)

    def summary(self, agent_id: str) -> AgentSummary:
        """Return a configured agent, by its exact id."""
        config = self._configs[agent_id]
        if self._is_open(agent_id):
            return AgentSummary(config, self._agents[agent_id].snapshot.state)
        return AgentSummary(config, IndexState.UNAVAILABLE if config.enabled else None)

    def _is_open(self, agent_id: str) -> bool:
        return agent_id in self._agents and agent_id not in self._unopened and agent_id not in self._changing

    def opened(self) -> Mapping[str, Agent]:
        """Return the agents whose index is open, by id. May be called on any thread."""
        return {agent_id: agent for agent_id, agent in self._agents.items() if self._is_open(agent_id)}


def _by_id(configs: Iterable[AgentConfig]) -> dict[str, AgentConfig]:
    return {config.agent_id: config for config in sorted(configs, key=lambda config: config.agent_id)}


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("the daemon is stopping; try again", retry_after_seconds=1.0)


def _unavailable(error: Exception) -> IndexUnavailable:
    """Return a bug in one agent as the error of its calls; the other agents are not affected."""
    return IndexUnavailable(f"{type(error).__name__}: {error}")
