"""What one daemon takes on: calls and streams of a token, connections, and the size of what goes either way."""

import asyncio
import socket

import grpc
import pytest

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs
from memoryd_server.agent.files import FileRange
from rpc.callers import bearer, health, health_watch, new_token, token_file
from rpc.wire import TIMEOUT, check_refused
from waiting import eventually

MIB = 2**20


@pytest.fixture
async def limited(serve, home):
    """Starts a daemon on TCP and on a socket with these limits."""

    async def limited(**limits):
        listen = ["127.0.0.1:0", f"unix:{home.socket}"]
        memoryd = {"listen": listen, "limits": limits}
        return await serve({"memoryd": memoryd}, listen=None)

    return limited


def admission(running):
    return running.gate.admission


def waiting(running, token):
    """A call that stays under way: the revision is not reached."""
    request = pb.MemorySearchRequest(query="x", min_revision=9)
    return running.stub.MemorySearch(request, timeout=TIMEOUT, **bearer(token))


async def test_one_token_cannot_take_the_places_of_another(limited, home):
    _, greedy = new_token(home)
    _, other = new_token(home)
    running = await limited(tokenConcurrentCalls=2)
    held = [waiting(running, greedy) for _ in range(2)]
    await eventually(lambda: admission(running).calls == 2)
    found = await check_refused(waiting(running, greedy), "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", retry=True)
    assert found.metadata == {"limit": "tokenConcurrentCalls"}
    assert (await running.stub.ListAgents(pb.ListAgentsRequest(), **bearer(other))).agents
    assert await health(running, **bearer(greedy)) == 1
    async with grpc.aio.insecure_channel(f"unix:{home.socket}") as channel:
        assert (await stubs.MemoryServiceStub(channel).ListAgents(pb.ListAgentsRequest())).agents
    for call in held:
        call.cancel()
    await eventually(lambda: admission(running).calls == 0)
    assert (await running.stub.ListAgents(pb.ListAgentsRequest(), **bearer(greedy))).agents


async def test_streams_are_counted_by_token_and_given_back(limited, home):
    _, greedy = new_token(home)
    _, other = new_token(home)
    running = await limited(tokenConcurrentStreams=2)

    def watch(token):
        return running.stub.WatchIndex(pb.WatchIndexRequest(), **bearer(token))

    first, second = watch(greedy), health_watch(running, **bearer(greedy))
    await first.read()
    await second.read()
    for stream in (watch(greedy), health_watch(running, **bearer(greedy))):
        found = await check_refused(stream, "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", retry=True)
        assert found.metadata == {"limit": "tokenConcurrentStreams"}
    await watch(other).read()
    first.cancel()
    await eventually(lambda: shares(running)[_share(running, greedy)].streams == 1)
    await watch(greedy).read()


def shares(running):
    return admission(running)._shares


def _share(running, token):
    return running.gate._access.grant(token.encode()).share


async def test_all_streams_together_are_bounded_and_a_health_watch_is_let_in(serve):
    running = await serve({"memoryd": {"limits": {"maxConcurrentStreams": 2}}})
    streams = [running.stub.WatchIndex(pb.WatchIndexRequest()) for _ in range(2)]
    for stream in streams:
        await stream.read()
    call = running.stub.WatchIndex(pb.WatchIndexRequest())
    found = await check_refused(call, "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", retry=True)
    assert found.metadata == {"limit": "maxConcurrentStreams"}
    await health_watch(running).read()
    streams[0].cancel()
    await eventually(lambda: admission(running).streams == 1)
    assert await running.synced()


async def is_let_in(call):
    try:
        return (await call).agents
    except grpc.aio.AioRpcError:
        return False


@pytest.mark.slow
async def test_a_token_over_its_rate_gets_a_retry_hint(limited, home):
    _, hasty = new_token(home)
    running = await limited(tokenCallsPerSecond=0.5)
    call = lambda token: running.stub.ListAgents(pb.ListAgentsRequest(), **bearer(token))  # noqa: E731
    assert (await call(hasty)).agents
    found = await check_refused(call(hasty), "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", retry=True)
    assert found.metadata == {"limit": "tokenCallsPerSecond"}
    assert 0 < found.retry_seconds <= 2
    stream = running.stub.Sync(pb.SyncRequest(), **bearer(hasty))
    await check_refused(stream, "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", retry=True)
    assert await health(running, **bearer(hasty)) == 1
    await eventually(lambda: is_let_in(call(hasty)))


async def test_each_line_of_the_token_file_has_a_share_of_its_own(serve, home):
    file = token_file(home, "first-token\nsecond-token\n")
    memoryd = {"tokenFile": str(file), "limits": {"tokenCallsPerSecond": 0.001}}
    running = await serve({"memoryd": memoryd}, listen="127.0.0.1:0")
    for token in ("first-token", "second-token"):
        call = running.stub.ListAgents(pb.ListAgentsRequest(), **bearer(token))
        assert (await call).agents
    call = running.stub.ListAgents(pb.ListAgentsRequest(), **bearer("first-token"))
    await check_refused(call, "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", retry=True)


async def test_a_call_without_a_valid_token_uses_no_share_of_another(limited, home):
    _, token = new_token(home)
    running = await limited(tokenCallsPerSecond=0.5)
    for _ in range(5):
        call = running.stub.ListAgents(pb.ListAgentsRequest(), **bearer("wrong"))
        await check_refused(call, "UNAUTHENTICATED", "TOKEN_INVALID")
    assert not shares(running)
    assert (await running.stub.ListAgents(pb.ListAgentsRequest(), **bearer(token))).agents


async def test_connections_beyond_the_limit_are_closed_and_those_that_are_open_answer(serve, home):
    running = await serve({"memoryd": {"limits": {"maxConnections": 4}}}, listen=f"unix:{home.socket}")
    await running.synced()
    await asyncio.to_thread(_hold_connections, home.socket, 40)
    assert await health(running) == 1


def _hold_connections(path, count):
    """Opens connections that say nothing; most of them must be closed by the other side."""
    held = []
    try:
        for _ in range(count):
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(5)
            one.connect(str(path))
            held.append(one)
        closed = sum(_is_closed(one) for one in held)
        assert closed >= count - 4, f"{closed} of {count} were closed"
    finally:
        for one in held:
            one.close()


def _is_closed(one):
    """Whether the other side has hung up, waiting a moment for it. An open one sends its HTTP/2 settings and no end."""
    one.settimeout(0.3)
    try:
        while one.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


async def test_a_request_above_four_mebibytes_is_refused_and_costs_nothing(serve):
    running = await serve()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.append("x" * (4 * MIB + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in caught.value.details()
    assert (await running.search("x")).info


async def test_a_reply_above_four_mebibytes_is_not_sent(serve, home, monkeypatch):
    home.write(a="the red ferry")
    running = await serve()

    async def far_too_much(*_):
        return FileRange("memory/a.md", "x" * (4 * MIB + 1), 1, 1, 1, 0, truncated=False)

    # Every reply is kept far below; this is what holds should one not be.
    monkeypatch.setattr(running.memory(), "read", far_too_much)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.get("memory/a.md")
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "Sent message larger than max" in caught.value.details()
    monkeypatch.undo()
    assert (await running.get("memory/a.md")).text == "the red ferry"


async def test_metadata_is_bounded(serve):
    running = await serve()
    huge = (("x-request-id", "y" * 64_000),)
    found = running.stub.ListAgents(pb.ListAgentsRequest(), metadata=huge, timeout=TIMEOUT)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await found
    assert caught.value.code() in {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}
    assert (await running.stub.ListAgents(pb.ListAgentsRequest())).agents


async def test_a_call_that_is_cut_off_gives_its_place_back(serve):
    running = await serve()
    call = running.stub.MemorySearch(pb.MemorySearchRequest(query="x", min_revision=9), timeout=0.3)
    await eventually(lambda: admission(running).calls == 1)
    with pytest.raises(grpc.aio.AioRpcError):
        await call
    await eventually(lambda: admission(running).calls == 0)
