"""Dated notes fade and never vanish; what is kept without a date does not age; no score is ever raised."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.search.query import Candidate
from memoryd_server.search.ranking import Adjustments, age_days, day_of, decay_of, is_evergreen, multiplier

NOW = datetime(2026, 3, 12, 12, tzinfo=UTC)
WEEK_AGO = NOW - timedelta(days=7)


@pytest.mark.parametrize(
    ("path", "day"),
    [
        ("memory/2026-02-10.md", date(2026, 2, 10)),
        ("memory/2026-02-10-1430.md", date(2026, 2, 10)),
        ("memory/2026-02-10_slug.md", date(2026, 2, 10)),
        ("memory/2026-02-10 a walk.md", date(2026, 2, 10)),
        ("memory/logs/2026/2026-02-10.md", date(2026, 2, 10)),
        ("/home/me/memory/2026-02-10.md", date(2026, 2, 10)),
        ("memory/2026-02-10/walk.md", None),
        ("memory/2026-02-101.md", None),
        ("memory/walk-2026-02-10.md", None),
        ("memory/12026-02-10.md", None),
        ("memory/2026-13-10.md", None),
        ("memory/0000-01-01.md", None),
        ("memory/२०२६-०२-१०.md", None),
        ("my-memory/2026-02-10.md", None),
        ("2026-02-10.md", None),
        ("", None),
    ],
)
def test_the_day_is_the_one_that_the_name_begins_with(path, day):
    assert day_of(path) == day


# Path, and its age on the day NOW with a file changed a week ago; None does not age.
AGES = [
    ("memory/2026-03-02.md", 10.5),
    ("memory/2026-03-02-walk.md", 10.5),
    ("memory/deep/2026-03-02.md", 10.5),
    ("memory/2026-03-20.md", -7.5),
    ("memory/2026-02-30.md", None),
    ("memory/deep/2026-02-30-x.md", None),
    ("memory/topics.md", None),
    ("./memory/topics.md", None),
    ("MEMORY.md", None),
    ("memory.md", None),
    ("sessions/a.jsonl", 7.0),
    ("notes/topics.md", 7.0),
    ("notes/MEMORY.md", 7.0),
]


@pytest.mark.parametrize(("path", "age"), AGES)
def test_a_file_is_as_old_as_its_day_or_else_its_last_change(path, age):
    assert age_days(path, WEEK_AGO, NOW) == age
    expected = 1.0 if age is None else multiplier(age, 30, 0.5)
    assert decay_of(path, WEEK_AGO, NOW, 30, 0.5) == expected


@pytest.mark.parametrize(
    ("age", "half_life", "floor", "left"),
    [
        (30, 30, 0.5, 0.5),
        (60, 30, 0.5, 0.5),
        (60, 30, 0.0, 0.25),
        (15, 30, 0.5, 0.5**0.5),
        (1e9, 30, 0.5, 0.5),
        (1e9, 30, 0.0, 0.0),
        (10, 30, 1.0, 1.0),
        (10, 30, 7.0, 1.0),
        (-5, 30, 0.5, 1.0),
        (float("inf"), 30, 0.5, 1.0),
        (float("nan"), 30, 0.5, 1.0),
        (10, float("nan"), 0.5, 1.0),
        (10, 0, 0.5, 1.0),
    ],
)
def test_a_score_halves_with_each_half_life_down_to_the_floor(age, half_life, floor, left):
    assert multiplier(age, half_life, floor) == pytest.approx(left)


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.floats(0, 1), NUMBERS, NUMBERS, st.floats(0, 1))
def test_decay_never_raises_a_score_nor_takes_it_below_the_floor(score, age, half_life, floor):
    decays = {1: multiplier(age, half_life, floor)}
    (left,) = Adjustments(decays, {}, {}, {1}).ranked([Candidate(1, score, 0.4, 0.3, 2, 5)])
    assert floor * score <= left.score <= score
    assert left.text_score == 0.4
    assert (left.vector_score, left.keyword_rank, left.vector_rank) == (0.3, 2, 5)


@given(st.floats(0, 4000), st.floats(0, 4000), st.floats(0.1, 400), st.floats(0, 1))
def test_the_older_never_keeps_more(one, other, half_life, floor):
    younger, older = sorted([one, other])
    assert multiplier(older, half_life, floor) <= multiplier(younger, half_life, floor)


@pytest.mark.parametrize(("path", "evergreen"), [("USER.md", True), ("user.md", False), ("users/x/USER.md", False)])
def test_the_user_file_does_not_age(path, evergreen):
    assert is_evergreen(path) is evergreen


@given(st.text())
def test_any_path_has_an_age_or_none(path):
    assert not (day_of(path) and is_evergreen(path))
    age_days(path, WEEK_AGO, NOW)
