"""AbandonedIndexes: sync the indexes that a replica was changing when it ended or lost the database."""

import asyncio
from contextlib import suppress

from memoryd_server.agent.agents import Agents
from memoryd_server.agent.lifecycle import in_database
from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.errors import MemorydError

MOST_CONCURRENT = 4
"""How many abandoned indexes are synced at the same time."""

MOST_WAITING = 100
"""How many wait for that. The others are reported again."""


class AbandonedIndexes:
    """Syncs the reported indexes of agents that are configured here. Created on the event loop's thread.

    The sync removes what an unfinished one has left, and indexes the files that it did not. An agent that is closed
    until a call uses it is opened.
    """

    def __init__(self, agents: Agents, failures: TaskFailures) -> None:
        self._agents = agents
        self._loop = asyncio.get_running_loop()
        self._tasks = BackgroundTasks(failures)
        self._turns = asyncio.Semaphore(MOST_CONCURRENT)
        self._known: set[str] = set()

    def report(self, agent_id: str) -> None:
        """Sync the index of an agent; from any thread. Ignored if it was reported before and is not yet synced."""
        # The loop may be closed already.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._add, agent_id)

    def _add(self, agent_id: str) -> None:
        config = self._agents.configs().get(agent_id)
        if config is None or not config.enabled or self._agents.stopping.is_set():
            return
        if not in_database(config):
            # Its memory files may be on another machine, whose daemon opens it again.
            return
        if agent_id not in self._known and len(self._known) < MOST_WAITING:
            self._known.add(agent_id)
            self._tasks.spawn("takeover of an index", self._sync(agent_id), expected=(MemorydError,))

    async def _sync(self, agent_id: str) -> None:
        try:
            async with self._turns, self._agents.follow(agent_id) as agent:
                run = await agent.index.coordinator.request(SyncTrigger.RECONCILE)
                # Until then, the agent is not closed as an unused one.
                await run.finished.wait()
        finally:
            self._known.discard(agent_id)

    async def stop(self) -> None:
        """Sync no further index."""
        await self._tasks.stop()
