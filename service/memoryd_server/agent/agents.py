"""All configured agents: which exist, which may be used, and their memories."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from memoryd_server.agent.agent import Agent
from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.lifecycle import DetachedTasks, InUseCounter, OpeningQueue
from memoryd_server.agent.router import BackendRouter
from memoryd_server.agent.search import SearchBackend
from memoryd_server.errors import AgentNotFound, IndexBusy, IndexUnavailable, MemorydError, MemoryDisabled, ShuttingDown

DEFAULT_AGENT = "main"

# Opening an index is mostly waiting for the disk.
OPENED_AT_ONCE = 8

OPENED_FIRST = 16
"""So many agents' indexes are open before the daemon listens. The others follow, and one that is asked for at once."""

# Fewer when calls may come: these are not to wait.
OPENED_BESIDE_CALLS = 3

CLOSED_AT_ONCE = 16

REOPEN_SECONDS = 10.0
"""An index that could not be opened is tried again by the first call that comes so long after."""

OPENING_SECONDS = 10.0
"""A stop waits so long for an index that is being opened."""


class Agents:
    """The agents by id.

    `make_memory` builds the memory of an enabled one, and `make_backend` the search backend in front of it; None if it
    has none.
    """

    def __init__(
        self,
        configs: Sequence[AgentConfig],
        make_memory: Callable[[AgentConfig], Agent],
        make_backend: Callable[[Agent], SearchBackend | None] = lambda _: None,
    ) -> None:
        self._configs = {config.agent_id: config for config in configs}
        self._make_memory, self._make_backend = make_memory, make_backend
        self._memories = {c.agent_id: make_memory(c) for c in configs if c.enabled}
        made = {agent_id: self._backend_of(memory) for agent_id, memory in self._memories.items()}
        self._backends = {agent_id: backend for agent_id, backend in made.items() if backend is not None}
        self._unopened: dict[str, MemorydError] = {}
        self._tried_at: dict[str, float] = {}
        self._uses: defaultdict[str, InUseCounter] = defaultdict(InUseCounter)
        self._changing: dict[str, asyncio.Event] = {}
        self._errands = DetachedTasks()
        self._queue = OpeningQueue(self._open_first_time)
        self.reopen_seconds = REOPEN_SECONDS
        self._ending = False
        self._never_opened: list[Agent] = []
        self._background = False

    def _backend_of(self, memory: Agent) -> SearchBackend | None:
        backend = self._make_backend(memory)
        if backend is not None:
            memory.accompany(backend.after_sync, backend.sync_runner)
        return backend

    async def start(self, *, background: bool) -> None:
        """Takes the lock of every enabled agent's index and opens the first ones; the others follow by themselves.

        An index that cannot be opened leaves the other agents alone, and its own calls fail with the reason until one
        of them can open it. Calls to an agent whose turn has not come open it, and wait for that.

        Raises:
            IndexBusy: another process holds one of the indexes.
            MemorydError: no index could be opened at all.
        """
        self._background = background
        waiting = sorted(self._memories, key=lambda agent_id: agent_id != self._default())
        self._queue.add(waiting)
        self._changing |= {agent_id: asyncio.Event() for agent_id in waiting}
        try:
            await asyncio.to_thread(self._reserve, [self._memories[agent_id] for agent_id in waiting])
            while self._queue and not self._open():
                await self._queue.open_some(OPENED_FIRST, at_once=OPENED_AT_ONCE)
            if self._unopened and len(self._unopened) == len(self._memories):
                raise next(iter(self._unopened.values()))  # noqa: TRY301 -- what was opened is closed below
        except BaseException:
            await self.stop()
            raise
        self._queue.go_on(at_once=OPENED_BESIDE_CALLS)

    @staticmethod
    def _reserve(memories: Sequence[Agent]) -> None:
        for memory in memories:
            memory.reserve()

    def _release(self) -> None:
        while self._never_opened:
            self._never_opened.pop().release()

    async def _open_first_time(self, agent_id: str, asked: bool) -> None:
        done = self._changing[agent_id]
        try:
            await self._start(agent_id, self._memories[agent_id], asked=asked)
        finally:
            del self._changing[agent_id]
            done.set()

    async def _start(self, agent_id: str, memory: Agent, *, asked: bool) -> None:
        try:
            await memory.start(background=self._background, asked=asked)
            if agent_id in self._backends:
                await self._backends[agent_id].start(background=self._background)
        except IndexBusy as error:
            self._note_unopened(agent_id, error)
            raise
        except MemorydError as error:
            self._note_unopened(agent_id, error)
        except Exception as error:
            self._note_unopened(agent_id, _told(error))
            raise

    def _note_unopened(self, agent_id: str, error: MemorydError) -> None:
        self._unopened[agent_id] = error
        self._tried_at[agent_id] = time.monotonic()

    async def change(self, configs: Sequence[AgentConfig], *, grace_seconds: float) -> tuple[str, ...]:
        """Goes on with other configurations; answers with what could not be brought into force, in words.

        A memory that can goes on as it is. The others are closed, once the calls that use them have ended or
        `grace_seconds` have passed, and opened anew; calls that come meanwhile wait. An agent whose memory cannot be
        opened keeps its old configuration.
        """
        while self._changing:
            await next(iter(self._changing.values())).wait()
        if self._ending:
            return ()
        wanted = {config.agent_id: config for config in configs}
        kept = {agent_id for agent_id in wanted if self._goes_on(agent_id, wanted[agent_id])}
        closing = [agent_id for agent_id in self._memories if agent_id not in kept]
        opening = [config for agent_id, config in wanted.items() if config.enabled and agent_id not in kept]
        changing = {agent_id: asyncio.Event() for agent_id in (*closing, *(config.agent_id for config in opening))}
        self._changing |= changing
        try:
            for agent_id in kept:
                await self._memories[agent_id].adopt(wanted[agent_id])
            await asyncio.gather(*(self._close(agent_id, grace_seconds) for agent_id in closing))
            before, self._configs = self._configs, wanted
            # One after the other: two agents may have changed places.
            problems = [await self._open_or_go_back(config, before.get(config.agent_id)) for config in opening]
            return tuple(filter(None, problems))
        finally:
            for agent_id, done in changing.items():
                del self._changing[agent_id]
                done.set()

    def _goes_on(self, agent_id: str, config: AgentConfig) -> bool:
        opened = agent_id in self._memories and agent_id not in self._unopened
        return opened and config.enabled and self._memories[agent_id].config.can_become(config)

    async def _close(self, agent_id: str, grace_seconds: float) -> None:
        await self._uses[agent_id].end(grace_seconds)
        memory = self._memories.pop(agent_id)
        backend = self._backends.pop(agent_id, None)
        if backend is not None:
            await backend.stop()
        if self._unopened.pop(agent_id, None) is None:
            await memory.stop()

    async def _open_or_go_back(self, config: AgentConfig, old: AgentConfig | None) -> str:
        agent_id = config.agent_id
        error = await self._try_to_open(config)
        if error is None:
            return ""
        # What is sent to providers follows the new settings, also where the rest cannot.
        old = None if old is None else old.with_providers_of(config)
        if old is not None and old.enabled and old != config and await self._try_to_open(old) is None:
            self._configs[agent_id] = old
            return f"agent {agent_id} keeps its old settings: {error.message}"
        self._note_unopened(agent_id, error)
        return f"the memory of agent {agent_id} cannot be opened: {error.message}"

    async def _try_to_open(self, config: AgentConfig) -> MemorydError | None:
        # Off the event loop: it looks for a model's file and reads certificates.
        memory = self._memories[config.agent_id] = await asyncio.to_thread(self._make_memory, config)
        backend = self._backend_of(memory)
        try:
            await memory.start(background=self._background)
            if backend is not None:
                self._backends[config.agent_id] = backend
                await backend.start(background=self._background)
        except MemorydError as error:
            return error
        except Exception as error:  # noqa: BLE001 -- the other agents go on, and the caller tells of it
            return _told(error)
        return None

    @asynccontextmanager
    async def use(self, agent_id: str) -> AsyncIterator[Agent]:
        """The memory of an agent, which stays open while the block lasts; waits while it is opened anew.

        Raises:
            AgentNotFound, MemoryDisabled, MemorydError: as `memory` does.
        """
        memory = await self.settled(agent_id)
        with self._uses[memory.config.agent_id].one():
            yield memory

    async def settled(self, agent_id: str) -> Agent:
        """The memory of an agent, for one who follows it for long; waits while it is opened anew.

        Raises:
            AgentNotFound, MemoryDisabled, MemorydError: as `memory` does.
        """
        while changing := self._changing.get(self.enabled_config(agent_id).agent_id):
            self._queue.hurry(self.enabled_config(agent_id).agent_id)
            await changing.wait()
        await self._open_again(self.enabled_config(agent_id).agent_id)
        return self.memory(agent_id)

    async def _open_again(self, agent_id: str) -> None:
        """Tries an index that could not be opened once more, when it is time to; calls that come meanwhile wait."""
        if agent_id not in self._unopened or time.monotonic() - self._tried_at[agent_id] < self.reopen_seconds:
            return
        self._changing[agent_id] = asyncio.Event()
        await self._errands.run(self._open_now(agent_id))

    async def _open_now(self, agent_id: str) -> None:
        done = self._changing[agent_id]
        try:
            error = await self._try_to_open(self._configs[agent_id])
            if error is None:
                del self._unopened[agent_id]
            else:
                self._note_unopened(agent_id, error)
        finally:
            del self._changing[agent_id]
            done.set()

    async def interrupt_syncs(self) -> None:
        """Ends every sync run at its next file boundary, and starts no other; likewise appends that wait for a lock."""
        for memory in self._open():
            memory.appends.stop()
        # First these: what follows a run waits for them.
        await asyncio.gather(*(backend.stop() for backend in self._backends.values()))
        await asyncio.gather(*(memory.coordinator.stop() for memory in self._open()))

    def _open(self) -> list[Agent]:
        return [m for agent_id, m in self._memories.items() if agent_id not in self._unopened and m.started]

    def open_no_more(self) -> None:
        """Leaves closed what waits to be opened for the first time; whoever waits for it is refused."""
        self._ending = True
        for agent_id in self._queue.drop():
            self._note_unopened(agent_id, ShuttingDown("the daemon is stopping; try again", retry_after_seconds=1.0))
            self._never_opened.append(self._memories[agent_id])
            self._changing.pop(agent_id).set()

    async def stop(self) -> None:
        """Closes every index that is open."""
        self.open_no_more()
        await asyncio.to_thread(self._release)
        await self._queue.end(OPENING_SECONDS)
        await self._errands.end(OPENING_SECONDS)
        await asyncio.gather(*(backend.stop() for backend in self._backends.values()))
        turn = asyncio.Semaphore(CLOSED_AT_ONCE)

        async def close(memory: Agent) -> None:
            async with turn:
                await memory.stop()

        await asyncio.gather(*map(close, self._open()))

    def backend(self, agent_id: str) -> BackendRouter:
        """Return what answers for an agent: its search backend, or its memory if it has none.

        Raises:
            MemorydError: as `memory` does.
        """
        memory = self.memory(agent_id)
        return BackendRouter(memory, self._backends.get(memory.config.agent_id))

    def memory(self, agent_id: str) -> Agent:
        """The memory of an agent; an empty id means `main`, or the default agent where there is no `main`.

        Raises:
            AgentNotFound: no such agent; the message lists those that are.
            MemoryDisabled: its memory is switched off.
            MemorydError: why its index could not be opened.
        """
        config = self.enabled_config(agent_id)
        if config.agent_id in self._unopened:
            raise self._unopened[config.agent_id]
        return self._memories[config.agent_id]

    def enabled_config(self, agent_id: str) -> AgentConfig:
        """The configuration of an agent whose memory is switched on, for what needs no index.

        Raises:
            AgentNotFound: no such agent; the message lists those that are.
            MemoryDisabled: its memory is switched off.
        """
        config = self.config(agent_id)
        if not config.enabled:
            raise MemoryDisabled(f"memory is disabled for agent {config.agent_id!r}: {config.disabled_reason}")
        return config

    def config(self, agent_id: str) -> AgentConfig:
        """The configuration of an agent, enabled or not."""
        wanted = agent_id.strip().lower() or self._default()
        try:
            return self._configs[wanted]
        except KeyError:
            known = ", ".join(sorted(self._configs))
            raise AgentNotFound(f"there is no agent {agent_id[:64]!r}; configured are: {known}") from None

    def _default(self) -> str:
        if DEFAULT_AGENT in self._configs:
            return DEFAULT_AGENT
        return next((c.agent_id for c in self._configs.values() if c.default), DEFAULT_AGENT)

    def configs(self) -> Mapping[str, AgentConfig]:
        """Every agent by id, in order of ids."""
        return dict(sorted(self._configs.items()))

    def opened(self) -> Mapping[str, Agent]:
        """The memories whose index is open, by agent id."""
        closed = self._unopened.keys() | self._changing.keys()
        return {agent_id: m for agent_id, m in self._memories.items() if agent_id not in closed}


def _told(error: Exception) -> IndexUnavailable:
    """A bug that met one agent, for its callers; the other agents go on."""
    return IndexUnavailable(f"{type(error).__name__}: {error}")
