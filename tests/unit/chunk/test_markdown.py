"""Invariants of the chunks of every text, for all sizes and overlaps."""

import itertools
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.chunk.markdown import chunk_markdown, indexable_chunks, utf16_length

CHARS = st.sampled_from("ab #\n\n\r\t记か한é🙂𠀀\ud800\u0301`-") | st.characters(exclude_categories=())
LINES = st.text(CHARS, max_size=60) | st.builds(lambda char, times: char * times, CHARS, st.integers(0, 400))
TEXTS = st.lists(LINES, max_size=25).map("\n".join)
TOKENS = st.integers(1, 40)
OVERLAPS = st.integers(0, 60)


def bound(tokens):
    return max(32, tokens * 4)


def inside(lines, chunk):
    """The chunk's text is the end of its first line, whole lines, and the beginning of its last, up to newlines."""
    whole = "".join(lines[chunk.start_line - 1 : chunk.end_line])
    return chunk.text.replace("\n", "") in whole


@given(TEXTS, TOKENS, OVERLAPS)
def test_no_chunk_outgrows_the_bound(text, tokens, overlap):
    assert all(utf16_length(chunk.text) <= bound(tokens) for chunk in chunk_markdown(text, tokens, overlap))


@given(TEXTS, TOKENS)
def test_without_overlap_the_chunks_joined_are_the_text(text, tokens):
    joined = "\n".join(chunk.text for chunk in chunk_markdown(text, tokens, 0))
    assert joined.replace("\n", "") == text.replace("\n", "")


@given(st.lists(st.text(st.sampled_from("ab 记é🙂"), max_size=5), max_size=60), st.integers(8, 20))
def test_without_overlap_short_lines_come_back_newlines_and_all(lines, tokens):
    chunks = chunk_markdown("\n".join(lines), tokens, 0)
    assert "\n".join(chunk.text for chunk in chunks) == "\n".join(lines)
    assert [len(chunk.text.split("\n")) for chunk in chunks] == [c.end_line - c.start_line + 1 for c in chunks]


@given(TEXTS, TOKENS, OVERLAPS)
def test_line_ranges_are_monotone_and_without_gaps(text, tokens, overlap):
    chunks = chunk_markdown(text, tokens, overlap)
    assert chunks[0].start_line == 1
    assert chunks[-1].end_line == text.count("\n") + 1
    for before, after in itertools.pairwise(chunks):
        assert before.start_line <= after.start_line <= before.end_line + 1
        assert before.end_line <= after.end_line


@given(TEXTS, TOKENS, OVERLAPS)
def test_a_chunk_holds_text_of_the_lines_it_names(text, tokens, overlap):
    lines = text.split("\n")
    assert all(inside(lines, chunk) for chunk in chunk_markdown(text, tokens, overlap))


@given(st.integers(1, 2000), TOKENS, OVERLAPS)
def test_with_any_overlap_no_character_is_lost_or_out_of_order(size, tokens, overlap):
    # Every character is another one, so that where a chunk comes from can be told.
    text = "".join(chr(0x4E00 + i) if i % 3 else chr(0x10000 + i) for i in range(size))
    seen = 0
    for chunk in chunk_markdown(text, tokens, overlap):
        flat = chunk.text.replace("\n", "")
        start = text.index(flat)
        assert start <= seen < start + len(flat)
        seen = start + len(flat)
    assert seen == len(text)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), TOKENS, OVERLAPS)
def test_with_any_overlap_every_line_is_covered(sizes, tokens, overlap):
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    lines = ["".join(map(chr, range(0x400 + start, 0x400 + start + n))) for start, n in zip(starts, sizes, strict=True)]
    covered = set("".join(chunk.text for chunk in chunk_markdown("\n".join(lines), tokens, overlap)))
    assert set("".join(lines)) <= covered | {"\n"}


@given(TEXTS, TOKENS, OVERLAPS, st.integers(1, 50))
def test_first_line_moves_the_numbers_and_nothing_else(text, tokens, overlap, first_line):
    plain = chunk_markdown(text, tokens, overlap)
    moved = chunk_markdown(text, tokens, overlap, first_line)
    assert [(c.text, c.start_line + first_line - 1, c.end_line + first_line - 1, c.breadcrumb) for c in plain] == [
        (c.text, c.start_line, c.end_line, c.breadcrumb) for c in moved
    ]


@given(TEXTS, TOKENS, OVERLAPS)
def test_the_hash_is_that_of_the_text(text, tokens, overlap):
    for chunk in chunk_markdown(text, tokens, overlap):
        assert chunk.content_hash == sha256(chunk.text.encode("utf-8", "surrogatepass")).digest()


@given(TEXTS, TOKENS, OVERLAPS)
def test_only_blank_chunks_are_not_indexed(text, tokens, overlap):
    expected = [chunk for chunk in chunk_markdown(text, tokens, overlap) if chunk.text.strip()]
    assert indexable_chunks(text, tokens, overlap) == expected


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n", "\u3000"])
def test_blank_text_has_a_chunk_but_none_to_index(text):
    assert len(chunk_markdown(text, 400, 80)) == 1
    assert indexable_chunks(text, 400, 80) == []


def test_a_long_line_is_cut_into_overlapping_chunks_of_the_bound():
    chunks = chunk_markdown("a" * 4825, 400, 80)
    assert [len(chunk.text) for chunk in chunks] == [1600, 1600, 1600, 985]
    assert all("\n" not in chunk.text for chunk in chunks)


def test_consecutive_chunks_of_a_long_line_share_the_overlap():
    words = " ".join(f"word{i}" for i in range(1000))
    chunks = chunk_markdown(words, 400, 80)
    for before, after in itertools.pairwise(chunks):
        assert before.text[-320:] == after.text[:320]


def test_a_long_overlap_line_is_cut_to_its_end_and_the_next_line_kept_whole():
    first, second = chunk_markdown("a" * 1000 + "\n" + "b" * 1000, 400, 80)
    assert first.text == "a" * 1000
    assert second.text == "a" * 320 + "\n" + "b" * 1000
    assert (second.start_line, second.end_line) == (1, 2)


def test_a_cut_never_falls_inside_a_surrogate_pair():
    for chunk in chunk_markdown("a" + "🙂" * 3000 + "\n" + "b" * 1500, 400, 80):
        assert set(chunk.text) <= set("a🙂b\n")


def test_an_overlap_as_large_as_the_chunk_still_brings_something_new_each_time():
    chunks = chunk_markdown("\n".join("x" * 30 for _ in range(100)), 8, 8)
    assert len(chunks) <= 300
    assert chunks[-1].end_line == 100
