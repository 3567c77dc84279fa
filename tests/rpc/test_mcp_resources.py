"""Memory files as MCP resources: listing, reading, notifications of changes, and the prompt."""


import pytest

pytest.importorskip("mcp")

import mcp_types as types

from rpc.mcp_clients import MODES, client, mcp_server
from waiting import eventually


@pytest.fixture
async def running(serve, home):
    home.write(harbour="# Harbour\n\nThe crane at pier seven lifts 40 tonnes.\n")
    home.put("memory/Zürich trip #1?.md", "# Trip\n")
    running = await serve({"agents": {"defaults": {"memorySearch": {"sync": {"watch": True}}}}})
    await running.sync()
    return running


@pytest.fixture
async def server(running):
    async with mcp_server(running, watch_seconds=0.05) as server:
        yield server


@pytest.mark.parametrize("mode", MODES)
async def test_listed_files_can_be_read(server, mode):
    async with client(server, mode=mode) as connected:
        listed = (await connected.list_resources()).resources
        texts = {each.name: (await connected.read_resource(each.uri)).contents[0].text for each in listed}
    assert texts == {
        "memory/harbour.md": "# Harbour\n\nThe crane at pier seven lifts 40 tonnes.\n",
        "memory/Zürich trip #1?.md": "# Trip\n",
    }


@pytest.mark.filterwarnings("ignore:resources.(un)?subscribe is removed")
async def test_session_is_notified_of_changes_after_it_subscribes(running, server, home):
    received = []

    async def handle(message):
        received.append(message)

    async with client(server, mode="legacy", message_handler=handle) as connected:
        assert (await connected.list_resources()).resources
        uri = "memory://main/memory/harbour.md"
        await connected.subscribe_resource(uri)
        home.write(harbour="# Harbour\n\nThe crane is gone.\n", other="# Other\n")
        await running.sync()
        await eventually(lambda: any(isinstance(each, types.ResourceUpdatedNotification) for each in received))
        await eventually(lambda: any(isinstance(each, types.ResourceListChangedNotification) for each in received))
        uris = {each.params.uri for each in received if isinstance(each, types.ResourceUpdatedNotification)}
        assert uris == {uri}
    await eventually(lambda: not server._watches.running)
