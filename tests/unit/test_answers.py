"""The comparison of recorded answers: which values count, and how a difference is reported."""

import json
import sys
from pathlib import Path

import pytest

# The scripts import each other by name. At the end of the path they do not replace other modules.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from answers import Difference, answer_values, compare, differences, first_difference

CRANE = {"results": [{"path": "memory/crane.md", "score": 0.7499999999999999}], "info": {"keyword_candidates": 2}}


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file of answers, by the names of the calls, and returns its path."""

    def write_answers(name, **answers):
        rows = [json.dumps({"call": call, "answer": answer}) for call, answer in answers.items()]
        file = tmp_path / name
        file.write_text("".join(f"{row}\n" for row in rows), "utf-8")
        return file

    return write_answers


def with_score(score):
    return CRANE | {"results": [CRANE["results"][0] | {"score": score}]}


def test_files_with_equal_answers_in_another_order_are_the_same(write, capsys):
    old, new = write("old", crane=CRANE, tide={}), write("new", tide={}, crane=CRANE)
    assert compare(old, new, most=10) == 0
    assert capsys.readouterr().out == "SAME\n"


def test_score_that_differs_in_its_last_digit_is_a_difference(write):
    old, new = write("old", crane=CRANE), write("new", crane=with_score(0.75))
    expected = Difference("crane", "answer.results[0].score", 0.7499999999999999, 0.75)
    assert list(differences(old, new)) == [expected]


def test_call_in_only_one_file_is_a_difference(write):
    old, new = write("old", crane=CRANE, tide={}), write("new", crane=CRANE, harbour={})
    assert [(each.call, each.old, each.new) for each in differences(old, new)] == [
        ("tide", "recorded", None),
        ("harbour", None, "recorded"),
    ]


def test_comparison_prints_the_first_differences_and_counts_all(write, capsys):
    old = write("old", crane=CRANE, tide=CRANE, harbour=CRANE)
    new = write("new", crane=CRANE, tide=with_score(0.5), harbour=with_score(0.25))
    assert compare(old, new, most=1) == 1
    assert capsys.readouterr().out.splitlines() == [
        "tide: answer.results[0].score",
        "  old 0.7499999999999999",
        "  new 0.5",
        "DIFFERENT: 2 of 3 calls have other answers",
    ]


def test_files_without_any_call_are_not_the_same(write, capsys):
    assert compare(write("old"), write("new"), most=10) == 1
    assert "no calls" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}, None),
        ({"a": [1, 2]}, {"a": [1]}, ("a[1]", 2, None)),
        ({"a": 1}, {}, ("a", 1, None)),
        ({}, {"a": None}, ("a", None, None)),
        ({"a": 1}, {"a": 1.0}, ("a", 1, 1.0)),
        ({"a": True}, {"a": 1}, ("a", True, 1)),
        ({"a": {"b": "x"}, "c": 1}, {"a": {"b": "y"}, "c": 2}, ("a.b", "x", "y")),
        ([{}], {}, ("", [{}], {})),
    ],
)
def test_first_difference_is_returned_with_its_path_and_both_values(old, new, expected):
    assert first_difference(old, new) == expected


def test_elapsed_times_and_the_index_revision_are_not_compared():
    legs = [{"leg": "KEYWORD", "elapsed": "0.001s", "candidates": 3}]
    answer = {"info": {"elapsed": "0.002s", "index_revision": "7", "legs": legs}, "results": [{"score": 0.5}]}
    assert answer_values(answer) == {
        "info": {"legs": [{"leg": "KEYWORD", "candidates": 3}]},
        "results": [{"score": 0.5}],
    }
