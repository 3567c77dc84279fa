"""Other chunk sizes over gRPC: a rebuild above the cost limit waits, and every reply says so."""

import pytest

from memoryd.v1 import memory_pb2
from rpc.wire import kinds, paths

pytestmark = pytest.mark.usefixtures("remote_provider")

HYBRID = memory_pb2.SEARCH_MODE_HYBRID
NOTE = "# Boats\n\n" + "\n\n".join(f"the red ferry number {n} sails at dawn with the tide" for n in range(60))


def using(server, tokens, bound):
    remote = {"baseUrl": server.url, "apiKey": "x"}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote}
    search["chunking"] = {"tokens": tokens, "overlap": 0}
    return {"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"confirmAboveTokens": bound}}


@pytest.fixture
async def running(home, serve, provider):
    """A daemon whose index was made with chunks of another size, and whose bound is below the price of new ones."""
    home.write(boat=NOTE, food="soup and bread for lunch")
    first = await serve(using(provider, 400, 100_000))
    await first.synced()
    await first.stop()
    return await serve(using(provider, 100, 200))


def told(degradations):
    return [d.reason for d in degradations if d.kind == memory_pb2.DEGRADATION_KIND_IDENTITY_MISMATCH]


async def test_the_old_index_answers_in_full_and_each_answer_says_what_waits(running, provider):
    asked = len(provider.texts)
    await running.synced()
    assert len(provider.texts) == asked
    answer = await running.search("red ferry", max_results=1)
    assert paths(answer) == ["memory/boat.md"]
    assert answer.info.served_mode == HYBRID
    (reason,) = told(answer.info.degradations)
    assert "chunk_tokens was 400, is 100" in reason
    assert "memoryd index --force" in reason
    status = await running.status()
    assert told(status.degradations) == [reason]
    mismatches = status.index.identity_mismatches
    assert [(m.field, m.index_value, m.wanted_value) for m in mismatches] == [("chunk_tokens", "400", "100")]
    assert status.index.identity.chunk_tokens == 400
    assert status.index.state == memory_pb2.INDEX_STATE_READY


async def test_the_mismatch_is_reported_before_the_first_sync(running):
    assert "chunk_tokens was 400, is 100" in told((await running.status()).degradations)[0]


async def test_a_dry_run_prices_what_waits(running):
    await running.synced()
    estimate = (await running.synced(dry_run=True)).estimate
    assert (estimate.files, estimate.cache_misses) == (2, estimate.chunks - 1)
    assert estimate.estimated_tokens > 200
    assert f"about {estimate.estimated_tokens:,} tokens" in told((await running.status()).degradations)[0]


async def test_a_file_changed_while_a_rebuild_waits_is_found_by_words_and_by_meaning(running, home):
    await running.synced()
    home.write(late="green tram")
    await running.synced()
    answer = await running.search("green tram", mode=memory_pb2.SEARCH_MODE_VECTOR, min_score=0.9)
    assert paths(answer) == ["memory/late.md"]
    assert told(answer.info.degradations)


async def test_a_full_sync_is_the_consent(running):
    await running.synced()
    before = (await running.status()).index.chunks
    await running.synced(mode="SYNC_MODE_FULL")
    answer = await running.search("red ferry")
    assert answer.info.served_mode == HYBRID
    assert "IDENTITY_MISMATCH" not in kinds(answer.info.degradations)
    status = await running.status()
    assert not status.degradations
    assert status.index.chunks > before
    assert (status.index.identity.chunk_tokens, status.index.pending_embeddings) == (100, 0)


async def test_below_the_bound_the_change_is_made_by_itself(home, serve, provider, running):
    await running.stop()
    daemon = await serve(using(provider, 100, 100_000))
    await daemon.synced()
    assert not (await daemon.status()).degradations
    assert (await daemon.search("red ferry")).info.served_mode == HYBRID
