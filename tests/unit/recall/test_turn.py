"""What a message is searched for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.recall import read_turn, with_context
from memoryd_server.recall.turn import MOST_CONTEXT_CHARS, MOST_INFORMATIVE_WORDS, MOST_PROSE_CHARS, TurnText

LONGEST_QUERY = 2 * MOST_PROSE_CHARS + 66 * MOST_INFORMATIVE_WORDS
LOG = "\n".join(
    f"2026-05-01 12:00:{number % 60:02} ERROR [worker-{number}] com.example.Booking(Booking.java:{number}) "
    f"BOOKING_CACHE_TTL={number} id=deadbeef{number:08x}"
    for number in range(2_000)
)


@pytest.mark.parametrize("text", ["/reset", "/new please", "!ls -la", "/think high\nabout it", "  /status  "])
def test_a_command_is_not_searched(text):
    assert read_turn(text) == TurnText("")


@pytest.mark.parametrize("text", ["/etc/hosts is wrong", "! watch out"])
def test_a_path_or_an_exclamation_mark_is_no_command(text):
    assert read_turn(text).query == text


def test_a_message_is_its_own_query():
    assert read_turn(" Who repaired the crane? ") == TurnText("Who repaired the crane?", is_question=True)
    assert read_turn("Ada repaired it.") == TurnText("Ada repaired it.", is_question=False)
    assert read_turn("\u8ab0\u304c\uff1f").is_question
    assert read_turn("who repaired the crane").is_question
    assert not read_turn("Ada knows who repaired the crane").is_question
    assert read_turn("\u96c6\u8377\u306f\u4f55\u6642\u306b\u6765\u307e\u3059\u304b\u3002").is_question


def test_an_earlier_block_in_the_message_is_left_out():
    block = "<relevant-memories>\n[1] a.md\n  the lighthouse\n</relevant-memories>"
    assert read_turn(f"{block}\nWho repaired the harbour crane?").query == "Who repaired the harbour crane?"
    assert read_turn(block).query == ""


def test_fenced_code_is_put_aside():
    text = "Why does the harbour crane stop?\n```python\ndef move(crane):\n    return crane\n```\nIt worked in March."
    assert read_turn(text).query == "Why does the harbour crane stop?\nIt worked in March."


@pytest.mark.parametrize(
    "text", [f"Why does the harbour crane stop?\n{LOG}", f"{LOG}\nWhy does the harbour crane stop?"]
)
def test_a_question_before_or_after_a_log_is_the_query(text):
    assert read_turn(text) == TurnText("Why does the harbour crane stop?", is_question=True)


def test_a_log_alone_is_searched_by_its_informative_words():
    words = read_turn(LOG).query.split()
    assert {"BOOKING_CACHE_TTL", "com.example.Booking", "worker-0", "Booking.java"} <= set(words)
    assert len(words) <= MOST_INFORMATIVE_WORDS
    assert not any("deadbeef" in word or word.isdigit() for word in words)
    # Words that differ only in their digits count once.
    assert sum(word.startswith("worker-") for word in words) == 1


def test_a_long_message_is_searched_by_its_beginning_and_its_end():
    text = " ".join(f"sentence{number} about a harbour." for number in range(500))
    query = read_turn(text).query
    assert len(query) <= 2 * MOST_PROSE_CHARS + 1
    assert query.startswith("sentence0 about a harbour.")
    assert query.endswith("sentence499 about a harbour.")


def test_a_short_question_is_completed_by_the_message_before_it():
    turn = read_turn("And when was that?")
    assert with_context(turn, "Ada repaired the harbour crane.") == "Ada repaired the harbour crane. And when was that?"
    assert len(with_context(turn, "long words " * 10_000)) <= MOST_CONTEXT_CHARS + len(" And when was that?") + 1


@given(st.text() | st.text("ab._-0 \n`", max_size=3_000))
def test_a_query_is_short_whatever_the_message(text):
    assert len(read_turn(text * 50).query) <= LONGEST_QUERY
