"""Calls and streams whose clients cancel them at any moment: the daemon logs no error."""

import asyncio
import gc

import pytest
from grpc_health.v1 import health_pb2

from memoryd.v1 import memory_service_pb2 as pb
from raw_http2 import RawConnection, frame
from rpc.callers import bearer, health, new_token

RST_STREAM, CANCEL = 3, b"\0\0\0\x08"
STREAMS = 600


def open_and_cancel(address, token):
    request = pb.SyncRequest(cursor="x").SerializeToString()
    with RawConnection(address) as connection:
        for number in range(STREAMS):
            (stream,) = connection.open_many("/memoryd.v1.MemoryService/Sync", 1, token, request)
            connection.read(number % 30 * 0.0002)
            connection.send(frame(RST_STREAM, 0, stream, CANCEL))


@pytest.mark.slow
@pytest.mark.attacks
async def test_stream_that_is_cancelled_while_its_request_is_refused_logs_no_error(serve, home):
    running = await serve({"memoryd": {"limits": {"tokenCallsPerSecond": 0}}}, listen="127.0.0.1:0")
    _, token = new_token(home)
    await asyncio.to_thread(open_and_cancel, running.address, token)
    await health(running, **bearer(token))
    gc.collect()
    assert "fail-background-task" not in running.log.getvalue()


def ask_and_cancel(address):
    request = health_pb2.HealthCheckRequest(service="unknown").SerializeToString()
    for _ in range(20):
        with RawConnection(address) as connection:
            for number in range(20):
                streams = connection.open_many("/grpc.health.v1.Health/Check", 5, None, request)
                connection.read(number * 0.0002)
                connection.send(b"".join(frame(RST_STREAM, 0, stream, CANCEL) for stream in streams))


async def test_health_check_that_is_cancelled_while_it_is_refused_is_not_an_error(serve):
    running = await serve({})
    await asyncio.to_thread(ask_and_cancel, running.address)
    await health(running)
    log = running.log.getvalue()
    assert "fail-call" not in log, log
