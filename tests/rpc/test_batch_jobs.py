"""Batch jobs through the daemon: many texts are sent in one job, and none is paid for twice after any failure."""

import asyncio
import time

import pytest

from fake_providers import fake_provider
from memoryd.v1 import memory_pb2, sync_event_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.embedding import batch_jobs
from rpc.wire import paths
from waiting import eventually

pytestmark = pytest.mark.slow

KEYWORD, VECTOR = memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR
KEY = "key-of-this-test-0123456789"
NOTES = 12


@pytest.fixture(autouse=True)
def short_search(monkeypatch):
    monkeypatch.setattr(batch_jobs, "SEARCH_SECONDS", 0.3)


@pytest.fixture
def short_minutes(monkeypatch):
    monkeypatch.setattr(batch_jobs, "MINUTE_SECONDS", 0.01)


@pytest.fixture(params=["openai", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemini", "voyage"))])
def provider(request):
    with fake_provider(request.param, [KEY]) as server:
        yield server


@pytest.fixture
def openai():
    with fake_provider("openai", [KEY]) as server:
        yield server


def using(server, least=10, **batch):
    remote = {"baseUrl": server.url, "apiKey": KEY, "batch": {"pollIntervalMs": 20, **batch}}
    defaults = {"provider": server.provider, "model": server.model, "remote": remote}
    return {"agents": {"defaults": {"memorySearch": defaults}}, "memoryd": {"batchMinChunks": least}}


def write(home, count=NOTES, word="heron"):
    home.write(**{f"{word}{number:03}": f"the {word} number{number}x waits" for number in range(count)})


def directly(server):
    """The texts that were sent without a job."""
    return [text for text in server.texts if text != "ping"]


def asked_twice(server):
    return [text for text, times in server.asked.items() if times > 1 and text != "ping"]


async def check_whole(running, server, found="number7x"):
    status = await running.status()
    assert status.index.pending_embeddings == 0
    assert (status.batch.jobs, status.batch.chunks_in_jobs) == (0, 0)
    assert paths(await running.search(found, mode=VECTOR, min_score=0.0))[0].endswith("007.md")


async def test_many_texts_go_through_one_job(home, serve, provider):
    write(home)
    running = await serve(using(provider))
    events = await running.sync()
    assert len(provider.jobs) == 1
    assert directly(provider) == []
    assert events[-1].completed.cached_chunks == 0
    assert any(event.progress.batch_jobs == 1 for event in events if event.WhichOneof("event") == "progress")
    await check_whole(running, provider)
    status = await running.status()
    assert (status.batch.enabled, status.batch.failures, status.batch.last_error) == (True, 0, "")
    assert status.embedding.tokens > 0
    assert asked_twice(provider) == []


async def test_few_texts_go_directly(home, serve, provider):
    write(home, 9)
    running = await serve(using(provider))
    await running.synced()
    assert (provider.jobs, len(directly(provider))) == ({}, 9)


async def test_switched_off_none_is_made(home, serve, provider):
    write(home)
    running = await serve(using(provider, enabled=False))
    await running.synced()
    assert (provider.jobs, len(directly(provider))) == ({}, NOTES)
    assert not (await running.status()).batch.enabled


async def test_a_text_that_is_refused_fails_alone(home, serve, provider):
    write(home)
    provider.bad = lambda text: "number3x" in text
    provider.refuse = lambda texts: provider.failing(400) if any("number3x" in text for text in texts) else None
    running = await serve(using(provider))
    await running.synced()
    status = await running.status()
    assert status.index.pending_embeddings == 1
    assert status.batch.failures == 0
    (reason,) = [d.reason for d in status.degradations if "refused" in d.reason]
    assert "1 chunk was refused by the provider" in reason
    assert {text for text in directly(provider) if "number3x" not in text} == set()


async def test_a_text_that_a_job_leaves_out_is_asked_for_directly(home, serve, provider):
    write(home)
    provider.fates.append("silent")
    running = await serve(using(provider))
    await running.synced()
    assert len(directly(provider)) == 1
    await check_whole(running, provider)


@pytest.mark.parametrize("fate", ["failed", "empty"])
async def test_where_a_job_fails_the_texts_go_directly(home, serve, provider, fate):
    write(home)
    provider.fates.append(fate)
    running = await serve(using(provider))
    await running.synced()
    assert (len(provider.jobs), len(directly(provider))) == (1, NOTES)
    await check_whole(running, provider)
    status = await running.status()
    assert status.batch.failures == 1
    wanted = "could not be processed" if fate == "failed" else "no output file"
    assert wanted in status.batch.last_error


async def test_vectors_of_an_expired_job_are_not_lost(home, serve, provider):
    write(home)
    provider.fates.append("expired")
    running = await serve(using(provider))
    await running.synced()
    assert len(directly(provider)) == NOTES // 2
    await check_whole(running, provider)
    assert "expired" in (await running.status()).batch.last_error.lower()


async def test_the_first_message_of_the_error_file_is_reported(home, serve, openai):
    write(home)
    openai.bad = lambda _text: True
    openai.fates.append("expired")
    running = await serve(using(openai))
    await running.synced()
    assert "the text is refused" in (await running.status()).batch.last_error


async def test_two_failures_in_a_row_end_it_until_the_next_start(home, serve, provider):
    provider.fates.extend(["failed", "failed"])
    running = await serve(using(provider))
    for word in ("heron", "stork", "avocet"):
        write(home, word=word)
        await running.synced()
    assert len(provider.jobs) == 2
    assert len(directly(provider)) == 3 * NOTES
    assert (await running.status()).batch.failures == 2
    await running.stop()
    write(home, word="grebe")
    running = await serve(using(provider))
    await running.synced()
    assert len(provider.jobs) == 3


async def test_a_success_between_two_failures_lets_it_go_on(home, serve, openai):
    openai.fates.extend(["failed", "done", "failed", "done"])
    running = await serve(using(openai))
    for word in ("heron", "stork", "avocet", "grebe"):
        write(home, word=word)
        await running.synced()
    assert len(openai.jobs) == 4


async def test_a_server_without_batch_jobs_is_not_asked_for_one_again(home, serve, provider):
    provider.offered = False
    running = await serve(using(provider))
    for word in ("heron", "stork"):
        write(home, word=word)
        await running.synced()
    assert len([request for request in provider.requests if request.path.endswith("/files")]) == 1
    assert len(directly(provider)) == 2 * NOTES
    status = await running.status()
    assert (status.batch.failures, "404" in status.batch.last_error) == (1, True)


async def test_a_job_that_takes_too_long_is_made_once_more(home, serve, provider, short_minutes):
    write(home)
    provider.fates.append("hangs")
    running = await serve(using(provider, timeoutMinutes=60))
    await running.synced()
    first, second = provider.jobs.values()
    await eventually(lambda: first.cancelled)
    assert (second.cancelled, directly(provider)) == (False, [])
    assert "timed out after 60 minutes" in (await running.status()).batch.last_error
    await check_whole(running, provider)


async def test_a_job_that_takes_too_long_twice_is_replaced_by_direct_calls(home, serve, provider, short_minutes):
    write(home)
    provider.fates.extend(["hangs", "hangs"])
    running = await serve(using(provider, timeoutMinutes=60))
    await running.synced()
    assert (len(provider.jobs), len(directly(provider))) == (2, NOTES)
    assert (await running.status()).batch.failures == 2


async def test_an_unknown_job_state_is_waited_out(home, serve, provider):
    write(home)
    provider.fates.append("strange")
    running = await serve(using(provider))
    await running.synced()
    assert directly(provider) == []
    await check_whole(running, provider)


async def test_without_waiting_a_later_sync_takes_the_vectors_in(home, serve, provider):
    write(home)
    provider.looks = 3
    running = await serve(using(provider, wait=False))
    await running.synced()
    status = await running.status()
    assert (status.batch.jobs, status.batch.chunks_in_jobs) == (1, NOTES)
    assert status.index.pending_embeddings == NOTES
    (reason,) = [d.reason for d in status.degradations if "batch job" in d.reason]
    assert "remote.batch.wait is off" in reason
    for _ in range(3):
        await running.synced()
    assert (len(provider.jobs), directly(provider)) == (1, [])
    await check_whole(running, provider)


async def test_a_full_sync_leaves_what_is_in_a_job_to_it(home, serve, provider):
    write(home)
    provider.looks = 10
    running = await serve(using(provider, wait=False))
    await running.synced()
    await running.synced(mode="SYNC_MODE_FULL")
    assert (len(provider.jobs), directly(provider)) == (1, [])
    provider.looks = 0
    await running.synced()
    await check_whole(running, provider)


async def test_a_full_sync_makes_a_job_of_what_is_too_much_without_being_asked(home, serve, remote_provider):
    provider = remote_provider
    write(home)
    settings = using(provider)
    settings["memoryd"]["confirmAboveTokens"] = 5
    running = await serve(settings)
    await running.synced()
    assert (await running.status()).index.pending_embeddings == NOTES
    await running.synced(mode="SYNC_MODE_FULL")
    assert (len(provider.jobs), directly(provider)) == (1, [])
    await check_whole(running, provider)


async def test_a_note_written_during_a_job_is_found(home, serve, openai):
    write(home)
    openai.fates.append("hangs")
    settings = using(openai)
    settings["agents"]["defaults"]["memorySearch"]["sync"] = {"watchDebounceMs": 50, "onSearch": False}
    settings["memoryd"]["reconcileSeconds"] = 1
    running = await serve(settings, background=True)
    await eventually(lambda: openai.jobs)
    home.write(news="an avocet on the mud")
    await eventually(lambda: found(running, "avocet", "memory/news.md", VECTOR))
    status = await running.status()
    assert status.index.pending_embeddings == NOTES
    assert status.active_sync.progress.phase == sync_event_pb2.SYNC_PHASE_EMBEDDING
    home.write(heron003="the stork number3x waits")
    await eventually(lambda: found(running, "stork", "memory/heron003.md", KEYWORD))
    (job,) = openai.jobs.values()
    job.fate = "done"
    await eventually(lambda: is_whole(running))
    assert len(openai.jobs) == 1
    assert asked_twice(openai) == []
    assert set(directly(openai)) - {"avocet", "stork"} == {"an avocet on the mud", "the stork number3x waits"}


async def test_a_full_sync_steps_aside_for_new_notes_and_for_forgetting_and_rebuilds_in_the_end(
    home, serve, openai, elsewhere
):
    elsewhere(openai)
    write(home)
    openai.fates.append("hangs")
    settings = using(openai)
    settings["memoryd"]["confirmAboveTokens"] = 5
    running = await serve(settings)
    await running.synced()
    full = asyncio.create_task(running.synced(mode="SYNC_MODE_FULL"))
    await eventually(lambda: openai.jobs)
    home.write(news="an avocet on the mud")
    running.memory().index.monitor.update(dirty=True)
    await eventually(lambda: found(running, "avocet", "memory/news.md", KEYWORD))
    request = pb.MemoryForgetRequest(path="memory/heron003.md")
    await running.stub.MemoryForget(request, timeout=10)
    assert not full.done()
    (job,) = openai.jobs.values()
    job.fate = "done"
    # Of the rebuild itself: as many files as there are.
    assert (await full).indexed_files >= NOTES
    assert (len(openai.jobs), directly(openai)) == (1, ["an avocet on the mud"])
    await check_whole(running, openai)


async def found(running, query, path, mode):
    answer = await running.search(query, mode=mode, min_score=0.0)
    return path in paths(answer)[:1]


async def is_whole(running):
    status = await running.status()
    return status.index.pending_embeddings == 0 and not status.active_sync.sync_id


async def test_a_daemon_that_stops_does_so_at_once_and_the_next_goes_on_with_the_job(home, serve, provider):
    write(home)
    provider.fates.append("hangs")
    running = await serve(using(provider, pollIntervalMs=60_000), background=True)
    await eventually(lambda: provider.jobs)
    began = time.monotonic()
    await running.stop()
    assert time.monotonic() - began < 2
    (job,) = provider.jobs.values()
    job.fate = "done"
    running = await serve(using(provider))
    await running.synced()
    assert (len(provider.jobs), directly(provider), asked_twice(provider)) == (1, [], [])
    await check_whole(running, provider)


async def test_a_job_whose_making_was_not_answered_is_found_again(home, serve, provider):
    write(home)
    made = provider.make_job

    def make_and_fail(*arguments):
        made(*arguments)
        raise provider.refused(500, "The server had an error.")

    provider.make_job = make_and_fail
    running = await serve(using(provider))
    await running.synced()
    assert (len(provider.jobs), directly(provider), asked_twice(provider)) == (1, [], [])
    await check_whole(running, provider)


async def test_a_job_that_was_never_made_counts_as_a_failure(home, serve, provider):
    write(home)

    def fail(*_arguments):
        raise provider.refused(500, "The server had an error.")

    provider.make_job = fail
    running = await serve(using(provider))
    await running.synced()
    assert "was not created" in (await running.status()).batch.last_error
    assert len(directly(provider)) == NOTES


async def test_a_job_that_cannot_be_looked_at_stays_for_the_next_sync(home, serve, openai):
    write(home)
    openai.fates.append("hangs")
    running = await serve(using(openai, wait=False))
    await running.synced()
    openai.look = lambda *_: (_ for _ in ()).throw(openai.refused(403, "Not now."))
    await running.synced()
    status = await running.status()
    assert (status.batch.jobs, status.batch.failures, "Not now" in status.batch.last_error) == (1, 0, True)
    del openai.look
    next(iter(openai.jobs.values())).fate = "done"
    await running.synced()
    assert (len(openai.jobs), directly(openai)) == (1, [])
    await check_whole(running, openai)


async def test_several_jobs_share_what_is_too_much_for_one(home, serve, provider, monkeypatch):
    monkeypatch.setattr(batch_jobs, "MOST_TEXTS", 10)
    write(home, 45)
    running = await serve(using(provider, least=5, concurrency=2))
    await running.synced()
    assert [len(job.texts) for job in provider.jobs.values()] == [10, 10, 10, 10, 5]
    assert (directly(provider), asked_twice(provider)) == ([], [])
    await check_whole(running, provider)
