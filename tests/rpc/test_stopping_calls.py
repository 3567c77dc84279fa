"""Calls while the daemon stops: they get its reason, and never CANCELLED."""

import asyncio
import collections

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs
from memoryd_server.errors import ShuttingDown
from memoryd_server.rpc.authorization import RunningCalls
from rpc.callers import bearer, new_token
from rpc.wire import TIMEOUT, check_refused, refusal, refused
from waiting import eventually

pytestmark = pytest.mark.faults


def limits(seconds):
    return {"memoryd": {"limits": {"shutdownGraceSeconds": seconds}}}


@pytest.fixture
def start(serve, home):
    """A daemon at a socket or at a port, and the options of its calls."""

    async def start(where, grace_seconds):
        flags = {"listen": "127.0.0.1:0"} if where == "tcp" else {}
        running = await serve(limits(grace_seconds), **flags)
        return running, bearer(new_token(home)[1]) if where == "tcp" else {}

    return start


def endless(running, options):
    """A search that waits until its daemon stops."""
    request = pb.MemorySearchRequest(query="heron", min_revision=10**15)
    return asyncio.ensure_future(refused(running.stub.MemorySearch(request, timeout=TIMEOUT, **options)))


async def stopping(running, options):
    health = health_pb2_grpc.HealthStub(running.channel)
    stop = asyncio.ensure_future(running.stop_daemon())

    async def refuses_calls():
        try:
            reply = await health.Check(health_pb2.HealthCheckRequest(), **options)
        except grpc.aio.AioRpcError as error:
            return refusal(error).reason == "SHUTTING_DOWN"
        return reply.status == health_pb2.HealthCheckResponse.NOT_SERVING

    await eventually(refuses_calls)
    return stop


@pytest.mark.parametrize("where", ["socket", "tcp"])
async def test_a_call_that_outlasts_the_grace_gets_the_reason(start, where):
    running, options = await start(where, 0.2)
    call = endless(running, options)
    await eventually(lambda: running.gate.admission.calls)
    await running.stop_daemon()
    found = await call
    assert (found.code, found.reason) == ("UNAVAILABLE", "SHUTTING_DOWN")
    assert found.retry_seconds


@pytest.mark.parametrize("where", ["socket", "tcp"])
async def test_calls_on_old_and_new_connections_are_refused_with_the_reason_during_the_grace(start, where):
    running, options = await start(where, 30)
    call = endless(running, options)
    await eventually(lambda: running.gate.admission.calls)
    stop = await stopping(running, options)
    async with grpc.aio.insecure_channel(running.address) as channel:
        for stub in (running.stub, stubs.MemoryServiceStub(channel)):
            made = stub.Status(pb.StatusRequest(), timeout=TIMEOUT, **options)
            await check_refused(made, "UNAVAILABLE", "SHUTTING_DOWN", retry=True)
    assert not stop.done()
    call.cancel()
    await asyncio.wait_for(stop, 20)


@pytest.mark.parametrize("where", ["socket", "tcp"])
async def test_a_stream_of_reflection_does_not_delay_a_stop(start, where):
    running, options = await start(where, 60)
    stream = reflection_pb2_grpc.ServerReflectionStub(running.channel).ServerReflectionInfo(**options)
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    assert (await stream.read()).list_services_response.service
    await asyncio.wait_for(running.stop_daemon(), 20)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert refusal(caught.value).reason == "SHUTTING_DOWN"


async def test_a_call_over_tcp_without_its_request_does_not_delay_a_stop(start):
    running, options = await start("tcp", 60)
    call = running.channel.stream_unary("/memoryd.v1.MemoryService/Status")(**options)
    await call.initial_metadata()
    await asyncio.wait_for(running.stop_daemon(), 20)
    assert (await refused(call)).reason == "SHUTTING_DOWN"


@pytest.mark.slow
@pytest.mark.parametrize("where", ["socket", "tcp"])
async def test_callers_that_never_pause_are_told_that_the_daemon_stops(start, where):
    running, options = await start(where, 0.5)
    codes, stopped = collections.Counter(), asyncio.Event()

    async def caller(stub):
        while not stopped.is_set():
            try:
                await stub.FlushDecision(pb.FlushDecisionRequest(), timeout=TIMEOUT, **options)
            except grpc.aio.AioRpcError as error:
                codes[error.code().name] += 1
                await asyncio.sleep(0.001)

    channels = [
        grpc.aio.insecure_channel(running.address, options=(("grpc.use_local_subchannel_pool", 1),)) for _ in range(4)
    ]
    callers = [asyncio.ensure_future(caller(stubs.MemoryServiceStub(channel))) for channel in channels * 4]
    keeps_the_grace = endless(running, options)
    await eventually(lambda: running.gate.admission.calls)
    await running.stop_daemon()
    stopped.set()
    await asyncio.gather(*callers, keeps_the_grace)
    for channel in channels:
        await channel.close()
    assert codes["UNAVAILABLE"] > 100
    # A client that connects again in the millisecond before the listener is closed may still be cancelled.
    assert codes["CANCELLED"] <= codes["UNAVAILABLE"] / 100
    assert set(codes) <= {"UNAVAILABLE", "CANCELLED", "RESOURCE_EXHAUSTED"}


async def test_a_stop_that_closes_again_leaves_the_handlers_that_are_ending_alone():
    running, waits, ends, may_end = RunningCalls(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler():
        async with running.handled(waits=True):
            waits.set()
            try:
                await asyncio.Event().wait()
            finally:
                ends.set()
                await may_end.wait()

    call = asyncio.ensure_future(handler())
    await waits.wait()
    running.close()
    await ends.wait()
    running.close()
    may_end.set()
    with pytest.raises(ShuttingDown):
        await call
