"""Rebuilding the vectors of entries has a cost: above the limit it needs approval by Sync(FULL)."""

import pytest

from entry_fixture import needs_lancedb
from fake_providers import vector
from memoryd.v1 import entry_service_pb2 as pb
from memoryd.v1 import sync_event_pb2
from rpc.wire import TIMEOUT, kinds
from waiting import eventually

pytestmark = [needs_lancedb, pytest.mark.usefixtures("remote_provider")]

TEXTS = ("the heron nests by the weir", "otters hide keys")
FULL = sync_event_pb2.SYNC_MODE_FULL


def using(provider, model, bound=5):
    embedding = {"apiKey": "sk-of-this-test", "model": model, "baseUrl": provider.url, "dimensions": len(vector("x"))}
    config = {"memory-lancedb": {"config": {"embedding": embedding}}}
    return {
        "plugins": {"slots": {"memory": "memory-lancedb"}, "entries": config},
        "agents": {"defaults": {"memorySearch": {"provider": "none"}}},
        "memoryd": {"confirmAboveTokens": bound},
    }


@pytest.fixture
async def changed(serve, provider):
    """Entries that were stored with another model than the settings name now."""
    first = await serve(using(provider, "words"))
    for text in TEXTS:
        await first.entries.Remember(pb.RememberRequest(text=text), timeout=TIMEOUT)
    await first.stop()
    provider.requests.clear()
    return await serve(using(provider, "other-words"))


async def recall(running):
    return await running.entries.Recall(pb.RecallRequest(query="heron weir"), timeout=TIMEOUT)


def sent(provider):
    return {text for request in provider.requests for text in request.body["input"]}


async def test_a_changed_model_waits_above_the_bound_and_says_so(changed, provider):
    assert (await recall(changed)).degradations
    (waiting,) = await eventually(lambda: changed.logged("wait-embedding-entries"))
    assert (waiting["agent"], waiting["pending"]) == ("main", 2)
    (degradation,) = (await recall(changed)).degradations
    assert kinds([degradation]) == ["VECTORS_PENDING"]
    assert "about 11 tokens would be sent to openai/other-words" in degradation.reason
    assert "memoryd index --force" in degradation.reason
    for mode, dry in ((sync_event_pb2.SYNC_MODE_INCREMENTAL, False), (FULL, True)):
        await changed.sync(mode=mode, dry_run=dry)
        assert (await recall(changed)).degradations
    assert not set(TEXTS) & sent(provider)


async def test_a_full_sync_approves_the_cost_before_the_first_use_of_entries(changed, provider):
    await changed.synced(mode=FULL)
    await eventually(lambda: changed.logged("embedded-entries"), seconds=TIMEOUT)
    found = await recall(changed)
    assert found.entries[0].entry.text == TEXTS[0]
    assert not found.degradations
    assert set(TEXTS) <= sent(provider)


async def test_a_full_sync_that_waits_for_a_yes_gets_it(changed, provider):
    await recall(changed)
    await eventually(lambda: changed.logged("wait-embedding-entries"))
    await changed.synced(mode=FULL)
    await eventually(lambda: changed.logged("embedded-entries"), seconds=TIMEOUT)
    assert not (await recall(changed)).degradations


async def test_a_full_sync_of_an_agent_without_entries_opens_none(serve):
    running = await serve()
    await running.synced(mode=FULL)
    assert not running.entry_memories.was_used("main")
