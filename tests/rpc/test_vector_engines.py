"""The same results, whether the vectors are in memory or scanned on disk, and by which engine."""

import random

import pytest

from memoryd.v1 import memory_pb2
from rpc.wire import kinds

pytestmark = pytest.mark.slow

HYBRID, VECTOR = memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_VECTOR
WORDS = (
    "heron",
    "kestrel",
    "stork",
    "ferry",
    "harbour",
    "lamp",
    "bread",
    "soup",
    "tram",
    "garden",
    "river",
    "stone",
    "cloud",
)
QUESTIONS = ["heron ferry", "bread", "a lamp in the garden", "cloud stone river", "unheard words", "tram river tram"]


@pytest.fixture
def notes(home):
    chance = random.Random(5)
    home.write(**{f"n{n:03}": " ".join(chance.choices(WORDS, k=chance.randint(4, 30))) for n in range(120)})
    # Twins, whose order only a rule can tell.
    home.write(**{f"twin{n}": "heron lamp" for n in range(5)})
    return home


IN_MEMORY, ON_DISK = 1 << 30, 0


def using(server, store=None, budget=ON_DISK, **query):
    remote = {"baseUrl": server.url, "apiKey": "k"}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote, "query": query}
    if store:
        search["store"] = {"vector": store}
    return {"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"vectorMemoryBytes": budget}}


async def answers(daemon, **request):
    """(path, lines, score) of each hit of each question, in each mode."""
    found = []
    for question in QUESTIONS:
        for mode in (HYBRID, VECTOR):
            answer = await daemon.search(question, mode=mode, min_score=0.0, max_results=20, **request)
            assert answer.info.vector_candidates
            found.append([(hit.path, hit.start_line, hit.score) for hit in answer.results])
    return found


async def test_every_engine_gives_the_same_hits(notes, serve, provider, tmp_path):
    in_memory = await serve(using(provider, budget=IN_MEMORY))
    await in_memory.synced()
    expected = await answers(in_memory)
    assert all(expected)
    assert (await in_memory.status()).vector.resident_form == "whole"
    await in_memory.stop()

    with_extension = await serve(using(provider))
    assert await answers(with_extension) == expected
    status = await with_extension.status()
    assert (status.vector.engine, status.vector.load_error, status.vector.resident_form) == ("sqlite-vec", "", "")
    assert kinds(status.degradations) == []
    await with_extension.stop()

    switched_off = await serve(using(provider, {"enabled": False}))
    status = await switched_off.status()
    assert status.vector.engine == "exact"
    assert kinds(status.degradations) == []
    assert await answers(switched_off) == expected
    await switched_off.stop()

    missing = await serve(using(provider, {"extensionPath": str(tmp_path / "no-such-extension")}))
    status = await missing.status()
    assert status.vector.engine == "exact"
    assert kinds(status.degradations) == ["VECTOR_EXTENSION_MISSING"]
    assert await answers(missing) == expected


async def test_every_engine_follows_the_files(notes, serve, provider):
    found = []
    daemon = await serve(using(provider))
    await daemon.synced()
    await answers(daemon)
    notes.write(n001="heron ferry heron ferry", new="tram river tram")
    (notes.workspace / "memory" / "n002.md").unlink()
    (notes.workspace / "memory" / "twin4.md").unlink()
    await daemon.synced()
    found.append(await answers(daemon))
    await daemon.stop()
    for store, budget in ((None, IN_MEMORY), ({"enabled": False}, ON_DISK)):
        daemon = await serve(using(provider, store, budget))
        found.append(await answers(daemon))
        await daemon.stop()
    assert found[0] == found[1] == found[2]
    assert any(path == "memory/new.md" for hits in found[0] for path, *_ in hits)
    assert not any(path in {"memory/n002.md", "memory/twin4.md"} for hits in found[0] for path, *_ in hits)


async def test_a_filter_and_a_bar_change_no_order(notes, serve, provider):
    daemon = await serve(using(provider))
    await daemon.synced()
    everything = await daemon.search("heron ferry", min_score=0.0, max_results=50)
    barred = await daemon.search("heron ferry", min_score=0.5, max_results=50)
    kept = [hit.path for hit in everything.results if hit.score >= 0.5]
    assert kept
    assert [hit.path for hit in barred.results][: len(kept)] == kept
    few = await daemon.search("heron ferry", min_score=0.0, max_results=3)
    assert [hit.path for hit in few.results] == [hit.path for hit in everything.results[:3]]
