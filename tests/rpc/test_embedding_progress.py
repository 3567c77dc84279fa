"""The progress of embedding: chunks, the remaining time from the measured rate, and tokens."""

import threading

import pytest

from fake_providers import Fault
from memoryd.v1 import sync_event_pb2
from memoryd_server.embedding.run import CHUNKS_A_BATCH
from rpc.sync_streams import FULL, follow
from rpc.wire import TIMEOUT, by_meaning

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("remote_provider")]

EMBEDDING = sync_event_pb2.SYNC_PHASE_EMBEDDING
NOTES = CHUNKS_A_BATCH + 40


@pytest.fixture
def held(home, provider):
    """A provider that does not answer for the second batch before the event is set."""
    home.many(NOTES)
    go, seen = threading.Event(), []

    def refuse(texts):
        seen.extend(texts)
        assert len(seen) <= CHUNKS_A_BATCH or go.wait(TIMEOUT)
        return Fault()

    provider.refuse = refuse
    yield go
    go.set()


@pytest.mark.parametrize("mode", [sync_event_pb2.SYNC_MODE_INCREMENTAL, FULL], ids=["incremental", "full"])
async def test_embedding_reports_chunks_tokens_and_the_remaining_time(serve, provider, held, mode):
    running = await serve(by_meaning(provider))
    estimate = (await running.synced(dry_run=True, mode=mode)).estimate
    stream = follow(running, mode=mode)
    async for event in stream:
        progress = event.progress
        if progress.phase == EMBEDDING and progress.completed_chunks:
            break
    assert (progress.completed_chunks, progress.total_chunks) == (CHUNKS_A_BATCH, NOTES)
    assert progress.HasField("eta")
    assert 0 < progress.eta.ToNanoseconds() <= progress.elapsed.ToNanoseconds()
    assert 0 < progress.completed_tokens < progress.total_tokens == estimate.estimated_tokens
    active = (await running.status()).active_sync.progress
    assert (active.eta, active.total_tokens) == (progress.eta, progress.total_tokens)
    held.set()
    last = [event.progress async for event in stream if event.WhichOneof("event") == "progress"]
    assert last[-1].completed_chunks == last[-1].total_chunks == NOTES
    # A stream holds the newest state only: that of a rebuild's swap may replace the end of embedding.
    if mode != FULL:
        assert last[-1].phase == EMBEDDING
        assert last[-1].completed_tokens == last[-1].total_tokens == estimate.estimated_tokens
        assert last[-1].eta.ToNanoseconds() == 0
