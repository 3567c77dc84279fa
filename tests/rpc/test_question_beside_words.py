"""While a provider makes a question's vector, the keyword leg does its part: a search takes as long as the longer."""

import asyncio
import threading
import time

import pytest

from memoryd.v1 import memory_pb2
from rpc.wire import by_meaning, kinds
from waiting import eventually

HYBRID, KEYWORD = memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD


@pytest.fixture
async def running(home, serve, provider):
    home.write(boat="the red ferry sails at dawn", bird="a heron waits by the pier")
    running = await serve(by_meaning(provider))
    await running.synced()
    return running


@pytest.fixture
def words(running, monkeypatch):
    """Set once the keyword leg has searched ahead."""
    searched, engine = threading.Event(), running.memory()._search.engine
    ahead = engine.search_keywords

    def search(query):
        try:
            return ahead(query)
        finally:
            searched.set()

    monkeypatch.setattr(engine, "search_keywords", search)
    return searched


async def test_the_keyword_leg_does_not_wait_for_the_vector(running, provider, words):
    provider.refuse = lambda _texts: words.wait(7) and None
    answer = await running.search("ferry at dawn", mode=HYBRID, explain=True)
    assert words.is_set()
    assert answer.info.served_mode == HYBRID
    assert [leg.ran for leg in answer.info.legs] == [True, True]
    assert answer.results[0].path == "memory/boat.md"


async def test_a_question_whose_vector_is_known_is_searched_for_at_once(running, words):
    await running.search("ferry at dawn", mode=HYBRID)
    words.clear()
    assert (await running.search("ferry at dawn", mode=HYBRID)).info.served_mode == HYBRID
    assert (await running.search("ferry at dawn", mode=KEYWORD)).info.served_mode == KEYWORD
    assert not words.is_set()


async def test_a_search_that_waits_for_a_provider_does_not_hold_up_the_daemons_end(running, provider):
    gate = threading.Event()
    before = len(provider.requests)
    provider.refuse = lambda _texts: gate.wait(60) and None
    search = asyncio.ensure_future(running.search("ferry at noon", mode=HYBRID))
    try:
        await eventually(lambda: len(provider.requests) > before)
        began = time.monotonic()
        await running.stop_daemon()
        assert time.monotonic() - began < 5
        answer = await search
        assert answer.info.served_mode == KEYWORD
        assert "VECTOR_LEG_SKIPPED" in kinds(answer.info.degradations)
        assert "stopping" in next(d.reason for d in answer.info.degradations)
        assert answer.results[0].path == "memory/boat.md"
    finally:
        gate.set()
