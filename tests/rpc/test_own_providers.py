"""Providers of `models.providers`, input types and withheld keys through the daemon: who is sent what."""

import pytest

from fake_providers import fake_provider
from memoryd.v1 import memory_pb2
from rpc.wire import kinds, paths

VECTOR = memory_pb2.SEARCH_MODE_VECTOR
KEY = "key-of-this-test-0123456789"


@pytest.fixture
def server():
    with fake_provider("openai-compatible", [KEY]) as server:
        yield server


def settings(search, **providers):
    found = {"agents": {"defaults": {"memorySearch": search}}}
    return {**found, "models": {"providers": providers}} if providers else found


async def reason(daemon):
    status = await daemon.status()
    assert kinds(status.degradations) == ["VECTOR_LEG_SKIPPED"]
    return status.embedding.reason


async def test_a_provider_of_the_settings_makes_the_vectors_under_its_own_name(home, serve, server):
    home.write(boat="the red ferry sails at dawn", food="soup and bread for lunch")
    acme = {"baseUrl": server.url, "apiKey": KEY, "api": "openai-completions", "models": [{"id": "chat"}]}
    daemon = await serve(settings({"provider": "acme", "model": "words"}, acme=acme))
    await daemon.synced()
    answer = await daemon.search("bread", mode=VECTOR, min_score=0.0)
    assert paths(answer)[0] == "memory/food.md"
    assert (answer.info.embedding.provider, answer.info.embedding.model) == ("acme", "words")
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}


async def test_a_type_of_documents_embeds_again_and_a_type_of_queries_does_not(home, serve, server):
    home.write(boat="the red ferry sails at dawn")

    async def sent(**types):
        server.requests.clear()
        remote = {"baseUrl": server.url, "apiKey": KEY}
        daemon = await serve(settings({"provider": "openai-compatible", "model": "words", "remote": remote, **types}))
        await daemon.synced()
        await daemon.search("ferry", mode=VECTOR, min_score=0.0)
        pending = (await daemon.status()).index.pending_embeddings
        await daemon.stop()
        assert pending == 0
        return [(request.texts, request.body.get("input_type")) for request in server.requests]

    documents = ["the red ferry sails at dawn"]
    first = await sent()
    assert [(texts[0], kind) for texts, kind in first] == [(documents[0], None), ("ferry", None)]
    assert await sent(queryInputType="query") == [(["ferry"], "query")]
    last = await sent(queryInputType="query", documentInputType="passage")
    assert (documents, "passage") in last
    assert (["ferry"], "query") in last


async def test_a_key_of_the_environment_is_withheld_from_another_address_and_nothing_is_sent(home, serve, server):
    home.write(boat="the red ferry sails at dawn")
    home.environ = {"OPENAI_API_KEY": KEY}
    daemon = await serve(settings({"provider": "openai", "model": "words", "remote": {"baseUrl": server.url}}))
    await daemon.synced()
    assert "its own key (env OPENAI_API_KEY) is not sent there: set remote.apiKey" in await reason(daemon)
    assert paths(await daemon.search("ferry")) == ["memory/boat.md"]
    assert not server.requests


@pytest.mark.parametrize("provider", ["acme", "github-copilot", "bedrock"])
async def test_a_provider_that_cannot_be_used_sends_nothing_to_any_other(home, serve, server, provider):
    home.write(boat="the red ferry sails at dawn")
    home.environ = {"OPENAI_API_KEY": KEY, "AWS_ACCESS_KEY_ID": KEY, "COPILOT_GITHUB_TOKEN": KEY}
    openai = {"baseUrl": server.url}
    daemon = await serve(settings({"provider": provider, "fallback": "openai/words"}, openai=openai))
    await daemon.synced()
    assert provider in await reason(daemon)
    assert not server.requests
