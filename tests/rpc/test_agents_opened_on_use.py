"""Of more than 500 agents with documents in PostgreSQL, a call opens its agent and another one is closed."""

import asyncio

import pytest

from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.agent.agents import MOST_OPEN
from postgres_server import postgres_server  # noqa: F401 -- a fixture
from rpc.wire import TIMEOUT, paths
from waiting import eventually

pytest.importorskip("psycopg")

pytestmark = pytest.mark.postgres

FIRST, WATCHED = "a000", "a001"


def settings(url, count):
    agents = [{"id": f"a{number:03}"} for number in range(count)]
    return {"agents": {"list": agents}, "memoryd": {"store": {"url": url}}}


async def append(running, agent_id, text):
    request = pb.MemoryAppendRequest(agent_id=agent_id, path="memory/note.md", text=text, idempotency_key=agent_id)
    return await running.stub.MemoryAppend(request, timeout=TIMEOUT)


async def search(running, agent_id, query):
    return await running.stub.MemorySearch(pb.MemorySearchRequest(agent_id=agent_id, query=query), timeout=TIMEOUT)


async def state(running, agent_id):
    listed, token = {}, ""
    while True:
        page = await running.stub.ListAgents(pb.ListAgentsRequest(page_token=token), timeout=TIMEOUT)
        listed |= {agent.agent_id: agent.index_state for agent in page.agents}
        token = page.next_page_token
        if not token:
            return listed[agent_id]


async def test_an_agent_that_was_closed_for_others_answers_again(serve, postgres_server):  # noqa: F811 -- the fixture
    url = postgres_server.create_database("onuse")
    running = await serve(settings(url, MOST_OPEN + 10), background=True)
    assert await state(running, "a005") == memory_pb2.INDEX_STATE_UNSPECIFIED
    await append(running, FIRST, "- the crane lifts containers\n")
    await append(running, WATCHED, "- the ferry is late\n")
    stream = running.stub.WatchIndex(pb.WatchIndexRequest(agent_id=WATCHED))
    await stream.read()
    for first in range(2, MOST_OPEN + 10, 8):
        numbers = range(first, min(first + 8, MOST_OPEN + 10))
        await asyncio.gather(*(search(running, f"a{number:03}", "crane") for number in numbers))
    opened = running.daemon.agents.opened
    await eventually(lambda: len(opened()) <= MOST_OPEN)
    assert FIRST not in opened()
    assert WATCHED in opened()
    assert await state(running, FIRST) == memory_pb2.INDEX_STATE_READY
    assert paths(await search(running, FIRST, "crane")) == ["memory/note.md"]
    await append(running, "a005", "- another crane\n")
    assert paths(await search(running, "a005", "crane")) == ["memory/note.md"]
    stream.cancel()


async def test_the_error_of_an_unknown_agent_names_some_of_many(serve, postgres_server):  # noqa: F811 -- the fixture
    url = postgres_server.create_database("unknown")
    running = await serve(settings(url, MOST_OPEN + 10))
    with pytest.raises(Exception, match=r"no agent 'nobody'.*a000, a001.*and 490 others"):
        await search(running, "nobody", "crane")
