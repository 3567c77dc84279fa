"""`memorySearch.enabled: false`: no index and no search; writing, sessions and entries continue to work."""

import asyncio
import fcntl
import json

import pytest

from memoryd.v1 import memory_service_pb2 as pb
from rpc.agent_calls import AGENT_CALLS, ENTRY_CALLS, HAS_LANCEDB, call
from rpc.wire import TIMEOUT, check_refused, paths, refused
from waiting import eventually

REFUSED = {
    "MemorySearch",
    "ExplainMiss",
    "MemoryRecall",
    "MemoryGet",
    "Status",
    "Sync",
    "WatchIndex",
    "MemoryForget",
    "ListFiles",
}
ANSWERED = {
    "FlushDecision",
    "MemoryAppend",
    "MemoryWrite",
    "MemoryMove",
    "MemoryHistory",
    "MemoryRestore",
    "SessionContext",
    "SessionArchive",
    "SessionAppend",
}


def settings(*, enabled=False, **more):
    return {"agents": {"defaults": {"memorySearch": {"enabled": enabled}, **more}}}


def message(text):
    return json.dumps({"type": "message", "message": {"role": "user", "content": text}}) + "\n"


def test_every_call_is_either_refused_or_answered():
    assert REFUSED | ANSWERED | set(ENTRY_CALLS) == set(AGENT_CALLS)


async def test_calls_that_need_the_index_are_refused_and_create_none(serve, home):
    running = await serve(settings(), background=True)
    for method in REFUSED:
        found = await check_refused(
            call(running, method, AGENT_CALLS[method]), "FAILED_PRECONDITION", "MEMORY_DISABLED"
        )
        assert (
            found.message == "memory search is disabled for agent 'main': agents.defaults.memorySearch.enabled is false"
        )
    assert not list(home.state_dir.rglob("*.sqlite"))
    (agent,) = (await running.stub.ListAgents(pb.ListAgentsRequest())).agents
    assert (agent.agent_id, agent.enabled, agent.index_state) == ("main", False, 0)


async def test_text_is_appended_once_and_without_a_revision(serve, home):
    running = await serve(settings())
    for repeated in (False, True):
        reply = await running.append("a heron", path="memory/log.md", idempotency_key="k")
        assert (reply.path, reply.already_appended, reply.HasField("index_revision")) == (
            "memory/log.md",
            repeated,
            False,
        )
    assert (home.workspace / "memory" / "log.md").read_text() == "a heron\n"
    refusal = await refused(running.append(" ", path="memory/log.md"))
    assert (refusal.reason, set(refusal.violations)) == ("INVALID_REQUEST", {"text"})


async def test_a_session_gets_its_files_but_no_tools(serve, home):
    home.put("MEMORY.md", "the harbour master is Ilse")
    running = await serve(settings())
    request = pb.SessionContextRequest(session_key="agent:main:main", include_recall_prompt=True)
    reply = await running.stub.SessionContext(request, timeout=TIMEOUT)
    assert (reply.main_session, reply.files[0].text) == (True, "the harbour master is Ilse")
    assert (reply.recall_prompt, list(reply.tool_schemas)) == ("", [])


async def test_a_session_is_archived_once(serve, home):
    home.say("x.jsonl", message("the heron nests by the weir"))
    running = await serve(settings())
    request = pb.SessionArchiveRequest(transcript="x.jsonl", slug="heron")
    first, second = [await running.stub.SessionArchive(request, timeout=TIMEOUT) for _ in range(2)]
    assert (first.messages, first.already_archived, second.already_archived) == (1, False, True)
    assert not first.HasField("index_revision")
    assert "the heron nests by the weir" in (home.workspace / first.path).read_text()


async def test_a_flush_is_decided_by_its_own_setting(serve, home):
    running = await serve(settings())
    request = pb.FlushDecisionRequest(total_tokens=199_000)
    assert (await running.stub.FlushDecision(request, timeout=TIMEOUT)).flush
    await running.daemon.reload(lambda: home.settings(settings(compaction={"memoryFlush": {"enabled": False}})))
    reply = await running.stub.FlushDecision(request, timeout=TIMEOUT)
    assert (reply.flush, reply.reason) == (False, pb.FLUSH_REASON_DISABLED)


@pytest.mark.parametrize("method", ENTRY_CALLS)
async def test_entries_have_their_own_switch(serve, method):
    on = await serve({**settings(), "memoryd": {"entries": {"enabled": True}}})
    if HAS_LANCEDB:
        assert await call(on, method, AGENT_CALLS[method]) is not None
    else:
        await check_refused(call(on, method, AGENT_CALLS[method]), "UNIMPLEMENTED", "NOT_IMPLEMENTED")


async def test_only_the_agent_that_is_named_has_no_search(serve, home):
    home.put("MEMORY.md", "a heron")
    (home.root / "off").mkdir()
    agents = [{"id": "main"}, {"id": "off", "workspace": str(home.root / "off"), "memorySearch": {"enabled": False}}]
    running = await serve({"agents": {"list": agents}})
    await running.sync()
    assert paths(await running.search("heron")) == ["MEMORY.md"]
    assert (await running.append("a note", agent_id="off")).path
    await check_refused(
        running.search("heron", session_key="agent:off:main"),
        "FAILED_PRECONDITION",
        "MEMORY_DISABLED",
        mentions="'off'",
    )


async def test_search_is_switched_by_a_reload_and_finds_what_was_written_without_it(serve, home):
    running = await serve(settings())
    await running.append("a heron", path="memory/log.md")
    assert not (await running.daemon.reload(lambda: home.settings(settings(enabled=True)))).error
    await running.sync()
    assert paths(await running.search("heron")) == ["memory/log.md"]
    assert not (await running.daemon.reload(lambda: home.settings(settings()))).error
    await check_refused(running.search("heron"), "FAILED_PRECONDITION", "MEMORY_DISABLED")
    assert (await running.append("a crane", path="memory/log.md")).end_line == 2


async def test_a_changed_time_zone_applies_without_search(serve, home):
    running = await serve(settings(userTimezone="Pacific/Kiritimati"))
    east = await running.append("x", now={"seconds": 1_700_000_000})
    await running.daemon.reload(lambda: home.settings(settings(userTimezone="Pacific/Pago_Pago")))
    west = await running.append("x", now={"seconds": 1_700_000_000})
    assert (east.path, west.path) == ("memory/2023-11-15.md", "memory/2023-11-14.md")


@pytest.mark.faults
async def test_an_append_that_waits_for_a_lock_ends_with_the_daemon(serve, home):
    file = home.put("memory/log.md", "one\n")
    running = await serve(settings())
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = asyncio.ensure_future(refused(running.append("two", path="memory/log.md")))
        queue = running.daemon.agents._workspaces["main"].writes
        await eventually(lambda: queue.waiting)
        await running.stop_daemon()
        assert (await waiting).reason == "SHUTTING_DOWN"
    assert file.read_text() == "one\n"
