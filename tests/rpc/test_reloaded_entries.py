"""Calls to entries that began before a reload, with the settings of that time."""

import asyncio

import pytest

from entry_fixture import needs_lancedb
from memoryd.v1 import entry_service_pb2 as pb
from memoryd_server.app.plugins import EntryExtension
from memoryd_server.errors import MemoryDisabled
from rpc.wire import TIMEOUT

pytestmark = [pytest.mark.faults, needs_lancedb]


def entries(**settings):
    return {"memoryd": {"entries": {"enabled": True}}, **settings}


def with_limit(tokens):
    return {"memoryd": {"entries": {"enabled": True}, "confirmAboveTokens": tokens}}


def directory_of(running):
    (directory,) = [each.directory for each in running.daemon.extensions if isinstance(each, EntryExtension)]
    return directory


async def test_a_call_from_before_a_reload_uses_the_settings_in_force(serve, home):
    running = await serve(with_limit(1_000))
    await running.entries.Remember(pb.RememberRequest(text="the red ferry"), timeout=TIMEOUT)
    before = running.daemon.agents.memory_config("main")
    await running.daemon.reload(lambda: home.settings(with_limit(2_000)))
    after = running.daemon.agents.memory_config("main")
    directory = directory_of(running)
    assert directory.require_config(before) != directory.require_config(after)

    async def used(config):
        async with directory.use(config) as memory:
            await asyncio.sleep(0)
            return memory

    async with asyncio.timeout(TIMEOUT):
        memories = await asyncio.gather(*(used(config) for _ in range(8) for config in (before, after)))
    # They share one dataset: none has closed it and opened it again for itself.
    assert len({id(memory) for memory in memories}) == 1
    assert memories[0].config == directory.require_config(after)


async def test_a_call_from_before_a_reload_that_disables_memory_is_refused(serve, home):
    running = await serve(entries())
    before = running.daemon.agents.memory_config("main")
    await running.daemon.reload(lambda: home.settings(entries(plugins={"slots": {"memory": "none"}})))
    with pytest.raises(MemoryDisabled):
        async with directory_of(running).use(before):
            pass
