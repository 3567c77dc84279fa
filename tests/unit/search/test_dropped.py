"""An explained search has the best candidates that are not results, and the step that left out each of them."""

import time
from dataclasses import replace

import pytest

from index_fixture import ANALYZER, IndexFixture
from memoryd_server.agent.entry_search import EntryAnswer, EntryHit, with_entries
from memoryd_server.model import Source
from memoryd_server.search import MissReason, Target, TargetTrace, explain_miss
from memoryd_server.search.engine import SearchEngine
from memoryd_server.search.query import BUILTIN, SearchMode, SearchQuery


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path).open()
    yield index
    index.close()


def birds(index, count, **texts):
    """Write notes that a search for `heron` returns in the order of their numbers."""
    texts = {f"n{number:02}": "heron " + "reeds " * 10 * number for number in range(count)} | texts
    for name, text in texts.items():
        index.write(f"memory/{name}.md", text)
    index.sync()
    return index


def query_of(**changes):
    query = SearchQuery(
        text="heron",
        max_results=2,
        min_score=None,
        min_score_is_requested=False,
        sources=(),
        mode=SearchMode.KEYWORD,
        max_snippet_chars=700,
        citations=False,
        max_total_chars=None,
        deadline=time.monotonic() + 30,
        explain=True,
    )
    return replace(query, **changes)


def engine_of(index, *, gone=()):
    return SearchEngine(
        index.store, ANALYZER, lambda rows: [(row.path not in gone, True) for row in rows], sources=[Source.MEMORY]
    )


def dropped(index, *, gone=(), **changes):
    return engine_of(index, gone=gone).search(query_of(**changes)).dropped


def names(dropped):
    return [each.path.removeprefix("memory/").removesuffix(".md") for each in dropped]


def test_a_search_that_is_not_explained_has_none(index):
    assert not dropped(birds(index, 5), explain=False)


def test_the_candidates_follow_the_results_in_their_order(index):
    assert names(dropped(birds(index, 5))) == ["n02", "n03", "n04"]


def test_at_most_20_are_returned(index):
    assert names(dropped(birds(index, 30))) == [f"n{number:02}" for number in range(2, 22)]


def test_candidates_below_the_minimum_score_come_last(index):
    birds(index, 6)
    scores = [each.score for each in dropped(index, min_score=0.0)]
    found = dropped(index, min_score=scores[1])
    assert names(found) == ["n02", "n03", "n04", "n05"]
    assert [each.score for each in found] == scores
    below = MissReason.BELOW_MIN_SCORE
    assert [each.miss.reason for each in found] == [*[MissReason.BELOW_MAX_RESULTS] * 2, below, below]


def test_nothing_is_shown_of_files_that_are_gone(index):
    gone = {"memory/n00.md", "memory/n03.md"}
    assert names(dropped(birds(index, 6), gone=gone)) == ["n04", "n05"]


def test_a_chunk_that_is_merged_into_a_result_is_not_dropped(index):
    # Each of these characters is a token, so the chunks are short.
    birds(index, 3, a="heron 今天我们在河边看到一只鸟\n" * 50)
    answer = engine_of(index).search(query_of(max_results=4))
    (hit,) = [hit for hit in answer.hits if hit.path == "memory/a.md"]
    with index.store.read() as reader:
        ids = reader.chunks_of((Source.MEMORY, "memory/a.md"), None, 10)
        rows = reader.chunks(ids).values()
    assert len(rows) > 1
    assert all(hit.start_line <= row.start_line and row.end_line <= hit.end_line for row in rows)
    assert not answer.dropped


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"abstain_below": 1.0, "text": "heron unheard"}, MissReason.ABSTAINED),
        ({"max_total_chars": 3}, MissReason.TEXT_LIMIT),
        ({"min_score": 1.0}, MissReason.BELOW_MIN_SCORE),
        ({}, MissReason.BELOW_MAX_RESULTS),
    ],
    ids=str,
)
def test_the_step_is_that_of_an_explained_file(index, changes, reason):
    birds(index, 5)
    engine, query = engine_of(index), query_of(**changes)
    found = engine.search(query).dropped
    assert reason in {each.miss.reason for each in found}
    for each in found:
        trace = TargetTrace(Target(each.source, each.path, each.start_line))
        assert explain_miss(trace, engine.search(query, trace=trace), query) == each.miss


def test_results_that_a_reranker_moves_down_are_dropped(index):
    engine = engine_of(birds(index, 4))
    prepared = engine.prepare(query_of(max_results=1), candidates=3)
    found = engine.finish(prepared, (0.1, 0.2, 1.0)).dropped
    assert names(found) == ["n00", "n01", "n03"]
    assert found[0].miss.reason is MissReason.RERANKED


ENTRIES = EntryAnswer((EntryHit("1", "a heron", 0, 0.9), EntryHit("2", "the heron", 0, 0.8)))


def test_results_whose_places_entries_take_come_first(index):
    query = query_of(max_results=3)
    answer = engine_of(birds(index, 5)).search(query)
    both = with_entries(answer, ENTRIES, query)
    assert [hit.path for hit in both.hits] == ["memory/n00.md", "entries/1", "memory/n01.md"]
    assert names(both.dropped) == ["n02", "n03", "n04"]
    trace = TargetTrace(Target(Source.MEMORY, "memory/n02.md"))
    engine_of(index).search(query, trace=trace)
    assert both.dropped[0].miss == explain_miss(trace, both, query)
    assert both.dropped[0].miss.reason is MissReason.RESERVED


def test_without_entries_nothing_is_displaced(index):
    query = query_of()
    answer = engine_of(birds(index, 5)).search(query)
    assert with_entries(answer, EntryAnswer(), query).dropped == answer.dropped


def test_displaced_results_of_another_backend_are_not_explained(index):
    query = query_of(max_results=1)
    answer = replace(engine_of(birds(index, 1)).search(query), backend="qmd")
    assert answer.backend != BUILTIN
    both = with_entries(answer, ENTRIES, replace(query, max_results=1))
    assert not both.dropped
