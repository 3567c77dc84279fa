"""Messages into chunks: bounded, with the line of each, and equal in parts and as a whole."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.chunk.markdown import ChunkLimits, cjk_length
from memoryd_server.chunk.transcript import TranscriptChunker, split_message
from memoryd_server.model import Origin

WORDS = st.sampled_from(["heron", "weir", "quince", "鹭", "堰", "🐦", "e\u0301", "x" * 50, "漢" * 40, "a-b", "…"])
TEXTS = st.lists(WORDS, min_size=1, max_size=60).map(" ".join)
MESSAGES = st.lists(st.tuples(st.sampled_from(["User", "Assistant"]), TEXTS), max_size=25)
ORIGINS = list(Origin)
SIZES = st.sampled_from([(1, 0), (20, 0), (20, 19), (50, 10), (400, 80)])


def chunks_of(messages, tokens, overlap, last_chunk=(), first=1):
    chunker = TranscriptChunker(tokens, overlap, last_chunk)
    found = []
    for number, (label, text) in enumerate(messages, first):
        found += chunker.add(3 * number, label, text, ORIGINS[number % len(ORIGINS)])
    last = chunker.last()
    return found if last is None else [*found, last]


def numbered(chunk):
    return list(zip(chunk.line_numbers, chunk.text.split("\n"), strict=True))


def lines_of(chunk):
    return list(zip(chunk.line_numbers, chunk.text.split("\n"), chunk.line_origins, strict=True))


@given(MESSAGES, SIZES)
def test_every_chunk_is_within_the_bound_and_each_of_its_lines_has_a_number(messages, sizes):
    most = ChunkLimits.from_tokens(*sizes).span
    for chunk in chunks_of(messages, *sizes):
        assert cjk_length(chunk.text) <= most
        lines = numbered(chunk)
        assert (chunk.start_line, chunk.end_line) == (lines[0][0], lines[-1][0])
        assert list(chunk.line_numbers) == sorted(chunk.line_numbers)
        assert all(line.startswith(("User: ", "Assistant: ")) for _, line in lines)


@given(MESSAGES, SIZES)
def test_nothing_that_was_said_is_lost(messages, sizes):
    lines = {line for chunk in chunks_of(messages, *sizes) for line in numbered(chunk)}
    for number, (label, text) in enumerate(messages, 1):
        parts = [piece.removeprefix(f"{label}: ") for at, piece in lines if at == 3 * number]
        assert set(text) - {" "} <= set("".join(parts))


@given(MESSAGES, SIZES, st.integers(0, 25))
def test_chunks_made_in_two_parts_are_those_made_at_once(messages, sizes, cut):
    whole = chunks_of(messages, *sizes)
    first = chunks_of(messages[:cut], *sizes)
    last = lines_of(first[-1]) if first else ()
    then = chunks_of(messages[cut:], *sizes, last, first=len(messages[:cut]) + 1)
    assert [*first[:-1], *then] == whole


@given(st.text(), st.integers(1, 100))
def test_the_pieces_of_a_text_are_that_text_but_for_the_spaces_between_them(text, most):
    found = list(split_message(text, most))
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
    assert all(cjk_length(piece) <= most or len(piece) == 1 for piece in found)


@pytest.mark.parametrize(
    ("text", "most", "found"),
    [
        ("", 10, [""]),
        ("the heron nests", 10, ["the heron", "nests"]),
        ("heron", 2, ["he", "ro", "n"]),
        ("鹭在堰边", 8, ["鹭在", "堰边"]),
        ("ae\u0301o", 2, ["a", "e\u0301", "o"]),
        ("🐦🐦", 2, ["🐦", "🐦"]),
    ],
)
def test_a_long_message_is_cut_at_spaces_and_never_within_a_character(text, most, found):
    assert list(split_message(text, most)) == found


def test_a_question_stays_with_its_answer_where_the_next_chunk_begins():
    messages = [("User" if number % 2 else "Assistant", f"remark {number} " + "word " * 10) for number in range(40)]
    chunks = chunks_of(messages, 100, 30)
    for one, other in itertools.pairwise(chunks):
        shared = [line for line in numbered(one) if line in numbered(other)]
        assert shared == numbered(other)[: len(shared)]
        assert shared
