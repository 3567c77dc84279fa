"""Two agents whose vectors are made at two servers: what one server does is no business of the other's agent."""

import asyncio
import threading
from contextlib import ExitStack

import pytest

from fake_providers import embedding_server
from memoryd.v1 import memory_pb2
from memoryd_server.agent.threads import THREADS_A_PROVIDER
from rpc.wire import kinds
from waiting import eventually

HYBRID, KEYWORD = memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD


def agent(name, folder, server):
    (folder / "memory").mkdir(parents=True, exist_ok=True)
    (folder / "memory" / "boat.md").write_text("the red ferry sails at dawn")
    remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote}
    return {"id": name, "workspace": str(folder), "memorySearch": search}


@pytest.fixture
def servers():
    with ExitStack() as stack:
        yield stack.enter_context(embedding_server()), stack.enter_context(embedding_server())


@pytest.fixture
async def two(home, serve, servers):
    hangs, answers = servers
    listed = [agent("hangs", home.workspace, hangs), agent("answers", home.root / "other", answers)]
    running = await serve({"agents": {"list": listed}})
    for entry in listed:
        await running.synced(agent_id=entry["id"])
    return running


@pytest.mark.slow
async def test_questions_go_on_while_another_agents_server_hangs(two, servers):
    gate = threading.Event()
    servers[0].refuse = lambda _texts: gate.wait(60) and None
    before = len(servers[0].requests)
    searches = [
        asyncio.ensure_future(two.search(f"ferry {number}", agent_id="hangs", mode=HYBRID))
        for number in range(2 * THREADS_A_PROVIDER)
    ]
    try:
        await eventually(lambda: len(servers[0].requests) - before >= THREADS_A_PROVIDER)
        for number in range(3):
            answer = await two.search(f"ferry {number}", agent_id="answers", mode=HYBRID)
            assert answer.info.served_mode == HYBRID
        assert (await two.status(agent_id="answers", probe=True)).embedding.probe.ok
        assert not any(search.done() for search in searches)
        for answer in await asyncio.gather(*searches):
            assert answer.info.served_mode == KEYWORD
            assert "VECTOR_LEG_SKIPPED" in kinds(answer.info.degradations)
    finally:
        gate.set()
        await asyncio.gather(*searches, return_exceptions=True)
