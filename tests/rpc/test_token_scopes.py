"""Scopes of tokens: which method each scope allows, on every edge, and that no other call reaches its service."""

import json

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc

from memoryd.v1 import mcp_service_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1.entry_service_pb2_grpc import EntryServiceStub
from memoryd.v1.mcp_service_pb2_grpc import McpServiceStub
from memoryd.v1.memory_service_pb2_grpc import MemoryServiceStub
from memoryd_server.access import Scope
from memoryd_server.access.grants import expand_scopes
from memoryd_server.access.private_files import write_private
from memoryd_server.errors import ScopeMissing
from memoryd_server.observe import NoMeter, make_log
from memoryd_server.rpc import LocalCaller, LocalCalls
from memoryd_server.rpc.method_scopes import METHOD_SCOPES, METHODS_BY_SCOPE
from rpc.agent_calls import AGENT_CALLS
from rpc.callers import bearer, listed, new_token, silence, store
from rpc.wire import TIMEOUT, check_refused, refusal

READ, APPEND, EDIT, ADMIN = Scope
COMBINATIONS = ([READ], [APPEND], [EDIT], [ADMIN], [EDIT, ADMIN], None)
NEW_FILE = pb.MemoryWriteRequest(path="memory/new.md", content="new\n")
STUBS = {"MemoryService": MemoryServiceStub, "EntryService": EntryServiceStub}
OWN_METHODS = [
    method
    for methods in METHODS_BY_SCOPE.values()
    for method in methods
    if method.startswith("memoryd.") and "McpService" not in method
]


@pytest.fixture
async def running(serve, home):
    """A daemon that allows edits, on TCP and on a socket, with a file for each kind of source."""
    home.put("MEMORY.md", "the heron nests by the weir\n")
    home.write(a="the otter sleeps\n")
    home.say("x.jsonl", '{"type":"message","message":{"role":"user","content":"a question"}}\n')
    listen = ["127.0.0.1:0", f"unix:{home.socket}"]
    return await serve({"memoryd": {"writes": "edit", "entries": {"enabled": True}, "listen": listen}}, listen=None)


@pytest.fixture
def calls(running):
    """The calls of an edge in the process of the daemon, such as HTTP."""
    return LocalCalls(running.daemon.service, running.gate, make_log("debug", "json", running.log), NoMeter())


def request_of(method):
    """Return a request that is valid except for its contents, or an empty one."""
    name = method.rpartition("/")[2]
    if name in AGENT_CALLS:
        return AGENT_CALLS[name]
    return NEW_FILE if name == "MemoryWrite" else getattr(pb, f"{name}Request")()


async def outcome(channel, method, **options):
    """Call a method by its stub; return the refusal, or None if the call, or the first message, succeeds."""
    service, name = method.rpartition(".")[2].split("/")
    call = getattr(STUBS[service](channel), name)(request_of(method), timeout=TIMEOUT, **options)
    try:
        if name == "WatchIndex":
            await anext(aiter(call))
            call.cancel()
        elif hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return refusal(error)
    return None


def check_missing(found, method):
    scope = METHOD_SCOPES[f"/{method}"].value
    assert found is not None, method
    assert (found.code, found.reason, found.metadata) == ("PERMISSION_DENIED", "SCOPE_MISSING", {"scope": scope}), (
        method
    )
    assert f"memoryd token new --scope {scope}" in found.message
    assert method.rpartition(".")[2].replace("/", ".") in found.message


def is_missing(found):
    return found is not None and found.reason == "SCOPE_MISSING"


def files_of(home):
    """Everything that is in the workspace: names, contents, modes and times of change."""
    found = {}
    for path in [home.workspace, *home.workspace.rglob("*")]:
        stat = path.lstat()
        found[path] = (path.read_bytes() if path.is_file() else b"", stat.st_mode, stat.st_mtime_ns, stat.st_ino)
    return found


def rescope(home, token_id, *scopes):
    """Replace the token store by one with other scopes, as no command does; the daemon never reads half of it."""
    path = store(home).path
    content = json.loads(path.read_text())
    (entry,) = (entry for entry in content["tokens"] if entry["id"] == token_id)
    entry["scopes"] = list(scopes)
    write_private(path, json.dumps(content).encode())


async def test_each_scope_allows_its_methods_and_no_other(running, home):
    for scopes in COMBINATIONS:
        _, token = new_token(home, scopes=scopes)
        allowed = expand_scopes(scopes or [ADMIN])
        for method in OWN_METHODS:
            found = await outcome(running.channel, method, **bearer(token))
            if METHOD_SCOPES[f"/{method}"] in allowed:
                assert not is_missing(found), (scopes, method)
            else:
                check_missing(found, method)


async def test_every_method_of_every_registered_service_is_in_the_table(running, home):
    pool = descriptor_pool.Default()
    services = await listed(running, **bearer(new_token(home)[1]))
    assert {"memoryd.v1.MemoryService", "memoryd.v1.EntryService", "memoryd.v1.McpService"} < services
    registered = {f"{name}/{method.name}" for name in services for method in pool.FindServiceByName(name).methods}
    assert registered - {method for methods in METHODS_BY_SCOPE.values() for method in methods} == set()


async def test_health_and_reflection_need_any_valid_token(running, home):
    _, token = new_token(home, scopes=[READ])
    health = health_pb2_grpc.HealthStub(running.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest(), **bearer(token))).status == 1
    watch = health.Watch(health_pb2.HealthCheckRequest(), **bearer(token))
    assert (await anext(aiter(watch))).status == 1
    watch.cancel()
    assert "memoryd.v1.MemoryService" in await listed(running, **bearer(token))


async def test_a_read_token_changes_no_byte_of_the_workspace(running, home):
    _, token = new_token(home, scopes=[READ])
    await running.stub.Status(pb.StatusRequest(), **bearer(token))
    before = files_of(home)
    for method in OWN_METHODS:
        found = await outcome(running.channel, method, **bearer(token))
        assert is_missing(found) is (METHOD_SCOPES[f"/{method}"] is not READ)
    assert files_of(home) == before
    # The same calls with all scopes change it.
    _, token = new_token(home, scopes=[EDIT, ADMIN])
    for method in OWN_METHODS:
        await outcome(running.channel, method, **bearer(token))
    assert files_of(home) != before


async def test_the_unix_socket_has_all_scopes(running, home):
    async with grpc.aio.insecure_channel(f"unix:{home.socket}") as channel:
        for method in OWN_METHODS:
            assert not is_missing(await outcome(channel, method)), method


async def test_the_token_file_cannot_edit(running, home):
    token = (home.state_dir / "memoryd.token").read_text().strip()
    for method in OWN_METHODS:
        found = await outcome(running.channel, method, **bearer(token))
        assert is_missing(found) is (METHOD_SCOPES[f"/{method}"] is EDIT), method


@pytest.mark.parametrize(("method", "scopes"), [("MemoryWrite", [APPEND]), ("MemoryForget", [EDIT])])
async def test_the_scope_is_checked_after_the_token_and_before_the_request(running, home, method, scopes):
    """Bytes that are no message, an agent that is not allowed, and a request that never arrives."""
    path = f"/memoryd.v1.MemoryService/{method}"
    token_id, token = new_token(home, "ada", scopes=scopes)
    raw = running.channel.unary_unary(path)
    await check_refused(raw(b"\xff\xff", timeout=TIMEOUT), "UNAUTHENTICATED", "TOKEN_MISSING")
    request = getattr(pb, f"{method}Request")(agent_id="bob")
    for data in (b"\xff\xff", request.SerializeToString()):
        made = raw(data, timeout=TIMEOUT, **bearer(token))
        await check_refused(made, "PERMISSION_DENIED", "SCOPE_MISSING")
    silent = running.channel.stream_unary(path)(silence(), timeout=TIMEOUT, **bearer(token))
    await check_refused(silent, "PERMISSION_DENIED", "SCOPE_MISSING")
    refused = running.logged("refuse-call")[-1]
    assert (refused["token_id"], refused["method"], refused["reason"]) == (token_id, path, "SCOPE_MISSING")


@pytest.mark.parametrize("waits", [True, False])
async def test_a_stream_ends_when_its_token_loses_the_scope(running, home, pause_sync, waits):
    """While the stream waits for its next message, and when the next message comes."""
    running.gate.recheck_seconds = 0.05 if waits else 3600
    held = pause_sync(running)
    token_id, token = new_token(home, scopes=[APPEND])
    sync = running.stub.Sync(pb.SyncRequest(), timeout=TIMEOUT, **bearer(token))
    watch = running.stub.WatchIndex(pb.WatchIndexRequest(), timeout=TIMEOUT, **bearer(token))
    assert await anext(aiter(sync))
    assert await anext(aiter(watch))
    await held.until_reached()
    rescope(home, token_id, "read")
    if not waits:
        held.release()
    await check_refused(sync, "PERMISSION_DENIED", "SCOPE_MISSING")
    assert not watch.done()
    watch.cancel()
    held.release()


async def test_a_stream_of_another_edge_ends_when_its_token_loses_the_scope(calls, home):
    token_id, token = new_token(home, scopes=[APPEND])
    events = calls.stream("Sync", {}, LocalCaller(token.encode()))
    assert await anext(events)
    rescope(home, token_id, "read")
    with pytest.raises(ScopeMissing):
        async for _ in events:
            pass


async def test_calls_of_another_edge_require_the_scope(calls, home):
    _, token = new_token(home, scopes=[READ])
    reader, owner = LocalCaller(token.encode()), LocalCaller(None)
    for method in ("MemoryAppend", "MemoryWrite", "MemoryForget"):
        with pytest.raises(ScopeMissing):
            await calls.call(method, {"unknown": "field"}, reader)
    assert await calls.call("MemoryGet", {"path": "MEMORY.md"}, reader)
    names = ("MemoryGet", "MemoryAppend", "MemoryWrite", "MemoryForget")
    assert await calls.permitted(names, reader) == {"MemoryGet"}
    assert await calls.permitted(names, owner) == set(names)


async def test_an_mcp_session_over_grpc_has_the_scopes_of_its_token(running, home):
    pytest.importorskip("mcp")
    _, token = new_token(home, scopes=[READ])
    call = McpServiceStub(running.channel).Session(timeout=TIMEOUT, **bearer(token))
    assert await call.read() == mcp_service_pb2.SessionResponse()
    await call.write(mcp_service_pb2.SessionRequest())
    await call.read()

    async def request(number, method, **params):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        await call.write(mcp_service_pb2.SessionRequest(message=json.dumps(message)))
        while (answer := json.loads((await call.read()).message)).get("id") != number:
            pass
        return answer["result"]

    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    await request(1, "initialize", **about)
    names = {tool["name"] for tool in (await request(2, "tools/list"))["tools"]}
    assert names == {"memory_search", "memory_get", "memory_recall", "memory_status"}
    before = files_of(home)
    result = await request(3, "tools/call", name="memory_append", arguments={"text": "a line"})
    assert result["isError"] is True
    assert "does not have the scope 'append'" in result["content"][0]["text"]
    assert not (await request(4, "tools/call", name="memory_get", arguments={"path": "MEMORY.md"})).get("isError")
    assert files_of(home) == before
    call.cancel()


async def test_http_has_the_scopes_of_its_token(serve, home):
    pytest.importorskip("mcp")
    from rpc.http_client import McpSession, client, http_settings  # noqa: PLC0415 -- needs the packages of HTTP

    home.put("MEMORY.md", "the heron nests by the weir\n")
    running = await serve(http_settings())
    listed_tools = {}
    for scope in Scope:
        async with client(running, new_token(home, scopes=[scope])[1]) as http:
            assert (await http.get("/metrics")).status_code == 200
            session = McpSession(http)
            assert (await session.open()).status_code == 200
            tools = (await session.request("tools/list"))[1]["result"]["tools"]
            listed_tools[scope] = {tool["name"] for tool in tools}
            before = files_of(home)
            result = await session.tool("memory_append", text="a line")
            if scope is not READ:
                assert not result.get("isError")
                continue
            assert result["isError"] is True
            assert "does not have the scope 'append'" in result["content"][0]["text"]
            assert files_of(home) == before
            status, answer = await session.request("resources/read", uri="memory://main/MEMORY.md")
            assert (status, "weir" in json.dumps(answer)) == (200, True)
    assert "memory_append" not in listed_tools[READ]
    assert "memory_append" in listed_tools[APPEND] & listed_tools[EDIT] & listed_tools[ADMIN]
    assert listed_tools[READ] < listed_tools[APPEND] <= listed_tools[EDIT]
