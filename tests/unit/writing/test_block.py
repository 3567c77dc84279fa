"""Finding a block of text in a file that an editor has saved."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.writing.memory_file import AppendBlock, find_blocks, find_copies

LINES = st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"- note"]), max_size=8)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", []),
        (b"one\ntwo\n", [(1, 2)]),
        (b"zero\none\ntwo", [(2, 3)]),
        (b"one\r\ntwo\r\n", [(1, 2)]),
        (b"one  \ntwo\t\n\n\n", [(1, 2)]),
        (b"one\ntwo\none\ntwo\n", [(1, 2), (3, 4)]),
        (b"none\ntwo\n", []),
        (b"one\ntwofold\n", []),
        (b"one\n\ntwo\n", []),
    ],
)
def test_lines_are_found_as_an_editor_leaves_them(data, found):
    assert find_copies(b"one\ntwo\n", data) == found


def test_a_blank_text_is_found_nowhere():
    assert find_copies(b"\n\n", b"\n\n\n\n") == []


@given(before=LINES, content=LINES, after=LINES)
def test_an_inserted_text_is_one_copy_more(before, content, after):
    block = b"".join(line + b"\n" for line in [b"x", *content, b"x"])
    head, tail = (b"".join(line + b"\n" for line in lines) for lines in (before, after))
    assert find_copies(block, head + block + tail) == [(len(before) + 1, len(before) + len(content) + 2)]
    assert find_copies(block, head + tail) == []


@given(before=LINES, content=LINES, after=LINES, lead=st.integers(0, 2))
def test_a_block_known_by_its_hash_is_found_where_it_was_moved_to(before, content, after, lead):
    block = AppendBlock(b"\n" * lead, b"".join(line + b"\n" for line in [b"x", *content, b"x"]))
    head, tail = (b"".join(line + b"\n" for line in lines) for lines in (before, after))
    found = (len(before) + 1, len(before) + len(content) + 2)
    assert find_blocks(block.sha256, len(block.data), head + block.content + tail) == [found]
    assert find_blocks(block.sha256, len(block.data), head + tail) == []


@pytest.mark.slow
def test_the_search_for_a_hash_has_an_end_in_a_file_made_to_be_costly():
    assert find_blocks(sha256(b"absent").hexdigest(), 250_000, b"\n" * 2_000_000) == []


@given(wanted=st.sampled_from([b"a", b"- a", b" a"]), data=st.text("a- \n\r", max_size=40).map(str.encode))
def test_a_single_line_is_found_as_each_line_without_blanks_at_its_end(wanted, data):
    lines = [number for number, line in enumerate(data.split(b"\n"), 1) if line.rstrip() == wanted]
    assert find_copies(wanted + b"  \n", data) == [(number, number) for number in lines]
