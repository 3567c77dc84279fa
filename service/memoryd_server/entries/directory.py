"""The entries of all agents: opened at their first use, closed with the daemon."""

import asyncio
import importlib.util
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass

from memoryd_server.agent import (
    AgentConfig,
    Deadline,
    DetachedTasks,
    EntryAnswer,
    EntryQuery,
    InUseCounter,
    ProviderExecutors,
)
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.entries.maintenance import EntryEmbedder
from memoryd_server.entries.memory import EntryMemory
from memoryd_server.entries.model import EntryConfig
from memoryd_server.entries.store import EntryStore
from memoryd_server.errors import MemorydError, MemoryDisabled, NotImplementedYet, ShuttingDown
from memoryd_server.providers import EmbeddingConfig, ProviderSelection
from memoryd_server.text import Analyzer
from memoryd_server.threads import SharedPool

THREADS = 4
# Of these, one agent may occupy all but one: a store that hangs leaves a thread to the other agents.
THREADS_A_SHARE = THREADS - 1
GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why entries could not be opened, and when the attempt ended, in seconds of `time.monotonic()`."""

    config: EntryConfig
    error: MemorydError
    at: float


class EntryMemories:
    """Open the entries of each agent and share them between calls.

    `select` returns a provider for a configuration. `report` is called with each event of the background work.
    `stopping` is set when the daemon begins to stop.
    """

    def __init__(
        self,
        select: Callable[[EmbeddingConfig], ProviderSelection],
        embed_threads: ProviderExecutors,
        report: Callable[..., None],
        failures: TaskFailures | None = None,
        stopping: asyncio.Event | None = None,
    ) -> None:
        self._stopping = stopping or asyncio.Event()
        self._task_failures = failures or TaskFailures()
        self._select = select
        self._embed_threads = embed_threads
        self._report = report
        self._threads = SharedPool(THREADS, THREADS_A_SHARE, "entries")
        self._shares: dict[str, Executor] = {}
        self._is_installed = importlib.util.find_spec("lancedb") is not None
        self._analyzer = Analyzer()
        self._configs: Mapping[str, AgentConfig] = {}
        self._open: dict[str, EntryMemory] = {}
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._uses: defaultdict[str, InUseCounter] = defaultdict(InUseCounter)
        self._tasks = DetachedTasks("opening of entries", self._task_failures)
        self._failures: dict[str, _Failure] = {}
        self._approving = BackgroundTasks(self._task_failures)
        self._stopped = False

    def require_config(self, config: AgentConfig) -> EntryConfig:
        """Return the configuration of an agent's entries.

        Raises:
            NotImplementedYet: entries are disabled, or LanceDB is not installed.
        """
        entries = EntryConfig.from_plugins(config.plugins)
        if entries is None or not entries.enabled:
            raise NotImplementedYet(
                'entries are off; set plugins.slots.memory to "memory-lancedb", or memoryd.entries.enabled to true'
            )
        if not self._is_installed:
            raise NotImplementedYet(
                "entries are on, and LanceDB is not installed; install memoryd with the extra: memoryd[lancedb]"
            )
        return entries

    @staticmethod
    def is_enabled(config: AgentConfig) -> bool:
        """Return whether the settings enable entries for an agent."""
        entries = EntryConfig.from_plugins(config.plugins)
        return entries is not None and entries.enabled

    @property
    def opening(self) -> int:
        """The number of calls that wait for entries to be opened."""
        return self._tasks.running

    def was_used(self, agent_id: str) -> bool:
        """Return whether a call has opened an agent's entries, or tried to."""
        return agent_id in self._opening

    def _current(self, config: AgentConfig) -> EntryConfig:
        """Return the configuration in force of an agent's entries; `config` is the agent's at some time.

        Raises:
            NotImplementedYet: as `require_config`.
            MemoryDisabled: a reload has disabled the agent's memory.
        """
        current = self._configs.get(config.agent_id, config)
        if not current.memory_enabled:
            raise MemoryDisabled(f"memory is disabled for agent {current.agent_id!r}: {current.disabled_reason}")
        return self.require_config(current)

    @asynccontextmanager
    async def use(self, config: AgentConfig, deadline: Deadline | None = None) -> AsyncIterator[EntryMemory]:
        """Yield an agent's entries, which stay open while the block runs. `deadline` limits the time to open them.

        After a reload, they are those of the agent's configuration in force, whatever `config` is.

        Raises:
            NotImplementedYet: as `require_config`.
            MemoryDisabled: a reload has disabled the agent's memory.
            ShuttingDown: the daemon is stopping.
            DeadlineTooShort: they are not open at the deadline.
            MemorydError: they cannot be opened.
        """
        agent_id = config.agent_id
        # A reload may change the configuration while this call waits. With the configuration at its start, two calls
        # with different ones would take turns in closing and reopening the entries, without end.
        while (memory := self._open.get(agent_id)) is None or memory.config != self._current(config):
            opening = self._tasks.run(self._ensure_open(agent_id, self._current(config)))
            await (opening if deadline is None else deadline.limit(opening))
        with self._uses[agent_id].count():
            yield memory

    async def _ensure_open(self, agent_id: str, wanted: EntryConfig) -> None:
        started = time.monotonic()
        async with self._opening[agent_id]:
            memory = self._open.get(agent_id)
            if memory is not None and memory.config == wanted:
                return
            failure = self._failures.pop(agent_id, None)
            # Calls that waited during a failed attempt share its error; otherwise each would try in turn.
            if failure is not None and failure.config == wanted and started <= failure.at:
                self._failures[agent_id] = failure
                raise failure.error
            if self._stopped:
                raise _shutting_down()
            if not await self._close_unused(agent_id):
                raise _shutting_down()
            await self._open_entries(agent_id, wanted)

    async def _open_entries(self, agent_id: str, wanted: EntryConfig) -> None:
        # Off the event loop: the selection reads the disk, for a model file and certificates.
        # One share for the daemon's lifetime, so that an agent whose store hangs gets no other when it is reopened.
        threads = self._shares.setdefault(agent_id, self._threads.share())
        selection = await asyncio.get_running_loop().run_in_executor(threads, self._select, wanted.embedding)
        memory = self._create(agent_id, wanted, selection, threads)
        try:
            await memory.open()
        except MemorydError as error:
            self._failures[agent_id] = _Failure(wanted, error, time.monotonic())
            raise
        if self._stopped:
            await memory.close()
            raise _shutting_down()
        self._open[agent_id] = memory

    def _create(
        self, agent_id: str, config: EntryConfig, selection: ProviderSelection, threads: Executor
    ) -> EntryMemory:
        embedder = EntryEmbedder(selection, config.dimensions, self._embed_threads.of)
        store = EntryStore(config.location, self._analyzer, _now_ms, lambda: str(uuid.uuid4()))

        def report(event: str, **fields: object) -> None:
            self._report(event, agent=agent_id, **fields)

        tasks = BackgroundTasks(self._task_failures, agent_id)
        return EntryMemory(config, store, embedder, threads, report, tasks=tasks)

    async def search(self, config: AgentConfig, query: EntryQuery) -> EntryAnswer:
        """Return the entries of an agent that answer a query.

        Raises:
            MemorydError: as `use`, and as `EntryMemory.search`.
        """
        self.require_config(config)
        deadline = Deadline(query.deadline)
        async with self.use(config, deadline) as memory:
            return await deadline.limit(memory.search(query))

    def recalls(self, config: AgentConfig) -> bool:
        """Return whether a recall includes an agent's entries if the request does not name them."""
        entries = EntryConfig.from_plugins(config.plugins)
        return entries is not None and entries.enabled and entries.auto_recall

    def approve_cost(self, config: AgentConfig) -> None:
        """Approve the cost of an agent's missing vectors, opening its entries in the background."""
        if self.is_enabled(config):
            self._approving.spawn("approval of the cost of entries", self._approve_cost(config))

    async def _approve_cost(self, config: AgentConfig) -> None:
        try:
            async with self.use(config) as memory:
                memory.approve_cost()
        except MemorydError as error:
            self._report("fail-confirming-entries", agent=config.agent_id, error=error.message)

    async def change(self, configs: Mapping[str, AgentConfig]) -> None:
        """Close the entries that `configs` removes or configures differently; their next use opens them again."""
        self._configs = configs
        wanted = {
            agent_id: EntryConfig.from_plugins(config.plugins)
            for agent_id, config in configs.items()
            if config.memory_enabled
        }
        outdated = [agent_id for agent_id, memory in self._open.items() if wanted.get(agent_id) != memory.config]
        await asyncio.gather(*map(self._close, outdated))

    async def _close(self, agent_id: str) -> None:
        async with self._opening[agent_id]:
            await self._close_unused(agent_id)

    async def _close_unused(self, agent_id: str) -> bool:
        """Close an agent's entries, if they are open; return False if the daemon begins to stop while they are in use.

        The calls that use them then get the grace of the stop, which closes them.
        """
        memory = self._open.pop(agent_id, None)
        if memory is None:
            return True
        if not await self._uses[agent_id].end(GRACE_SECONDS, self._stopping) and self._stopping.is_set():
            self._open[agent_id] = memory
            return False
        await memory.close()
        return True

    async def stop(self) -> None:
        """Close every dataset, and refuse to open another."""
        self._stopped = True
        await self._tasks.end(GRACE_SECONDS)
        for agent_id in list(self._open):
            async with self._opening[agent_id]:
                memory = self._open.pop(agent_id, None)
                if memory is not None:
                    await memory.close()
        self._threads.shutdown()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("the daemon is stopping; try again when it runs again", retry_after_seconds=5.0)
