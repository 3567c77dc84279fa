"""What sessions have seen: kept for each session, within bounds, for 24 hours."""

import pytest

from memoryd_server.recall import FileLines, ShownPassages
from memoryd_server.recall.shown import (
    IDLE_SECONDS,
    MOST_CHARS_PER_SESSION,
    MOST_PART_CHARS,
    MOST_RANGES_PER_SESSION,
)


class Seconds:
    now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Seconds()


@pytest.fixture
def shown(clock):
    return ShownPassages(clock, most_sessions=3, most_chars=400_000)


def seen(shown, key):
    return set(shown.seen(key).statements)


def test_each_session_has_its_own_passages(shown):
    shown.add("one", ["a fact\nAnother fact."])
    shown.add("one", ["A third!"])
    shown.add("two", ["a fourth"])
    assert seen(shown, "one") == {"a fact", "another fact", "a third"}
    assert seen(shown, "two") == {"a fourth"}
    assert seen(shown, "three") == set()
    shown.forget("one")
    shown.forget("unknown")
    assert (seen(shown, "one"), seen(shown, "two")) == (set(), {"a fourth"})


def test_a_session_is_forgotten_24_hours_after_its_last_use(shown, clock):
    shown.add("one", ["a fact"])
    for _ in range(2):
        clock.now += IDLE_SECONDS - 1
        assert seen(shown, "one") == {"a fact"}
    clock.now += IDLE_SECONDS
    assert seen(shown, "one") == set()
    assert len(shown) == 0


def test_the_session_that_was_not_used_for_the_longest_time_makes_room(shown):
    for key in "abc":
        shown.add(key, ["a fact"])
    shown.seen("a")
    shown.add("d", ["a fact"])
    assert [bool(seen(shown, key)) for key in "abcd"] == [True, False, True, True]


def test_the_oldest_statements_of_a_session_make_room(shown):
    shown.add("one", ["the first", "the second"])
    shown.add("one", ["the first"])
    shown.add("one", [f"{number} {'x' * 1_000}" for number in range(MOST_CHARS_PER_SESSION // 1_000)])
    kept = seen(shown, "one")
    assert sum(map(len, kept)) <= MOST_CHARS_PER_SESSION
    assert "the second" not in kept
    assert len(shown.seen("one").text) <= MOST_PART_CHARS


def test_all_sessions_together_have_a_bound(shown):
    for key in "abc":
        shown.add(key, [f"{key} {number} {'x' * 1_000}" for number in range(180)])
    assert [len(seen(shown, key)) for key in "abc"] == [0, 180, 180]


def test_lines_are_seen_as_they_were_at_their_time(shown):
    shown.add_lines("one", [FileLines("MEMORY.md", 1, 40)], now_ns=500)
    found = shown.seen("one")
    assert found.contains_lines(FileLines("MEMORY.md", 40, 40), mtime_ns=500)
    assert not found.contains_lines(FileLines("MEMORY.md", 40, 41), mtime_ns=500)
    assert not found.contains_lines(FileLines("MEMORY.md", 40, 40), mtime_ns=501)
    shown.add_lines("one", [FileLines("x.md", line, line) for line in range(1_000)], now_ns=600)
    assert len(shown.seen("one").ranges) == MOST_RANGES_PER_SESSION
