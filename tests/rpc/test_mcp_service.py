"""McpService: MCP sessions over gRPC, their tokens and limits, and their end when the daemon stops."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import grpc
import pytest

from memoryd.v1 import mcp_service_pb2 as pb
from memoryd.v1.mcp_service_pb2_grpc import McpServiceStub
from memoryd.v1.memory_service_pb2 import SyncRequest
from memoryd_server.errors import NotImplementedYet
from memoryd_server.json_rpc import MOST_MESSAGE_BYTES
from memoryd_server.observe import NoMeter
from memoryd_server.observe.log import make_log
from memoryd_server.rpc import make_mcp_service
from memoryd_server.rpc.interceptors import CallInterceptor
from memoryd_server.rpc.mcp_service import MOST_REQUEST_BYTES, MOST_REQUESTS
from rpc.callers import bearer, new_token, store
from rpc.wire import TIMEOUT, refusal
from waiting import eventually

INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Session:
    """One session, as its client sees it."""

    def __init__(self, channel, **options):
        self.call = McpServiceStub(channel).Session(**options)

    async def open(self, agent_id=""):
        await self.admitted()
        await self.call.write(pb.SessionRequest(agent_id=agent_id))
        assert await self.call.read() == pb.SessionResponse()
        return self

    async def admitted(self):
        assert await self.call.read() == pb.SessionResponse()
        return self

    async def send(self, text="", **fields):
        await self.call.write(pb.SessionRequest(message=text or json.dumps({"jsonrpc": "2.0", **fields})))

    async def next(self):
        async with asyncio.timeout(TIMEOUT):
            return json.loads((await self.call.read()).message)

    async def request(self, request_id, method, **params):
        await self.send(id=request_id, method=method, params=params)
        while (message := await self.next()).get("id") != request_id:
            pass
        return message

    async def refusal(self):
        """Return the error with which the session ends; ignore the messages before it."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while await self.call.read() is not grpc.aio.EOF:
                    pass
        except grpc.aio.AioRpcError as error:
            return refusal(error)
        raise AssertionError("the session ended without an error")


@asynccontextmanager
async def sessions_of(running, serve, tmp_path):
    """Yield a channel to a service whose sessions `serve` handles, behind the gate of a daemon."""

    async def load():
        if isinstance(serve, Exception):
            raise serve
        return serve

    log = make_log("debug", "json", running.log)
    server = grpc.aio.server(interceptors=[CallInterceptor(running.gate, log, NoMeter(), over_tcp=False)])
    service = make_mcp_service(running.gate, load)
    service.add(service.servicer, server)
    server.add_insecure_port(f"unix:{tmp_path}/mcp")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/mcp") as channel:
        yield channel
    await server.stop(0)


async def echo(messages, write, _caller, _agent_id):
    async for message in messages:
        await write(message)


class Handler:
    """Handles a session by the commands of a test: keeps requests until `answer`."""

    def __init__(self):
        self.requests = []
        self.ended = asyncio.Event()
        self._write = None

    async def serve(self, messages, write, _caller, agent_id):
        self._write = write
        self.agent_id = agent_id
        try:
            async for message in messages:
                self.requests.append(json.loads(message).get("id"))
        finally:
            self.ended.set()

    async def answer(self, request_id):
        await self._write(json.dumps({"jsonrpc": "2.0", "id": request_id, "result": {}}).encode())


@pytest.fixture
async def over_tcp(serve, home):
    home.write(a="the red ferry sails at dawn")

    async def over_tcp(**limits):
        listen = ["127.0.0.1:0", f"unix:{home.socket}"]
        return await serve({"memoryd": {"listen": listen, "limits": limits}}, listen=None)

    return over_tcp


async def test_a_session_serves_the_tools_with_the_token_of_its_caller(over_tcp, home):
    pytest.importorskip("mcp")
    running = await over_tcp()
    token_id, token = new_token(home, "main")
    assert [event async for event in running.stub.Sync(SyncRequest(), timeout=TIMEOUT, **bearer(token))]
    session = await Session(running.channel, **bearer(token)).open()
    assert running.gate.admission.streams == 1
    await session.request(1, "initialize", **INITIALIZE)
    await session.send(method="notifications/initialized")
    found = await session.request(2, "tools/call", name="memory_search", arguments={"query": "ferry"})
    assert "red ferry" in found["result"]["content"][0]["text"]
    searches = [line for line in running.logged("serve-call") if line["method"].endswith("/MemorySearch")]
    assert [line["token_id"] for line in searches] == [token_id]
    await session.call.done_writing()
    assert await session.call.read() is grpc.aio.EOF
    await eventually(lambda: running.gate.admission.streams == 0)


async def test_a_session_needs_a_token_that_allows_its_agent(over_tcp, home):
    running = await over_tcp()
    assert (await Session(running.channel).refusal()).reason == "TOKEN_MISSING"
    session = await Session(running.channel, **bearer(new_token(home, "main")[1])).admitted()
    await session.call.write(pb.SessionRequest(agent_id="other"))
    assert (await session.refusal()).reason == "AGENT_FORBIDDEN"


async def test_a_session_ends_when_its_token_is_revoked(over_tcp, home):
    pytest.importorskip("mcp")
    running = await over_tcp()
    running.gate.recheck_seconds = 0.05
    token_id, token = new_token(home)
    session = await Session(running.channel, **bearer(token)).open()
    store(home).revoke(token_id)
    assert (await session.refusal()).reason == "TOKEN_INVALID"


async def test_sessions_count_as_streams_of_their_token(over_tcp, home):
    pytest.importorskip("mcp")
    running = await over_tcp(tokenConcurrentStreams=1)
    token = new_token(home)[1]
    await Session(running.channel, **bearer(token)).open()
    found = await Session(running.channel, **bearer(token)).refusal()
    assert (found.reason, found.metadata["limit"]) == ("TOO_MANY_REQUESTS", "tokenConcurrentStreams")
    assert found.retry_seconds


async def test_packages_that_are_not_installed_are_named(serve, tmp_path):
    running = await serve()
    async with sessions_of(running, NotImplementedYet("install memoryd[http]"), tmp_path) as channel:
        session = await Session(channel).admitted()
        await session.call.write(pb.SessionRequest())
        found = await session.refusal()
    assert (found.code, found.message) == ("UNIMPLEMENTED", "install memoryd[http]")


async def test_a_session_without_a_message_is_refused(serve, tmp_path):
    running = await serve()
    async with sessions_of(running, echo, tmp_path) as channel:
        session = await Session(channel).admitted()
        await session.call.done_writing()
        assert (await session.refusal()).reason == "INVALID_REQUEST"


async def test_the_first_request_may_have_a_message_and_long_messages_pass(serve, tmp_path):
    running = await serve()
    async with sessions_of(running, echo, tmp_path) as channel:
        session = await Session(channel).admitted()
        await session.send(id=1, method="ping")
        assert await session.call.read() == pb.SessionResponse()
        assert (await session.next())["id"] == 1
        text = json.dumps({"method": "x", "params": {"text": ""}})
        long = text.replace('""', '"' + "x" * (MOST_MESSAGE_BYTES - len(text)) + '"')
        await session.send(long)
        assert len((await session.next())["params"]["text"]) > 4_000_000


async def test_malformed_messages_are_answered_and_the_session_continues(serve, tmp_path):
    running = await serve()
    async with sessions_of(running, echo, tmp_path) as channel:
        session = await Session(channel).open()
        for text, code in (("{", -32700), ("[]", -32600), ('"x"', -32600)):
            await session.send(text)
            assert (await session.next())["error"]["code"] == code
        await session.send(id=1, method="ping")
        assert (await session.next())["id"] == 1


async def test_the_requests_in_progress_are_limited(serve, tmp_path):
    running, handler = await serve(), Handler()
    async with sessions_of(running, handler.serve, tmp_path) as channel:
        session = await Session(channel).open("main")
        for number in range(MOST_REQUESTS):
            await session.send(id=number, method="ping")
        await session.send(id="more", method="tools/call")
        message = await session.next()
        assert (message["id"], message["result"]["isError"]) == ("more", True)
        assert handler.agent_id == "main"
        await session.send(method="notifications/cancelled", params={"requestId": 5})
        await session.send(id="after a cancellation", method="ping")
        await handler.answer(6)
        assert (await session.next())["id"] == 6
        await session.send(id="after a response", method="ping")
        await eventually(lambda: handler.requests[-1] == "after a response")
        assert len(handler.requests) == MOST_REQUESTS + 3


async def test_an_id_of_a_request_in_progress_is_refused(serve, tmp_path):
    """Otherwise requests with equal ids would count once. The MCP server takes "7" and 7 for the same id."""
    running, handler = await serve(), Handler()
    async with sessions_of(running, handler.serve, tmp_path) as channel:
        session = await Session(channel).open()
        await session.send(id=7, method="subscriptions/listen")
        await session.send(id=8, method="ping")
        for used in (7, "7", 8, "8"):
            await session.send(id=used, method="ping")
            message = await session.next()
            assert message["id"] == used
            assert "use another id" in message["error"]["message"]
        await session.send(method="notifications/cancelled", params={"requestId": "7"})
        await session.send(id=7, method="ping")
        await handler.answer(8)
        assert (await session.next())["id"] == 8
        await session.send(id="8", method="ping")
        await eventually(lambda: handler.requests == [7, 8, None, 7, "8"])


async def test_messages_that_the_server_cannot_read_do_not_stay_in_progress(serve, tmp_path):
    """The server cannot answer them with their ids, so a stop would wait for the responses."""
    running, handler = await serve(), Handler()
    async with sessions_of(running, handler.serve, tmp_path) as channel:
        session = await Session(channel).open()
        nested = "[" * 500 + "]" * 500
        await session.send(f'{{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {{"x": {nested}}}}}')
        message = await session.next()
        assert (message["id"], "nested deeper" in message["error"]["message"]) == (1, True)
        await session.send('{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}')
        assert (await session.next())["error"]["code"] == -32600
        await session.send(id=1, method="ping")
        await eventually(lambda: handler.requests == [1])


async def test_a_request_cancels_no_other_one(serve, tmp_path):
    """The MCP server ignores a request with the method of the notification, so the other request is still counted."""
    running, handler = await serve(), Handler()
    async with sessions_of(running, handler.serve, tmp_path) as channel:
        session = await Session(channel).open()
        await session.send(id=1, method="ping")
        await session.send(id=2, method="notifications/cancelled", params={"requestId": 1})
        await session.send(id=1, method="ping")
        assert "use another id" in (await session.next())["error"]["message"]


async def test_the_bytes_of_the_requests_in_progress_are_limited(serve, tmp_path):
    running, handler = await serve(), Handler()
    async with sessions_of(running, handler.serve, tmp_path) as channel:
        session = await Session(channel).open()
        third = "x" * (MOST_REQUEST_BYTES // 3 - 1_000)
        for number in range(4):
            await session.send(id=number, method="ping", params={"text": third})
        message = await session.next()
        assert message["id"] == 3
        assert "too large" in message["error"]["message"]
        await handler.answer(0)
        await session.next()
        await session.send(id=4, method="ping", params={"text": third})
        await eventually(lambda: handler.requests == [0, 1, 2, 4])


async def test_a_session_waits_for_a_client_that_does_not_read(serve, tmp_path):
    running, written = await serve(), []

    async def chatter(_messages, write, _caller, _agent_id):
        text = json.dumps({"jsonrpc": "2.0", "method": "x", "params": {"text": "y" * 10_000}}).encode()
        for number in range(10_000):
            await write(text)
            written.append(number)

    async with sessions_of(running, chatter, tmp_path) as channel:
        session = await Session(channel).open()
        await eventually(lambda: len(written) > 10)
        await asyncio.sleep(0.3)
        assert len(written) < 1_000
        session.call.cancel()
    await eventually(lambda: running.gate.admission.streams == 0)


async def test_a_client_waits_for_a_session_that_does_not_read(serve, tmp_path):
    running = await serve()

    async def deaf(_messages, _write, _caller, _agent_id):
        await asyncio.Event().wait()

    async def send_all(session):
        for number in range(1_000):
            await session.send(method="x", params={"text": "y" * 100_000})
            sent.append(number)

    async with sessions_of(running, deaf, tmp_path) as channel:
        sent, session = [], await Session(channel).open()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send_all(session), 0.7)
        assert len(sent) < 100


async def test_an_unexpected_exception_ends_the_session_and_is_logged(serve, tmp_path):
    running = await serve()

    async def broken(_messages, _write, _caller, _agent_id):
        raise RuntimeError("secret")

    async with sessions_of(running, broken, tmp_path) as channel:
        found = await (await Session(channel).open()).refusal()
    assert (found.code, found.request_id in found.message) == ("INTERNAL", True)
    assert "secret" not in found.message
    assert len(running.logged("fail-call")) == 1


GRACE = {"memoryd": {"limits": {"shutdownGraceSeconds": 30}}}


async def test_a_stop_ends_an_idle_session_with_the_reason(serve, tmp_path):
    running, handler = await serve(GRACE), Handler()
    async with sessions_of(running, handler.serve, tmp_path) as channel:
        session = await Session(channel).open()
        await session.send(id=1, method="subscriptions/listen")
        await eventually(lambda: handler.requests)
        began = time.monotonic()
        stop = asyncio.ensure_future(running.stop_daemon())
        found = await session.refusal()
        await stop
    assert (found.code, found.reason) == ("UNAVAILABLE", "SHUTTING_DOWN")
    assert time.monotonic() - began < 10
    await asyncio.wait_for(handler.ended.wait(), TIMEOUT)


async def test_a_stop_lets_requests_in_progress_finish(serve, tmp_path):
    running, handler = await serve(GRACE), Handler()
    async with sessions_of(running, handler.serve, tmp_path) as channel:
        session = await Session(channel).open()
        await session.send(id=1, method="tools/call")
        await eventually(lambda: handler.requests)
        stop = asyncio.ensure_future(running.stop_daemon())
        await eventually(running.gate.running.closing.is_set)
        await asyncio.sleep(0.1)
        assert not stop.done()
        await handler.answer(1)
        assert (await session.next())["id"] == 1
        assert (await session.refusal()).reason == "SHUTTING_DOWN"
        await stop


async def test_a_request_that_outlasts_the_grace_of_a_stop_ends_with_it(serve, tmp_path):
    running, handler = await serve({"memoryd": {"limits": {"shutdownGraceSeconds": 0.2}}}), Handler()
    async with sessions_of(running, handler.serve, tmp_path) as channel:
        session = await Session(channel).open()
        await session.send(id=1, method="tools/call")
        await eventually(lambda: handler.requests)
        stop = asyncio.ensure_future(running.stop_daemon())
        assert (await session.refusal()).reason == "SHUTTING_DOWN"
        await stop
    assert handler.ended.is_set()
