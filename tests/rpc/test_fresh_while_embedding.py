"""Making vectors may take hours; a note written or appended in that time is found by its words immediately."""

import threading

import pytest

from fake_providers import Fault, embedding_server
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import TIMEOUT, paths
from waiting import eventually, wait_until

pytestmark = pytest.mark.slow

KEYWORD = memory_pb2.SEARCH_MODE_KEYWORD
NOTES = 600


class SlowProvider:
    """Answers two batches of documents, and no more until it is let; `second` is called at the second."""

    def __init__(self, server):
        self.server = server
        self.batches = 0
        self.second = lambda: None
        self.go = threading.Event()
        server.refuse = self._refuse

    def _refuse(self, texts):
        if len(texts) > 1:
            self.batches += 1
            if self.batches == 2:
                self.second()
            if self.batches > 2:
                assert self.go.wait(TIMEOUT)
        return Fault()


@pytest.fixture
def provider():
    with embedding_server() as server:
        slow = SlowProvider(server)
        yield slow
        slow.go.set()


@pytest.fixture
def settings(home, provider):
    home.many(NOTES)
    remote = {"baseUrl": provider.server.url, "apiKey": "sk-of-this-test"}
    search = {
        "provider": "openai-compatible",
        "model": "words",
        "remote": remote,
        "sync": {"watchDebounceMs": 50, "onSearch": False},
    }
    return {"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"reconcileSeconds": 1}}


async def check_found_while_embedding(running, path):
    await eventually(lambda: found(running, path))
    index = (await running.status()).index
    assert 0 < index.pending_embeddings < NOTES, "it was found before the vectors were there"
    assert (index.dirty, index.sources[0].files_on_disk) == (False, index.sources[0].files_indexed)


async def found(running, path):
    return paths(await running.search("avocet", mode=KEYWORD)) == [path]


async def check_whole(running, provider):
    """Let go, the run ends with every vector, and no text was sent twice."""
    provider.go.set()
    await eventually(lambda: is_whole(running))
    texts = [text for text in provider.server.texts if "avocet" not in text]
    assert len(texts) == len(set(texts)) == NOTES


async def is_whole(running):
    status = await running.status()
    return status.index.pending_embeddings == 0 and not status.active_sync.sync_id


@pytest.mark.parametrize("watch", [True, False], ids=["told by an event", "found by a pass"])
async def test_a_note_written_while_vectors_are_made_is_found_by_its_words(home, serve, settings, provider, watch):
    settings["agents"]["defaults"]["memorySearch"]["sync"]["watch"] = watch
    daemons = []

    def second():
        home.write(news="an avocet on the mud")
        wait_until(lambda: daemons and daemons[0].memory().index.monitor.current.dirty)

    provider.second = second
    daemons.append(await serve(settings, background=True))
    await check_found_while_embedding(daemons[0], "memory/news.md")
    await check_whole(daemons[0], provider)


async def test_a_note_appended_while_vectors_are_made_is_found_by_its_words(home, serve, settings, provider):
    settings["agents"]["defaults"]["memorySearch"]["sync"]["watch"] = False
    asked, daemons = threading.Event(), []

    def second():
        asked.set()
        # The append has to join the run before the third batch, which is not answered.
        wait_until(lambda: daemons and daemons[0].memory().index.coordinator.active.followers)

    provider.second = second
    daemon = await serve(settings, background=True)
    daemons.append(daemon)
    await eventually(asked.is_set)
    request = pb.MemoryAppendRequest(text="an avocet on the mud", path="memory/news.md")
    # An append waits for the index as long as its deadline allows.
    await daemon.stub.MemoryAppend(request, timeout=3)
    await check_found_while_embedding(daemon, "memory/news.md")
    await check_whole(daemon, provider)
