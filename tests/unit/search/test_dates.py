"""Dates that a query names lift the notes of those days; a query that names none changes nothing."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.search.dates import DAYS_AFTER, DAYS_BEFORE, LONG_GAIN, SHORT_GAIN, DateRange, dates_in, gain_of

# A Wednesday.
NOW = datetime(2023, 6, 14, 10, tzinfo=UTC)
FIRST, LAST = date(2023, 5, 8), date(2023, 5, 10)

NAMED = [
    ("on 2023-05-08", "2023-05-08", "2023-05-08"),
    ("log of 2023-05-08.", "2023-05-08", "2023-05-08"),
    ("2023/5/8", "2023-05-08", "2023-05-08"),
    ("2023.05.08", "2023-05-08", "2023-05-08"),
    ("08.05.2023", "2023-05-08", "2023-05-08"),
    ("in 2023-05", "2023-05-01", "2023-05-31"),
    ("2024-02", "2024-02-01", "2024-02-29"),
    ("May 8", "2023-05-08", "2023-05-08"),
    ("on may 8", "2023-05-08", "2023-05-08"),
    ("Sept. 5", "2022-09-05", "2022-09-05"),
    ("May 8, 2021", "2021-05-08", "2021-05-08"),
    ("8 May 2023", "2023-05-08", "2023-05-08"),
    ("the 8th of May", "2023-05-08", "2023-05-08"),
    ("June 3rd", "2023-06-03", "2023-06-03"),
    ("December 25", "2022-12-25", "2022-12-25"),
    ("Feb 29", "2020-02-29", "2020-02-29"),
    ("12 march 2023 14:00", "2023-03-12", "2023-03-12"),
    ("May 2023", "2023-05-01", "2023-05-31"),
    ("May of 2012", "2012-05-01", "2012-05-31"),
    ("in March", "2023-03-01", "2023-03-31"),
    ("in December?", "2022-12-01", "2022-12-31"),
    ("8. Mai 2023", "2023-05-08", "2023-05-08"),
    ("März 2023", "2023-03-01", "2023-03-31"),
    ("1er mai 2023", "2023-05-01", "2023-05-01"),
    ("8 de mayo de 2023", "2023-05-08", "2023-05-08"),
    ("2023年5月8日", "2023-05-08", "2023-05-08"),
    ("2023 年 5 月", "2023-05-01", "2023-05-31"),
    ("5月8日", "2023-05-08", "2023-05-08"),
    ("2023년 5월 8일", "2023-05-08", "2023-05-08"),
    ("today", "2023-06-14", "2023-06-14"),
    ("Yesterday's walk", "2023-06-13", "2023-06-13"),
    ("the day before yesterday", "2023-06-12", "2023-06-12"),
    ("last night", "2023-06-13", "2023-06-13"),
    ("last Tuesday", "2023-06-13", "2023-06-13"),
    ("last wednesday", "2023-06-07", "2023-06-07"),
    ("on Monday", "2023-06-12", "2023-06-12"),
    ("last weekend", "2023-06-10", "2023-06-11"),
    ("this week", "2023-06-12", "2023-06-18"),
    ("last week", "2023-06-05", "2023-06-11"),
    ("last  month", "2023-05-01", "2023-05-31"),
    ("last year", "2022-01-01", "2022-12-31"),
    ("3 days ago", "2023-06-11", "2023-06-11"),
    ("two weeks ago", "2023-05-29", "2023-06-04"),
    ("a couple of months ago", "2023-04-01", "2023-04-30"),
    ("a year ago", "2022-01-01", "2022-12-31"),
]


@pytest.mark.parametrize(("query", "first", "last"), NAMED)
def test_a_date_is_read_by_the_askers_clock(query, first, last):
    assert dates_in(query, NOW) == (DateRange(date.fromisoformat(first), date.fromisoformat(last)),)


@pytest.mark.parametrize(
    "query",
    [
        *("", "may I go", "I may 5 times", "march 3 miles", "the Mars 3 lander", "mayor 8", "in marching order"),
        *("2023-02-30", "2023-13-01", "May 32", "February 30", "5/8/2023", "2001-02年", "0 月 0 日"),
        *("1.2.3", "10.20.30.40", "issue 2023", "at 20:23", "port 2023-0512", "May 8:30", "Mondays", "week 3"),
        *("99999 years ago", "999999 days ago", "2000 weeks ago", "ABC-2023-051", "what happened to May?"),
    ],
)
def test_a_text_without_a_date_names_no_range(query):
    assert dates_in(query, NOW) == ()


def test_several_dates_are_several_distinct_ranges():
    found = dates_in("2023-05-08, May 2021, May 8, 2023 and May 2021", NOW)
    assert [str(named.first) for named in found] == ["2023-05-08", "2021-05-01"]


def test_new_year_is_no_special_day():
    new_year = datetime(2024, 1, 1, tzinfo=UTC)
    for query, first in [("last week", "2023-12-25"), ("last month", "2023-12-01"), ("yesterday", "2023-12-31")]:
        assert [str(named.first) for named in dates_in(query, new_year)] == [first]


@given(st.text(), st.datetimes(min_value=datetime(1, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_any_query_at_any_time_has_ranges_in_order(query, now):
    assert all(named.first <= named.last for named in dates_in(f"a year ago, last week, May 8, {query}", now))


@pytest.mark.parametrize(
    ("day", "share"),
    [
        (date(2023, 5, 8), 1),
        (date(2023, 5, 10), 1),
        (date(2023, 5, 17), 1 / 2),
        (date(2023, 5, 23), 1 / 14),
        (date(2023, 5, 24), 0),
        (date(2023, 5, 7), 6 / 7),
        (date(2023, 5, 1), 0),
        (date(2022, 5, 9), 0),
        (None, 0),
    ],
)
def test_the_gain_falls_to_nothing_over_two_weeks_after_a_range_and_one_before_it(day, share):
    assert (DAYS_AFTER, DAYS_BEFORE) == (14, 7)
    assert gain_of(day, [DateRange(FIRST, LAST)]) == pytest.approx(share * SHORT_GAIN)
    assert gain_of(day, []) == 0.0


def test_a_range_longer_than_a_week_adds_less():
    week, month = DateRange(date(2023, 5, 1), date(2023, 5, 7)), DateRange(date(2023, 5, 1), date(2023, 5, 31))
    assert (week.days, month.days) == (7, 31)
    assert gain_of(FIRST, [month]) == LONG_GAIN
    assert gain_of(date(2023, 5, 7), [week]) == SHORT_GAIN
    assert gain_of(date(2023, 5, 7), [month, week]) == SHORT_GAIN


DAYS = st.dates(date(2023, 1, 1), date(2023, 12, 31))


@given(DAYS, DAYS, DAYS)
def test_a_gain_is_within_bounds_and_largest_within_the_range(day, one, other):
    named = DateRange(min(one, other), max(one, other))
    gain = gain_of(day, [named])
    assert 0 <= gain <= gain_of(named.first, [named])
    assert (gain == gain_of(named.first, [named])) == (named.first <= day <= named.last)
