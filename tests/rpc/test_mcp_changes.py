"""Notifications of changed memory files, in both eras of the protocol."""

import asyncio
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("mcp")

import mcp_types as types
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError

from memoryd_server.http.mcp_changes import MOST_STREAMS, MOST_URIS
from rpc.callers import new_token, store
from rpc.mcp_clients import OWNER, client, local_calls, mcp_server, owner_with, raw_client
from waiting import eventually

MODERN = "2026-07-28"
URI = "memory://main/memory/harbour.md"

pytestmark = pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")


@pytest.fixture
async def running(serve, home):
    home.write(harbour="# Harbour\n\nThe crane at pier seven lifts 40 tonnes.\n")
    running = await serve(listen="127.0.0.1:0")
    await sync(running)
    return running


async def sync(running):
    """Index what has changed, as file events would have it done."""
    async for _ in local_calls(running).stream("Sync", {}, OWNER.caller):
        pass


@pytest.fixture
async def server(running):
    async with mcp_server(running, watch_seconds=0.02) as server:
        yield server


class Notifications:
    """What a client of an earlier version was notified of."""

    def __init__(self):
        self.uris = []
        self.lists = 0

    async def __call__(self, message):
        if isinstance(message, types.ResourceUpdatedNotification):
            self.uris.append(message.params.uri)
        elif isinstance(message, types.ResourceListChangedNotification):
            self.lists += 1


@asynccontextmanager
async def notified(server, owner=OWNER):
    received = Notifications()
    async with client(server, owner, message_handler=received) as connected:
        yield connected, received


async def test_session_gets_the_changes_that_it_subscribes_to(running, server, home):
    async with notified(server) as (connected, received):
        assert connected.server_capabilities.resources == types.ResourcesCapability(subscribe=True, list_changed=True)
        other = "memory:///memory/harbour%2Emd"
        for uri in (URI, other, "memory://main/memory/later.md"):
            await connected.subscribe_resource(uri)
        home.write(harbour="# Harbour\n\nThe crane is gone.\n", unrelated="# Other\n")
        await sync(running)
        await eventually(lambda: sorted(received.uris) == sorted([URI, other]))
        assert received.lists == 0
        await connected.unsubscribe_resource(URI)
        home.write(harbour="# Harbour\n\nThe crane is back.\n", later="# Later\n")
        await sync(running)
        await eventually(lambda: len(received.uris) == 4)
        assert sorted(received.uris[2:]) == sorted([other, "memory://main/memory/later.md"])


async def test_session_that_has_read_the_list_is_told_when_it_changes(running, server, home):
    async with notified(server) as (connected, received):
        await connected.list_resources()
        home.write(harbour="# Harbour\n\nThe crane is gone.\n")
        await sync(running)
        home.write(other="# Other\n")
        await sync(running)
        await eventually(lambda: received.lists == 1)
        (home.workspace / "memory" / "other.md").unlink()
        await sync(running)
        await eventually(lambda: received.lists == 2)
        assert received.uris == []


async def test_stream_of_the_modern_era_gets_the_changes(running, server, home):
    async with client(server, mode=MODERN) as connected:
        async with connected.listen(resources_list_changed=True, resource_subscriptions=[URI]) as stream:
            home.write(harbour="# Harbour\n\nThe crane is gone.\n", other="# Other\n")
            await sync(running)
            # A file that is seen while it is being written is reported again.
            expected, events = {ResourceUpdated(URI), ResourcesListChanged()}, set()
            async with asyncio.timeout(30):
                while events < expected:
                    events.add(await anext(stream))
        assert events == expected
        await eventually(lambda: not running.gate.admission.streams)


async def test_sessions_with_the_same_token_share_one_stream_of_the_daemon(running, server):
    streams = running.gate.admission
    async with notified(server) as (first, _), notified(server) as (second, _):
        for connected in (first, second):
            await connected.subscribe_resource(URI)
        await eventually(lambda: streams.streams == 1)
    await eventually(lambda: not streams.streams)


async def test_revoked_token_ends_its_streams_and_no_others(running, server, home):
    token_id, token = new_token(home)
    async with client(server, owner_with(token), mode=MODERN) as connected, notified(server) as (other, received):
        await other.subscribe_resource(URI)
        async with connected.listen(resource_subscriptions=[URI]) as stream:
            store(home).revoke(token_id)
            home.write(harbour="# Harbour\n\nThe crane is gone.\n")
            await sync(running)
            async with asyncio.timeout(30):
                assert [event async for event in stream] in ([], [ResourceUpdated(URI)])
            await eventually(lambda: received.uris == [URI])
        with pytest.raises(MCPError, match="revoked or expired"):
            async with connected.listen(resources_list_changed=True):
                pass


async def test_stop_ends_streams_with_their_last_message(running, server):
    async with client(server, mode=MODERN) as connected:
        async with connected.listen(resources_list_changed=True) as stream:
            server.end_subscriptions()
            async with asyncio.timeout(30):
                assert [event async for event in stream] == []
        with pytest.raises(MCPError, match="the daemon is stopping"):
            async with connected.listen(resources_list_changed=True):
                pass


async def test_changes_are_reported_after_the_settings_were_reloaded(running, server, home):
    """A reload reopens the agent, which ends the stream of its index."""
    async with notified(server) as (connected, received):
        await connected.subscribe_resource(URI)
        await eventually(lambda: running.gate.admission.streams == 1)
        changed = {"agents": {"defaults": {"memorySearch": {"chunking": {"tokens": 200}}}}}
        report = await running.daemon.reload(lambda: home.settings(changed, listen="127.0.0.1:0"))
        assert not report.error
        home.write(harbour="# Harbour\n\nThe crane is gone.\n")
        await sync(running)
        await eventually(lambda: received.uris == [URI])


async def test_subscriptions_are_bounded_and_of_the_sessions_agent(running, server):
    async with raw_client(server) as raw:
        await raw.initialize()
        other = await raw.request("resources/subscribe", {"uri": "memory://office/memory/a.md"})
        assert "another agent" in other["error"]["message"]
        for number in range(MOST_URIS):
            uri = f"memory://main/memory/{number}.md"
            assert (await raw.request("resources/subscribe", {"uri": uri}))["result"] == {}
        refused = await raw.request("resources/subscribe", {"uri": URI})
        assert f"{MOST_URIS} subscriptions, the most allowed" in refused["error"]["message"]
        again = await raw.request("resources/subscribe", {"uri": "memory://main/memory/0.md"})
        assert again["result"] == {}
        assert (await raw.request("resources/unsubscribe", {"uri": "memory://office/a.md"}))["result"] == {}
    async with client(server, mode=MODERN) as connected:
        uris = [f"memory://main/memory/{number}.md" for number in range(MOST_URIS + 1)]
        with pytest.raises(MCPError, match=f"more than {MOST_URIS} URIs"):
            async with connected.listen(resource_subscriptions=uris):
                pass


async def test_streams_of_one_token_are_bounded(running, server):
    async with raw_client(server) as raw, raw_client(server) as second:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"_meta": meta, "notifications": {"resourcesListChanged": True}}
        for number in range(MOST_STREAMS):
            connection = raw if number < MOST_STREAMS - 1 else second
            await connection.send({"id": f"s{number}", "method": "subscriptions/listen", "params": params})
            assert (await connection.receive())["method"] == "notifications/subscriptions/acknowledged"
        refused = await second.request("subscriptions/listen", params)
        assert "the most allowed" in refused["error"]["message"]
    await eventually(lambda: not running.gate.admission.streams)
