"""When a daemon that `memoryd mcp` started exits."""

import asyncio

import grpc
import pytest

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1.mcp_service_pb2_grpc import McpServiceStub
from memoryd_server.app.idle_exit import IdleWatch
from rpc.callers import health, health_watch
from rpc.http_client import HTTP, McpSession, any_agent, client
from rpc.wire import refusal
from waiting import eventually

SECONDS = 600.0


class Idleness:
    """The watch of a daemon, and the clock by which it looks."""

    def __init__(self, running):
        self.now, self.seconds = 0.0, SECONDS
        self._watch = IdleWatch(
            running.gate,
            running.daemon.agents,
            lambda: self.seconds,
            lambda: self.now,
            http_requests=lambda: running.daemon.edges.http_requests,
        )

    def after(self, seconds):
        """Return whether the daemon exits when so much time has passed since the last look."""
        self.now += seconds
        return self._watch.look()


@pytest.fixture
async def running(serve, home):
    home.write(a="the red ferry sails at dawn")
    return await serve()


@pytest.fixture
def idleness(running):
    return Idleness(running)


def test_an_idle_daemon_exits_after_the_time(idleness):
    assert not idleness.after(SECONDS - 1)
    assert idleness.after(1)


async def test_a_call_between_two_looks_begins_the_time_again(running, idleness):
    assert not idleness.after(SECONDS - 1)
    await running.search("ferry")
    await eventually(lambda: not running.gate.admission.calls)
    assert not idleness.after(SECONDS - 1)
    assert not idleness.after(SECONDS - 1)
    assert idleness.after(1)


async def test_an_open_stream_and_a_running_sync_keep_the_daemon(running, idleness, pause_sync):
    stream = running.stub.WatchIndex(pb.WatchIndexRequest())
    await stream.read()
    assert not idleness.after(2 * SECONDS)
    stream.cancel()
    await eventually(lambda: not running.gate.admission.streams)
    paused = pause_sync(running)
    sync = running.stub.Sync(pb.SyncRequest())
    await sync.read()
    await paused.until_reached()
    sync.cancel()
    await eventually(lambda: not running.gate.admission.streams)
    assert not idleness.after(2 * SECONDS)
    paused.release()
    await eventually(lambda: running.memory().index.coordinator.active is None)
    assert not idleness.after(SECONDS - 1)
    assert idleness.after(1)


async def test_the_event_stream_of_a_session_over_http_keeps_the_daemon(serve, home):
    pytest.importorskip("mcp")
    running = await serve(HTTP)
    idleness = Idleness(running)
    async with client(running, any_agent(home)) as http:
        session = McpSession(http)
        await session.open()
        async with http.stream("GET", "/mcp", headers=session.headers) as stream:
            assert stream.status_code == 200
            assert not idleness.after(2 * SECONDS)
    await eventually(lambda: not running.daemon.edges.http_requests)
    assert not idleness.after(SECONDS - 1)
    assert idleness.after(1)


async def test_questions_about_the_health_do_not_keep_the_daemon(running, idleness):
    watch = health_watch(running)
    await watch.read()
    await health(running)
    assert idleness.after(SECONDS)
    watch.cancel()


async def test_no_time_means_that_the_daemon_does_not_exit(idleness):
    idleness.seconds = 0
    assert not idleness.after(10**9)


async def test_a_session_that_arrives_when_the_daemon_exits_is_refused(running, idleness):
    assert idleness.after(SECONDS)
    call = McpServiceStub(running.channel).Session()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asyncio.wait_for(call.read(), 30)
    assert refusal(refused.value).reason == "SHUTTING_DOWN"
