"""The entries of all agents: opened at their first use, and closed with the daemon."""

import asyncio
import importlib.util
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass

from memoryd_server.agent import AgentConfig, DetachedTasks, InUseCounter, ProviderExecutors
from memoryd_server.entries.maintenance import EntryEmbedder
from memoryd_server.entries.memory import EntryMemory
from memoryd_server.entries.model import EntryConfig
from memoryd_server.entries.store import EntryStore
from memoryd_server.errors import MemorydError, NotImplementedYet, ShuttingDown
from memoryd_server.providers import EmbeddingConfig, ProviderSelection
from memoryd_server.text import Analyzer
from memoryd_server.threads import SharedPool

THREADS = 4
# Of these, one agent may occupy all but one: a store that hangs leaves a thread to the other agents.
THREADS_A_SHARE = THREADS - 1
GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why entries could not be opened, and when that was known."""

    config: EntryConfig
    error: MemorydError
    at: float


class EntryMemories:
    """Opens entries and hands them out. `select` finds a provider, `report` hears of what happens in the background."""

    def __init__(
        self,
        select: Callable[[EmbeddingConfig], ProviderSelection],
        embed_threads: ProviderExecutors,
        report: Callable[..., None],
    ) -> None:
        self._select = select
        self._embed_threads = embed_threads
        self._report = report
        self._threads = SharedPool(THREADS, THREADS_A_SHARE, "entries")
        self._is_installed = importlib.util.find_spec("lancedb") is not None
        self._analyzer = Analyzer()
        self._open: dict[str, EntryMemory] = {}
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._uses: defaultdict[str, InUseCounter] = defaultdict(InUseCounter)
        self._errands = DetachedTasks()
        self._failures: dict[str, _Failure] = {}
        self._confirming: set[asyncio.Task[None]] = set()
        self._stopped = False

    def config_of(self, config: AgentConfig) -> EntryConfig:
        """What an agent's entries are made with.

        Raises:
            NotImplementedYet: entries are off, or what they need is not installed.
        """
        entries = EntryConfig.of(config.plugins)
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
    def is_on(config: AgentConfig) -> bool:
        """Whether the settings want an agent to have entries."""
        entries = EntryConfig.of(config.plugins)
        return entries is not None and entries.enabled

    def was_used(self, agent_id: str) -> bool:
        """Whether an agent's entries have been opened, or should have been."""
        return agent_id in self._opening

    @asynccontextmanager
    async def use(self, config: AgentConfig) -> AsyncIterator[EntryMemory]:
        """An agent's entries, which stay open while the block lasts.

        Raises:
            NotImplementedYet: as `config_of`.
            ShuttingDown: the daemon is stopping.
            MemorydError: they cannot be opened.
        """
        wanted = self.config_of(config)
        agent_id = config.agent_id
        while (memory := self._open.get(agent_id)) is None or memory.config != wanted:
            await self._errands.run(self._opened(agent_id, wanted))
        with self._uses[agent_id].one():
            yield memory

    async def _opened(self, agent_id: str, wanted: EntryConfig) -> None:
        asked = time.monotonic()
        async with self._opening[agent_id]:
            memory = self._open.get(agent_id)
            if memory is not None and memory.config == wanted:
                return
            failure = self._failures.pop(agent_id, None)
            # Those who waited while it failed share the failure: a line of attempts would only grow.
            if failure is not None and failure.config == wanted and asked <= failure.at:
                self._failures[agent_id] = failure
                raise failure.error
            if self._stopped:
                raise _stopping()
            if memory is not None:
                del self._open[agent_id]
                await self._uses[agent_id].end(GRACE_SECONDS)
                await memory.close()
            await self._opened_anew(agent_id, wanted)

    async def _opened_anew(self, agent_id: str, wanted: EntryConfig) -> None:
        # Off the event loop: the selection looks for a model's file and reads certificates.
        threads = self._threads.share()
        selection = await asyncio.get_running_loop().run_in_executor(threads, self._select, wanted.embedding)
        memory = self._made(agent_id, wanted, selection, threads)
        try:
            await memory.open()
        except MemorydError as error:
            self._failures[agent_id] = _Failure(wanted, error, time.monotonic())
            raise
        if self._stopped:
            await memory.close()
            raise _stopping()
        self._open[agent_id] = memory

    def _made(self, agent_id: str, config: EntryConfig, selection: ProviderSelection, threads: Executor) -> EntryMemory:
        vectors = EntryEmbedder(selection, config.dimensions, self._embed_threads.of)
        store = EntryStore(config.place, self._analyzer, lambda: time.time_ns() // 1_000_000, lambda: str(uuid.uuid4()))

        def report(event: str, **fields: object) -> None:
            self._report(event, agent=agent_id, **fields)

        return EntryMemory(config, store, vectors, threads, report)

    def confirm(self, config: AgentConfig) -> None:
        """Hears that an agent's vectors may be made, whatever they cost; opens its entries for it in the background."""
        if self.is_on(config):
            task = asyncio.get_running_loop().create_task(self._confirmed(config))
            self._confirming.add(task)
            task.add_done_callback(self._confirming.discard)

    async def _confirmed(self, config: AgentConfig) -> None:
        try:
            async with self.use(config) as memory:
                memory.confirm()
        except MemorydError as error:
            self._report("fail-confirming-entries", agent=config.agent_id, error=error.message)

    async def change(self, configs: Mapping[str, AgentConfig]) -> None:
        """Close the entries that have another configuration in `configs`, or none; their next use opens them again."""
        wanted = {agent_id: EntryConfig.of(config.plugins) for agent_id, config in configs.items() if config.enabled}
        outdated = [agent_id for agent_id, memory in self._open.items() if wanted.get(agent_id) != memory.config]
        await asyncio.gather(*map(self._closed, outdated))

    async def _closed(self, agent_id: str) -> None:
        async with self._opening[agent_id]:
            memory = self._open.pop(agent_id, None)
            if memory is not None:
                await self._uses[agent_id].end(GRACE_SECONDS)
                await memory.close()

    async def stop(self) -> None:
        """Closes every dataset, and opens no other."""
        self._stopped = True
        await self._errands.end(GRACE_SECONDS)
        for agent_id in list(self._open):
            async with self._opening[agent_id]:
                memory = self._open.pop(agent_id, None)
                if memory is not None:
                    await memory.close()
        self._threads.shutdown()


def _stopping() -> ShuttingDown:
    return ShuttingDown("the daemon is stopping; try again when it is back", retry_after_seconds=5.0)
