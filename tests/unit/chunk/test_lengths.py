"""Lengths, and cuts that keep to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.chunk.markdown import cjk_length, head, measure_for, tail, utf16_length

TEXTS = st.text(st.sampled_from("aé记🙂𠀀\ud800\udc00\u0301") | st.characters(exclude_categories=()), max_size=40)


@pytest.mark.parametrize(
    ("text", "units", "weighted"),
    [
        ("", 0, 0),
        ("abc", 3, 3),
        ("é—“", 3, 3),
        ("🙂", 2, 2),
        ("𠀀", 2, 4),
        ("记a🙂", 4, 7),
        ("ꀀ", 1, 4),
        ("한", 1, 4),
        ("豈", 1, 4),
        ("ｶ", 1, 1),
        ("\ud800", 1, 1),
    ],
)
def test_lengths(text, units, weighted):
    assert utf16_length(text) == units
    assert cjk_length(text) == weighted


@given(TEXTS)
def test_weighted_is_never_less_than_units_nor_units_than_code_points(text):
    assert cjk_length(text) >= utf16_length(text) >= len(text)


@given(TEXTS, TEXTS)
def test_the_chosen_measure_gives_the_weighted_length_of_every_part(first, second):
    measure = measure_for(first + second)
    assert measure(first) == cjk_length(first)
    assert measure(second) == cjk_length(second)


@given(st.lists(st.characters(exclude_categories=["Cs"]), max_size=40).map("".join), st.integers(-1, 60))
def test_head_and_tail_are_the_longest_that_fit(text, units):
    begin, end = head(text, units), tail(text, units)
    assert text.startswith(begin)
    assert text.endswith(end)
    for part, longer in ((begin, text[: len(begin) + 1]), (end, text[-len(end) - 1 :])):
        assert utf16_length(part) <= max(0, units)
        assert part == text or utf16_length(longer) > units
