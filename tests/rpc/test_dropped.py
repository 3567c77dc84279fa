"""MemorySearch with `explain` has the candidates that are not results, with the reasons that ExplainMiss gives."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_providers import fake_reranker
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from properties import examples
from rpc.wire import HYBRID, KEYWORD, TIMEOUT, by_meaning

MEMORY, SESSIONS = memory_pb2.SOURCE_MEMORY, memory_pb2.SOURCE_SESSIONS
WITH_SESSIONS = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}
MMR = {"query": {"hybrid": {"mmr": {"enabled": True, "lambda": 0.4}, "candidateMultiplier": 2}}}


async def synced(serve, settings=None):
    running = await serve(settings)
    await running.sync()
    return running


async def explained(running, path, line, **fields):
    request = pb.ExplainMissRequest(search=pb.MemorySearchRequest(**fields), path=path, line=line)
    return await running.stub.ExplainMiss(request, timeout=TIMEOUT)


def reasons(answer):
    return [pb.MissReason.Name(each.reason).removeprefix("MISS_REASON_") for each in answer.dropped]


async def test_only_an_explained_search_has_dropped_candidates(serve, home):
    home.write(a="a heron", b="heron " + "reeds " * 30)
    running = await synced(serve)
    assert not (await running.search("heron", max_results=1)).dropped
    (candidate,) = (await running.search("heron", max_results=1, explain=True)).dropped
    assert (candidate.path, candidate.start_line, candidate.end_line) == ("memory/b.md", 1, 1)
    assert (candidate.source, candidate.reason) == (MEMORY, pb.MISS_REASON_BELOW_MAX_RESULTS)
    assert 0 < candidate.score < 1
    assert "lines 1-1 have rank 2" in candidate.explanation


async def test_a_deleted_file_is_not_shown(serve, home):
    home.write(a="a heron", b="heron " + "reeds " * 30)
    running = await synced(serve)
    (home.workspace / "memory" / "b.md").unlink()
    assert not (await running.search("heron", max_results=1, explain=True)).dropped


async def test_the_reranker_is_a_reason(serve, home):
    key = "sk-of-this-test"
    with fake_reranker("jina", [key]) as server:
        server.score = lambda _query, document: min(1.0, len(document) / 200)
        home.write(a="heron ferry", b="the heron and the ferry " + "in the reeds of the weir " * 6)
        block = {"provider": "http", "baseUrl": server.url, "model": server.model, "apiKey": key, "timeoutMs": 20_000}
        running = await synced(serve, {"memoryd": {"rerank": {**block, "weight": 1}}})
        answer = await running.search("heron ferry", max_results=1, explain=True)
    assert [result.path for result in answer.results] == ["memory/b.md"]
    assert ([each.path for each in answer.dropped], reasons(answer)) == (["memory/a.md"], ["RERANKED"])


WORDS = ["heron", "ferry", "lamp", "weir", "the", "crane"]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join) | st.sampled_from(WORDS).map(
    lambda word: f"{word} " * 300
)
lines = st.sampled_from(WORDS).map(lambda word: f"the {word} stands near the weir and waits\n" * 60)
corpora = st.dictionaries(
    st.sampled_from([f"memory/{name}.md" for name in ("a", "b", "2026-05-01", "c/d")] + ["MEMORY.md"]),
    st.lists(texts | lines, min_size=1, max_size=4).map("\n\n".join),
    min_size=2,
    max_size=5,
)
searches = st.fixed_dictionaries(
    {
        "query": st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join),
        "mode": st.sampled_from([HYBRID, KEYWORD]),
        "max_results": st.integers(1, 3),
    },
    optional={
        "min_score": st.sampled_from([0.0, 0.4, 0.9]),
        "abstain_below": st.sampled_from([0.2, 0.9]),
        "max_total_chars": st.sampled_from([5, 50]),
        "filter": st.just({"path_prefixes": ["memory/"]}),
    },
)


@pytest.fixture
def indexed(serve, provider):
    """Start one daemon for all examples of a test."""
    started = []

    async def indexed(more):
        if not started:
            started.append(await serve(by_meaning(provider, **more)))
        return started[0]

    return indexed


@pytest.mark.parametrize("more", [{**MMR, **WITH_SESSIONS}, {}], ids=["mmr and sessions", "plain"])
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(corpus=corpora, said=texts, fields=searches)
async def test_the_reasons_are_those_of_explain_miss(indexed, more, corpus, said, fields):
    running = await indexed(more)
    for file in running.home.workspace.rglob("*.md"):
        file.unlink()
    for path, text in corpus.items():
        running.home.put(path, text)
    running.home.say("s1.jsonl", json.dumps({"type": "message", "message": {"role": "user", "content": said}}) + "\n")
    await running.sync()
    answer = await running.search(explain=True, **fields)
    places = [(each.path, each.start_line, each.end_line) for each in answer.dropped]
    assert len(places) <= 20
    assert {path for path, _, _ in places} <= {*corpus, "sessions/s1.jsonl"}
    # The chunks of one long line have the same lines. ExplainMiss explains the one that came furthest.
    best = dict(reversed([*zip(places, answer.dropped, strict=True)]))
    for (path, first, last), candidate in best.items():
        hits = [hit for hit in answer.results if hit.path == path]
        assert not any(hit.start_line <= first and last <= hit.end_line for hit in hits)
        miss = await explained(running, path, first, **fields)
        if any(hit.start_line <= first <= hit.end_line for hit in hits):
            assert miss.reason == pb.MISS_REASON_FOUND
        elif (miss.chunk.start_line, miss.chunk.end_line) == (first, last):
            assert (miss.reason, miss.explanation) == (candidate.reason, candidate.explanation)
            assert miss.chunk.score == candidate.score
        else:
            # Another chunk with this line came further.
            assert (path, miss.chunk.start_line, miss.chunk.end_line) in places
