"""Agents: open, use, reload and close all configured agents."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from memoryd_server.agent.agent import Agent
from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.lifecycle import (
    AgentSummary,
    AgentUses,
    ConfiguredAgents,
    DetachedTasks,
    OpeningQueue,
    RequestResolver,
    by_id,
    in_database,
    opened_in_database,
    shutting_down,
    unavailable,
)
from memoryd_server.agent.search import SearchBackend
from memoryd_server.agent.session_requests import FlushRequest
from memoryd_server.agent.state import IndexState
from memoryd_server.agent.workspace import AgentWorkspace, Workspaces
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.errors import IndexBusy, MemorydError
from memoryd_server.providers import EmbeddingProvider
from memoryd_server.sessions import FlushDecision, decide_flush

# Opening an index mostly waits for the disk.
MOST_OPENING = 8

OPENED_FIRST = 16
"""How many agents are open before the daemon listens. The others follow; a call opens its agent immediately."""

# Fewer once calls may come, so that these do not wait.
OPENED_DURING_CALLS = 3

MOST_CLOSING = 16

MOST_OPEN = 500
"""How many agents with their memory files in a database are open at the same time. If there are more, a call opens its
agent, and the one that was not used for the longest time is closed. An agent with a folder stays open: events sync it.
"""

REOPEN_SECONDS = 10.0
"""How long after a failure the next call tries to open the index again."""

PURGE_SECONDS = 0.5
"""How long a stop overwrites deleted text on the disk, for all agents together; the next start continues."""

OPENING_SECONDS = 10.0
"""How long a stop waits for an index that is being opened."""


class Agents(ConfiguredAgents):
    """The agents by id.

    `make_agent` makes an enabled one, and `make_backend` the search backend in front of it; None if it has none. `now`
    returns the time in UTC. `make_workspace` makes what answers for an agent whose memory search is disabled. Of more
    than `most_open` agents with documents in a database, each is opened by a call; `closed_agents` counts the closings.
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
        most_open: int = MOST_OPEN,
    ) -> None:
        super().__init__(configs)
        self._most_open = most_open
        self._opens_on_use = opened_in_database(self._configs) > most_open
        self._make_agent, self._make_backend = make_agent, make_backend
        self._resolver = RequestResolver(now)
        # Replaced and never changed, because other threads iterate over it.
        self._agents = {config.agent_id: self._with_backend(make_agent(config)) for config in self._opened_at_start()}
        self._workspaces = Workspaces(make_workspace)
        self._unopened: dict[str, MemorydError] = {}
        self._tried_at: dict[str, float] = {}
        self._uses = AgentUses()
        self._closed_states: dict[str, IndexState] = {}
        self.closed_agents = 0
        self._closings = BackgroundTasks(failures)
        self._changing: dict[str, asyncio.Event] = {}
        self._reload_ended = asyncio.Event()
        self._reload_ended.set()
        self._tasks = DetachedTasks("opening of an index", failures)
        self._queue = OpeningQueue(self._open_first_time, failures)
        self.reopen_seconds = REOPEN_SECONDS
        self.stopping = asyncio.Event()
        self._never_opened: list[Agent] = []
        self._background = False

    def _opened_at_start(self) -> list[AgentConfig]:
        """Return the agents that are opened without a call: those that do not stay closed, or one of all."""
        enabled = [config for config in self._configs.values() if config.enabled]
        enabled.sort(key=lambda config: not config.default)
        return [config for config in enabled if not self._may_stay_closed(config)] or enabled[:1]

    def _may_stay_closed(self, config: AgentConfig) -> bool:
        return self._opens_on_use and in_database(config)

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
            if self._agents and len(self._unopened) == len(self._agents):
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
            self._uses.note(agent_id)
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
            self._record_failure(agent_id, unavailable(error))
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
        self._reload_ended.clear()
        try:
            while self._changing:
                await next(iter(self._changing.values())).wait()
            return () if self.stopping.is_set() else await self._change(configs, grace_seconds)
        finally:
            self._reload_ended.set()

    async def _change(self, configs: Sequence[AgentConfig], grace_seconds: float) -> tuple[str, ...]:
        wanted = by_id(configs)
        self._opens_on_use = opened_in_database(wanted) > self._most_open
        # The next call opens an agent that is closed now.
        self._unopened = {agent_id: error for agent_id, error in self._unopened.items() if agent_id in self._agents}
        kept = {agent_id for agent_id in wanted if self._stays_open(agent_id, wanted[agent_id])}
        closing = [agent_id for agent_id in self._agents if agent_id not in kept]
        outdated = self._workspaces.outdated(wanted)
        may_open = [config for config in wanted.values() if config.enabled and config.agent_id not in kept]
        opening = [each for each in may_open if each.agent_id in self._agents or not self._may_stay_closed(each)]
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
            self._record_failure(agent_id, shutting_down())

    def _stays_open(self, agent_id: str, config: AgentConfig) -> bool:
        opened = agent_id in self._agents and agent_id not in self._unopened
        return opened and config.enabled and self._agents[agent_id].config.can_become(config)

    async def _close(self, agent_id: str, grace_seconds: float) -> None:
        await self._uses.end(agent_id, grace_seconds, self.stopping)
        if self.stopping.is_set():
            # Its calls get the grace of the stop, which then closes it.
            return
        agent = self._remove(agent_id)
        await agent.stop_backend()
        if self._unopened.pop(agent_id, None) is None:
            # A stop of the daemon that waits for this change has no time to lose.
            await agent.stop(-math.inf if self.stopping.is_set() else time.monotonic() + PURGE_SECONDS)

    def _remove(self, agent_id: str) -> Agent:
        agents = dict(self._agents)
        agent = agents.pop(agent_id)
        self._agents = agents
        self._uses.forget(agent_id)
        return agent

    async def _close_unused(self) -> None:
        """Close the agents that were not used for the longest time, until no more than allowed are open."""
        while len(self._agents) > self._most_open and not self.stopping.is_set():
            agent_id = next(filter(self._is_unused, self._uses.unused()), None)
            if agent_id is None:
                # The next call tries again.
                return
            done = self._changing[agent_id] = asyncio.Event()
            try:
                agent = self._agents[agent_id]
                self._closed_states[agent_id] = agent.snapshot.state
                self._remove(agent_id)
                self.closed_agents += 1
                await agent.stop_backend()
                await agent.stop()
            finally:
                del self._changing[agent_id]
                done.set()

    def _is_unused(self, agent_id: str) -> bool:
        return (
            self._is_open(agent_id)
            and self._may_stay_closed(self._configs[agent_id])
            and self._agents[agent_id].index.coordinator.active is None
        )

    async def _close_workspace(self, agent_id: str, grace_seconds: float) -> None:
        await self._uses.end(agent_id, grace_seconds, self.stopping)
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

    async def _try_to_open(self, config: AgentConfig, *, by_call: bool = False) -> MemorydError | None:
        # On a thread: it looks for a model's file and reads certificates.
        agent = await asyncio.to_thread(self._make_agent, config)
        self._agents = {**self._agents, config.agent_id: self._with_backend(agent)}
        try:
            await agent.start(background=self._background, answers_first=by_call)
        except MemorydError as error:
            return error
        except Exception as error:  # noqa: BLE001 -- the other agents go on, and the caller reports it
            return unavailable(error)
        return None

    @asynccontextmanager
    async def use(self, agent_id: str) -> AsyncIterator[Agent]:
        """Yield an agent, which stays open until the block ends. Waits while the agent is being opened.

        Raises:
            AgentNotFound, MemoryDisabled, MemorydError: as `agent`.
        """
        agent = await self.wait_for(agent_id)
        with self._uses.call(agent.config.agent_id):
            yield agent

    @asynccontextmanager
    async def follow(self, agent_id: str) -> AsyncIterator[Agent]:
        """Yield an agent for a stream, which ends if a reload closes it. Waits while the agent is being opened.

        Raises:
            AgentNotFound, MemoryDisabled, MemorydError: as `agent`.
        """
        agent = await self.wait_for(agent_id)
        with self._uses.stream(agent.config.agent_id):
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
        with self._uses.call(config.agent_id):
            yield self._workspaces[config.agent_id]

    async def wait_for(self, agent_id: str) -> Agent:
        """Return an agent, open until the caller's next `await`. Opens it if it is closed until a call uses it.

        Raises:
            AgentNotFound, MemoryDisabled, MemorydError: as `agent`.
        """
        while True:
            wanted = self.enabled_config(agent_id).agent_id
            if changing := self._changing.get(wanted):
                self._queue.open_now(wanted)
                await changing.wait()
            elif self._needs_opening(wanted):
                if self.stopping.is_set():
                    raise shutting_down()
                if not self._reload_ended.is_set():
                    await self._reload_ended.wait()
                    continue
                self._changing[wanted] = asyncio.Event()
                await self._tasks.run(self._open_now(wanted))
            else:
                self._uses.note(wanted)
                if self._opens_on_use and len(self._agents) > self._most_open and not self._closings.running:
                    # It begins when the caller has counted its use.
                    self._closings.spawn("closing of unused agents", self._close_unused(), expected=(MemorydError,))
                return self.agent(agent_id)

    def _needs_opening(self, agent_id: str) -> bool:
        """Return whether an agent is closed, or could not be opened and `REOPEN_SECONDS` have passed since."""
        if agent_id in self._unopened:
            return time.monotonic() - self._tried_at[agent_id] >= self.reopen_seconds
        return agent_id not in self._agents

    async def _open_now(self, agent_id: str) -> None:
        done = self._changing[agent_id]
        try:
            config = self._configs[agent_id]
            error = await self._try_to_open(config, by_call=True)
            if error is None:
                self._unopened.pop(agent_id, None)
                self._uses.note(agent_id)
            else:
                self._record_failure(agent_id, error)
                if self._may_stay_closed(config):
                    self._remove(agent_id)
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
        await self._closings.wait(OPENING_SECONDS)
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
        if self._may_stay_closed(config) and agent_id not in self._unopened:
            return AgentSummary(config, self._closed_states.get(agent_id))
        return AgentSummary(config, IndexState.UNAVAILABLE if config.enabled else None)

    def _is_open(self, agent_id: str) -> bool:
        return agent_id in self._agents and agent_id not in self._unopened and agent_id not in self._changing

    def opened(self) -> Mapping[str, Agent]:
        """Return the agents whose index is open, by id. May be called on any thread."""
        return {agent_id: agent for agent_id, agent in self._agents.items() if self._is_open(agent_id)}
