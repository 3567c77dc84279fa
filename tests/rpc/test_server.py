"""The server itself: health, reflection, request ids, tokens, listeners, and how it starts and stops."""

import asyncio
import json
import os
import socket
import stat
import threading

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs
from memoryd_server.errors import IndexBusy, SettingsError
from rpc.wire import TIMEOUT, Home, check_refused, eventually, quiet, refusal, refused, start

SERVICE = "memoryd.v1.MemoryService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


async def health(running, service="", **options):
    stub = health_pb2_grpc.HealthStub(running.channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT, **options)).status


async def listed(running, **options):
    stub = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (reply,) = [reply async for reply in stub.ServerReflectionInfo(iter([request]), **options)]
    return {service.name for service in reply.list_services_response.service}


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_health_is_serving_once_the_daemon_listens(serve, service):
    assert await health(await serve(), service) == SERVING


async def test_health_of_an_unknown_service_is_not_found(serve):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health(await serve(), "memoryd.v2.MemoryService")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_is_a_search_and_not_a_hope(serve, monkeypatch):
    running = await serve()
    readiness = running.daemon._server._readiness

    async def broken():
        return "the index cannot be read"

    monkeypatch.setattr(running.memory(), "keyword_error", broken)
    await readiness.check()
    assert [await health(running, service) for service in ("", SERVICE)] == [NOT_SERVING, NOT_SERVING]
    monkeypatch.undo()
    await readiness.check()
    assert await health(running) == SERVING


async def test_a_busy_daemon_is_still_healthy(serve):
    running = await serve({"memoryd": {"limits": {"maxConcurrentCalls": 1}}})
    holder = running.stub.MemorySearch(pb.MemorySearchRequest(query="x", min_revision=9), timeout=0.5)
    await eventually(lambda: running.daemon._server._gate.calls == 1)
    assert await health(running) == SERVING
    await refused(holder)


async def test_health_says_not_serving_while_running_calls_finish(serve):
    running = await serve()
    watch = aiter(health_pb2_grpc.HealthStub(running.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE)))
    assert (await anext(watch)).status == SERVING
    await running.daemon._server.close_gate()
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


def bearer(token):
    return {"metadata": (("authorization", token),)}


@pytest.fixture
async def guarded(serve, home):
    """A daemon on TCP and on a socket that knows two tokens."""
    (home.root / "tokens").write_text("# ours\n\nfirst-token\n  second-token  \n")
    running = await serve(
        {"memoryd": {"tokenFile": str(home.root / "tokens"), "listen": ["127.0.0.1:0", f"unix:{home.socket}"]}},
        listen=None,
    )
    assert running.address.startswith("127.0.0.1:")
    return running


CALLS = {
    "a call": lambda running, options: running.stub.ListAgents(pb.ListAgentsRequest(), **options),
    "a stream": lambda running, options: running.stub.Sync(pb.SyncRequest(), **options),
    "health": lambda running, options: health_pb2_grpc.HealthStub(running.channel).Check(
        health_pb2.HealthCheckRequest(), **options
    ),
    "a health watch": lambda running, options: health_pb2_grpc.HealthStub(running.channel).Watch(
        health_pb2.HealthCheckRequest(), **options
    ),
    "reflection": lambda running, options: reflection_pb2_grpc.ServerReflectionStub(
        running.channel
    ).ServerReflectionInfo(silence(), **options),
}


async def silence():
    """A caller that sends nothing: grpc's client fails in its own way when the refusal overtakes what it sends."""
    await asyncio.Event().wait()
    yield


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "TOKEN_MISSING"),
        (bearer(""), "TOKEN_MISSING"),
        (bearer("Bearer wrong"), "TOKEN_INVALID"),
        (bearer("Bearer "), "TOKEN_INVALID"),
        (bearer("first-token"), "TOKEN_INVALID"),
        (bearer("Basic first-token"), "TOKEN_INVALID"),
        (bearer("Bearer # ours"), "TOKEN_INVALID"),
    ],
)
async def test_nothing_on_tcp_answers_without_a_good_token(guarded, name, options, reason):
    found = await check_refused(CALLS[name](guarded, options), "UNAUTHENTICATED", reason)
    assert "first-token" not in found.message


@pytest.mark.parametrize("token", ["Bearer first-token", "bearer second-token", "BEARER  first-token "])
async def test_a_good_token_opens_everything_on_tcp(guarded, token):
    assert (await guarded.stub.ListAgents(pb.ListAgentsRequest(), **bearer(token))).agents
    assert [event async for event in guarded.stub.Sync(pb.SyncRequest(), **bearer(token))]
    assert await health(guarded, **bearer(token)) == SERVING
    assert SERVICE in await listed(guarded, **bearer(token))


async def test_the_socket_asks_for_no_token(guarded, home):
    async with grpc.aio.insecure_channel(f"unix:{home.socket}") as channel:
        assert (await stubs.MemoryServiceStub(channel).ListAgents(pb.ListAgentsRequest())).agents


@pytest.mark.parametrize("content", [None, "", "# only a comment\n\n", b"\xff\xfe"])
async def test_a_token_file_without_a_token_refuses_to_start(home, content):
    file = home.root / "tokens"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SettingsError, match="token file"):
        await start(home, quiet({"memoryd": {"tokenFile": str(file)}}))


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "example.com", "[2001:db8::1]"])
async def test_beyond_loopback_nothing_is_listened_at(home, host):
    with pytest.raises(SettingsError, match="loopback"):
        await start(home, quiet(), listen=f"{host}:0")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_loopback_is_listened_at_and_its_port_told(serve, host):
    if host == "[::1]" and not os.path.exists("/proc/net/if_inet6"):  # noqa: ASYNC240, PTH110 -- a look at the host
        pytest.skip("this host has no IPv6")
    running = await serve(listen=f"{host}:0")
    assert running.address.startswith(f"{host}:")
    assert not running.address.endswith(":0")
    assert (await running.status()).agent_id == "main"


async def test_a_port_that_is_taken_is_refused_with_its_name(serve, home):
    running = await serve(listen="127.0.0.1:0")
    other = Home(home.root / "other")
    with pytest.raises(SettingsError, match=f"{running.address}.*taken"):
        await start(other, quiet(), listen=running.address)


async def test_the_socket_is_its_owner_s_alone_and_gone_after_the_stop(serve, home):
    running = await serve()
    assert stat.S_IMODE(home.socket.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(home.socket.stat().st_mode)
    await running.stop()
    assert not home.socket.exists()


async def test_folders_above_the_socket_are_made_for_the_owner_alone(serve, home):
    await serve(listen=f"unix:{home.root / 'run' / 's'}")
    assert stat.S_IMODE((home.root / "run").stat().st_mode) == 0o700


async def test_a_second_daemon_does_not_steal_the_socket(serve, home):
    first = await serve()
    other = Home(home.root / "other")
    with pytest.raises(SettingsError, match=f"another memoryd listens at unix:{home.socket}"):
        await start(other, quiet(), listen=f"unix:{home.socket}")
    async with grpc.aio.insecure_channel(first.address) as channel:
        assert (await stubs.MemoryServiceStub(channel).Status(pb.StatusRequest())).workspace == str(home.workspace)


async def test_a_second_daemon_on_the_same_index_is_refused_and_says_who_holds_it(serve, home):
    await serve()
    with pytest.raises(IndexBusy, match=f"process {os.getpid()}"):
        await start(home, quiet(), listen=f"unix:{home.root / 't'}")


async def test_a_daemon_that_could_not_start_leaves_nothing_locked(serve, home):
    with pytest.raises(SettingsError):
        await start(home, quiet(), listen=f"unix:{home.workspace}")
    assert (await (await serve()).status()).agent_id == "main"


async def test_a_socket_left_by_a_killed_daemon_is_replaced(serve, home):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home.socket))
    assert (await (await serve()).status()).agent_id == "main"


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
async def test_what_is_no_socket_is_not_removed(home, kind):
    precious = home.root / "precious"
    precious.write_text("keep me")
    if kind == "file":
        home.socket.write_text("keep me")
    elif kind == "folder":
        home.socket.mkdir()
    else:
        home.socket.symlink_to(precious)
    with pytest.raises(SettingsError, match="socket"):
        await start(home, quiet())
    assert home.socket in home.root.iterdir()
    assert precious.read_text() == "keep me"


async def test_a_socket_path_that_is_too_long_is_refused_with_its_length(home):
    path = home.root / ("x" * 110)
    with pytest.raises(SettingsError, match=rf"{len(str(path))} bytes long; the system allows 107"):
        await start(home, quiet(), listen=f"unix:{path}")


async def test_a_stop_lets_running_calls_finish_and_lets_no_new_one_in(serve, home, monkeypatch):
    running = await serve()
    memory = running.memory()
    go, begun = threading.Event(), threading.Event()
    append = memory._appender.append

    def slow(*args, **kwargs):
        begun.set()
        assert go.wait(TIMEOUT)
        return append(*args, **kwargs)

    monkeypatch.setattr(memory._appender, "append", slow)
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
    await eventually(lambda: running.daemon._server._gate.calls == 1)
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
    memory = running.memory()
    await eventually(lambda: len(asyncio.all_tasks()) <= before + 2)
    runs = [memory.coordinator.active, *memory.coordinator._past]
    assert all(run.followers == 0 for run in runs if run is not None)
