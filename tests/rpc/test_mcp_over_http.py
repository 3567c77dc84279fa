"""MCP over streamable HTTP, with the official client: tools, progress, notifications, cancellation and sessions."""

import asyncio
from contextlib import asynccontextmanager

import anyio
import pytest

pytest.importorskip("mcp")

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from fake_providers.faults import Fault
from rpc.callers import new_token
from rpc.http_client import HTTP, any_agent, authorized, http_settings
from rpc.http_client import client as http_client
from rpc.mcp_clients import MODES, OWNER, local_calls
from rpc.wire import by_meaning
from waiting import eventually

HARBOUR = "# Harbour\n\nThe crane at pier seven lifts 40 tonnes.\n"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


async def sync(running):
    async for _ in local_calls(running).stream("Sync", {}, OWNER.caller):
        pass


@asynccontextmanager
async def connect(running, token, mode, **options):
    url = f"{running.daemon.edges.http_url}/mcp"
    async with httpx2.AsyncClient(headers=authorized(token), trust_env=False, timeout=60) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, cache=None, read_timeout_seconds=60, **options) as connected:
            yield connected


@pytest.mark.parametrize("mode", MODES)
async def test_tools_resources_and_prompt_over_http(serve, home, mode):
    home.write(harbour=HARBOUR)
    running = await serve(HTTP)
    await sync(running)
    async with connect(running, any_agent(home), mode) as connected:
        result = await connected.call_tool("memory_search", {"query": "crane"})
        assert result.structured_content["results"][0]["citation"] == "memory/harbour.md#L1-L4"
        (listed,) = (await connected.list_resources()).resources
        assert (await connected.read_resource(listed.uri)).contents[0].text == HARBOUR
        assert (await connected.get_prompt("recall", {"text": "What lifts the crane?"})).messages
        refused = await connected.call_tool("memory_get", {"path": "/etc/passwd"})
        assert refused.is_error


async def test_notifications_of_changes_over_http(serve, home):
    home.write(harbour=HARBOUR)
    running = await serve(HTTP)
    await sync(running)
    received = []

    async def handle(message):
        received.append(message)

    uri = "memory://main/memory/harbour.md"
    token = any_agent(home)
    modern, earlier = connect(running, token, "2026-07-28"), connect(running, token, "legacy", message_handler=handle)
    async with modern as listening, earlier as notified:
        assert notified.server_capabilities.resources.list_changed
        subscribe = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
        await notified.session.send_request(subscribe, types.EmptyResult)
        async with listening.listen(resource_subscriptions=[uri]) as stream:
            home.write(harbour="# Harbour\n\nThe crane is gone.\n")
            await sync(running)
            assert (await anext(stream)).uri == uri
            await eventually(lambda: any(isinstance(each, types.ResourceUpdatedNotification) for each in received))
    await eventually(lambda: not running.gate.admission.streams)


@pytest.mark.parametrize("mode", MODES)
async def test_cancellation_over_http_ends_the_search(serve, home, provider, mode):
    home.write(harbour=HARBOUR)
    running = await serve(by_meaning(provider) | HTTP)
    await sync(running)
    provider.refuse = lambda _texts: Fault(delay_seconds=4)
    async with connect(running, any_agent(home), mode) as connected:
        asked = len(provider.requests)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(connected.call_tool, "memory_search", {"query": "crane"})
                await eventually(lambda: len(provider.requests) > asked)
                scope.cancel()
        await eventually(lambda: not running.gate.admission.calls)


@pytest.mark.parametrize("mode", MODES)
async def test_progress_of_the_first_index_over_http(serve, home, pause_sync, mode):
    home.write(**{f"n{number}": f"# Note {number}\n\nThe crane lifts {number} tonnes.\n" for number in range(4)})
    running = await serve(HTTP)
    held = pause_sync(running, at=2)
    syncing = asyncio.ensure_future(sync(running))
    await held.until_reached()
    reported = []

    async def progress(*report):
        reported.append(report)
        held.release()

    async with connect(running, any_agent(home), mode) as connected:
        arguments = {"query": "crane", "maxResults": 50}
        result = await connected.call_tool("memory_search", arguments, progress_callback=progress)
    await syncing
    assert len(result.structured_content["results"]) == 4
    assert reported


async def opened(http):
    response = await http.post("/mcp", json=INITIALIZE)
    return response, response.headers.get("mcp-session-id")


async def test_sessions_of_one_token_are_limited(serve, home):
    """One token gets at most half of the sessions."""
    running = await serve(http_settings(maxSessions=4))
    first, second = any_agent(home), new_token(home)[1]
    async with http_client(running, first) as http, http_client(running, second) as other:
        (_, session), (accepted, _) = await opened(http), await opened(http)
        assert accepted.status_code == 200
        refused, _ = await opened(http)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert "too many open MCP sessions" in refused.json()["error"]["message"]
        assert (await opened(other))[0].status_code == 200
        assert (await http.delete("/mcp", headers={"mcp-session-id": session})).status_code == 200
        assert (await opened(http))[0].status_code == 200


async def test_agents_of_one_token_share_its_sessions(serve, home):
    """A token that allows several agents would otherwise take the sessions of all tokens."""
    running = await serve(http_settings(maxSessions=4))
    token, other = any_agent(home), any_agent(home)
    async with http_client(running, token) as http, http_client(running, other) as others:
        for agent_id, status in (("main", 200), ("second", 200), ("third", 503), ("main", 503)):
            response = await http.post("/mcp", json=INITIALIZE, headers={"memoryd-agent": agent_id})
            assert response.status_code == status, agent_id
        assert (await opened(others))[0].status_code == 200


async def test_session_belongs_to_the_agent_that_opened_it(serve, home):
    running = await serve(HTTP)
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    async with http_client(running, any_agent(home)) as http:
        response = await http.post("/mcp", json=INITIALIZE, headers={"memoryd-agent": "main"})
        session = response.headers["mcp-session-id"]
        for agent_id, status in (("main", 200), ("second", 404)):
            headers = {"mcp-session-id": session, "memoryd-agent": agent_id}
            assert (await http.post("/mcp", json=ping, headers=headers)).status_code == status, agent_id


async def test_session_without_requests_expires(serve, home):
    running = await serve(http_settings(maxSessions=1, sessionIdleSeconds=1))
    async with http_client(running, any_agent(home)) as http:
        _, session = await opened(http)
        await eventually(lambda: running.logged("close-mcp-session"))
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await http.post("/mcp", json=ping, headers={"mcp-session-id": session})).status_code == 404
        assert (await opened(http))[0].status_code == 200


async def test_requests_of_the_modern_era_open_no_session(serve, home):
    running = await serve(http_settings(maxSessions=1))
    async with (
        connect(running, any_agent(home), "2026-07-28") as first,
        connect(running, any_agent(home), "2026-07-28") as second,
    ):
        for connected in (first, second, first):
            assert len((await connected.list_tools()).tools) == 5
    assert running.logged("open-mcp-session") == []
