"""What sessions have seen: kept for each session, within bounds, for 24 hours."""

import pytest

from memoryd_server.recall import FileLines, ShownPassages
from memoryd_server.recall.shown import IDLE_SECONDS, MOST_HASHES_PER_SESSION, MOST_RANGES_PER_SESSION


class Seconds:
    now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Seconds()


@pytest.fixture
def shown(clock):
    return ShownPassages(clock, most_sessions=3, most_hashes=20_000)


def test_each_session_has_its_own_passages(shown):
    shown.add("one", [1, 2])
    shown.add("one", [3])
    shown.add("two", [4])
    assert (shown.seen("one").hashes, shown.seen("two").hashes) == ({1, 2, 3}, {4})
    assert shown.seen("three").hashes == set()
    shown.forget("one")
    shown.forget("unknown")
    assert (shown.seen("one").hashes, shown.seen("two").hashes) == (set(), {4})


def test_a_session_is_forgotten_24_hours_after_its_last_use(shown, clock):
    shown.add("one", [1])
    clock.now += IDLE_SECONDS - 1
    assert shown.seen("one").hashes == {1}
    clock.now += IDLE_SECONDS - 1
    assert shown.seen("one").hashes == {1}
    clock.now += IDLE_SECONDS
    assert shown.seen("one").hashes == set()
    assert len(shown) == 0


def test_the_session_that_was_not_used_for_the_longest_time_makes_room(shown):
    for key in "abc":
        shown.add(key, [1])
    shown.seen("a")
    shown.add("d", [1])
    assert [bool(shown.seen(key).hashes) for key in "abcd"] == [True, False, True, True]


def test_the_oldest_passages_of_a_session_make_room(shown):
    shown.add("one", range(MOST_HASHES_PER_SESSION))
    shown.add("one", [0, -1])
    hashes = shown.seen("one").hashes
    assert len(hashes) == MOST_HASHES_PER_SESSION
    assert {0, -1} <= hashes
    assert 1 not in hashes
    shown.add("one", [-2])
    assert 2 not in shown.seen("one").hashes


def test_all_sessions_together_have_a_bound(shown):
    for key in "abc":
        shown.add(key, range(8_000))
    assert [len(shown.seen(key).hashes) for key in "abc"] == [0, 8_000, 8_000]


def test_lines_are_seen_as_they_were_at_their_time(shown):
    shown.add_lines("one", [FileLines("MEMORY.md", 1, 40)], now_ns=500)
    seen = shown.seen("one")
    assert seen.contains_lines(FileLines("MEMORY.md", 40, 40), mtime_ns=500)
    assert not seen.contains_lines(FileLines("MEMORY.md", 40, 41), mtime_ns=500)
    assert not seen.contains_lines(FileLines("MEMORY.md", 40, 40), mtime_ns=501)
    shown.add_lines("one", [FileLines("x.md", line, line) for line in range(1_000)], now_ns=600)
    assert len(shown.seen("one").ranges) == MOST_RANGES_PER_SESSION
