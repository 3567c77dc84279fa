"""A long text is cut at line ends into pieces, which together are the whole text; their vectors have one mean."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.embedding.pieces import MOST_PIECES, PieceKey, calls, mean, pieces, whole_texts
from memoryd_server.vectors import from_blob, to_blob, unit
from properties import examples
from regex_attacks import Attack, outgrows

ALL = 1_000_000
TEXTS = st.text(st.one_of(st.sampled_from("ab \n\t\r\u0301é漢"), st.characters()), max_size=400)


def ink(text):
    return "".join(text.split())


@settings(max_examples=examples(500))
@given(text=TEXTS, max_chars=st.integers(1, 60))
def test_every_character_is_in_one_piece_in_order(text, max_chars):
    found = pieces(text, max_chars, ALL)
    assert ink("".join(found)) == ink(text)
    assert all(len(piece) <= max_chars for piece in found)
    position = 0
    for piece in found:
        position = text.index(piece, position) + len(piece)


@settings(max_examples=examples(500))
@given(text=TEXTS, max_chars=st.integers(1, 60))
def test_no_piece_of_a_long_text_begins_or_ends_with_blanks(text, max_chars):
    found = pieces(text, max_chars, ALL)
    if len(text) > max_chars and text.strip():
        assert all(piece and piece == piece.strip() for piece in found)


@pytest.mark.parametrize("text", ["", " ", "one line", "\n two lines \nwith blanks\n", "x" * 500])
def test_a_short_text_is_its_own_only_piece_unchanged(text):
    assert pieces(text, 500) == [text]


def test_without_a_length_of_pieces_every_text_is_whole():
    assert pieces("line\n" * 1_000, 0) == ["line\n" * 1_000]


def test_whole_lines_are_packed_into_pieces():
    lines = [f"line {number} has some words" for number in range(10)]
    found = pieces("\n".join(lines), 60)
    assert [piece.split("\n") for piece in found] == [lines[n : n + 2] for n in range(0, 10, 2)]


def test_a_piece_may_have_exactly_the_maximum_length():
    assert pieces("aaaa\nbbbb\ncccc\ndddd", 9) == ["aaaa\nbbbb", "cccc\ndddd"]


def test_blank_lines_between_pieces_are_in_none():
    assert pieces("aaaa\n\n \n\nbbbb\n\n", 6) == ["aaaa", "bbbb"]


def test_a_long_line_is_cut_at_a_space():
    assert pieces("the heron waits by the pier all day", 14) == ["the heron", "waits by the", "pier all day"]


def test_a_line_without_spaces_is_cut_at_the_limit():
    assert pieces("漢" * 25, 10) == ["漢" * 10, "漢" * 10, "漢" * 5]


def test_a_heading_is_no_piece_of_its_own_before_a_long_line():
    assert pieces("## Birds\nthe heron waits by the pier all day", 20) == [
        "## Birds\nthe heron",
        "waits by the pier",
        "all day",
    ]


def test_an_early_space_does_not_make_a_short_piece():
    assert pieces("a " + "b" * 30, 10) == ["a " + "b" * 8, "b" * 10, "b" * 10, "bb"]


def test_a_mark_stays_with_its_letter():
    text = unicodedata.normalize("NFD", "é" * 20)
    assert all(piece.startswith("e") for piece in pieces(text, 7))


def test_a_text_of_marks_is_cut():
    assert list(map(len, pieces("\u0301" * 100, 40))) == [40, 40, 20]


def test_a_blank_text_has_one_piece():
    assert pieces(" \n" * 500, 10) == [" \n" * 5]


def test_a_text_has_a_bounded_number_of_pieces():
    assert len(pieces("word " * 100_000, 500)) == MOST_PIECES


@pytest.mark.parametrize("pump", ["word ", "\n", " ", "x", "\u0301", "a\n\n\n", "漢"])
def test_the_time_is_linear_in_the_text(pump):
    assert not outgrows(lambda text: pieces(text, 500, ALL), Attack("a", pump, "a"))


def test_the_mean_of_one_vector_is_that_vector():
    vector = unit([1.0, 2.0, 2.0])
    assert mean([vector]) is vector


def test_the_mean_has_length_one_and_is_equally_near_to_two_vectors():
    first, second = unit([1.0, 0.0, 0.0]), unit([0.0, 1.0, 0.0])
    middle = mean([first, second])
    assert middle.dtype == np.float32
    assert np.linalg.norm(middle) == pytest.approx(1.0)
    assert first @ middle == pytest.approx(second @ middle)


@settings(max_examples=examples(200))
@given(rows=st.lists(st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4).filter(any), min_size=1, max_size=9))
def test_the_mean_is_always_a_finite_unit_vector(rows):
    rows = [row for row in rows if max(map(abs, row)) > 1e-6] or [[1.0, 0.0, 0.0, 0.0]]
    found = mean([unit(row) for row in rows])
    assert np.isfinite(found).all()
    assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-5)


def test_vectors_that_cancel_each_other_out_have_the_first_as_their_mean():
    vector = unit([0.0, 1.0])
    assert mean([vector, -vector]).tolist() == vector.tolist()


def test_calls_are_bounded_and_keep_the_pieces_of_a_text_together():
    texts = {bytes([n]): "word " * 30 for n in range(10)}
    groups = list(calls(texts, 50, most=8))
    assert [len(group) for group in groups] == [6, 6, 6, 6, 6]
    assert [key for group in groups for key in group] == [PieceKey(each, n) for each in texts for n in range(3)]
    assert [group[PieceKey(b"\x00", 0)] for group in groups[:1]] == [("word " * 10).rstrip()]


def test_a_text_with_more_pieces_than_a_call_has_a_call_of_its_own():
    texts = {b"a": "one", b"b": "word " * 100, b"c": "two"}
    assert [{key.content_hash for key in group} for group in calls(texts, 50, most=8)] == [{b"a"}, {b"b"}, {b"c"}]


def test_no_texts_make_no_call():
    assert list(calls({}, 500)) == []


FIRST, SECOND = PieceKey(b"text", 0), PieceKey(b"text", 1)
PIECES = {FIRST: "one", SECOND: "two"}
EAST, NORTH = to_blob(unit([1.0, 0.0])), to_blob(unit([0.0, 1.0]))


def test_the_vector_of_a_text_is_the_mean_of_its_pieces():
    found, refused = whole_texts(PIECES, {FIRST: EAST, SECOND: NORTH}, {})
    assert from_blob(found[b"text"]).tolist() == pytest.approx([0.5**0.5, 0.5**0.5])
    assert refused == {}


def test_a_refused_piece_is_left_out_of_the_mean():
    assert whole_texts(PIECES, {FIRST: EAST}, {SECOND: "too odd"}) == ({b"text": EAST}, {})


def test_a_text_is_refused_if_all_its_pieces_are():
    assert whole_texts(PIECES, {}, {FIRST: "too odd", SECOND: "too even"}) == ({}, {b"text": "too odd"})


@pytest.mark.parametrize(("vectors", "refused"), [({FIRST: EAST}, {}), ({}, {SECOND: "too odd"}), ({}, {})])
def test_a_text_with_an_open_piece_has_neither_a_vector_nor_a_refusal(vectors, refused):
    assert whole_texts(PIECES, vectors, refused) == ({}, {})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("harbour crane " * 10, 3),
        ("größe über " * 10, 3),
        ("漢" * 51 + "a" * 50, 1),
        ("漢" * 50 + "a" * 51, 3),
        ("สวัสดี" * 20, 1),
    ],
)
def test_a_text_in_another_script_is_one_piece(text, count):
    (group,) = calls({b"hash": text}, 50)
    assert len(group) == count
    assert ink("".join(group.values())) == ink(text)
