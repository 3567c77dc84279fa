"""Over gRPC: many texts to a server that limits, refuses, fails or hangs."""

import asyncio
import threading
import time

import pytest

from fake_providers import fake_provider
from memoryd.v1 import memory_pb2, sync_event_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.sync_streams import CANCEL
from rpc.wire import TIMEOUT, kinds, paths
from waiting import eventually

pytestmark = pytest.mark.slow

HYBRID, KEYWORD = memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD
NOTES = 80
LONG = "the harbour crane lifts containers while gulls circle " * 60


@pytest.fixture
def openai():
    with fake_provider("openai") as server:
        yield server


class Times:
    """When requests arrived; `most` were under way at once."""

    def __init__(self, server, hold=0.0):
        self.arrived = []
        self.most = self._now = 0
        self._hold = hold
        self._lock = threading.Lock()
        server.refuse = self

    def __call__(self, _texts):
        with self._lock:
            self.arrived.append(time.monotonic())
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(self._hold)
        with self._lock:
            self._now -= 1


@pytest.fixture
def begin(home, serve, openai):
    """A daemon with notes long enough that each request holds a few of them."""

    async def begin(remote=None, **memoryd):
        home.write(**{f"n{number:02}": f"note {number} of the port: {LONG}{number}" for number in range(NOTES)})
        given = {"baseUrl": openai.url, "apiKey": "sk-of-this-test", **(remote or {})}
        search = {"provider": "openai", "remote": given}
        return await serve({"agents": {"defaults": {"memorySearch": search}}, "memoryd": memoryd})

    return begin


async def pending(running):
    return (await running.status()).index.pending_embeddings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("remote", "most"), [({}, 4), ({"nonBatchConcurrency": 1}, 1), ({"nonBatchConcurrency": 2}, 2)]
)
async def test_so_many_requests_are_under_way_as_the_settings_say(begin, openai, remote, most):
    times = Times(openai, hold=0.1)
    running = await begin(remote)
    await running.synced()
    assert times.most == most
    assert len(times.arrived) > 4
    assert await pending(running) == 0
    assert max(openai.asked.values()) == 1


async def test_a_pause_that_the_server_asks_for_holds_for_all_requests(begin, openai):
    arrived = []
    lock = threading.Lock()

    def limit(_texts):
        with lock:
            arrived.append(time.monotonic())
            if len(arrived) == 1:
                return openai.limited(1)
            is_early = arrived[-1] - arrived[0] < 0.5
        if is_early:
            # The requests that are under way end after the client has been told to pause.
            time.sleep(0.5)
        return None

    openai.refuse = limit
    running = await begin()
    await running.synced()
    assert await pending(running) == 0
    # Four requests are under way at once.
    assert sum(at - arrived[0] < 1.0 for at in arrived) <= 4
    assert len(arrived) > 4
    (usage,) = (await running.status()).embedding.usage
    assert usage.retries == 1


async def test_requests_a_minute_are_bounded(begin, openai):
    times = Times(openai)
    running = await begin(embedding={"requestsPerMinute": 600})
    await running.synced()
    gaps = [later - earlier for earlier, later in zip(times.arrived, times.arrived[1:], strict=False)]
    assert len(gaps) > 4
    assert times.arrived[-1] - times.arrived[0] >= 0.1 * len(gaps) - 0.05


async def test_a_server_with_a_cap_on_items_gets_smaller_requests(begin, openai):
    openai.most_items = 3
    running = await begin()
    await running.synced()
    assert await pending(running) == 0
    refused = [request for request in openai.requests if len(request.texts) > 3]
    assert len(refused) <= 8


async def test_a_quota_that_is_used_up_ends_the_asking_and_a_later_sync_goes_on(begin, openai):
    served = []

    def stop_after_three(texts):
        served.append(texts)
        return openai.quota() if len(served) > 3 else None

    openai.refuse = stop_after_three
    running = await begin()
    await running.synced()
    asked = len(openai.requests)
    assert asked <= 3 + 4
    status = await running.status()
    chunks = status.index.chunks
    assert 0 < status.index.pending_embeddings < chunks
    assert "exceeded your current quota" in next(
        d.reason for d in status.degradations if kinds([d]) == ["VECTORS_PENDING"]
    )
    answer = await running.search("note 7 of the port", mode=HYBRID, min_score=0.0)
    assert "memory/n07.md" in paths(answer)
    openai.refuse = lambda _texts: None
    await running.synced()
    assert await pending(running) == 0
    paid = {text for texts in served[:3] for text in texts}
    assert paid
    assert not paid & {text for request in openai.requests[asked:] for text in request.texts}


async def test_a_sync_whose_server_hangs_is_cancelled_at_once_and_the_next_one_pays_for_nothing_twice(begin, openai):
    gate, hung = threading.Event(), []

    def hang(texts):
        hung.append(texts)
        gate.wait(60)

    openai.refuse = hang
    running = await begin()
    stream = running.stub.Sync(pb.SyncRequest(on_disconnect=CANCEL), timeout=TIMEOUT)
    try:
        await anext(aiter(stream))
        await eventually(lambda: len(hung) == 4)
        began = time.monotonic()
        stream.cancel()
        await eventually(lambda: running.memory().index.coordinator.active is None)
        assert time.monotonic() - began < 3
        answer = await running.search("note 7 of the port", mode=KEYWORD)
        assert answer.results
    finally:
        gate.set()
    await running.synced()
    assert await pending(running) == 0
    assert max(openai.asked.values()) == 1


async def test_a_daemon_whose_server_hangs_ends_at_once(begin, openai):
    gate = threading.Event()
    openai.refuse = lambda _texts: gate.wait(60) and None
    running = await begin()
    sync = asyncio.ensure_future(running.sync())
    try:
        await eventually(lambda: len(openai.requests) == 4)
        began = time.monotonic()
        await running.stop_daemon()
        assert time.monotonic() - began < 3
    finally:
        gate.set()
        await asyncio.gather(sync, return_exceptions=True)


async def test_progress_shows_it_moving(begin, openai):
    Times(openai, hold=0.05)
    running = await begin()
    moving = [
        event.progress.completed_chunks
        for event in await running.sync()
        if event.HasField("progress") and event.progress.phase == sync_event_pb2.SYNC_PHASE_EMBEDDING
    ]
    assert moving == sorted(moving)
    assert moving[-1] == (await running.status()).index.chunks
