"""The step that leaves out a file is read from the trace of its search."""

import time
from dataclasses import replace

import pytest

from index_fixture import ANALYZER, IndexFixture
from memoryd_server.model import Source
from memoryd_server.search import MissReason, Target, TargetTrace, explain_miss
from memoryd_server.search.engine import SearchEngine
from memoryd_server.search.query import Hit, SearchMode, SearchQuery

ENTRY = Hit("entries/1", None, 0, 0, 0.9, "a heron", 0, 0, 0)


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path).open()
    yield index
    index.close()


def synced(index, texts):
    for path, text in texts.items():
        index.write(f"memory/{path}.md", text)
    index.sync()
    return index


def searched(index, target, text="heron", *, gone=(), **changes):
    """Return the query, the answer to it and the trace of the target."""
    query = SearchQuery(
        text=text,
        max_results=6,
        min_score=None,
        min_score_is_requested=False,
        sources=(),
        mode=SearchMode.KEYWORD,
        max_snippet_chars=700,
        citations=False,
        max_total_chars=None,
        deadline=time.monotonic() + 30,
    )
    query, trace = replace(query, **changes), TargetTrace(target)
    engine = SearchEngine(
        index.store, ANALYZER, lambda rows: [(row.path not in gone, True) for row in rows], sources=[Source.MEMORY]
    )
    return query, engine.search(query, trace=trace), trace


def memory(path, line=None):
    return Target(Source.MEMORY, f"memory/{path}.md", line)


def test_a_trace_does_not_change_the_answer(index):
    synced(index, {f"n{n}": "heron " + "reeds " * n for n in range(30)})
    query, answer, _ = searched(index, memory("n29"))
    engine = SearchEngine(index.store, ANALYZER, lambda rows: [(True, True)] * len(rows), sources=[Source.MEMORY])
    assert engine.search(query).hits == tuple(replace(hit, parts=()) for hit in answer.hits)
    explained = engine.search(replace(query, explain=True))
    assert replace(explained, dropped=(), retrievers=()) == replace(answer, retrievers=())


def test_an_entry_that_takes_the_place_of_a_result_is_named(index):
    synced(index, {"a": "heron", "b": "heron reeds"})
    query, answer, trace = searched(index, memory("b"), max_results=2)
    miss = explain_miss(trace, replace(answer, hits=(answer.hits[0], ENTRY)), query)
    assert (miss.reason, miss.rank, miss.max_rank) == (MissReason.RESERVED, 2, 2)
    miss = explain_miss(trace, replace(answer, hits=(answer.hits[0], ENTRY, answer.hits[1])), query)
    assert (miss.reason, miss.rank) == (MissReason.FOUND, 3)


def test_words_that_are_too_frequent_to_be_searched_are_named(index):
    synced(index, {f"n{n}": "reeds" for n in range(20)} | {f"h{n}": "heron reeds" for n in range(7)})
    query, answer, trace = searched(index, memory("n3"), "heron reeds", max_results=3)
    miss = explain_miss(trace, answer, query)
    assert miss.reason is MissReason.NO_MATCH
    assert "reeds" in miss.explanation
    assert "rarer" in miss.explanation


def test_a_chunk_that_is_merged_into_a_better_one_has_the_rank_of_the_result(index):
    lines = "\n".join(f"reeds{n} water{n} mist{n}" for n in range(60))
    text = f"heron heron heron\n\n{lines}\n\nheron weir\n"
    synced(index, {"a": text} | {f"b{n}": "heron" for n in range(3)})
    for line in (1, 30, 64):
        query, answer, trace = searched(index, memory("a", line))
        miss = explain_miss(trace, answer, query)
        ranks = [
            rank
            for rank, hit in enumerate(answer.hits, 1)
            if hit.path == "memory/a.md" and hit.start_line <= line <= hit.end_line
        ]
        assert ([miss.rank] if miss.reason is MissReason.FOUND else []) == ranks[:1]


def test_a_deleted_file_is_gone_at_every_step(index):
    synced(index, {"a": "heron " * 40, "b": "a heron and others"})
    for changes in ({}, {"min_score": 1.0}, {"max_results": 1}, {"text": "unheard"}):
        query, answer, trace = searched(index, memory("b"), gone={"memory/b.md"}, **changes)
        assert explain_miss(trace, answer, query).reason is MissReason.NOT_ON_DISK
        assert trace.hit is None


def test_a_file_without_text_in_the_index_is_not_explained_by_the_search(index):
    synced(index, {"a": "heron"})
    for target in (memory("absent"), memory("a", 9), Target(Source.SESSIONS, "memory/a.md")):
        query, answer, trace = searched(index, target)
        assert explain_miss(trace, answer, query) is None
