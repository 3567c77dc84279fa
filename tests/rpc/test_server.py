"""The server itself: health, reflection, request ids, and how it starts and stops."""

import asyncio
import io
import json
import threading

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs
from memoryd_server.app.daemon import Daemon
from memoryd_server.errors import MemorydError
from memoryd_server.observe import make_log
from rpc.callers import SERVICE, health, listed
from rpc.wire import TIMEOUT, check_refused, refusal, refused
from waiting import eventually

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_health_is_serving_once_the_daemon_listens(serve, service):
    assert await health(await serve(), service) == SERVING


async def test_the_health_of_all_services_is_listed(serve):
    stub = health_pb2_grpc.HealthStub((await serve()).channel)
    found = await stub.List(health_pb2.HealthListRequest(), timeout=TIMEOUT)
    assert {name: answer.status for name, answer in found.statuses.items()} == {"": SERVING, SERVICE: SERVING}


async def test_health_of_an_unknown_service_is_not_found(serve):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health(await serve(), "memoryd.v2.MemoryService")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_is_a_search_and_not_a_hope(serve, monkeypatch):
    running = await serve()
    readiness = running.readiness

    async def broken():
        return "the index cannot be read"

    monkeypatch.setattr(running.memory().index, "keyword_error", broken)
    await readiness.check()
    assert [await health(running, service) for service in ("", SERVICE)] == [NOT_SERVING, NOT_SERVING]
    monkeypatch.undo()
    await readiness.check()
    assert await health(running) == SERVING


async def test_a_busy_daemon_is_still_healthy(serve):
    running = await serve({"memoryd": {"limits": {"maxConcurrentCalls": 1}}})
    holder = running.stub.MemorySearch(pb.MemorySearchRequest(query="x", min_revision=9), timeout=0.5)
    await eventually(lambda: running.gate.admission.calls == 1)
    assert await health(running) == SERVING
    await refused(holder)


async def test_health_says_not_serving_while_running_calls_finish(serve):
    running = await serve()
    watch = aiter(health_pb2_grpc.HealthStub(running.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE)))
    assert (await anext(watch)).status == SERVING
    await running.server.close_gate()
    assert [await health(running, service) for service in ("", SERVICE)] == [NOT_SERVING, NOT_SERVING]
    assert (await anext(watch)).status == NOT_SERVING


async def test_a_watch_on_the_health_does_not_hold_a_stop(serve):
    running = await serve()
    watch = aiter(health_pb2_grpc.HealthStub(running.channel).Watch(health_pb2.HealthCheckRequest()))
    assert (await anext(watch)).status == SERVING
    async with asyncio.timeout(3):
        stopping = asyncio.create_task(running.stop_daemon())
        assert (await anext(watch)).status == NOT_SERVING
        await check_refused(watch, "UNAVAILABLE", "SHUTTING_DOWN", retry=True)
        await stopping


async def test_reflection_lists_the_services_and_describes_ours(serve):
    running = await serve()
    names = await listed(running)
    assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= names
    stub = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE)
    async for reply in stub.ServerReflectionInfo(iter([request])):
        assert any(b"MemorySearch" in file for file in reply.file_descriptor_response.file_descriptor_proto)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("abc-123", True), ("a b", True), ("x" * 128, True), ("x" * 129, False), ("", False), (None, False)],
)
async def test_a_request_id_comes_back_or_is_made(serve, sent, kept):
    running = await serve()
    metadata = () if sent is None else (("x-request-id", sent),)
    call = running.stub.MemorySearch(pb.MemorySearchRequest(query="x"), metadata=metadata)
    answered = dict(await call.initial_metadata())["x-request-id"]
    await call
    assert (answered == sent) is kept
    assert answered
    failing = running.stub.MemoryGet(pb.MemoryGetRequest(path="x"), metadata=metadata)
    found = await refused(failing)
    assert found.request_id == dict(await failing.initial_metadata())["x-request-id"]
    assert (found.request_id == sent) is kept
    stream = running.stub.Sync(pb.SyncRequest(), metadata=metadata)
    assert (dict(await stream.initial_metadata())["x-request-id"] == sent) is kept
    assert [event async for event in stream]
    assert {line["request_id"] for line in running.logged("serve-call")} >= {answered}


async def test_a_log_above_debug_holds_no_query_and_no_note(serve, home):
    home.write(a="the secret zebra")
    running = await serve()
    await running.sync()
    await running.search("secret zebra")
    await refused(running.get("secret/zebra.txt"))
    await running.append("another zebra", path="memory/b.md")
    loud = [line for line in map(json.loads, running.log.getvalue().splitlines()) if line["level"] != "debug"]
    assert loud
    assert "zebra" not in json.dumps(loud)


async def test_an_unknown_method_is_unimplemented(serve):
    running = await serve()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.channel.unary_unary(f"/{SERVICE}/Serach")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_stop_lets_running_calls_finish_and_lets_no_new_one_in(serve, home, monkeypatch):
    running = await serve()
    memory = running.memory()
    go, begun = threading.Event(), threading.Event()
    appender = memory.workspace.documents.writer
    append = appender.append

    def slow(*args, **kwargs):
        begun.set()
        assert go.wait(TIMEOUT)
        return append(*args, **kwargs)

    monkeypatch.setattr(appender, "append", slow)
    call = asyncio.ensure_future(running.append("zebra", path="memory/log.md"))
    await asyncio.to_thread(begun.wait, TIMEOUT)
    stopping = asyncio.create_task(running.stop_daemon())
    await eventually(lambda: running.logged("stop-daemon"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.stub.Status(pb.StatusRequest(), timeout=2)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not stopping.done()
    go.set()
    assert (await call).path == "memory/log.md"
    assert (home.workspace / "memory" / "log.md").read_text() == "zebra\n"
    await stopping


async def test_a_call_that_outlasts_the_grace_does_not_hold_the_stop(serve):
    running = await serve({"memoryd": {"limits": {"shutdownGraceSeconds": 0.2}}})
    stuck = running.stub.MemorySearch(pb.MemorySearchRequest(query="x", min_revision=9), timeout=TIMEOUT)
    await eventually(lambda: running.gate.admission.calls == 1)
    async with asyncio.timeout(3):
        await running.stop_daemon()
    with pytest.raises(grpc.aio.AioRpcError):
        await stuck


async def test_a_daemon_starts_again_on_what_it_left(serve, home):
    home.write(a="zebra")
    running = await serve()
    revision = (await running.synced()).index_revision
    await running.stop()
    again = await serve()
    info = (await again.search("zebra")).info
    assert (info.index_revision, info.keyword_candidates) == (revision, 1)


async def test_a_plain_synchronous_client_is_served_as_well(serve, home):
    home.write(a="zebra")
    running = await serve()

    def talk():
        with grpc.insecure_channel(running.address) as channel:
            stub = stubs.MemoryServiceStub(channel)
            events = list(stub.Sync(pb.SyncRequest(), timeout=TIMEOUT))
            found = stub.MemorySearch(pb.MemorySearchRequest(query="zebra"), timeout=TIMEOUT)
            try:
                stub.MemoryGet(pb.MemoryGetRequest(path="/etc/passwd"), timeout=TIMEOUT)
            except grpc.RpcError as error:
                return events, found, refusal(error)
        raise AssertionError("not refused")

    events, found, denied = await asyncio.to_thread(talk)
    assert events[-1].completed.indexed_files == 1
    assert [result.path for result in found.results] == ["memory/a.md"]
    assert (denied.code, denied.reason) == ("PERMISSION_DENIED", "PATH_NOT_ALLOWED")


async def test_a_client_may_ping_every_ten_seconds_and_less(serve):
    running = await serve()
    options = [
        ("grpc.keepalive_time_ms", 100),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    async with grpc.aio.insecure_channel(running.address, options=options) as channel:
        stub = stubs.MemoryServiceStub(channel)
        states = aiter(stub.WatchIndex(pb.WatchIndexRequest(heartbeat_interval={"seconds": 1}), timeout=TIMEOUT))
        assert [(await anext(states)).heartbeat for _ in range(2)] == [False, True]


async def test_streams_that_are_left_leave_nothing_behind(serve, home):
    home.write(a="one")
    running = await serve()
    await running.sync()
    before = len(asyncio.all_tasks())
    for _ in range(5):
        watches = [running.stub.WatchIndex(pb.WatchIndexRequest()) for _ in range(40)]
        syncs = [running.stub.Sync(pb.SyncRequest()) for _ in range(10)]
        for stream in (*watches, *syncs):
            await stream.read()
        for stream in (*watches, *syncs):
            stream.cancel()
    await eventually(lambda: len(asyncio.all_tasks()) <= before + 2)
    assert all(run.followers == 0 for run in running.runs())


async def test_a_daemon_that_cannot_listen_ends_its_thread_pools(home, tmp_path):
    """The process would wait for idle threads before it exits."""
    home.write(a="a note")
    (tmp_path / "file").touch()
    settings = home.settings(listen=[f"unix:{tmp_path}/file/socket"])
    daemon = Daemon(settings, make_log("error", "json", io.StringIO()), background=False)
    with pytest.raises(MemorydError):
        await daemon.start()
    assert daemon.resources.quick.closed
    assert daemon.resources.slow.closed
