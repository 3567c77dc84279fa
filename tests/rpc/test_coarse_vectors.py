"""What the memory budget and the size of an index do to the vector leg, over gRPC.

Above 10,000 chunks, or above the budget, one bit a dimension proposes the candidates; where not even the bits fit, the
vectors are read from disk. Either way the cosines are exact, and changed files are followed without loading anew.
"""

import functools
import random
import zlib

import numpy as np
import pytest

from fake_providers import embedding_server
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.sqlite.vector_index import COARSE_ABOVE
from rpc.wire import paths
from vector_fixture import resident_of

DIMENSIONS = 384
PLENTY = 1 << 30
BYTES_OF_BITS = DIMENSIONS // 8 + 8
# A byte of each number besides, which a budget may be too small for.
BYTES_WITH_CODES = BYTES_OF_BITS + DIMENSIONS + 4
WHOLE, BITS, DISK = "whole", "bits", ""


@functools.cache
def of_word(word):
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSIONS)


def dense(text, _dimensions=DIMENSIONS):
    """The sum of the words' directions, all to one side of the origin, as those of real models are."""
    values = sum(of_word(word) for word in text.split()) + of_word("all that is ever said")
    return [round(value, 4) for value in (values / np.linalg.norm(values)).tolist()]


class TopicNotes:
    """Notes on sixty topics: files, and what comparing all their vectors would answer."""

    def __init__(self, home, seed=7):
        self._home = home
        self._chance = random.Random(seed)
        words = ["".join(self._chance.choices("abdegiklmnoprstuvz", k=8)) for _ in range(60 * 30)]
        self._topics = [words[first : first + 30] for first in range(0, len(words), 30)]
        self.texts = {}
        self._vectors = {}

    def text(self, k=9):
        """Mostly of one topic."""
        topic, other = self._chance.sample(self._topics, 2)
        return " ".join(self._chance.choices(topic, k=k - 3) + self._chance.choices(other, k=3))

    def put(self, path, text):
        self._home.put(path, text)
        self.texts[path] = text
        vector = np.array(dense(text))
        self._vectors[path] = vector / np.linalg.norm(vector)

    def add(self, count):
        for number in range(len(self.texts), len(self.texts) + count):
            self.put(f"memory/{number // 100:03}/n{number:05}.md", self.text())

    def remove(self, path):
        (self._home.workspace / path).unlink()
        del self.texts[path], self._vectors[path]

    def cosines(self, question):
        query = np.array(dense(question))
        found = np.stack(list(self._vectors.values())) @ (query / np.linalg.norm(query))
        return dict(zip(self._vectors, found.tolist(), strict=True))


@pytest.fixture
def provider():
    with embedding_server() as server:
        server.dimensions, server.vector = DIMENSIONS, dense
        yield server


@pytest.fixture
def notes(home):
    return TopicNotes(home)


def using(server, budget):
    remote = {"baseUrl": server.url, "apiKey": "k"}
    search = {"provider": "openai-compatible", "model": "dense", "remote": remote}
    return {
        "agents": {"defaults": {"memorySearch": search}},
        "memoryd": {"vectorMemoryBytes": budget, "confirmAboveTokens": 0},
    }


async def synced(daemon):
    """A sync to its end, however long it takes."""
    events = [event async for event in daemon.stub.Sync(pb.SyncRequest(), timeout=200)]
    assert events[-1].completed.failed_files == 0
    assert (await daemon.status()).index.pending_embeddings == 0


def resident(daemon):
    return resident_of(daemon.memory().index.embedding.store._vectors)


async def check_recall(daemon, notes, questions, limit=10, least=1.0):
    """Every cosine is exact, and so many of the hits are as near as the last of the true ones."""
    near = 0
    for question in questions:
        cosines = notes.cosines(question)
        last = sorted(cosines.values())[-limit] - 1e-6
        answer = await daemon.search(
            question, mode=memory_pb2.SEARCH_MODE_VECTOR, min_score=0.0, max_results=limit, explain=True
        )
        assert len(set(paths(answer))) == limit
        for hit in answer.results:
            assert hit.score_detail.vector == pytest.approx(cosines[hit.path], abs=1e-5)
            near += cosines[hit.path] >= last
    assert near >= least * limit * len(questions)


async def first(daemon, question):
    answer = await daemon.search(question, mode=memory_pb2.SEARCH_MODE_VECTOR, min_score=0.0)
    return answer.results[0].path


async def check_follows(daemon, notes):
    """Changed, new and removed files are answered for, and what is in memory is still the same."""
    before = resident(daemon)
    changed, removed, *_ = notes.texts
    was, gone, becomes = notes.texts[changed], notes.texts[removed], notes.text()
    assert [await first(daemon, was), await first(daemon, gone)] == [changed, removed]
    notes.put(changed, becomes)
    notes.remove(removed)
    notes.put("memory/new.md", "something that was never said before")
    await synced(daemon)
    assert await first(daemon, becomes) == changed
    assert await first(daemon, "something that was never said before") == "memory/new.md"
    assert await first(daemon, was) != changed
    assert await first(daemon, gone) != removed
    assert resident(daemon) is before


@pytest.mark.sqlite_only("PostgreSQL compares vectors in the server, so the daemon keeps none in memory")
@pytest.mark.parametrize(
    ("budget", "kind"), [(PLENTY, WHOLE), (400 * 2 * BYTES_OF_BITS, BITS), (0, DISK)], ids=["whole", "bits", "disk"]
)
async def test_the_budget_decides_what_is_in_memory_and_changes_no_answer(serve, provider, notes, *, budget, kind):
    notes.add(400)
    daemon = await serve(using(provider, budget))
    await synced(daemon)
    questions = [notes.text(4) for _ in range(10)]
    await check_recall(daemon, notes, questions)
    told = (await daemon.status()).vector
    assert (told.resident_form, told.resident_bytes > 0) == (kind, bool(kind))
    assert daemon.memory().index.embedding.store.vector_memory_bytes() <= budget
    await check_follows(daemon, notes)
    await check_recall(daemon, notes, questions)


@pytest.mark.sqlite_only("PostgreSQL compares vectors in the server, so the daemon keeps none in memory")
@pytest.mark.slow
async def test_an_index_that_outgrows_the_budget_answers_from_disk(serve, provider, notes):
    notes.add(200)
    budget = 400 * BYTES_OF_BITS
    daemon = await serve(using(provider, budget))
    await synced(daemon)
    questions = [notes.text(4) for _ in range(5)]
    await check_recall(daemon, notes, questions)
    assert 0 < daemon.memory().index.embedding.store.vector_memory_bytes() <= budget
    notes.add(400)
    await synced(daemon)
    await check_recall(daemon, notes, questions)
    assert daemon.memory().index.embedding.store.vector_memory_bytes() == 0


@pytest.mark.sqlite_only("PostgreSQL compares vectors in the server, so the daemon keeps none in memory")
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_above_ten_thousand_chunks_bits_find_the_nearest_and_follow_the_files(serve, provider, notes):
    notes.add(COARSE_ABOVE + 300)
    questions = [notes.text(5) for _ in range(40)]
    daemon = await serve(using(provider, PLENTY))
    await synced(daemon)
    assert (await daemon.status()).index.chunks == len(notes.texts)
    await check_recall(daemon, notes, questions, least=0.99)
    told = (await daemon.status()).vector
    assert told.resident_form == BITS
    assert told.resident_bytes < 1.3 * len(notes.texts) * BYTES_WITH_CODES
    await check_follows(daemon, notes)
    notes.add(500)
    await synced(daemon)
    await check_recall(daemon, notes, questions, least=0.99)
    await check_recall(daemon, notes, questions[:10], limit=50, least=0.97)
    await daemon.stop()

    small = await serve(using(provider, len(notes.texts) * BYTES_OF_BITS // 2))
    await check_recall(small, notes, questions[:10])
    assert (await small.status()).vector.resident_form == DISK
    await check_follows(small, notes)
