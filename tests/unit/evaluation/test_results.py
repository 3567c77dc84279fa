import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.evaluation.results import ResultsFileError, question_scores, read_results, results_json
from memoryd_server.evaluation.scoring import GoldenQuery, QueryOutcome, Scores
from properties import examples

METRICS = ["recall@6", "hit@1", "mrr@10", "ndcg@10", "shown@6"]
SHARES = st.floats(0, 1)


def outcome(key, scores=None, *, empty=False):
    return QueryOutcome(GoldenQuery(key, Path("/w"), "?", (), "fact", "en", "locker", None), scores, empty)


OUTCOMES = [outcome("locker/1", Scores(1, 0, 1 / 3, 0.5, 1)), outcome("locker/é", empty=True)]
RESULTS = {"mode": "keyword", "overall": {"queries": 1}, **question_scores(OUTCOMES)}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "results.json"


def check_refused(file, content, says):
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    with pytest.raises(ResultsFileError, match=says):
        read_results(file)


def test_each_question_is_one_line():
    lines = results_json(RESULTS).splitlines()
    assert lines[-5:] == [
        '  "questions": {',
        '    "locker/1": [1,0,0.3333,0.5,1],',
        '    "locker/é": {"answered_with_nothing":1}',
        "  }",
        "}",
    ]
    assert json.loads("\n".join(lines)) == RESULTS


def test_the_questions_are_last_wherever_the_key_is():
    text = results_json({"questions": RESULTS["questions"], "overall": {"queries": 1}, "by": {}})
    assert list(json.loads(text)) == ["overall", "by", "questions"]


def test_a_written_file_is_read_back(file):
    file.write_text(results_json(RESULTS), "utf-8")
    results = read_results(file)
    assert results.mode == "keyword"
    assert results.questions == {each.query.key: each.as_dict() for each in OUTCOMES}


@settings(max_examples=examples(200))
@given(st.dictionaries(st.text(min_size=1), st.none() | st.builds(Scores, *[SHARES] * 5), min_size=1), st.booleans())
def test_any_scores_are_read_back_as_they_are_compared(tmp_path_factory, scores, empty):
    file = tmp_path_factory.getbasetemp() / "any.json"
    outcomes = [outcome(key, each, empty=empty) for key, each in scores.items()]
    file.write_text(results_json({"overall": {}, **question_scores(outcomes)}), "utf-8")
    assert read_results(file).questions == {each.query.key: each.as_dict() for each in outcomes}


@pytest.mark.parametrize("change", [{"questions": None}, {"question_metrics": None}, {"question_metrics": METRICS[:4]}])
def test_a_file_of_another_version_is_refused_with_what_to_do(file, change):
    old = {key: value for key, value in (RESULTS | change).items() if value is not None}
    check_refused(file, old, r"another version of memoryd wrote it.*memoryd eval --out FILE")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not a results file"),
        ('{"overall": {', "not a results file"),
        ("[" * 100_000, "not a results file.* nested too deeply"),
        ([], "no key 'overall'"),
        ({"locker": 1}, "no key 'overall'"),
        (RESULTS | {"questions": []}, "'questions' must be an object"),
    ],
)
def test_another_file_is_refused(file, content, says):
    check_refused(file, content, says)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ResultsFileError, match=r"nowhere\.json cannot be read: No such file"):
        read_results(tmp_path / "nowhere.json")
    with pytest.raises(ResultsFileError, match="cannot be read: Is a directory"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    "row",
    [
        None,
        1,
        [1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 2],
        [1, 1, 1, 1, -0.1],
        [1, 1, 1, 1, True],
        [1, 1, 1, 1, "1"],
        [1, 1, 1, 1, float("nan")],
        {},
        {"answered_with_nothing": 2},
        {"answered_with_nothing": 1, "hit@1": 1},
    ],
)
def test_a_question_with_invalid_scores_is_named(file, row):
    check_refused(file, RESULTS | {"questions": {"locker/7": row}}, "scores of question 'locker/7' must be 5 numbers")
