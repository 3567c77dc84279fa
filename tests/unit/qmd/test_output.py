"""What qmd printed, as rows."""

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.qmd.client import QmdFailure, QmdFailureReason, QmdRow, as_row, find_objects, parse_rows

CASES = json.loads((Path(__file__).parents[2] / "conformance" / "data" / "qmd_output.json").read_text("utf-8"))
ROWS = [{"file": "qmd://m/a.md", "score": 0.5, "snippet": "@@ -2,3 @@ (1 before, 0 after)\nx\ny\n"}]
PRINTED = json.dumps(ROWS, indent=2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["stdout"] + "|" + case["stderr"]))
def test_outputs_are_read_as_the_reference_reads_them(case):
    if case.get("error"):
        with pytest.raises(QmdFailure) as failed:
            parse_rows(case["stdout"], case["stderr"])
        assert failed.value.reason is QmdFailureReason.NOT_JSON
    else:
        assert parse_rows(case["stdout"], case["stderr"]) == case["rows"]


@pytest.mark.parametrize(
    "noise",
    [
        "[node-llama-cpp] loading\n",
        "[INFO] [cpu, cpu]\n[1, 2]\n",
        "├─ lex: memory\n\x1b[?25lExpanding query...\n",
        "[\n[\n[\n",
        "[]\n",
        '[{"half": \n',
        "\ufffd\ufffd(\n",
    ],
)
def test_noise_before_the_array_is_passed_over(noise):
    assert parse_rows(noise + PRINTED, "") == ROWS


def test_noise_after_the_array_is_passed_over():
    assert parse_rows(PRINTED + "\nggml_metal_free: [done]\n", "") == ROWS


@pytest.mark.attacks
@pytest.mark.parametrize("depth", [100, 600, 900, 5_000])
def test_rows_that_are_nested_too_deeply_are_a_failure(depth):
    with pytest.raises(QmdFailure) as failed:
        parse_rows('[{"file": "qmd://m/a.md", "more": ' + "[" * depth + "]" * depth + "}]", "")
    assert failed.value.reason is QmdFailureReason.NOT_JSON


@pytest.mark.parametrize("text", ["", "Segmentation is fun", PRINTED[:-20], '{"file": 1}', "[1, 2, 3]", "null"])
def test_output_without_an_array_of_objects_is_a_failure(text):
    with pytest.raises(QmdFailure) as failed:
        parse_rows(text, "")
    assert failed.value.reason is QmdFailureReason.NOT_JSON


def test_words_for_nothing_in_a_note_are_not_taken_for_an_answer():
    with pytest.raises(QmdFailure):
        parse_rows("a note that tells: no results found there: it was empty", "")


@pytest.mark.parametrize("text", ["[" * 500_000, "[1," * 300_000, "x\n[" * 200_000, "[INFO] y\n" * 100_000])
def test_brackets_without_end_do_not_take_long(text):
    began = time.monotonic()
    assert find_objects(text) is None
    assert time.monotonic() - began < 10


@given(st.text())
def test_no_text_breaks_the_reading(text):
    with suppress(QmdFailure):
        assert isinstance(parse_rows(text, ""), list)


def test_a_row_holds_the_place_and_the_score():
    fields = {
        "docid": "#4c1f51",
        "score": 0.46,
        "file": "qmd://mem/日记/会议.md",
        "line": 3,
        "snippet": ROWS[0]["snippet"],
    }
    assert as_row(fields) == QmdRow("qmd://mem/日记/会议.md", 0.46, "x\ny\n", 2, 3, 3)


@pytest.mark.parametrize(
    ("fields", "row"),
    [
        ({"file": "qmd://m/a.md"}, QmdRow("qmd://m/a.md", 0.0, "", 0, 0, 0)),
        ({"file": "qmd://m/a.md", "snippet": "no header"}, QmdRow("qmd://m/a.md", 0.0, "no header", 0, 0, 0)),
        ({"file": "qmd://m/a.md", "score": "high", "line": "3"}, QmdRow("qmd://m/a.md", 0.0, "", 0, 0, 0)),
        ({"file": "qmd://m/a.md", "score": 17, "line": -1}, QmdRow("qmd://m/a.md", 1.0, "", 0, 0, 0)),
        ({"file": "qmd://m/a.md", "score": float("nan"), "line": True}, QmdRow("qmd://m/a.md", 0.0, "", 0, 0, 0)),
        ({"score": 1}, None),
        ({"file": 7}, None),
        ({}, None),
    ],
)
def test_a_missing_or_invalid_field_of_a_row_affects_that_field_alone(fields, row):
    assert as_row(fields) == row
