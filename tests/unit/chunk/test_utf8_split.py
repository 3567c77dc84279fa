"""Cuts at a number of bytes lose nothing and cut no character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.chunk.markdown import split_utf8


@given(st.text(st.characters(exclude_categories=())), st.integers(-1, 20))
def test_the_parts_joined_are_the_text(text, max_bytes):
    assert "".join(split_utf8(text, max_bytes)) == text


@given(st.text(), st.integers(1, 20))
def test_a_part_is_within_the_limit_unless_it_is_a_single_character(text, max_bytes):
    assert all(len(part.encode()) <= max_bytes or len(part) == 1 for part in split_utf8(text, max_bytes))


@pytest.mark.parametrize(("text", "max_bytes", "parts"), [("", 3, [""]), ("a🙂b", 1, ["a", "🙂", "b"])])
def test_examples(text, max_bytes, parts):
    assert split_utf8(text, max_bytes) == parts
