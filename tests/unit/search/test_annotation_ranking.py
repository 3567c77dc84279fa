"""Importance and active projects multiply scores; scores stay in 0..1, and without annotations nothing is read."""

from datetime import UTC, datetime

import pytest

from memoryd_server.model import Annotations, Source
from memoryd_server.search.query import Candidate, RankingConfig
from memoryd_server.search.ranking import annotation_factor, rank, weighted
from memoryd_server.search.results import merged
from memoryd_server.store.rows import ChunkHead, ChunkRow

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ACTIVE = frozenset({"a", "b"})


@pytest.mark.parametrize(("importance", "factor"), [(None, 1), (1, 0.8), (5, 1), (6, 1.05), (10, 1.25)])
def test_an_importance_of_five_is_neutral(importance, factor):
    assert annotation_factor(importance, (), frozenset()) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("projects", "active", "factor"),
    [
        ((), ACTIVE, 1),
        (("a",), frozenset(), 1),
        (("a",), ACTIVE, 1.15),
        (("a", "b"), ACTIVE, 1.15),
        (("a", "c"), ACTIVE, 0.9),
        (("!invalid",), ACTIVE, 0.9),
    ],
)
def test_a_chunk_whose_projects_are_all_active_counts_more_and_any_other_annotated_one_less(projects, active, factor):
    assert annotation_factor(None, projects, active) == pytest.approx(factor)


def test_both_factors_apply():
    assert annotation_factor(10, ("a",), ACTIVE) == pytest.approx(1.25 * 1.15)


def test_scores_above_one_are_returned_as_one_in_their_order():
    found = weighted([Candidate(1, 0.95), Candidate(2, 0.9), Candidate(3, 0.5)], {2: 1.4, 1: 1.2})
    assert [(each.chunk_id, each.score) for each in found] == [(2, 1.0), (1, 1.0), (3, 0.5)]


HEADS = {
    1: ChunkHead(1, "memory/a.md", Source.MEMORY, 0),
    2: ChunkHead(2, "MEMORY.md", Source.MEMORY, 0, importance=10),
    3: ChunkHead(3, "memory/b.md", Source.MEMORY, 0, projects=("a",)),
}


def ranked(*, annotated, active=frozenset()):
    asked = []

    def heads():
        asked.append(True)
        return HEADS

    found = rank(
        [Candidate(1, 0.6), Candidate(2, 0.5), Candidate(3, 0.5)],
        heads,
        query="heron",
        now=NOW,
        ranking=RankingConfig(),
        texts_of=lambda _: {},
        words_of=str.split,
        annotated=annotated,
        active_projects=active,
    )
    return [each.chunk_id for each in found.candidates], dict(found.annotation_factors), bool(asked)


def test_an_index_without_annotations_is_ranked_without_reading_a_row():
    assert ranked(annotated=False, active=ACTIVE) == ([1, 2, 3], {}, False)


def test_candidates_are_ordered_by_their_weighted_scores():
    assert ranked(annotated=True) == ([2, 1, 3], {2: 1.25}, True)
    assert ranked(annotated=True, active=ACTIVE) == ([2, 1, 3], {2: 1.25, 3: 1.15}, True)
    assert ranked(annotated=True, active=frozenset({"c"}))[0] == [2, 1, 3]


def test_adjacent_chunks_with_different_annotations_are_separate_hits():
    def row(number, annotations):
        return ChunkRow(
            number, "MEMORY.md", Source.MEMORY, number, number, f"- {number}", "", 0, 0, annotations=annotations
        )

    plain, important = Annotations(), Annotations(9)
    pairs = [(Candidate(n, 1 / n), row(n, each)) for n, each in ((1, plain), (2, important), (3, important))]
    assert [(row.start_line, row.end_line) for _, row in merged(pairs, 1_600)] == [(1, 1), (2, 3)]
