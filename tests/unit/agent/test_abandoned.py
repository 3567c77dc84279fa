"""Indexes that a replica has left unfinished are synced: those of open agents, and of closed ones after opening."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from memoryd_server.agent.abandoned import MOST_CONCURRENT, AbandonedIndexes
from memoryd_server.agent.agents import Agents
from memoryd_server.background_tasks import TaskFailures
from unit.agent.test_opened_agents import QuickAgent, config, in_database
from waiting import eventually

OPEN = 2


class SyncedAgent(QuickAgent):
    """An agent whose syncs end when the test says so; `synced` counts them by agent."""

    def __init__(self, config, synced, running):
        super().__init__(config)
        self._synced, self._running = synced, running
        self.index.coordinator.request = self._request

    async def _request(self, _trigger):
        agent_id = self.config.agent_id
        self._synced[agent_id] = self._synced.get(agent_id, 0) + 1
        self._running[agent_id] = asyncio.Event()
        return SimpleNamespace(finished=self._running[agent_id])


@asynccontextmanager
async def started(configs):
    synced, running = {}, {}
    agents = Agents(configs, lambda config: SyncedAgent(config, synced, running), make_workspace=None, most_open=OPEN)
    await agents.start(background=False)
    abandoned = AbandonedIndexes(agents, TaskFailures())
    yield SimpleNamespace(agents=agents, abandoned=abandoned, synced=synced, running=running)
    await abandoned.stop()


@pytest.fixture
async def fleet():
    async with started(in_database(10)) as fleet:
        yield fleet


async def test_open_and_closed_agents_are_synced_once_while_they_are_reported(fleet):
    assert list(fleet.agents.opened()) == ["a0"]
    for _ in range(3):
        for agent_id in ("a0", "a7"):
            fleet.abandoned.report(agent_id)
        await asyncio.sleep(0)
    await eventually(lambda: fleet.synced == {"a0": 1, "a7": 1})
    assert "a7" in fleet.agents.opened()


async def test_a_report_after_a_sync_starts_another_one(fleet):
    fleet.abandoned.report("a0")
    await eventually(lambda: "a0" in fleet.running)
    fleet.running["a0"].set()

    def is_synced_again():
        fleet.abandoned.report("a0")
        return fleet.synced == {"a0": 2}

    await eventually(is_synced_again)


async def test_some_indexes_are_synced_at_a_time_and_none_is_closed_before_its_end(fleet):
    for number in range(10):
        fleet.abandoned.report(f"a{number}")
    await eventually(lambda: len(fleet.synced) == MOST_CONCURRENT)
    assert set(fleet.synced) <= set(fleet.agents.opened())
    while len(fleet.synced) < 10:
        for event in fleet.running.values():
            event.set()
        await asyncio.sleep(0)
    assert fleet.synced == {f"a{number}": 1 for number in range(10)}


async def test_an_agent_that_is_not_configured_here_is_ignored(fleet):
    fleet.abandoned.report("another")
    fleet.abandoned.report("a1")
    await eventually(lambda: fleet.synced == {"a1": 1})
    assert set(fleet.agents.opened()) == {"a0", "a1"}


async def test_an_agent_with_a_folder_which_may_be_on_another_machine_is_ignored():
    async with started([config("folder"), *in_database(2)]) as fleet:
        fleet.abandoned.report("folder")
        fleet.abandoned.report("a1")
        await eventually(lambda: fleet.synced == {"a1": 1})


async def test_a_daemon_that_stops_syncs_none(fleet):
    fleet.agents.open_no_more()
    fleet.abandoned.report("a0")
    await asyncio.sleep(0)
    assert fleet.synced == {}
