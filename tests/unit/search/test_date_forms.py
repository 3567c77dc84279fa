"""Parts of dates, days before and after them, ranges, seasons and counted days: what each phrase means, and when."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.search import dates
from memoryd_server.search.date_words import AT_MOST, CJK_PHRASES, CJK_THIRDS, ORDINALS, PHRASES, SEASONS
from memoryd_server.search.dates import DateRange, dates_in
from regex_attacks import seconds

JUNE = datetime(2023, 6, 14, 10, tzinfo=UTC)
"""A Wednesday."""
JANUARY = datetime(2024, 1, 5, 23, tzinfo=UTC)
"""A Friday, in winter."""
LEAP_DAY = datetime(2024, 2, 29, 0, tzinfo=UTC)
LONGEST_DAYS = 400

WEEKS = [
    ("second week of May (2023)", JUNE, "2023-05-08", "2023-05-14"),
    ("the first week of may 2022", JUNE, "2022-05-01", "2022-05-07"),
    ("third week in May", JANUARY, "2023-05-15", "2023-05-21"),
    ("fourth week of February 2024", JUNE, "2024-02-22", "2024-02-28"),
    ("last week of May", JUNE, "2023-05-25", "2023-05-31"),
    ("the last week of February", LEAP_DAY, "2024-02-23", "2024-02-29"),
    ("the last week of February", datetime(2024, 2, 3, tzinfo=UTC), "2023-02-22", "2023-02-28"),
    ("last week in December 2021", JUNE, "2021-12-25", "2021-12-31"),
    ("the second week of last month", JUNE, "2023-05-08", "2023-05-14"),
    ("first weekend of May 2023", JUNE, "2023-05-06", "2023-05-07"),
    ("last weekend of May", JUNE, "2023-05-27", "2023-05-28"),
    ("last week of this year", JUNE, "2023-12-25", "2023-12-31"),
    ("5月第2週", JUNE, "2023-05-08", "2023-05-14"),
    ("2023年5月の第一週", JANUARY, "2023-05-01", "2023-05-07"),
]
PARTS = [
    ("first half of May", JUNE, "2023-05-01", "2023-05-15"),
    ("second half of February 2024", JUNE, "2024-02-16", "2024-02-29"),
    ("first half of 2022", JUNE, "2022-01-01", "2022-06-30"),
    ("the latter half of 2022", JUNE, "2022-07-01", "2022-12-31"),
    ("second half of last year", JANUARY, "2023-07-01", "2023-12-31"),
    ("early May", JUNE, "2023-05-01", "2023-05-10"),
    ("in early may", JUNE, "2023-05-01", "2023-05-10"),
    ("mid-May", JUNE, "2023-05-11", "2023-05-20"),
    ("mid may 2021", JUNE, "2021-05-11", "2021-05-20"),
    ("late May", datetime(2023, 5, 5, tzinfo=UTC), "2022-05-21", "2022-05-31"),
    ("late February", LEAP_DAY, "2024-02-21", "2024-02-29"),
    ("early in March", JUNE, "2023-03-01", "2023-03-10"),
    ("the beginning of May", JUNE, "2023-05-01", "2023-05-10"),
    ("start of September", JUNE, "2022-09-01", "2022-09-10"),
    ("in the middle of May 2022", JUNE, "2022-05-11", "2022-05-20"),
    ("by the end of April", JUNE, "2023-04-21", "2023-04-30"),
    ("early 2023", JANUARY, "2023-01-01", "2023-04-30"),
    ("mid-2022", JUNE, "2022-05-01", "2022-08-31"),
    ("in late 2023", JUNE, "2023-09-01", "2023-12-31"),
    ("late last month", JUNE, "2023-05-21", "2023-05-31"),
    ("early last year", JUNE, "2022-01-01", "2022-04-30"),
    ("the end of 2022-05", JUNE, "2022-05-21", "2022-05-31"),
    ("the first three days of May", JUNE, "2023-05-01", "2023-05-03"),
    ("last two weeks of May 2022", JUNE, "2022-05-18", "2022-05-31"),
    ("the last 5 days of February", LEAP_DAY, "2024-02-25", "2024-02-29"),
    ("the last days of May", JUNE, "2023-05-27", "2023-05-31"),
    ("last day of February 2023", JUNE, "2023-02-28", "2023-02-28"),
    ("first three months of 2022", JUNE, "2022-01-01", "2022-03-31"),
    ("Anfang Mai 2023", JUNE, "2023-05-01", "2023-05-10"),
    ("Ende 2022", JUNE, "2022-09-01", "2022-12-31"),
    ("finales de mayo", JUNE, "2023-05-21", "2023-05-31"),
    ("début mars 2022", JUNE, "2022-03-01", "2022-03-10"),
    ("5月上旬", JUNE, "2023-05-01", "2023-05-10"),
    ("2023年5月の中旬", JUNE, "2023-05-11", "2023-05-20"),
    ("先月末", JANUARY, "2023-12-21", "2023-12-31"),
    ("5月底", JUNE, "2023-05-21", "2023-05-31"),
    ("2022年後半", JUNE, "2022-07-01", "2022-12-31"),
    ("2022年上半年", JUNE, "2022-01-01", "2022-06-30"),
]
RANGES = [
    ("May 3-5", JUNE, "2023-05-03", "2023-05-05"),
    ("May 3rd \u2013 5th, 2021", JUNE, "2021-05-03", "2021-05-05"),
    ("from May 3 to 5", JUNE, "2023-05-03", "2023-05-05"),
    ("June 10-20", JUNE, "2023-06-10", "2023-06-20"),
    ("between May 3 and 8", JUNE, "2023-05-03", "2023-05-08"),
    ("3-5 May 2022", JUNE, "2022-05-03", "2022-05-05"),
    ("between the 3rd and the 8th of May", JUNE, "2023-05-03", "2023-05-08"),
    ("between May 3 and May 8", JUNE, "2023-05-03", "2023-05-08"),
    ("from May 3 until 5 June", JUNE, "2023-05-03", "2023-06-05"),
    ("May 3 to 5th June", JUNE, "2023-05-03", "2023-06-05"),
    ("May 3 - July 5", JUNE, "2023-05-03", "2023-07-05"),
    ("December 20 to January 5", JUNE, "2022-12-20", "2023-01-05"),
    ("December 20 to January 5", JANUARY, "2023-12-20", "2024-01-05"),
    ("from December 20 to January 5, 2023", JANUARY, "2022-12-20", "2023-01-05"),
    ("May 3, 2022 - June 5", JUNE, "2022-05-03", "2022-06-05"),
    ("from March to May", JUNE, "2023-03-01", "2023-05-31"),
    ("between march and may", JANUARY, "2023-03-01", "2023-05-31"),
    ("March\u2013May 2022", JUNE, "2022-03-01", "2022-05-31"),
    ("in November to February 2023", JUNE, "2022-11-01", "2023-02-28"),
    ("from 2023-05-03 to 2023-05-08", JUNE, "2023-05-03", "2023-05-08"),
    ("2023-05-03..2023-05-08", JUNE, "2023-05-03", "2023-05-08"),
    ("from early May to late June 2022", JUNE, "2022-05-01", "2022-06-30"),
    ("between last Tuesday and yesterday", JANUARY, "2024-01-02", "2024-01-04"),
    ("from May 2022 to April 2023", JUNE, "2022-05-01", "2023-04-30"),
    ("from February 2024 through today", LEAP_DAY, "2024-02-01", "2024-02-29"),
    ("vom 3. bis 5. Mai 2023", JUNE, "2023-05-03", "2023-05-05"),
    ("vom 3. Mai bis 5. Juni", JUNE, "2023-05-03", "2023-06-05"),
    ("del 3 al 5 de mayo de 2023", JUNE, "2023-05-03", "2023-05-05"),
    ("entre mars et mai 2022", JUNE, "2022-03-01", "2022-05-31"),
    ("5月3日から5日まで", JUNE, "2023-05-03", "2023-05-05"),
    ("5月3日\u301c6月2日", JUNE, "2023-05-03", "2023-06-02"),
    ("2022年5月3日至5日", JUNE, "2022-05-03", "2022-05-05"),
]
NEIGHBOURS = [
    ("the week before May 8, 2023", JANUARY, "2023-05-01", "2023-05-07"),
    ("the week after May 8", JUNE, "2023-05-09", "2023-05-15"),
    ("a week after 2024-02-26", JUNE, "2024-02-27", "2024-03-04"),
    ("two weeks before May 20", JUNE, "2023-05-06", "2023-05-12"),
    ("the day before 2023-03-01", JUNE, "2023-02-28", "2023-02-28"),
    ("the day after the 8th of May", JUNE, "2023-05-09", "2023-05-09"),
    ("10 days before June 3", JUNE, "2023-05-24", "2023-05-24"),
    ("the weekend before May 14, 2023", JUNE, "2023-05-06", "2023-05-07"),
    ("the weekend before 2023-05-15", JUNE, "2023-05-13", "2023-05-14"),
    ("the weekend after May 12, 2023", JUNE, "2023-05-13", "2023-05-14"),
    ("the weekend after last weekend", JUNE, "2023-06-17", "2023-06-18"),
    ("the month before May 2023", JUNE, "2023-04-01", "2023-04-30"),
    ("the month after December 5", JANUARY, "2024-01-01", "2024-01-31"),
    ("a few days before May 20", JUNE, "2023-05-15", "2023-05-19"),
    ("in the days after May 20", JUNE, "2023-05-21", "2023-05-25"),
    ("a couple of weeks before May 22", JUNE, "2023-05-01", "2023-05-21"),
    ("5月8日の前日", JUNE, "2023-05-07", "2023-05-07"),
]
SEASONAL = [
    ("summer 2023", JANUARY, "2023-06-01", "2023-08-31"),
    ("in the summer of 2022", JUNE, "2022-06-01", "2022-08-31"),
    ("fall 2022", JUNE, "2022-09-01", "2022-11-30"),
    ("winter 2023", JUNE, "2023-12-01", "2024-02-29"),
    ("in the winter of 2022/2023", JANUARY, "2022-12-01", "2023-02-28"),
    ("winter 2022-23", JUNE, "2022-12-01", "2023-02-28"),
    ("last summer", JUNE, "2022-06-01", "2022-08-31"),
    ("last summer", JANUARY, "2023-06-01", "2023-08-31"),
    ("last winter", JANUARY, "2022-12-01", "2023-02-28"),
    ("this winter", JANUARY, "2023-12-01", "2024-02-29"),
    ("this winter", datetime(2023, 11, 3, tzinfo=UTC), "2023-12-01", "2024-02-29"),
    ("this spring", JUNE, "2023-03-01", "2023-05-31"),
    ("this past autumn", JANUARY, "2023-09-01", "2023-11-30"),
    ("early summer 2022", JUNE, "2022-06-01", "2022-06-30"),
    ("summer of last year", JANUARY, "2023-06-01", "2023-08-31"),
    ("last year's winter", JUNE, "2022-12-01", "2023-02-28"),
    ("im Sommer 2022", JUNE, "2022-06-01", "2022-08-31"),
    ("2022年の夏", JUNE, "2022-06-01", "2022-08-31"),
    ("去年の夏", JANUARY, "2023-06-01", "2023-08-31"),
]
COUNTED = [
    ("the last two weeks", JUNE, "2023-05-31", "2023-06-14"),
    ("past 10 days", JANUARY, "2023-12-26", "2024-01-05"),
    ("the last 3 months", datetime(2023, 5, 31, tzinfo=UTC), "2023-02-28", "2023-05-31"),
    ("the previous 12 months", LEAP_DAY, "2023-02-28", "2024-02-29"),
    ("last few days", JUNE, "2023-06-09", "2023-06-14"),
    ("the past couple of weeks", JUNE, "2023-05-24", "2023-06-14"),
    ("過去2週間", JUNE, "2023-05-31", "2023-06-14"),
    ("3日前", JUNE, "2023-06-11", "2023-06-11"),
    ("2週間前", JUNE, "2023-05-29", "2023-06-04"),
    ("3个月前", JUNE, "2023-03-01", "2023-03-31"),
    ("3일 전", JUNE, "2023-06-11", "2023-06-11"),
]
SPOKEN = [
    ("day before  yesterday", LEAP_DAY, "2024-02-27", "2024-02-27"),
    ("the week of May 10", JUNE, "2023-05-08", "2023-05-14"),
    ("the weekend of May 10", JUNE, "2023-05-13", "2023-05-14"),
    ("昨日の会議", JANUARY, "2024-01-04", "2024-01-04"),
    ("一昨日", JUNE, "2023-06-12", "2023-06-12"),
    ("先週末", JUNE, "2023-06-10", "2023-06-11"),
    ("上个月的会议", JANUARY, "2023-12-01", "2023-12-31"),
    ("어제 회의", JUNE, "2023-06-13", "2023-06-13"),
    ("was war gestern?", JUNE, "2023-06-13", "2023-06-13"),
    ("letzte  Woche", JUNE, "2023-06-05", "2023-06-11"),
    ("la semana pasada", JANUARY, "2023-12-25", "2023-12-31"),
    ("l'année dernière", JANUARY, "2023-01-01", "2023-12-31"),
    ("２０２３年５月８日", JUNE, "2023-05-08", "2023-05-08"),
    ("apr\u0131l 2023", JUNE, "2023-04-01", "2023-04-30"),
    ("\u017fept 2022", JUNE, "2022-09-01", "2022-09-30"),
]


@pytest.mark.parametrize(("query", "now", "first", "last"), [*WEEKS, *PARTS, *RANGES, *SEASONAL, *COUNTED, *SPOKEN])
def test_a_phrase_names_one_range(query, now, first, last):
    assert dates_in(query, now) == (DateRange(date.fromisoformat(first), date.fromisoformat(last)),)


@pytest.mark.parametrize(("query", "now", "first", "last"), NEIGHBOURS)
def test_days_before_or_after_a_date_are_named_and_then_the_date(query, now, first, last):
    """A note of that date may be the one that mentions them."""
    days, anchor = dates_in(query, now)
    assert days == DateRange(date.fromisoformat(first), date.fromisoformat(last))
    assert anchor.last < days.first or days.last < anchor.first


@pytest.mark.parametrize(
    "query",
    [
        *("may I", "march on", "fall over", "spring boot", "second half of the game", "summer camp", "late may be"),
        *("does this fall over", "this spring boot app", "Spring 2022.0.1", "fall 3 meters", "early march of ants"),
        *("early 2000s", "mid 1990s", "end of the month", "end of Mars mission", "the last two weeks of school"),
        *("3-5 may be enough", "2-3 march miles", "between 3 and 5 people", "from A to B", "pages 3-5", "1-2-3"),
        *("summer 2022/23", "winter 2022/24", "the last 400 days", "past 999 weeks", "the last 18 months"),
        *("the week before", "day after day", "two weeks of holiday", "the third half of May", "10日前後"),
        *("last week of it", "first things first", "a week of work", "\x01\x00 - \x01", "the day before \x01\x00"),
        *("mid-air", "late fee", "end of file", "fin 12", "この2人", "0月上旬", "13月3日〜5日", "summers 2023"),
        *("2023-13", "2023-00", "2023年13月", "2023年13月上旬", "今日子さん", "2022年秋葉原"),
        *("hoy en día", "noch heute", "今日では", "即使在今天"),
    ],
)
def test_words_that_are_not_a_date_name_no_range(query):
    assert dates_in(query, JUNE) == ()


@pytest.mark.parametrize(
    ("query", "firsts"),
    [
        ("2023-05-08 to 2023-05-03", ["2023-05-08", "2023-05-03"]),
        ("from March 2021 to May 2023", ["2021-03-01", "2023-05-01"]),
        ("May 8 and the week before May 3", ["2023-05-08", "2023-04-26", "2023-05-03"]),
        ("between us, yesterday and May 3", ["2023-06-13", "2023-05-03"]),
        ("May 3-5pm and May 8-2", ["2023-05-03", "2023-05-08"]),
        ("late yesterday", ["2023-06-13"]),
        ("the end of last week", ["2023-06-05"]),
        ("fifth week of May 2023", ["2023-05-01"]),
        ("first 40 days of May 2023", ["2023-05-01"]),
        ("the fall of 2023-05-08", ["2023-05-08"]),
        ("last week in Paris", ["2023-06-05"]),
        ("two weeks of May 3", ["2023-05-03"]),
        ("the few months before May 3", ["2023-05-03"]),
    ],
)
def test_dates_without_a_meaning_together_are_read_alone(query, firsts):
    assert [str(named.first) for named in dates_in(query, JUNE)] == firsts


def test_ranges_are_in_the_order_of_the_query():
    found = dates_in("yesterday, May 2021, last summer, the week before May 8", JUNE)
    assert [str(named.first) for named in found] == [
        "2023-06-13",
        "2021-05-01",
        "2022-06-01",
        "2023-05-01",
        "2023-05-08",
    ]


GRAMMAR = "ago a an two of the in on last this past before after de d' between and from to - until week days weekend"
GRAMMAR += (
    " month years half early mid late ye\u017fterday MAY apr\u0131l 8 3rd 2023 \uff15 年 月 日 から 前 第 の 's ? ("
)
GRAMMAR += " \x01 \x00 2023-05-08 2024-02-29 0001-01-01 9999-12-31 9999年12月"
WORDS = [
    *GRAMMAR.split(" "),
    "end of",
    *ORDINALS,
    *AT_MOST,
    *SEASONS,
    *PHRASES,
    *CJK_PHRASES,
    *CJK_THIRDS,
    *dates.WEEKDAYS,
]
PIECES = st.sampled_from([*WORDS, *dates.MONTH_NUMBERS])
TEXTS = st.builds(
    lambda pieces, between: between.join(pieces),
    st.lists(PIECES | st.text(max_size=3), max_size=8),
    st.sampled_from([" ", " ", "  ", "-", "_", "\n", ""]),
)
TIMES = st.datetimes(min_value=datetime(1, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(TEXTS)
def test_a_query_that_is_passed_over_names_no_date(query):
    if not dates.may_name_date(query):
        assert dates.read_dates(query, JUNE.date()) == ()
        patterns = (pattern for pattern, _ in dates.PATTERNS if "\x01" not in pattern.pattern)
        assert not any(pattern.search(query) for pattern in patterns)


@given(TEXTS, st.sampled_from([JUNE, JANUARY, LEAP_DAY]) | TIMES)
def test_every_range_is_in_order_and_at_most_a_year_long(query, now):
    assert all(0 <= (named.last - named.first).days <= LONGEST_DAYS for named in dates_in(query, now))


@given(st.text(), TIMES)
def test_any_text_is_read_at_any_time(query, now):
    assert isinstance(dates_in(f"{query} 8", now), tuple)


@given(st.lists(PIECES, min_size=1, max_size=4))
def test_the_time_grows_no_faster_than_the_query(pieces):
    """For the longest query that is accepted, compared with one of a quarter of its size."""
    piece = " ".join(pieces) + " "
    long, short = ((piece * size)[:size] for size in (4096, 1024))
    times = [min(seconds(lambda text: dates_in(text, JUNE), text, 2), 1.0) for text in (short, long)]
    assert times[1] < max(12 * times[0], 0.25)
