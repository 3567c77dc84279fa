"""What of a session file can be read, and which values are used."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.imports.conversation import Unreadable
from memoryd_server.imports.input_files import InputFiles
from memoryd_server.imports.json_lines import (
    JsonLines,
    SessionTooLarge,
    TextBudget,
    id_of,
    texts_of,
    time_of,
    without_elements,
)
from memoryd_server.sources import MOST_LINE_BYTES
from memoryd_server.sources.compression import zstd

GENERATED = re.compile(r"\s*<(note|system-[a-z]+)(?:\s[^<>\n]{0,200})?>")


def lines_of(path: Path) -> JsonLines:
    (file,) = InputFiles([path], lambda _: True)
    return JsonLines(file)


def read(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[Unreadable]]:
    lines = lines_of(path)
    return list(lines), lines.unreadable


def test_each_line_is_an_object(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes('\ufeff{"a": 1}\r\n\n{"b": "é"}'.encode())
    assert read(path) == ([(1, {"a": 1}), (3, {"b": "é"})], [])


def test_lines_that_are_no_objects_are_listed_once_with_their_number(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n[1]\nnull\n{"a":\n{"b": 2}\n')
    found, unreadable = read(path)
    assert [number for number, _ in found] == [1, 5]
    assert unreadable == [Unreadable(f"{path}:2", "the line is not a JSON object, and so are 2 more lines")]


def test_last_line_that_is_cut_off_is_listed(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "x')
    assert read(path) == ([(1, {"a": 1})], [Unreadable(f"{path}:2", "the line is cut off")])


def test_line_that_is_too_long_is_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    longest = json.dumps({"a": "x" * (MOST_LINE_BYTES - 9)})
    path.write_text(f'{longest}\n{longest[:-2]}x"}}\n{{"b": 2}}\n')
    found, unreadable = read(path)
    assert [number for number, _ in found] == [1, 3]
    assert unreadable == [Unreadable(f"{path}:2", "the line is longer than 16 MiB")]


def test_nesting_beyond_the_limit_is_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    assert read(path) == ([], [Unreadable(f"{path}:1", "the line is not a JSON object")])


def test_compressed_file_is_read(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstd.compress(b'{"a": 1}\n{"b": 2}\n'))
    assert read(path) == ([(1, {"a": 1}), (2, {"b": 2})], [])


def test_damaged_compressed_file_yields_what_is_before_the_damage(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    # Random digits are hardly compressed, so that the first block is complete.
    data = b"".join(b'{"a": "%d"}\n' % (number * 2_654_435_761 % 2**32) for number in range(30_000))
    path.write_bytes(zstd.compress(data)[:-30_000])
    found, (unreadable,) = read(path)
    assert 1 <= len(found) < 30_000
    assert unreadable.place == str(path)
    assert unreadable.reason.startswith(f"reading stopped after line {len(found)}: ")


def test_file_that_expands_to_hundreds_of_times_its_size_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstd.compress(b'{"a": 1}\n' + b"\n" * (16 << 20)))
    found, (unreadable,) = read(path)
    assert found == [(1, {"a": 1})]
    assert unreadable.reason.endswith("expands to more bytes than are read")


def test_file_that_is_not_compressed_in_spite_of_its_name(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b'{"a": 1}\n')
    found, (unreadable,) = read(path)
    assert found == []
    assert "does not begin with a Zstandard frame" in unreadable.reason


def test_file_that_is_removed_is_listed(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n")
    lines = lines_of(path)
    path.unlink()
    assert list(lines) == []
    assert lines.unreadable[0].reason.startswith("reading stopped after line 0: ")


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-03-14T09:26:53.589Z", datetime(2026, 3, 14, 9, 26, 53, 589_000, UTC)),
        ("2026-03-14T09:26:53+02:00", datetime(2026, 3, 14, 7, 26, 53, 0, UTC)),
        ("2026-03-14T09:26:53", datetime(2026, 3, 14, 9, 26, 53, 0, UTC)),
        ("9999-12-31T23:59:59-10:00", None),
        ("0001-01-01T00:00:00+10:00", None),
        ("2026-03-14T24:60:00Z", None),
        ("", None),
        (1_773_480_413, None),
        (None, None),
        (float("nan"), None),
    ],
)
def test_times_are_in_utc(text, time):
    assert time_of(text) == time


@pytest.mark.parametrize("value", ["", "a\nb", "\u202e", "x" * 201, 7, None, ["a"], "\ud800"])
def test_value_that_cannot_be_an_id(value):
    assert id_of(value) == ""


def test_texts_of_content():
    content = [{"type": "text", "text": "a"}, {"type": "image", "text": "b"}, {"type": "text", "text": 1}, "c", None]
    assert texts_of(content, frozenset({"text"})) == ["a"]
    assert texts_of("a", frozenset()) == ["a"]
    assert texts_of({"type": "text", "text": "a"}, frozenset({"text"})) == []
    assert texts_of([{"type": ["text"], "text": "a"}], frozenset({"text"})) == []


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<note>a</note>\n<system-x k='1'>\nb</system-x>\n hi <note>c</note>", "hi <note>c</note>"),
        ("<note>never closed", "<note>never closed"),
        ("<note>a</note>", ""),
        ("<other>a</other>", "<other>a</other>"),
        ("  hi  ", "hi"),
        ("<note>a<note>b</note></note>", "</note>"),
    ],
)
def test_generated_elements_are_removed_from_the_start(text, rest):
    assert without_elements(text, GENERATED) == rest


@given(st.text(alphabet="<note>/ \nsystem-x", max_size=60))
def test_what_remains_is_the_end_of_the_text(text):
    assert text.strip().endswith(without_elements(text, GENERATED))


def test_budget_counts_the_memory_of_texts():
    budget = TextBudget(1 << 20)
    wide = "\N{GRINNING FACE}" * 200_000
    budget.take(wide)
    with pytest.raises(SessionTooLarge, match="more than 1 MiB of messages"):
        budget.take(wide)
    budget = TextBudget(1 << 20)
    for _ in range(10):
        budget.take(wide)
        budget.give_back(wide)
