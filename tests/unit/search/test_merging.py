"""Neighbouring chunks are one hit where together they are no longer than a chunk of Latin text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.model import Source
from memoryd_server.search.neighbours import merged
from memoryd_server.search.query import Candidate
from memoryd_server.store.rows import ChunkRow

LINES = [f"line {number}" for number in range(1, 71)]


def row(chunk_id, first, last, path="memory/a.md"):
    text = "\n".join(LINES[first - 1 : last])
    return ChunkRow(chunk_id, path, Source.MEMORY, first, last, text, "", 0, 0)


def ranked(*rows):
    return [(Candidate(r.id, 1 - place / 100), r) for place, r in enumerate(rows)]


def check(rows, expected, max_chars=1_000):
    found = merged(ranked(*rows), max_chars)
    assert [(c.chunk_id, r.start_line, r.end_line) for c, r in found] == expected
    for _, r in found:
        assert r.text == "\n".join(LINES[r.start_line - 1 : r.end_line])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row(1, 1, 5), row(2, 4, 9)], [(1, 1, 9)]),
        ([row(2, 4, 9), row(1, 1, 5)], [(2, 1, 9)]),
        ([row(1, 1, 5), row(2, 6, 9)], [(1, 1, 9)]),
        ([row(1, 1, 5), row(2, 7, 9)], [(1, 1, 5), (2, 7, 9)]),
        ([row(1, 1, 9), row(2, 3, 5)], [(1, 1, 9)]),
        ([row(1, 1, 5), row(2, 1, 5, path="memory/b.md")], [(1, 1, 5), (2, 1, 5)]),
        ([row(1, 1, 3), row(9, 20, 22), row(2, 4, 6), row(3, 7, 9)], [(1, 1, 9), (9, 20, 22)]),
    ],
)
def test_chunks_that_touch_are_one_hit_in_the_place_of_the_best(rows, expected):
    check(rows, expected)


def test_chunks_that_would_be_too_long_together_stay_apart():
    check([row(1, 1, 5), row(2, 4, 9)], [(1, 1, 5), (2, 4, 9)], max_chars=40)


def test_pieces_of_a_line_that_was_cut_stay_apart():
    cut = row(1, 1, 1)._replace(text="one piece\nanother piece")
    found = merged(ranked(cut, cut._replace(id=2)), 1_000)
    assert [c.chunk_id for c, _ in found] == [1, 2]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=8), st.integers(1, 400))
def test_nothing_found_is_lost_and_every_hit_is_the_text_of_its_lines(spans, max_chars):
    rows = [row(number, first, first + length) for number, (first, length) in enumerate(spans)]
    found = merged(ranked(*rows), max_chars)
    lines = {line for r in rows for line in range(r.start_line, r.end_line + 1)}
    assert lines == {line for _, r in found for line in range(r.start_line, r.end_line + 1)}
    for _, r in found:
        assert r.text == "\n".join(LINES[r.start_line - 1 : r.end_line])
        assert len(r.text) <= max_chars or r in rows


def test_parts_of_one_long_line_stay_apart():
    """Their line numbers are the same and their texts are not, so merging them would lose the text of one."""
    first, second = (row(number, 7, 7)._replace(text=text) for number, text in ((1, "heron " * 9), (2, "weir " * 9)))
    assert [r for _, r in merged(ranked(first, second), 1_000)] == [first, second]


def test_a_line_that_a_chunk_has_in_part_is_not_merged_with_its_other_part():
    first = row(1, 1, 2)._replace(text="intro\nheron hatched")
    second = row(2, 2, 3)._replace(text="in spring\nend")
    assert [r for _, r in merged(ranked(first, second), 1_000)] == [first, second]
