"""Over gRPC: texts that the provider refuses, and a server that has another model under the same name."""

import grpc
import pytest

from fake_providers import Fault, vector
from memoryd.v1 import memory_pb2
from rpc.wire import QUIET, kinds, paths, refusal
from waiting import eventually

HYBRID, KEYWORD, VECTOR = (memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR)


def using(server, **search):
    remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
    defaults = {"provider": "openai-compatible", "model": "words", "remote": remote, **search}
    return {"agents": {"defaults": {"memorySearch": defaults}}}


def bad(texts):
    return any("unspeakable" in text for text in texts)


def refusing(status):
    return lambda texts: Fault(status=status, body={"error": {"message": "cannot read it"}}) if bad(texts) else None


def spoiling(values):
    def spoil(reply, texts):
        for item in reply["data"]:
            if "unspeakable" in texts[item["index"]]:
                item["embedding"] = values
        return reply

    return lambda texts: Fault(change=lambda reply: spoil(reply, texts)) if bad(texts) else None


@pytest.mark.parametrize(
    ("refuse", "why"),
    [
        (refusing(400), "HTTP 400: cannot read it"),
        (refusing(413), "HTTP 413: cannot read it"),
        (refusing(422), "HTTP 422: cannot read it"),
        (spoiling([float("nan")] * 16), "not finite"),
        (spoiling([0.0] * 16), "zero"),
        (spoiling([1.0] * 9), "9 dimensions instead of 16"),
    ],
    ids=["400", "413", "422", "nan", "zero", "size"],
)
async def test_a_refused_text_is_not_sent_again_and_status_says_why_it_has_no_vector(
    home, serve, provider, refuse, why
):
    home.write(**{f"n{number}": f"note number {number}" for number in range(5)}, bad="an unspeakable text")
    provider.refuse = refuse
    daemon = await serve(using(provider))
    await daemon.synced()
    asked = len(provider.requests)
    await daemon.synced()
    assert len(provider.requests) == asked
    status = await daemon.status()
    assert status.index.pending_embeddings == 1
    (pending,) = [d for d in status.degradations if kinds([d]) == ["VECTORS_PENDING"]]
    assert "1 chunk was refused by the provider: " in pending.reason
    assert why in pending.reason
    answer = await daemon.search("a text", mode=HYBRID, min_score=0.0)
    assert answer.info.served_mode == HYBRID
    assert "memory/bad.md" in paths(answer)
    provider.refuse = lambda _texts: None
    await daemon.synced(mode="SYNC_MODE_FULL")
    assert (await daemon.status()).index.pending_embeddings == 0


async def test_a_refused_text_is_not_sent_again_after_a_restart_either(home, serve, provider):
    home.write(boat="the red ferry", bad="an unspeakable text")
    provider.refuse = refusing(400)
    first = await serve(using(provider))
    await first.synced()
    await first.stop()
    asked = len(provider.requests)
    daemon = await serve(using(provider))
    reasons = [degradation.reason for degradation in (await daemon.status()).degradations]
    assert any("1 chunk was refused" in reason for reason in reasons), reasons
    await daemon.synced()
    assert len(provider.requests) == asked


@pytest.fixture
async def swapped(home, serve, provider):
    """A daemon whose server has another model since the index was made."""
    home.write(boat="the red ferry sails at dawn", food="soup and bread for lunch")
    daemon = await serve(using(provider))
    await daemon.synced()
    assert (await daemon.status()).index.identity.dimensions == 16
    assert (await daemon.search("asked before", mode=HYBRID)).info.served_mode == HYBRID
    provider.dimensions = 8
    return daemon


async def test_another_model_behind_the_server_never_meets_the_old_vectors(swapped):
    answer = await swapped.search("red ferry", mode=HYBRID)
    assert (paths(answer), answer.info.served_mode) == (["memory/boat.md"], KEYWORD)
    assert "IDENTITY_MISMATCH" in kinds(answer.info.degradations)
    mismatches = (await swapped.status()).index.identity_mismatches
    assert [(m.field, m.index_value, m.wanted_value) for m in mismatches] == [("dimensions", "16", "8")]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await swapped.search("green tram", mode=VECTOR)
    assert refusal(caught.value).reason == "EMBEDDING_UNAVAILABLE"
    assert "dimensions was '16', is '8'" in caught.value.details()
    # What is remembered of the old model would be no excuse.
    assert (await swapped.search("asked before", mode=HYBRID)).info.served_mode == KEYWORD


async def test_the_next_sync_rebuilds_the_vectors(swapped):
    await swapped.search("red ferry", mode=HYBRID)
    await swapped.synced()
    status = await swapped.status()
    assert (status.index.identity.dimensions, status.vector.dimensions, status.index.pending_embeddings) == (8, 8, 0)
    assert list(status.index.identity_mismatches) == []
    for question in ("red ferry", "asked before"):
        answer = await swapped.search(question, mode=HYBRID)
        assert answer.info.served_mode == HYBRID
        assert "IDENTITY_MISMATCH" not in kinds(answer.info.degradations)
        assert answer.info.vector_candidates == 2


async def test_new_text_shows_the_change_as_well(swapped, home):
    home.write(food="rice and beans for dinner")
    await swapped.synced()
    assert (await swapped.status()).index.identity.dimensions == 8
    assert (await swapped.search("red ferry", mode=HYBRID)).info.served_mode == HYBRID


async def test_a_single_vector_of_another_length_costs_no_vector(swapped, provider):
    provider.dimensions = 16
    provider.vector = lambda text, dimensions: vector(text, dimensions + ("odd" in text))
    answer = await swapped.search("an odd question of the ferry", mode=HYBRID)
    assert answer.info.served_mode == KEYWORD
    assert (await swapped.search("red ferry", mode=HYBRID)).info.served_mode == HYBRID
    asked = len(provider.requests)
    await swapped.synced()
    assert len(provider.requests) == asked
    assert (await swapped.status()).index.identity.dimensions == 16


async def test_a_search_that_detects_the_change_has_the_vectors_rebuilt(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    daemon = await serve(using(provider, sync={**QUIET, "onSearch": True}), background=True)
    await daemon.synced()
    provider.dimensions = 8
    reasons = [degradation.reason for degradation in (await daemon.search("red ferry", mode=HYBRID)).info.degradations]
    # The sync may be over before the answer is: then only the leg's own reason is left.
    assert any("dimensions was '16', is '8'" in reason for reason in reasons), reasons

    async def hybrid_again():
        return (await daemon.search("red ferry", mode=HYBRID)).info.served_mode == HYBRID

    await eventually(hybrid_again, seconds=60)
    assert (await daemon.status()).index.identity.dimensions == 8


@pytest.mark.usefixtures("remote_provider")
async def test_a_cost_above_the_limit_needs_approval_before_vectors_are_rebuilt(home, serve, provider):
    home.write(boat="the red ferry sails at dawn " * 20)
    settings = {**using(provider), "memoryd": {"confirmAboveTokens": 10}}
    daemon = await serve(settings)
    await daemon.synced(mode="SYNC_MODE_FULL")
    provider.dimensions = 8
    await daemon.search("red ferry", mode=HYBRID)
    await daemon.synced()
    answer = await daemon.search("ferry", mode=HYBRID)
    (mismatch,) = [d for d in answer.info.degradations if kinds([d]) == ["IDENTITY_MISMATCH"]]
    assert "confirmAboveTokens" in mismatch.reason
    assert (await daemon.status()).index.identity.dimensions == 16
    await daemon.synced(mode="SYNC_MODE_FULL")
    assert (await daemon.search("ferry", mode=HYBRID)).info.served_mode == HYBRID
