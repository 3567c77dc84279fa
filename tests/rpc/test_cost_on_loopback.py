"""The cost limit applies to text that leaves the machine, and not to a server on loopback."""

import pytest

from entry_fixture import needs_lancedb
from fake_providers import fake_provider, vector
from memoryd.v1 import entry_service_pb2 as pb
from memoryd.v1 import sync_event_pb2
from rpc.wire import TIMEOUT, kinds
from waiting import eventually

EMBEDDING = sync_event_pb2.SYNC_PHASE_EMBEDDING
NOTES = {"boat": "the red ferry sails at dawn", "food": "soup and bread for lunch"}


def using(server, model="", **service):
    remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
    search = {"provider": server.provider, "model": model or server.model or "words", "remote": remote}
    return {"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"confirmAboveTokens": 1, **service}}


@pytest.mark.parametrize("provider", ["ollama", "lmstudio", "openai-compatible"])
async def test_a_server_on_loopback_needs_no_approval(home, serve, provider):
    home.write(**NOTES)
    with fake_provider(provider) as server:
        running = await serve(using(server))
        estimate = await running.synced(dry_run=True)
        assert (estimate.estimate.cache_misses, list(estimate.degradations)) == (2, [])
        events = await running.sync()
        completed = events[-1].completed
        assert (completed.vectors_missing, list(completed.degradations)) == (False, [])
        assert len(server.texts) == 2
    assert not any(event.progress.total_tokens for event in events)


async def test_a_cloud_model_of_an_ollama_on_loopback_needs_approval(home, serve):
    home.write(**NOTES)
    with fake_provider("ollama") as server:
        server.model = "embedder:30b-cloud"
        server.pulled.add(server.model)
        running = await serve(using(server))
        completed = await running.synced()
        assert (completed.pending_embeddings, server.texts) == (2, [])
        assert kinds(completed.degradations) == ["VECTORS_PENDING"]
        assert "would be sent to ollama" in completed.degradations[0].reason
        assert not (await running.synced(mode="SYNC_MODE_FULL")).vectors_missing


@needs_lancedb
@pytest.mark.parametrize("remote", [False, True])
async def test_entries_need_approval_only_if_their_text_leaves_the_machine(serve, provider, elsewhere, remote):
    if remote:
        elsewhere(provider)

    def settings(model):
        embedding = {"apiKey": "sk-of-this-test", "model": model, "baseUrl": provider.url}
        config = {"memory-lancedb": {"config": {"embedding": {**embedding, "dimensions": len(vector("x"))}}}}
        return {
            "plugins": {"slots": {"memory": "memory-lancedb"}, "entries": config},
            "agents": {"defaults": {"memorySearch": {"provider": "none"}}},
            "memoryd": {"confirmAboveTokens": 5},
        }

    first = await serve(settings("words"))
    for text in NOTES.values():
        await first.entries.Remember(pb.RememberRequest(text=text), timeout=TIMEOUT)
    await first.stop()
    running = await serve(settings("other-words"))
    await running.entries.Recall(pb.RecallRequest(query="ferry"), timeout=TIMEOUT)
    await eventually(lambda: running.logged("wait-embedding-entries" if remote else "embedded-entries"))
    found = await running.entries.Recall(pb.RecallRequest(query="ferry"), timeout=TIMEOUT)
    assert kinds(found.degradations) == (["VECTORS_PENDING"] if remote else [])
