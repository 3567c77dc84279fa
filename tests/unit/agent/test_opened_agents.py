"""The open agents may be read on any thread, such as that of the metrics, while a reload changes them."""

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest

from memoryd_server.agent.agents import Agents


class QuickAgent:
    """An agent that needs no disk."""

    def __init__(self, config):
        self.config = config

    async def start(self, **_):
        """Opened without work."""

    async def change_config(self, config):
        self.config = config

    async def stop(self, purge_until):
        """Closed without work."""

    async def stop_backend(self):
        """There is no backend."""


def config(agent_id):
    return SimpleNamespace(
        agent_id=agent_id, enabled=True, memory_enabled=True, default=False, can_become=lambda _: True
    )


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
