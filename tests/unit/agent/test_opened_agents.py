"""Which agents are open: those of a reload, and of many agents those that calls have used last.

They may be read on any thread, such as that of the metrics, while a reload changes them.
"""

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest

from memoryd_server.agent.agents import Agents
from memoryd_server.agent.state import IndexSnapshot, IndexState
from memoryd_server.errors import IndexUnavailable
from waiting import eventually


class QuickAgent:
    """An agent that needs no disk."""

    def __init__(self, config):
        self.config = config
        self.index = SimpleNamespace(coordinator=SimpleNamespace(active=None), is_open=False)
        self.snapshot = IndexSnapshot(files=1, dirty=False)

    def reserve(self):
        """There is no lock."""

    async def start(self, **_):
        self.index.is_open = True

    async def change_config(self, config):
        self.config = config

    async def stop(self, purge_until=0.0):
        """Closed without work."""

    async def stop_backend(self):
        """There is no backend."""


def config(agent_id, documents="folder", *, fits=True):
    return SimpleNamespace(
        agent_id=agent_id,
        enabled=True,
        memory_enabled=True,
        default=False,
        documents_driver=documents,
        can_become=lambda _: fits,
    )


def in_database(count):
    return [config(f"a{number}", "postgres") for number in range(count)]


@pytest.fixture
def fast_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


async def test_agents_are_read_on_another_thread_while_a_reload_changes_them(fast_switches):
    agents = Agents([config(f"a{n:03}") for n in range(300)], QuickAgent, make_workspace=None)
    done, errors = threading.Event(), []

    def read():
        while not done.is_set():
            try:
                assert len(agents.opened()) >= 200
            except RuntimeError as error:
                errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for first in (100, 0, 100):
        kept = [config(f"a{n:03}") for n in range(first, 300)]
        await agents.change(kept, grace_seconds=0)
        await asyncio.sleep(0)
    done.set()
    reader.join()
    assert not errors


async def test_the_agent_that_was_not_used_for_the_longest_time_is_closed():
    agents = Agents(in_database(5), QuickAgent, make_workspace=None, most_open=2)
    await agents.start(background=False)
    assert list(agents.opened()) == ["a0"]
    for agent_id in ("a1", "a0", "a2"):
        async with agents.use(agent_id):
            pass
    await eventually(lambda: set(agents.opened()) == {"a0", "a2"})
    assert agents.summary("a1").state is IndexState.READY
    assert agents.summary("a3").state is None


async def test_an_agent_that_is_in_use_is_not_closed():
    agents = Agents(in_database(6), QuickAgent, make_workspace=None, most_open=2)
    await agents.start(background=False)
    async with agents.use("a1") as syncing:
        syncing.index.coordinator.active = "a run"
    async with agents.use("a2"), agents.follow("a3"):
        for agent_id in ("a4", "a5"):
            async with agents.use(agent_id):
                pass
        await eventually(lambda: "a4" not in agents.opened())
        assert {"a1", "a2", "a3"} <= set(agents.opened())


async def test_all_agents_are_open_if_there_are_no_more_than_allowed():
    agents = Agents(in_database(3), QuickAgent, make_workspace=None, most_open=3)
    await agents.start(background=False)
    assert set(agents.opened()) == {"a0", "a1", "a2"}


async def test_agents_with_folders_stay_open():
    configs = [config("folder"), *in_database(3)]
    agents = Agents(configs, QuickAgent, make_workspace=None, most_open=1)
    await agents.start(background=False)
    for number in range(3):
        async with agents.use(f"a{number}"):
            pass
    await eventually(lambda: not {"a0", "a1"} & agents.opened().keys())
    assert "folder" in agents.opened()


async def test_calls_at_the_same_time_open_a_closed_agent_once():
    made = []

    def make(config):
        made.append(config.agent_id)
        return QuickAgent(config)

    async def call():
        async with agents.use("a1"):
            pass

    agents = Agents(in_database(3), make, make_workspace=None, most_open=2)
    await agents.start(background=False)
    await asyncio.gather(*(call() for _ in range(5)))
    assert made == ["a0", "a1"]


async def test_a_closed_agent_that_cannot_be_opened_is_tried_again_and_not_kept():
    class Failing(QuickAgent):
        async def start(self, **_):
            if self.config.agent_id == "a1" and fails:
                raise IndexUnavailable("no server")
            await super().start()

    fails = True
    agents = Agents(in_database(3), Failing, make_workspace=None, most_open=2)
    await agents.start(background=False)
    with pytest.raises(IndexUnavailable, match="no server"):
        await agents.wait_for("a1")
    assert agents.summary("a1").state is IndexState.UNAVAILABLE
    fails, agents.reopen_seconds = False, 0.0
    assert (await agents.wait_for("a1")).config.agent_id == "a1"
    assert agents.summary("a1").state is IndexState.READY


async def test_a_reload_opens_no_closed_agent_and_changes_their_configuration():
    agents = Agents(in_database(4), QuickAgent, make_workspace=None, most_open=2)
    await agents.start(background=False)
    changed = [config(f"a{number}", "postgres", fits=False) for number in range(5)]
    assert await agents.change(changed, grace_seconds=1) == ()
    assert set(agents.opened()) == {"a0"}
    assert (await agents.wait_for("a4")).config is changed[4]


async def test_a_reload_opens_the_agents_when_they_are_no_more_than_allowed():
    agents = Agents(in_database(4), QuickAgent, make_workspace=None, most_open=2)
    await agents.start(background=False)
    await agents.change(in_database(2), grace_seconds=1)
    assert set(agents.opened()) == {"a0", "a1"}


async def test_a_call_of_a_closed_agent_waits_for_the_end_of_a_reload():
    agents = Agents(in_database(3), QuickAgent, make_workspace=None, most_open=2)
    await agents.start(background=False)
    changed = [config(f"a{number}", "postgres", fits=False) for number in range(3)]
    async with agents.use("a0"):
        reload = asyncio.ensure_future(agents.change(changed, grace_seconds=60))
        await asyncio.sleep(0)
        opening = asyncio.ensure_future(agents.wait_for("a1"))
        await asyncio.sleep(0)
    await reload
    assert (await opening).config is changed[1]
