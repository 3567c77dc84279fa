import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memoryd_server.evaluation.golden import GoldenSetError, read_golden_set
from memoryd_server.evaluation.scoring import LineSpan

ROW = {"id": "1", "workspace": "town", "query": "who?", "gold": [["a.md", 2, 3]], "kind": "fact", "lang": "en"}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "harbour"
    (folder / "town").mkdir(parents=True)
    (folder / "town" / "a.md").write_text("one\ntwo\nthree\n", "utf-8")
    return folder


def write(folder, *rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def check_refused(data, *rows, says):
    write(data, *rows)
    with pytest.raises(GoldenSetError, match=says):
        read_golden_set(data)


def test_a_row_becomes_a_question_with_the_text_that_answers_it(data):
    write(data, {**ROW, "ref_date": "2026-02-07", "answer": "not ours"})
    [query] = read_golden_set(data)
    assert (query.key, query.text, query.kind, query.lang) == ("harbour/1", "who?", "fact", "en")
    assert query.workspace == data / "town"
    assert [(gold.span, gold.text) for gold in query.gold] == [(LineSpan("a.md", 2, 3), "two\nthree")]
    assert query.asked_at == datetime(2026, 2, 7, 12, tzinfo=UTC)


def test_a_question_belongs_to_its_folder_unless_it_names_a_dataset(data):
    write(data, ROW, "", {**ROW, "id": "2", "dataset": "boats"})
    assert [query.dataset for query in read_golden_set(data)] == ["harbour", "boats"]


def test_a_folder_of_sets_is_read_in_the_order_of_their_names(data):
    write(data, ROW)
    other = data.parent / "anchor"
    (other / "town").mkdir(parents=True)
    (other / "town" / "a.md").write_text("one\ntwo\nthree", "utf-8")
    write(other, ROW)
    assert [query.dataset for query in read_golden_set(data.parent)] == ["anchor", "harbour"]


@pytest.mark.parametrize("change", [{"gold": []}, {"kind": "adversarial"}])
def test_an_unanswerable_query_has_no_gold_spans(data, change):
    write(data, ROW | change)
    assert [query.gold for query in read_golden_set(data)] == [()]


@pytest.mark.parametrize(
    ("content", "text"),
    [("hello there", "hello there"), ([{"type": "text", "text": "hello"}, {"text": "there"}], "hello there")],
)
def test_the_gold_of_a_transcript_is_what_was_said(data, content, text):
    (data / "town" / "s.jsonl").write_text(json.dumps({"message": {"content": content}}) + "\nnot JSON\n", "utf-8")
    write(data, {**ROW, "gold": [["s.jsonl", 1, 1], ["s.jsonl", 2, 2]]})
    assert [gold.text for gold in read_golden_set(data)[0].gold] == [text, "not JSON"]


@pytest.mark.parametrize("name", ["id", "workspace", "query", "kind", "lang"])
@pytest.mark.parametrize("value", [None, 3, " "])
def test_a_missing_field_is_reported_with_file_and_line(data, name, value):
    check_refused(data, {**ROW, "id": "0"}, ROW | {name: value}, says=rf"queries\.jsonl:2: '{name}' must be a string")


@pytest.mark.parametrize(
    "gold",
    [None, "a.md", [["a.md", 1]], [["a.md", 0, 1]], [["a.md", 3, 2]], [["a.md", "1", 2]], [[1, 1, 2]], ["a.md"]],
)
def test_ill_formed_gold_is_reported_with_file_and_line(data, gold):
    check_refused(data, ROW | {"gold": gold}, says=r"queries\.jsonl:1: 'gold'")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "queries.jsonl:1: not JSON"),
        ("[]", "queries.jsonl:1: a row must be a JSON object"),
        (ROW | {"workspace": "city"}, "'city' is not a folder"),
        (ROW | {"gold": [["b.md", 1, 1]]}, "'b.md' cannot be read"),
        (ROW | {"gold": [["a.md", 1, 9]]}, "ends at line 9 of 'a.md', which has 4"),
        (ROW | {"ref_date": "yesterday"}, "'ref_date' must be a day"),
        (ROW | {"dataset": 1}, "'dataset' must be a string"),
    ],
)
def test_an_invalid_golden_row_is_refused(data, row, says):
    check_refused(data, row, says=says)


def test_an_id_is_unique_in_a_file(data):
    check_refused(data, ROW, ROW, says=r":2: id '1' is also in an earlier row")


def test_the_key_of_a_question_is_unique_and_does_not_depend_on_how_the_folder_is_given(data, monkeypatch):
    write(data, {**ROW, "dataset": "boats"})
    (data.parent / "anchor").symlink_to(data)
    monkeypatch.chdir(data / "town")
    folders = [data.parent, data, data / "town" / "..", Path("..")]
    keys = [[query.key for query in read_golden_set(folder)] for folder in folders]
    assert keys == [["anchor/1", "harbour/1"], ["harbour/1"], ["harbour/1"], ["harbour/1"]]


def test_a_set_without_a_question_is_refused(data):
    check_refused(data, "", says="no question")
    with pytest.raises(GoldenSetError, match="in this folder or in a folder below it"):
        read_golden_set(data / "town")
