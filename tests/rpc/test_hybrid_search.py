"""Both legs over gRPC, with a real provider on loopback."""

import grpc
import pytest

from fake_providers import Fault
from memoryd.v1 import memory_pb2, sync_event_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import kinds, paths, refusal

HYBRID, KEYWORD, VECTOR = (memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR)


def using(server, **search):
    remote = {"baseUrl": server.url, "apiKey": "sk-secret-of-this-test"}
    defaults = {"provider": "openai-compatible", "model": "words", "remote": remote, **search}
    return {"agents": {"defaults": {"memorySearch": defaults}}}


@pytest.fixture
async def running(home, serve, provider):
    home.write(boat="# Boats\n\nthe red ferry sails at dawn", food="# Food\n\nsoup and bread for lunch")
    daemon = await serve(using(provider))
    await daemon.synced()
    return daemon


async def test_both_legs_answer_and_say_so(running):
    answer = await running.search("red ferry", explain=True)
    assert paths(answer)[0] == "memory/boat.md"
    assert answer.info.served_mode == HYBRID
    assert (answer.info.embedding.provider, answer.info.embedding.model) == ("openai-compatible", "words")
    assert answer.info.vector_candidates == 2
    assert [leg.ran for leg in answer.info.legs] == [True, True]
    detail = answer.results[0].score_detail
    assert (detail.vector_rank, detail.keyword_rank) == (1, 1)
    assert answer.results[0].score == pytest.approx(0.7 * detail.vector + 0.3 * detail.text, abs=1e-6)


async def test_a_hit_without_a_shared_word_is_found_by_meaning(running):
    answer = await running.search("bread", mode=VECTOR, min_score=0.0)
    assert answer.info.served_mode == VECTOR
    assert set(paths(answer)) == {"memory/boat.md", "memory/food.md"}
    assert paths(answer)[0] == "memory/food.md"


async def test_keyword_mode_asks_no_provider(running, provider):
    asked = len(provider.requests)
    answer = await running.search("ferry", mode=KEYWORD)
    assert answer.info.served_mode == KEYWORD
    assert len(provider.requests) == asked


async def test_hybrid_switched_off_is_the_vector_leg_alone(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    daemon = await serve(using(provider, query={"hybrid": {"enabled": False}}))
    await daemon.synced()
    assert (await daemon.search("red ferry")).info.served_mode == VECTOR


async def test_status_names_the_provider_and_no_key(running):
    status = await running.status(probe=True)
    assert (status.embedding.provider, status.embedding.model) == ("openai-compatible", "words")
    assert status.embedding.probe.ok
    assert status.embedding.calls >= 1
    assert status.vector.engine in running.home.store.vector_engines
    assert status.index.identity.model == "words"
    assert (status.index.pending_embeddings, status.cache.entries) == (0, 2)
    assert b"sk-secret" not in status.SerializeToString()


async def test_a_provider_that_fails_leaves_keyword_answers_that_say_so(running, provider):
    provider.refuse = lambda _texts: Fault(status=401, body={"error": {"message": "no"}})
    answer = await running.search("a new question about the ferry", mode=HYBRID)
    assert paths(answer)[0] == "memory/boat.md"
    assert answer.info.served_mode == KEYWORD
    assert "VECTOR_LEG_SKIPPED" in kinds(answer.info.degradations)


async def test_asking_for_the_vector_leg_of_a_failing_provider_is_an_error(running, provider):
    provider.refuse = lambda _texts: Fault(status=401, body={"error": {"message": "no"}})
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.search("yet another question", mode=VECTOR)
    assert refusal(caught.value).reason == "EMBEDDING_UNAVAILABLE"
    assert "sk-secret" not in caught.value.details()


async def test_a_used_up_quota_has_its_own_reason(running, provider):
    provider.refuse = lambda _texts: Fault(status=429, body={"error": {"code": "insufficient_quota", "message": "no"}})
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.search("a question beyond the quota", mode=VECTOR)
    assert refusal(caught.value).reason == "EMBEDDING_QUOTA_EXCEEDED"
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_chunks_that_got_no_vector_are_pending_and_found_by_words_until_a_later_sync(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    provider.refuse = lambda _texts: Fault(status=401, body={"error": {"message": "no"}})
    daemon = await serve(using(provider))
    completed = await daemon.synced()
    assert (completed.indexed_files, completed.failed_files) == (1, 0)
    assert paths(await daemon.search("ferry")) == ["memory/boat.md"]
    status = await daemon.status()
    assert status.index.pending_embeddings == 1
    assert not status.index.dirty
    provider.refuse = lambda _texts: None
    await daemon.synced()
    assert (await daemon.status()).index.pending_embeddings == 0


async def test_a_forced_rebuild_of_unchanged_text_asks_nothing_of_the_provider(running, provider):
    asked = len(provider.requests)
    completed = await running.synced(mode="SYNC_MODE_FULL")
    assert completed.cached_chunks == 2
    assert len(provider.requests) == asked
    assert (await running.search("red ferry")).info.vector_candidates == 2


async def test_a_changed_file_has_its_new_vector_and_a_removed_one_none(running, home):
    home.write(boat="green tram")
    (home.workspace / "memory" / "food.md").unlink()
    await running.synced()
    answer = await running.search("green tram", mode=VECTOR, min_score=0.0)
    assert paths(answer) == ["memory/boat.md"]
    assert answer.results[0].score == pytest.approx(1.0, abs=1e-3)


async def test_another_model_never_meets_the_old_vectors(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    first = await serve(using(provider))
    await first.synced()
    await first.stop()
    daemon = await serve(using(provider, model="other"))
    answer = await daemon.search("red ferry", mode=HYBRID)
    assert (answer.info.served_mode, answer.info.embedding.model) == (HYBRID, "words")
    assert "IDENTITY_MISMATCH" in kinds(answer.info.degradations)
    mismatches = (await daemon.status()).index.identity_mismatches
    assert [(m.field, m.index_value, m.wanted_value) for m in mismatches] == [("model", "words", "other")]
    await daemon.synced()
    assert (await daemon.search("red ferry")).info.served_mode == HYBRID


@pytest.mark.usefixtures("remote_provider")
async def test_a_costly_embedding_waits_to_be_asked_for_and_a_dry_run_prices_it(home, serve, provider):
    home.write(boat="the red ferry sails at dawn " * 20)
    daemon = await serve({**using(provider), "memoryd": {"confirmAboveTokens": 10}})
    estimate = (await daemon.synced(dry_run=True)).estimate
    assert (estimate.chunks, estimate.cache_misses) == (1, 1)
    assert 100 < estimate.estimated_tokens < 200
    await daemon.synced()
    assert provider.requests == []
    answer = await daemon.search("ferry", mode=HYBRID)
    assert paths(answer) == ["memory/boat.md"]
    assert any("confirmAboveTokens" in d.reason for d in answer.info.degradations)
    await daemon.synced(mode="SYNC_MODE_FULL")
    assert (await daemon.search("ferry")).info.served_mode == HYBRID


async def test_adding_a_provider_later_embeds_without_chunking_again(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    first = await serve()
    await first.synced()
    await first.stop()
    daemon = await serve(using(provider))
    completed = await daemon.synced()
    assert (completed.indexed_files, completed.unchanged_files) == (0, 1)
    assert (await daemon.search("red ferry")).info.served_mode == HYBRID


async def test_a_slow_provider_costs_a_search_no_more_than_its_deadline(running, provider):
    provider.refuse = lambda _texts: Fault(delay_seconds=5)
    answer = await running.stub.MemorySearch(pb.MemorySearchRequest(query="ferry in the fog", mode=HYBRID), timeout=2)
    assert paths(answer)[0] == "memory/boat.md"
    assert "VECTOR_LEG_SKIPPED" in kinds(answer.info.degradations)


async def test_progress_reports_the_embedding(home, serve, provider):
    for number in range(300):
        home.write(**{f"n{number}": f"note number {number}"})
    daemon = await serve(using(provider))
    events = await daemon.sync()
    phases = {event.progress.phase for event in events if event.HasField("progress")}
    assert sync_event_pb2.SYNC_PHASE_EMBEDDING in phases


async def test_other_dimensions_are_other_vectors_also_in_the_cache(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    first = await serve(using(provider, outputDimensionality=8))
    await first.synced()
    await first.stop()
    daemon = await serve(using(provider, outputDimensionality=12))
    await daemon.synced()
    assert (await daemon.search("red ferry")).info.served_mode == HYBRID
    assert (await daemon.status()).index.identity.dimensions == 12
