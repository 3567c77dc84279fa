"""Whichever leg of the search is broken, an answer has the hits of the other one or says why it is empty."""

import asyncio
import contextlib

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fake_providers import Fault
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import TIMEOUT, by_meaning, check_refused, empty_reason, kinds, paths, refusal
from waiting import eventually


@pytest.fixture
async def running(home, serve, provider):
    home.write(boat="the red ferry sails at dawn", food="soup and bread for lunch")
    daemon = await serve(by_meaning(provider))
    await daemon.synced()
    assert (await daemon.search("red ferry")).info.served_mode == memory_pb2.SEARCH_MODE_HYBRID
    return daemon


def drop(table):
    def drop(home, _provider):
        postgres = "DROP TABLE postings" if table == "keyword" else None
        home.store.change(sqlite=f"DROP TABLE {table}", postgres=postgres)

    return drop


def fail_the_provider(_home, provider):
    provider.refuse = lambda _texts: Fault(status=500, body={"error": {"message": "no"}})


BREAKS = {
    "vectors": drop("vectors"),
    "keyword": drop("keyword"),
    "chunks": drop("chunks"),
    "provider": fail_the_provider,
}


async def check_answered(running, query):
    """Hits, or the reason why there are none, and what is broken is named in either case; or an error that names it."""
    try:
        answer = await running.search(query)
    except grpc.aio.AioRpcError as error:
        found = refusal(error)
        assert (found.code, found.reason) == ("UNAVAILABLE", "INDEX_UNAVAILABLE")
        assert found.retry_seconds
        return None
    info, found = answer.info, "memory/boat.md" in paths(answer)
    assert found or info.empty_explanation
    # Healing may come first: then both legs have answered.
    both = info.served_mode == memory_pb2.SEARCH_MODE_HYBRID and info.keyword_candidates and info.vector_candidates
    assert answer.info.degradations or (found and both)
    assert all(degradation.reason for degradation in answer.info.degradations)
    return answer


# PostgreSQL's tables belong to all agents; only a schema that is gone is created again, for which there is a test.
ONE_TABLE = pytest.mark.sqlite_only("a single table that an administrator drops from PostgreSQL is not created again")
CASES = [
    pytest.param(broken, id=name, marks=() if name == "provider" else ONE_TABLE) for name, broken in BREAKS.items()
]


@pytest.mark.parametrize("broken", CASES)
async def test_no_answer_is_bare_whichever_leg_is_broken(running, home, provider, broken):
    broken(home, provider)
    answer = await check_answered(running, "when does the red ferry sail")
    if broken is fail_the_provider:
        assert "memory/boat.md" in paths(answer)
        assert "VECTOR_LEG_SKIPPED" in kinds(answer.info.degradations)
        return

    async def healed():
        await running.synced()
        found = await running.search("when does the red ferry sail")
        return "memory/boat.md" in paths(found) and not found.info.degradations

    await eventually(healed, seconds=60)


async def test_an_index_without_the_files_on_disk_says_that_it_is_empty_and_that_it_waits(serve, home):
    home.write(boat="the red ferry sails at dawn")
    running = await serve()
    answer = await running.search("ferry")
    assert (empty_reason(answer), answer.info.stale) == ("EMPTY_INDEX", True)
    assert answer.info.index_state in {memory_pb2.INDEX_STATE_EMPTY, memory_pb2.INDEX_STATE_STALE}


async def test_a_blank_question_is_refused_before_any_provider_is_asked(running, provider):
    asked = len(provider.requests)
    blank = running.stub.MemorySearch(pb.MemorySearchRequest(query=" \n\t\u3000"), timeout=TIMEOUT)
    await check_refused(blank, "INVALID_ARGUMENT", "INVALID_REQUEST", violations={"query"})
    assert len(provider.requests) == asked


@pytest.mark.slow
async def test_health_status_and_searches_say_the_same_of_an_index_that_does_not_answer(running, home, pause_sync):
    """They ask the same index the same way: none of them is green while another is not."""
    held = pause_sync(running)
    health = health_pb2_grpc.HealthStub(running.channel)

    async def healths():
        asked = [health_pb2.HealthCheckRequest(service=service) for service in ("", "memoryd.v1.MemoryService")]
        return {(await health.Check(request, timeout=TIMEOUT)).status for request in asked}

    assert await healths() == {health_pb2.HealthCheckResponse.SERVING}
    # The sync that would heal it waits, for a file that it has to read.
    home.write(late="a late note")
    syncing = asyncio.create_task(running.sync())
    await held.until_reached()
    drop("keyword")(home, None)
    await running.readiness.check()
    # No search has used this word: the scores of a word that was searched at this revision are in memory.
    await check_refused(running.search("soup"), "UNAVAILABLE", "INDEX_UNAVAILABLE", retry=True)
    status = await running.status()
    assert status.index.state == memory_pb2.INDEX_STATE_UNAVAILABLE
    (missing,) = [d for d in status.degradations if kinds([d]) == ["FULLTEXT_MISSING"]]
    assert not status.fulltext.available
    assert missing.reason == status.fulltext.error != ""
    assert await healths() == {health_pb2.HealthCheckResponse.NOT_SERVING}
    held.release()
    with contextlib.suppress(grpc.aio.AioRpcError):
        await syncing
