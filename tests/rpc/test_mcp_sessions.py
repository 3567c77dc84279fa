"""MCP sessions over streams: flow control, limits, malformed messages, cancellation, progress, and their end."""

import asyncio
import json
import logging

import anyio
import pytest

pytest.importorskip("mcp")

from fake_providers.faults import Fault
from memoryd.v1 import memory_service_pb2
from memoryd_server.http import McpServer
from memoryd_server.http.mcp_server import MOST_RUNNING
from memoryd_server.http.mcp_stream import MOST_UNSENT
from memoryd_server.observe import NoMeter
from memoryd_server.observe.log import make_log
from memoryd_server.rpc import LocalCalls
from rpc.mcp_clients import MODES, OWNER, client, mcp_server, raw_client, served
from rpc.wire import by_meaning
from waiting import eventually


class CallCodes(NoMeter):
    """Records how the calls ended."""

    def __init__(self):
        self.codes = []

    def call_ended(self, method, code, seconds):
        self.codes.append((method.rpartition("/")[2], code))


@pytest.fixture
async def running(serve, home):
    home.write(harbour="# Harbour\n\nThe crane at pier seven lifts 40 tonnes.\n")
    running = await serve()
    await running.sync()
    return running


@pytest.fixture
async def server(running):
    async with mcp_server(running) as server:
        yield server


@pytest.fixture
async def slow_search(serve, home, provider):
    """A daemon whose searches wait for the embedding provider, and the event of the first such wait."""
    home.write(harbour="# Harbour\n\nThe crane at pier seven lifts 40 tonnes.\n")
    running = await serve(by_meaning(provider))
    await running.sync()
    provider.refuse = lambda _texts: Fault(delay_seconds=4)
    return running


async def waits_for_provider(provider, count):
    await eventually(lambda: len(provider.requests) > count)


async def test_malformed_messages_are_refused_and_the_session_continues(server):
    async with raw_client(server) as raw:
        await raw.initialize()
        for data, code in (
            (b"{", -32700),
            (b"\xff\xfe", -32700),
            (b"[" * 100_000, -32700),
            (b"[]", -32600),
            (b"17", -32600),
            (b'{"id": 7}', -32600),
            (b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}', -32600),
            (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600),
        ):
            await raw.send_bytes(data)
            assert (await raw.receive())["error"]["code"] == code, data
        assert (await raw.request("ping"))["result"] == {}


async def test_request_before_the_handshake_is_refused(server):
    async with raw_client(server) as raw:
        assert (await raw.request("tools/list"))["error"]["code"] == -32602
        assert "result" in await raw.request("ping")
        assert await raw.initialize()


async def test_session_ends_with_its_stream_while_a_search_runs(slow_search, provider):
    meter = CallCodes()
    async with mcp_server(slow_search, meter=meter) as server:
        async with raw_client(server) as raw:
            await raw.initialize()
            asked = len(provider.requests)
            await raw.send({"id": 9, "method": "tools/call", "params": search("crane")})
            await waits_for_provider(provider, asked)
        await eventually(lambda: not slow_search.gate.admission.calls)
    assert ("MemorySearch", "CANCELLED") in meter.codes


def search(query, **meta):
    params = {"name": "memory_search", "arguments": {"query": query}}
    return {**params, "_meta": meta} if meta else params


async def test_cancelled_request_ends_the_search(slow_search, provider):
    meter = CallCodes()
    async with mcp_server(slow_search, meter=meter) as server, raw_client(server) as raw:
        await raw.initialize()
        asked = len(provider.requests)
        await raw.send({"id": 9, "method": "tools/call", "params": search("crane")})
        await waits_for_provider(provider, asked)
        assert slow_search.gate.admission.calls == 1
        await raw.send({"method": "notifications/cancelled", "params": {"requestId": 9}})
        await eventually(lambda: not slow_search.gate.admission.calls)
        assert meter.codes[-1] == ("MemorySearch", "CANCELLED")
        # The cancelled request is never answered.
        await raw.send({"id": 10, "method": "ping"})
        assert (await raw.receive())["id"] == 10


@pytest.mark.parametrize("mode", MODES)
async def test_cancelled_client_call_ends_the_search(slow_search, provider, mode):
    async with mcp_server(slow_search) as server, client(server, mode=mode) as connected:
        asked = len(provider.requests)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(connected.call_tool, "memory_search", {"query": "crane"})
                await waits_for_provider(provider, asked)
                scope.cancel()
        await eventually(lambda: not slow_search.gate.admission.calls)


async def test_session_handles_a_bounded_number_of_requests(slow_search, provider):
    async with mcp_server(slow_search) as server, raw_client(server) as raw:
        await raw.initialize()
        for number in range(MOST_RUNNING):
            await raw.send({"id": f"s{number}", "method": "tools/call", "params": search("crane")})
        refused = await raw.request("tools/call", search("crane"))
        assert refused["error"]["message"].startswith(f"this session has {MOST_RUNNING} requests in progress")


async def test_session_of_a_client_that_does_not_read_stops_reading(running, server):
    """What the client sends is not collected in memory; the session goes on when the client reads."""
    async with served(server) as (send, receive):
        sent = 0

        async def flood():
            nonlocal sent
            while sent < 10 * MOST_UNSENT:
                await send(json.dumps({"jsonrpc": "2.0", "id": sent, "method": "ping"}).encode())
                sent += 1

        flooding = asyncio.ensure_future(flood())
        await eventually(lambda: sent >= MOST_UNSENT)
        for _ in range(20):
            before = sent
            await asyncio.sleep(0.05)
            if sent == before:
                break
        assert sent < 2 * MOST_UNSENT
        answered = [json.loads(await receive())["id"] for _ in range(10 * MOST_UNSENT)]
        await flooding
        assert sorted(answered) == list(range(10 * MOST_UNSENT))


async def test_error_of_the_transport_ends_the_session_with_that_error(server):
    async def read():
        yield b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
        await asyncio.Event().wait()

    async def write(_data):
        raise ConnectionResetError("the client left")

    with pytest.raises(ConnectionResetError, match="the client left"):
        await asyncio.wait_for(server.serve_stream(read(), write, OWNER), 30)


@pytest.mark.parametrize("mode", MODES)
async def test_search_with_a_progress_token_waits_for_the_first_index(serve, home, pause_sync, mode):
    home.write(**{f"n{number}": f"# Note {number}\n\nThe crane lifts {number} tonnes.\n" for number in range(8)})
    running = await serve()
    held = pause_sync(running, at=4)
    syncing = asyncio.ensure_future(running.sync())
    await held.until_reached()
    reported = []

    async def progress(done, total, message):
        reported.append((done, total, message))
        held.release()

    async with mcp_server(running) as server, client(server, mode=mode) as connected:
        at_once = await connected.call_tool("memory_search", {"query": "crane", "maxResults": 50})
        assert any("still being built" in problem for problem in at_once.structured_content["problems"])
        assert "Note: The index is still being built" in at_once.content[0].text
        arguments = {"query": "crane", "maxResults": 50}
        waited = await connected.call_tool("memory_search", arguments, progress_callback=progress)
    await syncing
    assert len(waited.structured_content["results"]) == 8
    assert "problems" not in waited.structured_content
    assert reported
    assert all(message.startswith("indexing memory: ") for _, _, message in reported)
    assert [done for done, _, _ in reported] == sorted({done for done, _, _ in reported})


async def test_search_does_not_wait_for_the_index_longer_than_its_limit(serve, home, pause_sync):
    home.write(a="# A\n\nA crane.\n", b="# B\n\nA crane.\n")
    running = await serve()
    held = pause_sync(running, at=1)
    syncing = asyncio.ensure_future(running.sync())
    await held.until_reached()

    async def progress(*_):
        pass

    async with mcp_server(running, build_seconds=0.2) as server, client(server) as connected:
        result = await connected.call_tool("memory_search", {"query": "crane"}, progress_callback=progress)
        assert any("still being built" in problem for problem in result.structured_content["problems"])
    held.release()
    await syncing


async def test_log_has_the_sessions_and_no_text_of_the_user(running, server):
    async with client(server) as connected:
        await connected.call_tool("memory_search", {"query": "heron crane"})
        await connected.call_tool("memory_append", {"text": "heron notes", "path": "memory/h.md"})
    (opened,), (closed,) = running.logged("open-mcp-session"), running.logged("close-mcp-session")
    assert (opened["level"], opened["session"]) == ("debug", closed["session"])
    assert "heron" not in running.log.getvalue()


async def test_warnings_of_libraries_are_lines_of_the_daemons_log(running, server, capfd):
    logging.getLogger("mcp.server.runner").warning("dropped %r: malformed params", "heron")
    logging.getLogger("mcp.server.runner").info("Created new transport")
    try:
        int("heron")
    except ValueError:
        logging.getLogger("sse_starlette.sse").exception("heron")
    warning, error = running.logged("report-library")
    assert (warning["level"], warning["library"]) == ("warning", "mcp.server.runner")
    assert (error["level"], error["error"]) == ("error", "ValueError")
    assert "heron" not in running.log.getvalue()
    assert capfd.readouterr() == ("", "")


class BrokenService:
    """A service with bugs: one call raises, the response of another one is empty."""

    async def MemorySearch(self, request, context):
        raise RuntimeError("heron at /secret/path")

    async def MemoryGet(self, request, context):
        return memory_service_pb2.MemoryGetResponse()


async def test_bug_is_an_error_without_details_and_a_line_of_the_log(running):
    log = make_log("debug", "json", running.log)
    server = McpServer(LocalCalls(BrokenService(), running.gate, log, NoMeter()), log)
    async with raw_client(server) as raw:
        await raw.initialize()
        search = (await raw.call("memory_search", query="crane"))["result"]
        get = (await raw.call("memory_get", path="memory/harbour.md"))["error"]
    await server.close()
    (call_failed,), (request_failed,) = running.logged("fail-call"), running.logged("fail-mcp-request")
    assert search["isError"]
    assert search["content"][0]["text"].startswith(
        "internal error of memoryd; its log has the details under request id"
    )
    assert call_failed["request_id"] in search["content"][0]["text"]
    assert get["code"] == -32603
    assert get["message"].endswith(request_failed["request_id"])
    assert "heron" not in json.dumps([search, get])
    assert "heron" in call_failed["exception"]
