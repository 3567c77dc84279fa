"""The keyword leg's order is kept, and a qualifying hit is never displaced."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.index.rows import KeywordHit
from memoryd_server.search.fusion import Candidate, cut, fuse, text_score

# What FTS5 gives: negative, the best first.
RANKS = st.lists(st.floats(-40, -1e-6), min_size=1, max_size=50, unique_by=lambda x: round(x, 6)).map(sorted)


def hits(ranks):
    return [KeywordHit(i, bm25) for i, bm25 in enumerate(ranks)]


@given(RANKS)
def test_scores_fall_strictly_with_the_rank(ranks):
    fused = fuse(hits(ranks))
    scores = [c.score for c in fused]
    assert [c.chunk_id for c in fused] == list(range(len(ranks)))
    assert [c.keyword_rank for c in fused] == list(range(1, len(ranks) + 1))
    assert all(a > b for a, b in itertools.pairwise(scores))
    assert scores[0] == 1.0
    assert min(scores) > 0.0


def test_the_ranks_of_the_report_are_told_apart():
    assert [round(c.score, 3) for c in fuse(hits([-6.03, -4.58, -4.10]))] == [1.0, 0.76, 0.68]


@pytest.mark.parametrize(
    ("bm25", "best", "score"), [(0.0, 0.0, 1.0), (-1e-6, -1e-6, 1.0), (0.0, -2.0, 0.0), (-3.0, -2.0, 1.0)]
)
def test_a_score_stays_between_none_and_one(bm25, best, score):
    assert text_score(bm25, best) == score


def test_nothing_found_is_nothing():
    assert fuse([]) == []


def candidates(*scores, backed=True):
    return [Candidate(i, score, score, i + 1 if backed else None) for i, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "bar", "expected"),
    [
        ([1.0, 0.5, 0.2], (0.35, 10, True), ([0, 1], 1)),
        ([1.0, 0.5, 0.2], (0.35, 10, False), ([0, 1, 2], 0)),
        ([1.0, 0.5, 0.2], (0.35, 2, False), ([0, 1], 0)),
        ([0.3, 0.2], (0.35, 10, False), ([0, 1], 0)),
        ([0.3, 0.2], (0.35, 10, True), ([], 2)),
        ([0.35], (0.35, 1, True), ([0], 0)),
        ([1.0], (1.0, 1, True), ([0], 0)),
        ([], (0.35, 5, True), ([], 0)),
    ],
)
def test_hits_below_the_bar_only_fill_what_room_is_left(scores, bar, expected):
    min_score, most, strict = bar
    kept, dropped = cut(candidates(*scores), min_score, most, strict=strict)
    assert ([c.chunk_id for c in kept], dropped) == expected


def test_hits_that_no_word_backs_are_dropped_below_the_bar():
    kept, gone = cut(candidates(0.3, backed=False), 0.35, 5, strict=False)
    assert (kept, gone) == ([], 1)


@given(st.lists(st.floats(0, 1), max_size=30), st.floats(0, 1), st.integers(1, 40), st.booleans())
def test_no_hit_below_the_bar_stands_before_one_above_it(scores, min_score, most, strict):
    kept, _ = cut(candidates(*sorted(scores, reverse=True)), min_score, most, strict=strict)
    above = [c.score >= min_score for c in kept]
    assert above == sorted(above, reverse=True)
    assert len(kept) <= most
    assert sum(above) == min(most, sum(score >= min_score for score in scores))
