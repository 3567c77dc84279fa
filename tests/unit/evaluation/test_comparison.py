from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.evaluation.comparison import RESAMPLES, compare_runs, mean_intervals
from memoryd_server.evaluation.scoring import GoldenQuery, QueryOutcome, Scores
from properties import examples

ZERO = {"recall@6": 0, "hit@1": 0, "mrr@10": 0, "ndcg@10": 0, "shown@6": 0}


def outcome(key, score=None, *, empty=False, dataset="locker", **scores):
    """The outcome of a question; `score` is the value of each metric, and None if the question has no answer."""
    query = GoldenQuery(key, Path("/w"), "?", (), "fact", "en", dataset, None)
    metrics = dict.fromkeys(("recall", "hit", "mrr", "ndcg", "shown"), score) | scores
    return QueryOutcome(query, None if score is None else Scores(**metrics), empty)


def run(scores, **labels):
    return [outcome(str(number), score, **labels) for number, score in enumerate(scores)]


def earlier(outcomes):
    return {each.query.key: each.as_dict() for each in outcomes}


def compare_scores(old, new):
    return compare_runs(earlier(run(old)), run(new), []).overall["recall@6"]


def test_equal_runs_differ_by_exactly_zero():
    scores = [1 / 3, 0, 0.1, 1, 2 / 3] * 7
    found = compare_scores(scores, scores)
    assert (found.difference, found.low, found.high) == (0, 0, 0)
    assert (found.better, found.worse, found.significant) == (0, 0, False)
    assert found.old == found.new == pytest.approx(0.42, abs=1e-4)


def test_the_same_difference_in_every_question_has_an_interval_of_one_point():
    found = compare_scores([0.1, 0.5, 0.2] * 5, [0.35, 0.75, 0.45] * 5)
    assert (found.difference, found.low, found.high, found.significant) == (0.25, 0.25, 0.25, True)
    assert (found.questions, found.better, found.worse) == (15, 15, 0)


def test_the_questions_are_compared_in_pairs():
    """The means are the same; only the pairs differ."""
    old = [0.0, 1.0] * 20
    paired = compare_scores(old, [0.2, 0.9] * 20)
    crossed = compare_scores(old, [0.9, 0.2] * 20)
    assert paired.difference == crossed.difference == pytest.approx(0.05)
    assert paired.significant
    assert not crossed.significant
    assert crossed.high - crossed.low > 3 * (paired.high - paired.low)


def test_the_interval_is_close_to_the_normal_approximation():
    chance = np.random.default_rng(3)
    differences = chance.choice([-1.0, 0.0, 1.0], p=[0.1, 0.6, 0.3], size=(400, 1))
    low, high = mean_intervals(differences)
    error = 1.96 * differences.std() / 20
    assert (low[0], high[0]) == pytest.approx((differences.mean() - error, differences.mean() + error), abs=0.01)


def test_a_comparison_is_the_same_each_time():
    old, new = [0.5, 0, 1, 0.25] * 9, [0.25, 1, 1, 0] * 9
    assert compare_scores(old, new) == compare_scores(old, new)


def naive_interval(differences, seed):
    generator = np.random.default_rng(seed)
    means = []
    for _ in range(RESAMPLES):
        drawn = [differences[generator.integers(len(differences))] for _ in differences]
        means.append(sum(drawn) / len(drawn))
    means.sort()
    return [percentile(means, share) for share in (0.025, 0.975)]


def percentile(values, share):
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(-10_000, 10_000), min_size=1, max_size=12), st.integers(0, 1000))
def test_the_interval_is_that_of_a_plain_loop(differences, seed):
    low, high = mean_intervals(np.array([differences, differences[::-1]], dtype=float).T, seed)
    assert [low[0], high[0]] == pytest.approx(naive_interval(differences, seed))
    assert [low[1], high[1]] == pytest.approx(naive_interval(differences[::-1], seed))


@pytest.mark.slow
def test_resamples_that_are_drawn_in_several_steps_are_those_of_a_plain_loop():
    differences = [number % 7 - 2 for number in range(700)]
    low, high = mean_intervals(np.array([differences], dtype=float).T, 5)
    assert [low[0], high[0]] == pytest.approx(naive_interval(differences, 5))


def test_questions_of_only_one_run_are_counted_and_not_compared():
    new = [outcome("a", 1), outcome("b", 0.5), outcome("c", 0)]
    found = compare_runs({"a": ZERO, "d": ZERO, "e": ZERO}, new, ["dataset"])
    assert (found.paired, found.only_new, found.only_old) == (1, 2, 2)
    assert found.overall["recall@6"].questions == 1
    assert found.overall["recall@6"].difference == 1


def test_a_question_that_has_an_answer_in_only_one_run_is_not_compared():
    old = {"a": ZERO, "b": {"answered_with_nothing": 1}}
    found = compare_runs(old, [outcome("a", None), outcome("b", 1)], [])
    assert (found.paired, found.only_new, found.only_old, found.overall) == (0, 2, 2, {})


def test_the_share_without_results_is_compared_over_the_unanswerable_questions():
    old = earlier([outcome("a", 1), outcome("b", empty=False), outcome("c", empty=True)])
    found = compare_runs(old, [outcome("a", 1), outcome("b", empty=True), outcome("c", empty=True)], [])
    silent = found.overall["answered_with_nothing"]
    assert (silent.questions, silent.old, silent.new, silent.difference, silent.better) == (2, 0.5, 1, 0.5, 1)
    assert found.overall["recall@6"].questions == 1


def test_each_group_has_its_own_comparison():
    new = [outcome("a", 1), outcome("b", 0, dataset="attic"), outcome("c", 1, dataset="cellar")]
    found = compare_runs({"a": ZERO, "b": ZERO}, new, ["dataset", "dataset/lang"])
    assert {name: group["hit@1"].difference for name, group in found.by["dataset"].items()} == {"attic": 0, "locker": 1}
    assert list(found.by["dataset/lang"]) == ["attic/en", "locker/en"]


def test_a_loss_is_a_decrease_of_a_guarded_metric_by_more_than_the_limit():
    old = earlier(run([1.0] * 10))
    new = run([1.0] * 10)
    new[0] = outcome("0", 1.0, recall=0.0, mrr=0.0, ndcg=0.0)
    found = compare_runs(old, new, ["dataset"])
    assert list(found.losses("dataset", 0.09)) == [("locker", "recall@6", 0.1)]
    assert list(found.losses("dataset", 0.1)) == []


def test_the_json_has_the_numbers_of_every_group():
    found = compare_runs(earlier(run([0.5] * 4)), run([1.0] * 4), ["lang"]).as_dict()
    assert (found["questions"], found["only_in_this_run"], found["only_in_other_run"]) == (4, 0, 0)
    assert found["resamples"] == 2_000
    assert found["by"]["lang"]["en"] == found["overall"]
    assert found["overall"]["shown@6"] == {
        "questions": 4,
        "better": 4,
        "worse": 0,
        "old": 0.5,
        "new": 1,
        "difference": 0.5,
        "low": 0.5,
        "high": 0.5,
        "significant": True,
    }
