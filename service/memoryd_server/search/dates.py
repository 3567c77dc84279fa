"""Dates that a query names, and what they add to the score of chunks that are dated near them. Pure.

Recognised are ISO dates and months, Chinese, Japanese and Korean dates, dates with the month's name in a few languages
("May 8", "8 May 2023", "8. Mai 2023", "May 2023", "in March"), seasons of a year, and periods relative to today
("yesterday", "last Tuesday", "last week", "two weeks ago", "the past 10 days"), most of them in English. Also
recognised are parts of these dates ("early May", "second week of May", "first half of 2023"), days before and after
them ("the week before May 8"), and ranges ("May 3-5", "between March 3 and May 8"). Words that need not be a month
("may I", "march on") are not dates.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from memoryd_server.search.date_patterns import PATTERNS
from memoryd_server.search.date_readers import DatesFound
from memoryd_server.search.date_words import CJK_PHRASES, ENGLISH_SEASONS, LAST_WORDS, MONTH_NUMBERS, WEEKDAYS, either

SHORT_GAIN: Final = 0.8
"""What a named range of at most `SHORT_DAYS` adds to the score of a chunk dated within it."""
LONG_GAIN: Final = 0.6
"""What a longer range adds. Much larger gains lose the answers of questions that name a wrong date."""
SHORT_DAYS: Final = 7
DAYS_AFTER: Final = 14
"""The days after a range over which the gain falls to 0: a note is often written days after the events in it."""
DAYS_BEFORE: Final = 7
"""The days before a range over which the gain falls to 0."""
MOST_DAYS_RETRIEVED: Final = 31
"""The longest range whose chunks are candidates although they share no word with the query."""


@dataclass(frozen=True, slots=True)
class DateRange:
    """Days from `first` to `last`, both included."""

    first: date
    last: date

    @property
    def days(self) -> int:
        """The number of days."""
        return (self.last - self.first).days + 1


# Every date has a digit, one of these words or a phrase of `_CJK_PHRASE`. A query without them, as most are, is not
# matched with the patterns.
_UNITS = ("day", "days", "weekend", "weekends", "week", "weeks", "month", "months", "year")
_DATE_WORDS = frozenset({*MONTH_NUMBERS, *WEEKDAYS, *ENGLISH_SEASONS, *LAST_WORDS, *_UNITS, "ago"})
_DIGIT_OR_WORDS = re.compile(r"[0-9]|[^\W\d_]+")
_CJK_PHRASE = re.compile(either(CJK_PHRASES))
# Patterns that ignore case match the dotted and the dotless i of Turkish as an i.
_PLAIN = str.maketrans("０１２３４５６７８９İı", "0123456789Ii")


def dates_in(query: str, now: datetime) -> tuple[DateRange, ...]:
    """Return the distinct ranges of days that a query names, in the order of the query.

    `now` is the caller's local time. A day or month without a year is the latest that has begun. Weeks begin on Monday.
    No range is longer than a year.
    """
    return read_dates(query, now.date()) if may_name_date(query) else ()


def is_date_word(word: str) -> bool:
    """Return whether a word of a query, without case and accents, can be part of a date: a number or a word of time."""
    return word in _DATE_WORDS or any(map(str.isdigit, word))


def read_dates(query: str, today: date) -> tuple[DateRange, ...]:
    """Return what `dates_in` returns, and try all patterns also if the query names no date."""
    text, found = _plain(query), DatesFound(today)
    for pattern, reader in PATTERNS:
        text = found.replace(text, pattern, reader)
    return tuple(dict.fromkeys(DateRange(days.first, days.last) for days in found.all()))


def may_name_date(query: str) -> bool:
    """Return False only if the query names no date, at a fraction of the cost of trying the patterns."""
    text = _plain(query)
    # Case is folded because the patterns match a long s as an s.
    words = _DIGIT_OR_WORDS.findall(text.casefold())
    return any(each in _DATE_WORDS or each.isdecimal() for each in words) or (
        not text.isascii() and _CJK_PHRASE.search(text) is not None
    )


def _plain(query: str) -> str:
    return query if query.isascii() else query.translate(_PLAIN)


def gain_of(day: date | None, ranges: Sequence[DateRange]) -> float:
    """Return what the dates that a query names add to the score of a chunk of this day; 0 for a chunk without a day."""
    return max((_gain(day, named) for named in ranges), default=0.0) if day else 0.0


def _gain(day: date, named: DateRange) -> float:
    before, after = (named.first - day).days / DAYS_BEFORE, (day - named.last).days / DAYS_AFTER
    full = SHORT_GAIN if named.days <= SHORT_DAYS else LONG_GAIN
    return full * max(0.0, 1 - max(before, after, 0.0))
