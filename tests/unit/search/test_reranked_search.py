"""A search in two steps: its results are prepared, and finished in the order of a reranker or in their own."""

import time
from types import SimpleNamespace

import pytest

from index_fixture import ANALYZER, IndexFixture
from memoryd_server.model import Source
from memoryd_server.search.engine import SearchEngine
from memoryd_server.search.query import Candidate, RankingConfig, SearchMode, SearchQuery
from memoryd_server.search.results import best_rows


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path).open()
    for number in range(1, 10):
        index.write(f"memory/{number}.md", f"# Birds\n\nheron {'filler ' * 5 * number}")
    index.sync()
    yield index
    index.close()


@pytest.fixture
def engine(index):
    def all_there(rows):
        return [(True, True) for _ in rows]

    return SearchEngine(index.store, ANALYZER, all_there, sources=[Source.MEMORY])


def query(max_results=3):
    return SearchQuery(
        text="heron",
        max_results=max_results,
        min_score=None,
        min_score_is_requested=False,
        sources=(Source.MEMORY,),
        mode=SearchMode.KEYWORD,
        max_snippet_chars=700,
        citations=False,
        max_total_chars=None,
        deadline=time.monotonic() + 30,
    )


def shown(answer):
    return [hit.path.removeprefix("memory/").removesuffix(".md") for hit in answer.hits]


def test_passages_are_the_texts_after_their_headings_best_first(engine):
    passages = engine.prepare(query(), candidates=5).passages
    assert [len(text) for text in passages] == sorted(len(text) for text in passages)
    assert len(passages) == 5
    assert passages[0].startswith("# Birds")
    assert "heron filler" in passages[0]


def test_without_scores_the_answer_is_that_of_a_search_without_a_reranker(engine):
    plain, prepared = engine.search(query()), engine.prepare(query(), candidates=9)
    assert engine.finish(prepared).hits == engine.finish(prepared, (None,) * 9).hits == plain.hits


def test_a_result_beyond_the_requested_number_can_become_the_first(engine):
    prepared = engine.prepare(query(), candidates=9)
    answer = engine.finish(prepared, (0.1, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 1.0))
    assert shown(answer) == ["9", "2", "1"]
    assert [hit.rerank for hit in answer.hits] == [1.0, 0.2, 0.1]


def test_scores_of_hits_do_not_change(engine):
    prepared = engine.prepare(query(9), candidates=9)
    before = {hit.path: hit.score for hit in engine.finish(prepared).hits}
    after = engine.finish(prepared, tuple(number / 10 for number in range(9)))
    assert {hit.path: hit.score for hit in after.hits} == before


def test_results_without_a_score_follow(engine):
    answer = engine.finish(engine.prepare(query(9), candidates=9), (None, 0.1))
    assert shown(answer)[:3] == ["2", "1", "3"]
    assert [hit.rerank for hit in answer.hits[:3]] == [0.1, None, None]


def test_the_weight_of_the_settings_counts(engine):
    prepared = engine.prepare(query(9), candidates=9)
    engine.set_ranking(RankingConfig(rerank_weight=0.0))
    assert shown(engine.finish(prepared, tuple(number / 10 for number in range(9)))) == list("123456789")
    engine.set_ranking(RankingConfig(rerank_weight=1.0))
    assert shown(engine.finish(prepared, tuple(number / 10 for number in range(9)))) == list("987654321")


def test_each_source_keeps_its_reserved_places():
    rows = [(Candidate(number, 0.5), row(number, Source.MEMORY)) for number in range(8)]
    rows += [(Candidate(number, 0.1), row(number, Source.SESSIONS)) for number in range(8, 12)]
    assert [candidate.chunk_id for candidate, _ in best_rows(rows, 6, share=True)] == [0, 1, 2, 3, 8, 9]
    assert [candidate.chunk_id for candidate, _ in best_rows(rows, 6, share=False)] == [0, 1, 2, 3, 4, 5]


def row(number, source):
    return SimpleNamespace(id=number, source=source)
