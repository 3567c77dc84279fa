"""Errors at the edges: an index that cannot be opened, and values that are too large to be repeated."""

import asyncio
import threading

import grpc
import pytest

from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.agent_calls import call, for_agent
from rpc.wire import TIMEOUT, check_refused, refused


def newer(store):
    """Makes an index look as if a later version had written it."""
    data = bytearray(store.index("other").read_bytes())
    # The user version stands at byte 60 of an SQLite file.
    data[60:64] = (9_999).to_bytes(4, "big")
    store.index("other").write_bytes(data)


def blocked(store):
    """Removes an index, and keeps it from being created again."""
    store.lose_index("other")
    store.block("other")


@pytest.mark.parametrize(
    ("spoil", "code", "reason"),
    [
        pytest.param(
            newer,
            "FAILED_PRECONDITION",
            "INDEX_TOO_NEW",
            marks=pytest.mark.sqlite_only("PostgreSQL's tables belong to all agents, so they have one version"),
        ),
        (blocked, "UNAVAILABLE", "INDEX_UNAVAILABLE"),
    ],
)
async def test_an_index_that_cannot_be_opened_leaves_the_other_agents_alone(serve, home, spoil, code, reason):
    (home.root / "other" / "memory").mkdir(parents=True)
    settings = {"agents": {"list": [{"id": "main"}, {"id": "other", "workspace": str(home.root / "other")}]}}
    first = await serve(settings)
    await first.sync(agent_id="other")
    await first.stop()
    spoil(home.store)
    running = await serve(settings)
    for method in ("MemorySearch", "Status", "Sync", "ListFiles"):
        await check_refused(call(running, method, for_agent(method, "other")), code, reason)
        answer = call(running, method, for_agent(method, "main"))
        assert await answer if method != "Sync" else [event async for event in answer]
    # A decision needs no index.
    assert (await call(running, "FlushDecision", for_agent("FlushDecision", "other"))).target_path
    agents = (await running.stub.ListAgents(pb.ListAgentsRequest())).agents
    assert agents[1].index_state == memory_pb2.INDEX_STATE_UNAVAILABLE


async def serving_what_can_be_opened_now(serve, home):
    """A daemon that could not open the index of `other` at its start; nothing stands in the way any more."""
    (home.root / "other" / "memory").mkdir(parents=True)
    (home.root / "other" / "MEMORY.md").write_text("the ferry leaves at noon")
    settings = {"agents": {"list": [{"id": "main"}, {"id": "other", "workspace": str(home.root / "other")}]}}
    home.store.block("other")
    running = await serve(settings)
    home.store.unblock("other")
    return running


async def test_an_index_that_can_be_opened_again_is_without_a_restart(serve, home):
    running = await serving_what_can_be_opened_now(serve, home)
    await check_refused(running.search("ferry", agent_id="other"), "UNAVAILABLE", "INDEX_UNAVAILABLE")
    running.daemon.agents.reopen_seconds = 0.0
    await running.sync(agent_id="other")
    answer, *_ = await asyncio.gather(*(running.search("ferry", agent_id="other") for _ in range(5)))
    assert [hit.path for hit in answer.results] == ["MEMORY.md"]
    agents = (await running.stub.ListAgents(pb.ListAgentsRequest())).agents
    assert agents[1].index_state == memory_pb2.INDEX_STATE_READY


async def test_an_index_that_is_opened_again_for_one_who_leaves_is_open_for_the_next(serve, home, before_open):
    running = await serving_what_can_be_opened_now(serve, home)
    running.daemon.agents.reopen_seconds = 0.0
    go = threading.Event()
    before_open(lambda _: go.wait(TIMEOUT))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.stub.Status(pb.StatusRequest(agent_id="other"), timeout=0.1)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    agents = running.daemon.agents._agents
    first = agents["other"]
    go.set()
    assert (await running.synced(agent_id="other")).indexed_files == 1
    assert agents["other"] is first, "it was opened twice"


HUGE = "ü" * 60_000


@pytest.mark.parametrize(
    ("method", "request_", "reason"),
    [
        ("Status", pb.StatusRequest(agent_id=HUGE), "AGENT_NOT_FOUND"),
        ("MemoryGet", pb.MemoryGetRequest(path="memory/" + ("ü" * 30 + "/") * 60 + "x.md"), "FILE_NOT_FOUND"),
        ("MemoryGet", pb.MemoryGetRequest(path="memory/" + "ü/" * 1_300 + "x.md"), "PATH_NOT_ALLOWED"),
        ("MemoryGet", pb.MemoryGetRequest(path=HUGE + ".md"), "INVALID_REQUEST"),
        ("MemoryGet", pb.MemoryGetRequest(path="ü" * 2_000 + ".md"), "PATH_NOT_ALLOWED"),
        ("FlushDecision", pb.FlushDecisionRequest(time_zone=HUGE), "INVALID_REQUEST"),
        ("MemoryAppend", pb.MemoryAppendRequest(text="x", path="memory/" + "ü" * 2_000 + ".md"), "FILE_NOT_FOUND"),
        ("Sync", pb.SyncRequest(cursor="ü" * 128), "CURSOR_MALFORMED"),
    ],
)
async def test_an_error_about_a_huge_value_still_fits_the_wire(serve, method, request_, reason):
    found = await refused(call(await serve(), method, request_))
    assert found.reason == reason
    assert len(found.message.encode()) < 2_000


async def test_an_error_about_thousands_of_values_still_fits_the_wire(serve):
    request = pb.MemorySearchRequest(query="x", sources=range(100, 5_000))
    found = await refused(call(await serve(), "MemorySearch", request))
    assert (found.code, set(found.violations)) == ("INVALID_ARGUMENT", {"sources"})
    assert len(found.message.encode()) < 2_000


@pytest.mark.parametrize(("shape", "method"), [("unary_unary", "MemorySearch"), ("unary_stream", "Sync")])
async def test_bytes_that_are_no_message_are_refused_in_words(serve, shape, method):
    channel = (await serve()).channel
    made = getattr(channel, shape)(f"/memoryd.v1.MemoryService/{method}")(b"\xff\xff", timeout=TIMEOUT)
    await check_refused(made, "INVALID_ARGUMENT", "INVALID_REQUEST", violations=["request"])
