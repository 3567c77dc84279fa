"""Scores are weighted means of what the legs say; one leg's order is kept; a qualifying hit is never displaced."""

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.search.cutoff import apply_cutoff, cut_below
from memoryd_server.search.query import Candidate, SearchMode, SearchQuery, text_score
from memoryd_server.search.ranking import fuse
from memoryd_server.store.rows import KeywordHit

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


def test_the_ranks_of_both_retrievers_are_reported_separately():
    assert [round(c.score, 3) for c in fuse(hits([-6.03, -4.58, -4.10]))] == [1.0, 0.76, 0.68]


@pytest.mark.parametrize(
    ("bm25", "best", "score"), [(0.0, 0.0, 1.0), (-1e-6, -1e-6, 1.0), (0.0, -2.0, 0.0), (-3.0, -2.0, 1.0)]
)
def test_a_score_stays_between_none_and_one(bm25, best, score):
    assert text_score(bm25, best) == score


def test_nothing_found_is_nothing():
    assert fuse([]) == []


@dataclass(frozen=True)
class Near:
    chunk_id: int
    cosine: float


def test_a_chunk_of_both_legs_gets_its_share_of_each():
    (found,) = fuse([KeywordHit(7, -4.0)], [Near(7, 0.5)], vector_weight=0.7, text_weight=0.3)
    assert found == Candidate(7, pytest.approx(0.65), 1.0, 0.5, 1, 1)


def test_a_hit_that_one_retriever_did_not_return_gets_its_true_score():
    words, meanings = [KeywordHit(1, -4.0), KeywordHit(2, -2.0)], [Near(1, 0.9), Near(3, 0.8)]
    found = fuse(words, meanings, true_cosine={2: 0.5}, true_bm25={3: -1.0})
    assert [c.chunk_id for c in found] == [1, 3, 2]
    assert found[1] == Candidate(3, pytest.approx(0.7 * 0.8 + 0.3 * 0.25), 0.25, 0.8, None, 2)
    assert found[2] == Candidate(2, pytest.approx(0.7 * 0.5 + 0.3 * 0.5), 0.5, 0.5, 2, None)


def test_an_unknown_score_counts_as_zero():
    found = fuse([KeywordHit(1, -4.0)], [Near(2, 0.8)])
    assert found == [
        Candidate(2, pytest.approx(0.56), None, 0.8, None, 1),
        Candidate(1, pytest.approx(0.3), 1.0, None, 1, None),
    ]


def test_the_leg_that_ran_alone_decides_alone():
    assert [c.score for c in fuse([KeywordHit(1, -4.0)], None)] == [1.0]
    assert [c.score for c in fuse([KeywordHit(1, -4.0)], [])] == [1.0]
    assert [c.score for c in fuse(None, [Near(1, 0.8)])] == [0.8]
    assert [c.score for c in fuse([], [Near(1, 0.8)])] == [0.8]


@pytest.mark.parametrize(
    ("weights", "score"), [((2.0, 2.0), 0.75), ((1.0, 0.0), 0.5), ((0.0, 1.0), 1.0), ((0.0, 0.0), 0.75)]
)
def test_weights_are_taken_relative_to_their_sum(weights, score):
    vector_weight, text_weight = weights
    (found,) = fuse([KeywordHit(1, -4.0)], [Near(1, 0.5)], vector_weight=vector_weight, text_weight=text_weight)
    assert found.score == pytest.approx(score)


@pytest.mark.parametrize(("cosine", "score"), [(-1.0, 0.0), (-0.2, 0.0), (1.0000001, 1.0), (float("nan"), 0.0)])
def test_a_cosine_counts_between_zero_and_one_and_is_reported_unclipped(cosine, score):
    (found,) = fuse(None, [Near(1, cosine)])
    assert found.score == score
    assert found.vector_score is cosine


def test_a_true_bm25_says_nothing_where_no_word_was_found():
    (found,) = fuse([], [Near(1, 1.0)], true_bm25={1: -3.0})
    assert (found.text_score, found.score) == (None, 1.0)


def test_a_true_bm25_can_lift_a_chunk_above_others():
    found = fuse([KeywordHit(1, -4.0)], [Near(2, 0.9), Near(3, 0.8)], true_bm25={3: -3.9})
    assert [(c.chunk_id, c.keyword_rank, c.vector_rank) for c in found] == [(3, None, 2), (2, None, 1), (1, 1, None)]


def test_equal_scores_keep_the_keyword_order_then_the_vector_order():
    found = fuse(hits([-1.0, -1.0]), [Near(5, 1.0), Near(4, 1.0)], vector_weight=1, text_weight=1)
    assert [c.chunk_id for c in found] == [0, 1, 5, 4]


COSINES = st.dictionaries(st.integers(0, 60), st.floats(-1, 1), max_size=30)
WEIGHTS = st.floats(0, 1)


@given(RANKS, COSINES, COSINES, WEIGHTS, WEIGHTS)
def test_the_order_is_that_of_scores_between_none_and_one(ranks, cosines, known, vector_weight, text_weight):
    near = [Near(i, cosine) for i, cosine in sorted(cosines.items(), key=lambda item: -item[1])]
    shares = {"vector_weight": vector_weight, "text_weight": text_weight}
    told = {chunk_id: -0.5 for chunk_id in cosines if chunk_id >= len(ranks)}
    found = fuse(hits(ranks), near, **shares, true_cosine=known, true_bm25=told)
    scores = [c.score for c in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert {c.chunk_id for c in found} == {*range(len(ranks)), *cosines}
    assert {c.chunk_id: c.keyword_rank for c in found if c.keyword_rank} == {i: i + 1 for i in range(len(ranks))}
    assert {c.chunk_id: c.vector_rank for c in found if c.vector_rank} == {n.chunk_id: i for i, n in enumerate(near, 1)}


@pytest.mark.parametrize(
    ("scores", "least", "expected"),
    [
        ([1.0, 0.5, 0.2], 0.35, ([0, 1], 1)),
        ([0.3, 0.2], 0.35, ([], 2)),
        ([0.35], 0.35, ([0], 0)),
        ([1.0], 1.0, ([0], 0)),
        ([0.5, 0.0], 0.0, ([0, 1], 0)),
        ([], 0.35, ([], 0)),
        # The order of maximal marginal relevance stays.
        ([0.9, 0.2, 0.8], 0.35, ([0, 2], 1)),
    ],
)
def test_candidates_below_the_least_score_are_removed(scores, least, expected):
    kept, dropped = cut_below([Candidate(i, score) for i, score in enumerate(scores)], least)
    assert ([c.chunk_id for c in kept], dropped) == expected


SCORED = st.tuples(st.floats(0, 1), st.booleans(), st.booleans())


@given(st.lists(SCORED, max_size=30), st.floats(0, 1), st.booleans())
def test_no_shown_candidate_scores_less_than_a_removed_one(parts, least, requested):
    """The least score means the same in the settings and in a request, for both retrievers."""
    candidates = [
        Candidate(i, score, keyword_rank=i + 1 if keyword else None, vector_rank=i + 1 if vector else None)
        for i, (score, keyword, vector) in enumerate(parts)
    ]
    query = SearchQuery("heron", 6, least, requested, (), SearchMode.UNSPECIFIED, 700, False, None, 0.0)
    cutoff = apply_cutoff(candidates, query, None)
    removed = [c for c in candidates if c not in cutoff.candidates]
    assert cutoff.dropped == len(removed)
    assert all(c.score >= least for c in cutoff.candidates)
    assert all(c.score < least for c in removed)
