"""The turns that no memory answers, with which the recall before a turn is measured."""

import json
from collections import Counter
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden"
ROWS, CONTROL, UNSEEN = (
    [json.loads(line) for line in (GOLDEN / name).read_text("utf-8").splitlines()]
    for name in ("small_talk.jsonl", "small_talk_control.jsonl", "small_talk_unseen.jsonl")
)
TURNS = 200
CONTROL_TURNS = 60
UNSEEN_TURNS = 100
KINDS = {
    "acknowledgement",
    "chit-chat",
    "code",
    "command",
    "data",
    "farewell",
    "greeting",
    "instruction",
    "knowledge",
    "log",
    "thanks",
}
PASTED = {"code", "data", "log"}
MOST_LINES = 45
MOST_CHARS_OF_A_MESSAGE = 120


def test_each_row_is_a_turn_with_its_kind_and_language():
    rows = [*ROWS, *CONTROL, *UNSEEN]
    assert all(list(row) == ["kind", "language", "text"] for row in rows)
    assert all(isinstance(value, str) and value == value.strip() != "" for row in rows for value in row.values())


def test_there_are_200_different_turns_and_160_others_to_check_the_rule_with():
    texts = {row["text"] for row in ROWS}
    assert len(ROWS) == len(texts) == TURNS
    control = {row["text"] for row in CONTROL}
    assert len(CONTROL) == len(control - texts) == CONTROL_TURNS
    assert {row["kind"] for row in CONTROL} == KINDS - PASTED - {"command"}
    unseen = {row["text"] for row in UNSEEN}
    assert len(UNSEEN) == len(unseen) == UNSEEN_TURNS
    assert {row["kind"] for row in UNSEEN} == KINDS - {"data"}


def test_each_kind_has_at_least_ten_turns():
    counts = Counter(row["kind"] for row in ROWS)
    assert set(counts) == KINDS
    assert min(counts.values()) >= 10, counts


def test_most_turns_are_in_english_and_the_others_in_many_scripts():
    languages = Counter(row["language"] for row in ROWS)
    assert 0.6 <= languages["en"] / TURNS <= 0.8
    assert len(languages) >= 9
    others = "".join(row["text"] for row in ROWS if row["language"] != "en")
    # Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, Hangul, kana and Han.
    for first, last in ("αω", "ая", "את", "اي", "अह", "กฮ", "가힣", "あん", "一龥"):
        assert any(first <= character <= last for character in others), first


def test_messages_are_one_short_line_and_pasted_texts_have_several_lines():
    for row in (*ROWS, *CONTROL):
        lines = row["text"].count("\n") + 1
        if row["kind"] in PASTED:
            assert 3 <= lines <= MOST_LINES, row["text"]
        else:
            assert lines == 1, row["text"]
            assert len(row["text"]) <= MOST_CHARS_OF_A_MESSAGE, row["text"]
