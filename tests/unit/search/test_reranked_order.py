"""The order of results that a reranker scored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.search.reranking import reranked_order

units = st.floats(0, 1)
results = st.lists(st.tuples(units, st.none() | units), max_size=30)


def order(found, weight):
    return reranked_order([own for own, _ in found], [score for _, score in found], weight)


def value(own, score, best, weight):
    return weight * score + (1 - weight) * (own / best if best > 0 else 0.0)


@pytest.mark.parametrize(
    ("own", "scores", "weight", "expected"),
    [
        ([0.9, 0.6, 0.3], [0.1, 0.2, 0.9], 1.0, [2, 1, 0]),
        ([0.9, 0.6, 0.3], [0.1, 0.2, 0.9], 0.0, [0, 1, 2]),
        ([0.9, 0.6, 0.3], [0.1, 0.2, 0.9], 0.7, [2, 0, 1]),
        ([0.9, 0.6, 0.3], [None, 0.2, 0.9], 0.7, [2, 1, 0]),
        ([0.9, 0.6, 0.3], [None, None, None], 0.7, [0, 1, 2]),
        ([0.9, 0.6, 0.3], [0.5], 0.7, [0, 1, 2]),
        ([0.0, 0.0], [0.1, 0.2], 0.7, [1, 0]),
        ([0.5, 0.5, 0.5], [0.3, 0.3, 0.3], 0.7, [0, 1, 2]),
        ([], [], 0.7, []),
    ],
)
def test_the_order_is_that_of_the_weighted_sum(own, scores, weight, expected):
    assert reranked_order(own, scores, weight) == expected


@given(results, units)
def test_no_result_is_lost_and_none_is_added(found, weight):
    assert sorted(order(found, weight)) == list(range(len(found)))


@given(results)
def test_a_weight_of_0_changes_nothing(found):
    assert order(found, 0.0) == list(range(len(found)))


@given(results, st.floats(0.01, 1))
def test_results_without_a_score_follow_in_their_order(found, weight):
    places = order(found, weight)
    unscored = [place for place, (_, score) in enumerate(found) if score is None]
    assert places[len(found) - len(unscored) :] == unscored


@given(results, st.floats(0.01, 1))
def test_scored_results_are_in_the_order_of_their_value_and_equal_ones_keep_theirs(found, weight):
    best = max((own for own, _ in found), default=0.0)
    values = {n: value(own, score, best, weight) for n, (own, score) in enumerate(found) if score is not None}
    places = [place for place in order(found, weight) if place in values]
    assert places == sorted(values, key=lambda place: (-values[place], place))


@given(results, st.floats(0.01, 1), st.floats(0.01, 100))
def test_the_scale_of_the_own_scores_does_not_matter(found, weight, scale):
    places = reranked_order([own for own, _ in found], [score for _, score in found], 1.0)
    scaled = reranked_order([own * scale for own, _ in found], [score for _, score in found], 1.0)
    assert places == scaled


@given(st.lists(units, min_size=1, max_size=20), st.floats(0.01, 1), st.data())
def test_a_better_score_never_moves_a_result_down(own, weight, data):
    scores = data.draw(st.lists(units, min_size=len(own), max_size=len(own)))
    chosen = data.draw(st.integers(0, len(own) - 1))
    better = data.draw(st.floats(scores[chosen], 1))
    raised = [better if place == chosen else score for place, score in enumerate(scores)]
    before, after = reranked_order(own, scores, weight), reranked_order(own, raised, weight)
    assert after.index(chosen) <= before.index(chosen)
