"""Importance and active projects multiply scores; scores stay in 0..1, and without annotations nothing is read."""

from datetime import UTC, datetime

import pytest

from memoryd_server.model import Annotations, Source
from memoryd_server.search.neighbours import merged
from memoryd_server.search.query import Candidate, RankingConfig
from memoryd_server.search.ranking import Adjustments, adjustments, annotation_factor
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


def test_scores_above_one_keep_their_order():
    candidates = [Candidate(1, 0.95), Candidate(2, 0.9), Candidate(3, 0.5)]
    found = Adjustments({}, {2: 1.4, 1: 1.2}, {}, {1, 2, 3}).ranked(candidates)
    assert [(each.chunk_id, each.score) for each in found] == [(2, 0.9 * 1.4), (1, 0.95 * 1.2), (3, 0.5)]


HEADS = {
    1: ChunkHead(1, "memory/a.md", Source.MEMORY, 0),
    2: ChunkHead(2, "MEMORY.md", Source.MEMORY, 0, importance=10),
    3: ChunkHead(3, "memory/b.md", Source.MEMORY, 0, projects=("a",)),
}


def ranked(active=frozenset()):
    candidates = [Candidate(1, 0.6), Candidate(2, 0.5), Candidate(3, 0.5)]
    adjusted = adjustments(HEADS, (), NOW, RankingConfig(), active)
    return [each.chunk_id for each in adjusted.ranked(candidates)], dict(adjusted.annotation_factors)


def test_candidates_are_ordered_by_their_weighted_scores():
    assert ranked() == ([2, 1, 3], {2: 1.25})
    assert ranked(ACTIVE) == ([2, 1, 3], {2: 1.25, 3: 1.15})
    assert ranked(frozenset({"c"}))[0] == [2, 1, 3]


def test_adjacent_chunks_with_different_annotations_are_separate_hits():
    def row(number, annotations):
        return ChunkRow(
            number, "MEMORY.md", Source.MEMORY, number, number, f"- {number}", "", 0, 0, annotations=annotations
        )

    plain, important = Annotations(), Annotations(9)
    pairs = [(Candidate(n, 1 / n), row(n, each)) for n, each in ((1, plain), (2, important), (3, important))]
    assert [(row.start_line, row.end_line) for _, row in merged(pairs, 1_600)] == [(1, 1), (2, 3)]
