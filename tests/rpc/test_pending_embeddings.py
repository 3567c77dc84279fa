"""Over gRPC: the end of a sync run reports the chunks that want a vector and have none, and why."""

import asyncio
import json

import pytest

from fake_providers import Fault, fake_provider
from fake_qmd.installs import make_fake
from rpc.qmd_calls import qmd_settings
from rpc.wire import by_meaning, kinds, kinds_of

FULL = "SYNC_MODE_FULL"
NOTES = {"boat": "the red ferry sails at dawn", "food": "soup and bread for lunch"}


def answering(status, message="no", code="", **headers):
    body = {"error": {"message": message, "code": code}}
    return lambda _texts: Fault(status=status, body=body, headers=headers)


def refusing(word):
    fault = Fault(status=400, body={"error": {"message": "cannot read it"}})
    return lambda texts: fault if any(word in text for text in texts) else None


def nothing_refused(_texts):
    return None


def bounded(settings, tokens):
    return {**settings, "memoryd": {"confirmAboveTokens": tokens}}


def searching(**search):
    return {"agents": {"defaults": {"memorySearch": search}}}


def told(completed):
    """The reasons of a run's end as one text."""
    return "\n".join(degradation.reason for degradation in completed.degradations)


def check_missing(completed, pending, reason, *, refused=0, kind="VECTORS_PENDING"):
    assert (completed.pending_embeddings, completed.refused_embeddings) == (pending, refused)
    assert completed.vectors_missing
    assert kind in kinds(completed.degradations)
    assert reason in told(completed)


def check_whole(completed):
    assert (completed.pending_embeddings, completed.refused_embeddings, completed.vectors_missing) == (0, 0, False)
    assert list(completed.degradations) == []


async def check_as_status(daemon, completed):
    status = await daemon.status()
    assert status.index.pending_embeddings == completed.pending_embeddings
    found = [(each.kind, each.reason) for each in status.degradations]
    assert [(each.kind, each.reason) for each in completed.degradations] == found
    assert status.index.HasField("last_sync_time")


@pytest.mark.parametrize(
    ("refuse", "reason"),
    [
        (answering(401), "refuses the key (HTTP 401): check the provider's apiKey"),
        (answering(403, "this key may not"), "HTTP 403: this key may not; check the provider's apiKey"),
        (answering(429, "You exceeded your current quota", "insufficient_quota"), "exceeded your current quota"),
        (answering(429, "slow down", **{"retry-after": "3000"}), "HTTP 429: slow down"),
        (answering(503, "down for repair"), "HTTP 503: down for repair; tried 4 times"),
        (answering(404, "no such model"), "HTTP 404: no such model"),
    ],
    ids=["401", "403", "quota", "rate limit", "server down", "no such model"],
)
async def test_a_provider_that_makes_no_vector_is_reported_with_its_reason(home, serve, provider, refuse, reason):
    home.write(**NOTES)
    provider.refuse = refuse
    daemon = await serve(by_meaning(provider))
    completed = await daemon.synced()
    assert (completed.indexed_files, completed.failed_files) == (2, 0)
    check_missing(completed, 2, reason)
    assert f"2 chunks have no vector yet: openai-compatible at {provider.url}" in told(completed)


async def test_the_report_is_what_status_says_and_ends_with_the_cause(home, serve, provider):
    home.write(**NOTES)
    provider.refuse = answering(401)
    daemon = await serve(by_meaning(provider))
    first = await daemon.synced()
    await check_as_status(daemon, first)
    again = await daemon.synced()
    assert not again.changed
    check_missing(again, 2, "HTTP 401")
    check_missing(await daemon.synced(mode=FULL), 2, "HTTP 401")
    provider.refuse = nothing_refused
    completed = await daemon.synced()
    check_whole(completed)
    await check_as_status(daemon, completed)


async def test_a_server_that_cannot_be_reached_is_reported(home, serve):
    home.write(**NOTES)
    remote = {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "sk-of-this-test"}
    daemon = await serve(searching(provider="openai-compatible", model="words", remote=remote))
    check_missing(await daemon.synced(), 2, "http://127.0.0.1:9/v1")


async def test_a_named_provider_without_a_key_leaves_all_chunks_pending(home, serve):
    home.write(**NOTES)
    daemon = await serve(searching(provider="openai"))
    completed = await daemon.synced()
    check_missing(completed, 2, "no API key is configured for the provider openai", kind="VECTOR_LEG_SKIPPED")
    assert told(completed) == (await daemon.status()).embedding.reason
    await check_as_status(daemon, completed)
    check_missing(await daemon.synced(dry_run=True), 2, "no API key", kind="VECTOR_LEG_SKIPPED")
    check_missing(await daemon.synced(mode=FULL), 2, "no API key", kind="VECTOR_LEG_SKIPPED")


async def test_an_unusable_provider_of_an_empty_memory_misses_nothing_and_is_named(home, serve):
    completed = await (await serve(searching(provider="openai"))).synced()
    assert (completed.pending_embeddings, completed.vectors_missing) == (0, False)
    assert told(completed) == "no API key is configured for the provider openai"


async def test_a_model_file_that_is_missing_is_reported(home, serve):
    home.write(**NOTES)
    daemon = await serve(searching(provider="local", local={"modelPath": str(home.root / "none.gguf")}))
    completed = await daemon.synced()
    check_missing(completed, 2, "missing")
    assert "none.gguf is missing" in told(completed) or "llama-cpp-python is missing" in told(completed)


@pytest.mark.parametrize("search", [{"provider": "none"}, {}], ids=["none", "auto"])
async def test_no_vector_is_missing_when_none_is_wanted(home, serve, search):
    home.write(**NOTES)
    daemon = await serve(searching(**search))
    for request in ({}, {"mode": FULL}, {"dry_run": True}):
        check_whole(await daemon.synced(**request))
    assert (await daemon.status()).index.pending_embeddings == 0


async def test_qmd_alone_wants_no_vector_of_memoryds_own(home, serve, tmp_path):
    home.write(**NOTES)
    command = make_fake(tmp_path / "bin").path
    search = {"provider": "openai"}
    daemon = await serve(qmd_settings(command, fallback="none", memory_search=search))
    check_whole(await daemon.synced())
    assert (await daemon.status()).index.pending_embeddings == 0


@pytest.mark.usefixtures("remote_provider")
async def test_cost_that_waits_for_approval_is_reported_until_a_full_sync(home, serve, provider):
    home.write(**NOTES)
    daemon = await serve(bounded(by_meaning(provider), 1))
    estimate = await daemon.synced(dry_run=True)
    assert (estimate.pending_embeddings, estimate.vectors_missing) == (0, False)
    assert "more than memoryd.confirmAboveTokens; call Sync with mode FULL (memoryd index --force)" in told(estimate)
    check_whole(await daemon.synced(dry_run=True, mode=FULL))
    completed = await daemon.synced()
    check_missing(completed, 2, "memoryd index --force")
    assert provider.texts == []
    estimate = await daemon.synced(dry_run=True)
    check_missing(estimate, 2, "memoryd index --force")
    assert len(estimate.degradations) == 1
    assert estimate.estimate.cache_misses == 2
    check_whole(await daemon.synced(mode=FULL))


@pytest.mark.usefixtures("remote_provider")
async def test_vectors_of_another_model_that_wait_for_approval_count_as_pending(home, serve, provider):
    home.write(**NOTES)
    first = await serve(by_meaning(provider))
    check_whole(await first.synced())
    await first.stop()
    daemon = await serve(bounded(by_meaning(provider, model="other"), 1))
    assert (await daemon.status()).index.pending_embeddings == 2
    completed = await daemon.synced()
    check_missing(completed, 2, "model was 'words', is 'other'", kind="IDENTITY_MISMATCH")
    assert "memoryd index --force" in told(completed)
    await check_as_status(daemon, completed)
    check_whole(await daemon.synced(mode=FULL))


@pytest.mark.usefixtures("remote_provider")
async def test_a_rebuild_that_waits_for_approval_misses_vectors(home, serve, provider):
    home.write(boat="# Boats\n\n" + "\n\n".join(f"the red ferry number {n} sails at dawn" for n in range(60)))
    first = await serve(by_meaning(provider, chunking={"tokens": 400, "overlap": 0}))
    check_whole(await first.synced())
    await first.stop()
    daemon = await serve(bounded(by_meaning(provider, chunking={"tokens": 100, "overlap": 0}), 200))
    completed = await daemon.synced()
    assert completed.pending_embeddings == 0, "every chunk of the older index has its vector"
    check_missing(completed, 0, "chunk_tokens was 400, is 100", kind="IDENTITY_MISMATCH")
    assert "memoryd index --force" in told(completed)
    await check_as_status(daemon, completed)
    check_whole(await daemon.synced(mode=FULL))


async def test_refused_texts_are_counted_apart(home, serve, provider):
    home.write(**NOTES, bad="an unspeakable text")
    provider.refuse = refusing("unspeakable")
    daemon = await serve(by_meaning(provider))
    for request in ({}, {}, {"mode": FULL}, {}):
        completed = await daemon.synced(**request)
        check_missing(completed, 1, "1 chunk was refused by the provider: ", refused=1)
        assert told(completed).startswith("1 chunk has no vector yet: ")
    provider.refuse = lambda texts: refusing("unspeakable")(texts) or answering(401)(texts)
    home.write(late="green tram")
    completed = await daemon.synced()
    check_missing(completed, 2, "HTTP 401", refused=1)
    provider.refuse = nothing_refused
    check_whole(await daemon.synced(mode=FULL))


async def test_refused_texts_are_counted_after_a_restart(home, serve, provider):
    home.write(**NOTES, bad="an unspeakable text")
    provider.refuse = refusing("unspeakable")
    first = await serve(by_meaning(provider))
    await first.synced()
    await first.stop()
    daemon = await serve(by_meaning(provider))
    check_missing(await daemon.synced(dry_run=True), 1, "1 chunk was refused", refused=1)
    check_missing(await daemon.synced(), 1, "1 chunk was refused", refused=1)


async def test_a_batch_job_that_is_not_waited_for_is_reported(home, serve):
    home.write(**{f"heron{number}": f"the heron number{number}x waits" for number in range(12)})
    with fake_provider("openai", ["sk-of-this-test"]) as server:
        server.looks = 3
        remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
        remote["batch"] = {"pollIntervalMs": 20, "wait": False}
        search = searching(provider="openai", model=server.model, remote=remote)
        daemon = await serve({**search, "memoryd": {"batchMinChunks": 10}})
        completed = await daemon.synced()
        check_missing(completed, 12, "12 chunks are in a batch job at openai; remote.batch.wait is off")
        for _ in range(3):
            completed = await daemon.synced()
        check_whole(completed)


async def test_a_fallback_that_made_the_vectors_is_named_and_nothing_is_missing(home, serve):
    home.write(**NOTES)
    with fake_provider("openai") as openai, fake_provider("ollama") as ollama:
        openai.refuse = lambda _texts: openai.denied()
        remote = {"baseUrl": openai.url, "apiKey": "sk-of-this-test"}
        settings = searching(provider="openai", fallback="ollama", remote=remote)
        settings["models"] = {"providers": {"ollama": {"baseUrl": ollama.url}}}
        completed = await (await serve(settings)).synced()
    assert (completed.pending_embeddings, completed.vectors_missing) == (0, False)
    assert kinds(completed.degradations) == ["EMBEDDING_FALLBACK"]
    assert "refuses the key (HTTP 401)" in told(completed)


async def test_a_follower_that_resumes_gets_the_same_report(home, serve, provider):
    home.write(**NOTES)
    provider.refuse = answering(401)
    daemon = await serve(by_meaning(provider))
    events = await daemon.sync()
    provider.refuse = nothing_refused
    await daemon.synced()
    resumed = await daemon.sync(cursor=events[0].cursor)
    assert kinds_of(resumed)[-1] == "completed"
    assert resumed[-1].completed == events[-1].completed
    check_missing(resumed[-1].completed, 2, "HTTP 401")


async def test_a_follower_that_joins_gets_the_same_report(home, serve, provider):
    home.write(**NOTES)
    provider.refuse = answering(401)
    daemon = await serve(by_meaning(provider))
    runs = await asyncio.gather(daemon.sync(), daemon.sync())
    assert sorted(events[0].started.attached for events in runs) == [False, True]
    assert runs[0][-1].completed == runs[1][-1].completed
    check_missing(runs[0][-1].completed, 2, "HTTP 401")


async def test_the_log_of_a_run_counts_what_is_missing_and_quotes_no_reason(home, serve, provider):
    home.write(**NOTES)
    provider.refuse = answering(403, "secretly quoted: soup and bread")
    daemon = await serve(by_meaning(provider))
    await daemon.synced()
    (line,) = daemon.logged("complete-sync")
    assert (line["level"], line["pending_embeddings"], line["refused_embeddings"]) == ("warning", 2, 0)
    assert line["degraded"][0] == "VECTORS_PENDING"
    assert "soup" not in json.dumps(line)
    provider.refuse = nothing_refused
    await daemon.synced()
    last = daemon.logged("complete-sync")[-1]
    assert (last["level"], last["pending_embeddings"], last["degraded"]) == ("info", 0, [])


async def test_agents_are_reported_apart(home, serve, provider):
    other = home.root / "other"
    (other / "memory").mkdir(parents=True)
    (other / "memory" / "boat.md").write_text("the red ferry")
    home.write(**NOTES)
    settings = by_meaning(provider)
    unkeyed = {"id": "other", "workspace": str(other), "memorySearch": {"provider": "gemini", "remote": {}}}
    settings["agents"]["list"] = [{"id": "main", "default": True}, unkeyed]
    daemon = await serve(settings)
    check_whole(await daemon.synced())
    completed = await daemon.synced(agent_id="other")
    check_missing(completed, 1, "1 chunk has no vector yet: gemini at ")
