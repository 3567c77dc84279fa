"""Over gRPC: if the configured provider fails permanently, the fallback takes over and every reply names it."""

import asyncio
import threading

import grpc
import pytest

from fake_providers import fake_provider
from memoryd.v1 import memory_pb2
from rpc.wire import kinds, paths, refusal
from waiting import eventually

HYBRID, KEYWORD, VECTOR = (memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR)
FULL = "SYNC_MODE_FULL"
WANTED = "openai/text-embedding-3-small"
USED = "ollama/nomic-embed-text"


@pytest.fixture
def openai():
    with fake_provider("openai") as server:
        yield server


@pytest.fixture
def ollama():
    with fake_provider("ollama") as server:
        yield server


def settings(openai, ollama, *, key="sk-of-this-test", **memoryd):
    search = {"provider": "openai", "fallback": "ollama", "remote": {"baseUrl": openai.url}}
    if key:
        search["remote"]["apiKey"] = key
    else:
        search["remote"] = {}
    blocks = {"ollama": {"baseUrl": ollama.url}}
    return {"agents": {"defaults": {"memorySearch": search}}, "models": {"providers": blocks}, "memoryd": memoryd}


@pytest.fixture
async def running(home, serve, openai, ollama):
    home.write(boat="the red ferry sails at dawn", bird="a heron waits by the pier")
    return await serve(settings(openai, ollama))


def fallback_of(answer):
    degradations = answer.info.degradations if hasattr(answer, "info") else answer.degradations
    return [(d.wanted, d.used) for d in degradations if kinds([d]) == ["EMBEDDING_FALLBACK"]]


def deny(server):
    server.refuse = lambda _texts: server.denied()


def mend(server):
    server.refuse = lambda _texts: None


@pytest.mark.parametrize("fault", ["denied", "quota"])
async def test_status_and_every_reply_name_the_fallback_provider_and_why(running, openai, ollama, fault):
    openai.refuse = lambda _texts: getattr(openai, fault)()
    await running.synced()
    status = await running.status()
    assert (status.embedding.requested_provider, status.embedding.provider) == ("openai", "ollama")
    assert status.embedding.fallback_from == WANTED
    why = {"denied": "refuses the key (HTTP 401)", "quota": "exceeded your current quota"}[fault]
    assert why in status.embedding.reason
    assert status.index.pending_embeddings == 0
    assert status.index.identity.provider == "ollama"
    assert fallback_of(status) == [(WANTED, USED)]
    for mode in (HYBRID, KEYWORD, VECTOR):
        answer = await running.search("ferry at dawn", mode=mode, min_score=0.0)
        assert answer.info.served_mode == mode
        assert fallback_of(answer) == [(WANTED, USED)]
        assert paths(answer)[0] == "memory/boat.md"
    assert answer.info.embedding.provider == "ollama"
    assert "ferry at dawn" in " ".join(ollama.texts)
    assert "ferry at dawn" not in " ".join(openai.texts)


async def test_queries_are_embedded_by_the_provider_of_the_vectors_until_the_swap(running, openai, ollama):
    await running.synced()
    gate = threading.Event()
    ollama.refuse = lambda _texts: gate.wait(20) and None
    openai.refuse = lambda texts: openai.denied() if "a stork" in " ".join(texts) or texts == ["ping"] else None
    running.home.write(new="a stork on the roof")
    sync = asyncio.ensure_future(running.synced())
    try:
        await eventually(lambda: ollama.requests)
        answer = await running.search("ferry at dawn", mode=VECTOR)
        assert (answer.info.embedding.provider, answer.info.served_mode) == ("openai", VECTOR)
        assert fallback_of(answer) == []
    finally:
        gate.set()
        await sync
    answer = await running.search("ferry at dawn", mode=VECTOR)
    assert (answer.info.embedding.provider, answer.info.served_mode) == ("ollama", VECTOR)
    assert fallback_of(answer) == [(WANTED, USED)]


async def test_a_vector_of_the_one_never_meets_vectors_of_the_other(running, openai, ollama, monkeypatch):
    """The index changes hands between the making of a question's vector and the search."""
    await running.synced()
    side, asking = running.memory().index.embedding, []
    ask = side.query_vector

    async def ask_and_lose_the_index(query, on_wait):
        asked = await ask(query, on_wait)
        deny(openai)
        running.home.write(new=f"a stork saw the question {query.text}")
        await running.synced()
        assert running.memory().index.embedding.embedder.provider.spec.provider == "ollama"
        return asked

    async def question(*call):
        return await asking[-1](*call)

    asking.append(ask_and_lose_the_index)
    monkeypatch.setattr(side, "query_vector", question)
    answer = await running.search("ferry at dawn", mode=HYBRID)
    assert answer.info.served_mode == KEYWORD
    assert "has just replaced" in next(
        d.reason for d in answer.info.degradations if kinds([d]) == ["VECTOR_LEG_SKIPPED"]
    )
    mend(openai)
    asking.append(ask)
    await running.synced(mode=FULL)
    asking.append(ask_and_lose_the_index)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await running.search("heron by the pier", mode=VECTOR)
    found = refusal(raised.value)
    assert (found.reason, found.retry_seconds) == ("EMBEDDING_UNAVAILABLE", 1.0)


async def test_a_full_sync_brings_the_configured_provider_back_without_paying_twice(running, openai, ollama):
    await running.synced()
    paid = list(openai.texts)
    deny(openai)
    running.home.write(new="a stork on the roof")
    await running.synced()
    assert (await running.status()).embedding.provider == "ollama"
    mend(openai)
    before = len(openai.texts)
    await running.synced(mode=FULL)
    status = await running.status()
    assert (status.embedding.provider, status.embedding.fallback_from, fallback_of(status)) == ("openai", "", [])
    again = [text for text in openai.texts[before:] if text != "ping"]
    assert len(again) == 1
    assert not set(again) & set(paid)
    assert (await running.search("ferry at dawn", mode=VECTOR)).info.embedding.provider == "openai"


async def test_the_fallback_provider_is_remembered_over_a_restart(home, serve, running, openai, ollama):
    deny(openai)
    await running.synced()
    embedded = len(ollama.texts)
    await running.stop()
    again = await serve(settings(openai, ollama))
    status = await again.status()
    assert (status.embedding.provider, status.embedding.fallback_from) == ("ollama", WANTED)
    assert "refuses the key" in status.embedding.reason
    assert (await again.search("ferry at dawn", mode=VECTOR)).info.served_mode == VECTOR
    assert len(ollama.texts) == embedded + 1
    mend(openai)
    await again.synced()
    assert (await again.status()).embedding.provider == "openai"


async def test_without_a_key_for_the_configured_provider_the_fallback_is_used_and_named(home, serve, openai, ollama):
    home.write(boat="the red ferry sails at dawn")
    running = await serve(settings(openai, ollama, key=""))
    status = await running.status()
    assert status.embedding.reason.startswith("no API key is configured for the provider openai")
    await running.synced()
    status = await running.status()
    assert (status.embedding.provider, status.embedding.fallback_from) == ("ollama", "openai")
    assert "no API key is configured" in status.embedding.reason
    assert (await running.search("ferry", mode=VECTOR)).info.served_mode == VECTOR


async def test_where_neither_serves_words_are_found_and_a_later_sync_makes_the_vectors(running, openai, ollama):
    deny(openai)
    deny(ollama)
    await running.synced()
    status = await running.status()
    assert (status.index.pending_embeddings, status.embedding.fallback_from) == (2, "")
    (pending,) = [d for d in status.degradations if kinds([d]) == ["VECTORS_PENDING"]]
    assert "openai at" in pending.reason
    assert f"{USED} does not take over: ollama at" in pending.reason
    answer = await running.search("ferry", mode=HYBRID)
    assert (answer.info.served_mode, paths(answer)) == (KEYWORD, ["memory/boat.md"])
    assert "VECTORS_PENDING" in kinds(answer.info.degradations)
    mend(openai)
    await running.synced()
    status = await running.status()
    assert (status.index.pending_embeddings, status.embedding.provider) == (0, "openai")


async def test_the_fallbacks_price_waits_for_a_full_sync(home, serve, openai, ollama, elsewhere):
    home.write(boat="the red ferry sails at dawn")
    elsewhere(ollama)
    running = await serve(settings(openai, ollama, confirmAboveTokens=1))
    deny(openai)
    await running.synced()
    assert ollama.texts == []
    assert (await running.status()).index.pending_embeddings == 1
    await running.synced(mode=FULL)
    assert (await running.status()).embedding.fallback_from == WANTED


async def test_without_a_fallback_no_provider_takes_over(home, serve, openai, ollama):
    home.write(boat="the red ferry sails at dawn")
    given = settings(openai, ollama)
    given["agents"]["defaults"]["memorySearch"]["fallback"] = "none"
    running = await serve(given)
    deny(openai)
    await running.synced()
    status = await running.status()
    assert (status.embedding.provider, status.embedding.fallback_from) == ("openai", "")
    assert status.index.pending_embeddings == 1
    assert ollama.requests == []


async def test_embeddings_that_are_switched_off_stay_off(home, serve, openai, ollama):
    home.write(boat="the red ferry sails at dawn")
    given = settings(openai, ollama)
    given["agents"]["defaults"]["memorySearch"]["provider"] = "none"
    running = await serve(given)
    await running.synced()
    status = await running.status()
    assert (status.embedding.provider, status.embedding.fallback_from) == ("", "")
    assert (openai.requests, ollama.requests) == ([], [])


async def test_a_fallback_with_a_model_uses_that_model(home, serve, openai, ollama):
    home.write(boat="the red ferry sails at dawn")
    wanted = settings(openai, ollama)
    wanted["agents"]["defaults"]["memorySearch"]["fallback"] = "ollama/all-minilm"
    running = await serve(wanted)
    deny(openai)
    await running.synced()
    status = await running.status()
    assert (status.embedding.provider, status.embedding.model) == ("ollama", "all-minilm")
    assert fallback_of(status) == [(WANTED, "ollama/all-minilm")]
    assert {request.body["model"] for request in ollama.requests} == {"all-minilm"}
    assert list(status.service.settings_warnings) == []


async def test_another_model_of_the_same_provider_is_a_fallback(home, serve, openai, ollama):
    home.write(boat="the red ferry sails at dawn")
    wanted = settings(openai, ollama)
    search = wanted["agents"]["defaults"]["memorySearch"]
    search |= {"model": "text-embeding-3-large", "fallback": "openai/text-embedding-3-small"}
    running = await serve(wanted)
    await running.synced()
    status = await running.status()
    assert (status.embedding.model, status.index.pending_embeddings) == ("text-embedding-3-small", 0)
    assert fallback_of(status) == [("openai/text-embeding-3-large", WANTED)]
    assert ollama.requests == []


async def test_a_misspelt_fallback_provider_with_a_model_is_a_warning(home, serve, openai, ollama):
    wanted = settings(openai, ollama)
    wanted["agents"]["defaults"]["memorySearch"]["fallback"] = "olama/all-minilm"
    running = await serve(wanted)
    (warning,) = (await running.status()).service.settings_warnings
    assert "olama/all-minilm" in warning
    assert "ollama" in warning
