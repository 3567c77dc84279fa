"""Adjustments apply to known chunks only, the gain of a date after decay, and windows before both."""

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from memoryd_server.model import Source
from memoryd_server.search.dates import SHORT_GAIN, DateRange
from memoryd_server.search.query import Candidate, RankingConfig
from memoryd_server.search.ranking import NO_ADJUSTMENTS, adjustments, rank
from memoryd_server.search.windows import MOST_READ
from memoryd_server.store.rows import ChunkHead

NOW = datetime(2023, 6, 14, 10, tzinfo=UTC)
CANDIDATES = [Candidate(number, 1 - number / 10, 1 - number / 10) for number in (1, 2, 3)]
HEADS = {number: ChunkHead(number, f"memory/2023-05-0{number}.md", Source.MEMORY, 0) for number in (1, 3)}
MAY_3 = DateRange(date(2023, 5, 3), date(2023, 5, 3))


def adjusted(heads=HEADS, ranges=(), **ranking):
    return adjustments(heads, ranges, NOW, replace(RankingConfig(), **ranking))


def ids(candidates):
    return [candidate.chunk_id for candidate in candidates]


def test_without_adjustments_no_chunk_is_dropped():
    assert NO_ADJUSTMENTS.ranked(CANDIDATES) == CANDIDATES


@pytest.mark.parametrize("changes", [{"decay": True}, {"ranges": [MAY_3]}], ids=["decay", "a date"])
def test_chunks_that_the_index_does_not_have_are_dropped(changes):
    assert sorted(ids(adjusted(**changes).ranked(CANDIDATES))) == [1, 3]


def test_a_chunk_dated_within_the_range_gains_after_decay():
    found = adjusted(ranges=[MAY_3], decay=True, half_life_days=1.0, decay_floor=0.5).ranked(CANDIDATES)
    assert ids(found) == [3, 1]
    assert found[0].score == pytest.approx(0.7 * 0.5 + SHORT_GAIN)
    assert found[0].date == SHORT_GAIN
    assert found[0].text_score == pytest.approx(0.7)


def test_the_day_of_a_chunk_takes_precedence_over_that_in_the_name_of_its_file():
    entry = HEADS[1]._replace(path="memory/2023-05-03.md", day=date(2023, 1, 1))
    assert adjusted({1: entry}, [MAY_3]).gains == {}
    assert adjusted({1: entry._replace(day=None)}, [MAY_3]).gains == {1: SHORT_GAIN}


def test_windows_are_compared_for_the_best_candidates_with_the_gain_of_their_dates():
    candidates = [Candidate(n, 1 - n / 100, 1 - n / 100) for n in range(1, 60)]
    heads = {n: ChunkHead(n, "memory/2023-05-03.md" if n == 50 else "a.md", Source.MEMORY, 0) for n in range(1, 60)}
    asked = []

    def windows_of(ids):
        asked.extend(ids)
        return dict.fromkeys(ids, 0.5)

    rank(candidates, adjusted(heads, [MAY_3]), windows_of, 0.0)
    assert asked == [50, *range(1, MOST_READ)]


def test_windows_reorder_and_keep_the_scores_of_the_retrievers():
    found = rank(CANDIDATES, NO_ADJUSTMENTS, lambda _: {1: 0.0, 2: 0.5, 3: 1.0}, 0.0).candidates
    assert ids(found) == [3, 2, 1]
    assert [round(c.score, 3) for c in found] == [0.8, 0.7, 0.6]
    assert [(c.text_score, c.window) for c in found] == [(0.7, 1.0), (0.8, 0.5), (0.9, 0.0)]


def test_without_keyword_hits_no_chunk_is_read():
    def windows_of(_):
        raise AssertionError("no window is needed")

    assert rank([Candidate(1, 0.5, None, 0.5, None, 1)], NO_ADJUSTMENTS, windows_of, 1.0).candidates[0].window is None
