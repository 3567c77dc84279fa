"""The parts of a score add up to it, whichever steps of the ranking have changed it."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embedding_fixture import EmbeddingFixture
from index_fixture import ANALYZER
from memoryd_server.model import Source
from memoryd_server.search.engine import SearchEngine
from memoryd_server.search.query import Candidate, RankingConfig, ScorePartKind, SearchMode, SearchQuery, clamp
from memoryd_server.search.ranking import Ranked
from memoryd_server.search.score_parts import score_parts
from memoryd_server.store.identity import VectorIdentity
from properties import examples

PENALTIES = (ScorePartKind.ADJACENT, ScorePartKind.DIVERSITY)
NOW = datetime(2026, 5, 20, tzinfo=UTC)


def parts_of(candidate, *, vector_share, decay=None, annotation_factor=None):
    factors = [{} if factor is None else {candidate.chunk_id: factor} for factor in (decay, annotation_factor)]
    parts = score_parts(candidate, Ranked([candidate], *factors, vector_share))
    return {part.kind: part.amount for part in parts}


def test_each_step_has_the_difference_that_it_makes():
    candidate = Candidate(1, 0, 0.6, 0.9, window=0.3, date=0.4, adjacent=0.08, diversity=0.2)
    assert parts_of(candidate, vector_share=0.75, decay=0.5, annotation_factor=1.2) == pytest.approx(
        {
            ScorePartKind.KEYWORD: 0.1,
            ScorePartKind.WINDOW: 0.025,
            ScorePartKind.VECTOR: 0.675,
            ScorePartKind.ANNOTATIONS: 0.16,
            ScorePartKind.DECAY: -0.48,
            ScorePartKind.DATE: 0.4,
            ScorePartKind.ADJACENT: -0.08,
            ScorePartKind.DIVERSITY: -0.2,
        }
    )


def test_without_windows_bm25_is_the_whole_score_of_keyword_search():
    assert parts_of(Candidate(1, 0, 0.6), vector_share=0) == {ScorePartKind.KEYWORD: 0.6}


def test_parts_of_amount_0_are_left_out():
    candidate = Candidate(1, 0, 0.0, -0.5, window=0.0)
    assert parts_of(candidate, vector_share=0.7, decay=0.5, annotation_factor=1.2) == {}
    assert parts_of(Candidate(1, 0), vector_share=0.7) == {}


WORDS = ["heron", "ferry", "lamp", "weir", "reeds", "the"]
notes = ["importance: 9", "importance: 1", "project: weir", "project: weir; mill"]
annotations = st.sampled_from(["", *(f" <!-- {note} -->" for note in notes)])
lines = st.tuples(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join), annotations)
texts = st.lists(lines.map(lambda line: f"- {line[0]}{line[1]}"), min_size=1, max_size=5).map("\n".join)
long_texts = st.sampled_from(WORDS).map(lambda word: f"the {word} stands near the weir and waits\n" * 120)
memories = st.dictionaries(
    st.sampled_from(["MEMORY.md", "memory/a.md", "memory/b.md", "memory/2026-05-01.md", "memory/2025-01-09.md"]),
    texts | long_texts,
    min_size=1,
)
words = st.lists(st.sampled_from([*WORDS, "unheard", "on 2026-05-03"]), min_size=1, max_size=4).map(" ".join)
queries = st.fixed_dictionaries(
    {
        "text": words,
        "mode": st.sampled_from([SearchMode.HYBRID, SearchMode.KEYWORD, SearchMode.VECTOR]),
        "active_projects": st.sampled_from([frozenset(), frozenset({"weir"})]),
    }
)
rankings = st.builds(
    RankingConfig,
    hybrid=st.booleans(),
    vector_weight=st.sampled_from([0.0, 0.3, 0.7]),
    text_weight=st.sampled_from([0.0, 0.3]),
    decay=st.booleans(),
    mmr=st.booleans(),
    mmr_lambda=st.sampled_from([0.0, 0.4, 1.0]),
)


@pytest.fixture
def fixture(tmp_path):
    fixture = EmbeddingFixture(tmp_path)
    yield fixture
    fixture.close()


@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(memories, queries, rankings)
def test_parts_add_up_to_the_score(fixture, memory, fields, ranking):
    for file in fixture.index.workspace.rglob("*.md"):
        file.unlink()
    for path, text in memory.items():
        fixture.index.write(path, text)
    fixture.sync()
    query = SearchQuery(
        max_results=4,
        min_score=0.0,
        min_score_is_requested=True,
        sources=(),
        max_snippet_chars=700,
        citations=False,
        max_total_chars=None,
        deadline=time.monotonic() + 60,
        now=NOW,
        explain=True,
        **fields,
    )
    engine = SearchEngine(
        fixture.index.store,
        ANALYZER,
        lambda rows: [(True, True)] * len(rows),
        sources=[Source.MEMORY],
        ranking=ranking,
    )
    vector = None if query.mode is SearchMode.KEYWORD else fixture.provider.vector(query.text)
    prepared = engine.prepare(query, vector, identity=VectorIdentity.of(fixture.provider.spec))
    for candidate in prepared.ranked.candidates:
        total = sum_of(score_parts(candidate, prepared.ranked))
        # MMR compares scores that are limited to 1.
        assert (clamp(total) if ranking.mmr else total) == pytest.approx(candidate.score, abs=1e-9)
    for hit in engine.finish(prepared).hits:
        assert clamp(sum_of(hit.parts)) == pytest.approx(hit.score, abs=1e-9)
        assert {part.kind for part in hit.parts} >= {
            kind
            for kind, value in ((ScorePartKind.DATE, hit.date), (ScorePartKind.ADJACENT, hit.adjacent))
            if value is not None
        }


def sum_of(parts):
    return sum(part.amount for part in parts if part.kind not in PENALTIES)
