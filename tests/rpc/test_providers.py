"""Every provider through the daemon: found by meaning when all goes well, and what becomes of each fault."""

import time

import pytest

from fake_providers import SERVERS, fake_provider
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import kinds, paths

HYBRID, KEYWORD, VECTOR = (memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR)
KEY = "key-of-this-test-0123456789"


@pytest.fixture(params=SERVERS)
def provider(request):
    with fake_provider(request.param, [KEY]) as server:
        yield server


def using(server, key=KEY, **search):
    remote = {"baseUrl": server.url, "apiKey": key}
    defaults = {"provider": server.provider, "model": server.model, "remote": remote, **search}
    return {"agents": {"defaults": {"memorySearch": defaults}}}


@pytest.fixture
async def running(home, serve, provider):
    """A daemon whose two notes have their vectors."""
    home.write(boat="# Boats\n\nthe red ferry sails at dawn", food="# Food\n\nsoup and bread for lunch")
    daemon = await serve(using(provider))
    await daemon.synced()
    return daemon


async def vectors_pending(daemon):
    """The reason of VECTORS_PENDING."""
    (found,) = [d.reason for d in (await daemon.status()).degradations if kinds([d]) == ["VECTORS_PENDING"]]
    return found


async def test_notes_are_found_by_meaning(running, provider):
    answer = await running.search("bread", mode=VECTOR, min_score=0.0)
    assert (paths(answer)[0], answer.info.served_mode) == ("memory/food.md", VECTOR)
    answer = await running.search("red ferry at dawn")
    assert (paths(answer)[0], answer.info.served_mode) == ("memory/boat.md", HYBRID)
    assert list(answer.info.degradations) == []
    assert (answer.info.embedding.provider, answer.info.embedding.model) == (provider.provider, provider.model)
    status = await running.status(probe=True)
    assert (status.index.identity.dimensions, status.index.pending_embeddings) == (provider.native_dimensions, 0)
    assert (status.embedding.provider, status.embedding.probe.ok) == (provider.provider, True)
    assert status.embedding.calls == len(provider.requests)
    assert status.embedding.tokens > 0


async def test_text_that_did_not_change_is_sent_once(running, provider, home):
    home.write(more="a third note")
    await running.synced()
    await running.synced(mode="SYNC_MODE_FULL")
    assert {times for text, times in provider.asked.items() if text != "ping"} == {1}


@pytest.mark.slow
async def test_a_rate_limit_is_waited_for(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    provider.faults.extend([provider.limited(seconds=1)] * 2)
    daemon = await serve(using(provider))
    before = time.monotonic()
    await daemon.synced()
    assert time.monotonic() - before >= 2
    assert (await daemon.status()).index.pending_embeddings == 0


async def test_a_fault_that_passes_costs_nothing_but_time(home, serve, provider):
    daemon = await serve(using(provider))
    for kind in ("failing", "truncated", "reset"):
        home.write(**{kind: f"a note of the kind {kind}"})
        provider.faults.append(getattr(provider, kind)())
        before = len(provider.requests)
        await daemon.synced()
        assert (kind, len(provider.requests) - before) == (kind, 2)
        assert (kind, (await daemon.status()).index.pending_embeddings) == (kind, 0)


# What is wrong, how often the provider is asked then, and the words for it.
DOWN = [
    ("quota", 1, "answers HTTP"),
    ("failing", 4, "answers HTTP 500"),
    ("truncated", 4, "invalid JSON"),
    ("reset", 4, " at http://127.0.0.1"),
    ("short", 4, "answers with 0 embeddings for 1 texts"),
]


async def test_a_provider_that_stays_down_leaves_notes_to_their_words_until_it_is_back(home, serve, provider):
    daemon = await serve(using(provider))
    for kind, requests, why in DOWN:
        home.write(**{f"{kind}-a": f"the red ferry of the {kind}", f"{kind}-b": f"soup and bread for the {kind}"})
        provider.refuse = lambda _texts, kind=kind: getattr(provider, kind)()
        before = len(provider.requests)
        await daemon.synced()
        assert (kind, len(provider.requests) - before) == (kind, requests)
        assert (kind, (await daemon.status()).index.pending_embeddings) == (kind, 2)
        assert why in await vectors_pending(daemon)
        answer = await daemon.search(f"ferry {kind}", mode=KEYWORD)
        assert paths(answer)[0] == f"memory/{kind}-a.md"
        provider.refuse = lambda _texts: None
        await daemon.synced()
        assert (kind, (await daemon.status()).index.pending_embeddings) == (kind, 0)


async def test_a_search_during_an_outage_is_answered_by_keywords_and_says_so(running, provider):
    provider.refuse = lambda _texts: provider.quota()
    answer = await running.search("ferry in the fog", mode=HYBRID)
    assert (paths(answer)[0], answer.info.served_mode) == ("memory/boat.md", KEYWORD)
    (degradation,) = answer.info.degradations
    assert (kinds([degradation]), degradation.wanted) == (["VECTOR_LEG_SKIPPED"], provider.provider)
    assert "answers HTTP" in degradation.reason


async def test_a_wrong_key_is_reported_and_not_shown(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    daemon = await serve(using(provider, key="wrong-" + KEY))
    await daemon.synced()
    assert "check the provider's apiKey" in await vectors_pending(daemon)
    assert len(provider.requests) == 1
    status = await daemon.status(probe=True)
    assert not status.embedding.probe.ok
    assert KEY.encode() not in status.SerializeToString()
    assert KEY not in daemon.log.getvalue()


async def test_a_question_waits_no_longer_than_its_caller(running, provider):
    provider.refuse = lambda _texts: provider.slow(5.0)
    before = time.monotonic()
    request = pb.MemorySearchRequest(query="ferry in the fog", mode=HYBRID)
    answer = await running.stub.MemorySearch(request, timeout=2)
    assert time.monotonic() - before < 2
    assert paths(answer)[0] == "memory/boat.md"
    assert (answer.info.served_mode, kinds(answer.info.degradations)) == (KEYWORD, ["VECTOR_LEG_SKIPPED"])


async def test_a_vector_of_another_length_costs_its_note_alone(home, serve, provider):
    home.write(boat="the red ferry sails at dawn", food="soup and bread for lunch", odd="nothing of note")
    provider.faults.append(provider.narrow())
    daemon = await serve(using(provider))
    await daemon.synced()
    assert (await daemon.status()).index.pending_embeddings == 1
    assert "dimensions instead of" in await vectors_pending(daemon)
    assert (await daemon.search("red ferry")).info.served_mode == HYBRID


async def test_fewer_texts_a_request_are_no_fault(home, serve, provider):
    provider.most_items = 10
    home.write(**{f"n{number}": f"note number {number}" for number in range(40)})
    daemon = await serve(using(provider))
    await daemon.synced()
    assert (await daemon.status()).index.pending_embeddings == 0
