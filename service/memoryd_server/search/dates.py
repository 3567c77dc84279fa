"""Dates that a query names, and the boost of chunks that are dated near them. Pure.

Recognised are ISO dates and months, Chinese, Japanese and Korean dates, dates with the month's name in a few languages
("May 8", "8 May 2023", "8. Mai 2023", "May 2023", "in March"), seasons of a year, and periods relative to today
("yesterday", "last Tuesday", "last week", "two weeks ago", "the past 10 days"), most of them in English. Of these dates
also parts ("early May", "second week of May", "first half of 2023"), days before and after ("the week before May 8")
and ranges ("May 3-5", "between March 3 and May 8"). Words that may not be a month ("may I", "march on") are not dates.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from memoryd_server.search.date_patterns import PATTERNS
from memoryd_server.search.date_readers import DatesFound
from memoryd_server.search.date_words import CJK_PHRASES, ENGLISH_SEASONS, LAST_WORDS, MONTH_NUMBERS, WEEKDAYS, either
from memoryd_server.search.query import Candidate

BOOST: Final = 0.3
"""The boost of a chunk dated within a range that the query names; by default the weight of keyword search."""
NEAR_DAYS: Final = 7
"""The most days away from a range that get a boost; a note is often written days after the events in it."""


@dataclass(frozen=True, slots=True)
class DateRange:
    """Days from `first` to `last`, both included."""

    first: date
    last: date


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


def boost(day: date | None, ranges: Sequence[DateRange]) -> float:
    """Return the boost of a chunk of this day: `BOOST` within a range, falling linearly to 0 after `NEAR_DAYS`."""
    return max((BOOST * _nearness(day, named) for named in ranges), default=0.0) if day else 0.0


def boosted(
    candidates: Sequence[Candidate], days: Mapping[int, date | None], ranges: Sequence[DateRange]
) -> list[Candidate]:
    """Return the candidates with their boost, best first; unchanged if `ranges` is empty. `days` is by chunk.

    Scores are limited to 1; those that would exceed it keep their order.
    """
    if not ranges:
        return list(candidates)
    scored = [(candidate.score + boost(days.get(candidate.chunk_id), ranges), candidate) for candidate in candidates]
    scored.sort(key=lambda pair: -pair[0])
    return [candidate._replace(score=min(1.0, score)) for score, candidate in scored]


def _nearness(day: date, named: DateRange) -> float:
    away = max((named.first - day).days, (day - named.last).days, 0)
    return max(0.0, 1 - away / (NEAR_DAYS + 1))
