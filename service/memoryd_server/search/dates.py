"""Dates that a query names, and the boost of chunks that are dated near them. Pure.

Recognised are ISO dates and months, Chinese, Japanese and Korean dates, dates with the month's name in a few languages
("May 8", "8 May 2023", "8. Mai 2023", "May 2023", "in March"), and in English "yesterday", "last Tuesday", "last week",
"two weeks ago". Words that may not be a month ("may I", "march on") are not dates.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import Final

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


_RangeOf = Callable[[re.Match[str], date], DateRange]

_MONTHS: Final[Sequence[tuple[str, ...]]] = (
    ("january", "jan", "januar", "janvier", "enero", "gennaio", "janeiro"),
    ("february", "feb", "februar", "février", "febrero", "febbraio", "fevereiro"),
    ("march", "mar", "märz", "mars", "marzo", "março"),
    ("april", "apr", "avril", "abril", "aprile"),
    ("may", "mai", "mayo", "maggio", "maio"),
    ("june", "jun", "juni", "juin", "junio", "giugno", "junho"),
    ("july", "jul", "juli", "juillet", "julio", "luglio", "julho"),
    ("august", "aug", "août", "agosto"),
    ("september", "sep", "sept", "septembre", "septiembre", "settembre", "setembro"),
    ("october", "oct", "oktober", "okt", "octobre", "octubre", "ottobre", "outubro"),
    ("november", "nov", "novembre", "noviembre", "novembro"),
    ("december", "dec", "dezember", "dez", "décembre", "diciembre", "dicembre", "dezembro"),
)
MONTH_NUMBERS: Final[Mapping[str, int]] = MappingProxyType(
    {name: number for number, names in enumerate(_MONTHS, 1) for name in names}
)
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_COUNTS: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS: Final[Mapping[str, int]] = MappingProxyType(
    {word: number for number, word in enumerate(_COUNTS, 1)} | {"a": 1, "an": 1, "a couple of": 2, "a few": 3}
)
# Names of months that are also words. Without a year they need a capital or one of the words below before them.
_AMBIGUOUS_MONTHS = frozenset({"may", "march", "mar", "mars", "Mars"})
_BEFORE_A_DATE = re.compile(
    r"\b(?:on|in|of|by|from|since|until|before|after|around|the|le|am|el|il)\s+(?:the\s+)?$", re.IGNORECASE
)
_LONGEST_BEFORE = 20

_MONTH = rf"(?P<month>{'|'.join(sorted(MONTH_NUMBERS, key=len, reverse=True))})\b\.?"
_DAY = r"(?P<day>[0-3]?[0-9])(?:st|nd|rd|th|er|º|\.)?(?![0-9])"
_YEAR = r"(?P<year>(?:19|20)[0-9]{2})(?![0-9])"
_OF = r"(?:\s+(?:of|de|del|d'))?"
_UNIT = "(?P<unit>day|weekend|week|month|year)"
# Every date has a digit or one of these words. A query without them, as most are, is not matched with the patterns.
_DATE_WORDS = frozenset(
    {*MONTH_NUMBERS, *WEEKDAYS, "yesterday", "today", "tonight", "night", "weekend", "week", "month", "year", "ago"}
)
_DIGIT_OR_WORDS = re.compile(r"[0-9]|[^\W\d_]+")


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


def dates_in(query: str, now: datetime) -> tuple[DateRange, ...]:
    """Return the distinct ranges of days that a query names, in the order of `PATTERNS`.

    `now` is the caller's local time. A day or month without a year is the latest that has begun. Weeks begin on Monday.
    """
    if not may_name_date(query):
        return ()
    today = now.date()
    ranges: dict[DateRange, None] = {}
    for pattern, range_of in PATTERNS:

        def read(match: re.Match[str], range_of: _RangeOf = range_of) -> str:
            try:
                ranges[range_of(match, today)] = None
            except (ValueError, OverflowError):
                return match[0]
            return " " * len(match[0])

        query = pattern.sub(read, query)
    return tuple(ranges)


def may_name_date(query: str) -> bool:
    """Return False only if no pattern of `PATTERNS` matches, at a fraction of the cost of trying them."""
    # Case is folded because the patterns match a long s as an s.
    found = _DIGIT_OR_WORDS.findall(query.casefold())
    return any(each in _DATE_WORDS or each.isdecimal() for each in found)


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


def _numbered_day(match: re.Match[str], _: date) -> DateRange:
    day = date(int(match["year"]), int(match["month"]), int(match["day"]))
    return DateRange(day, day)


def _numbered_month(match: re.Match[str], _: date) -> DateRange:
    return _whole_month(int(match["year"]), int(match["month"]))


def _named_day(match: re.Match[str], today: date) -> DateRange:
    month, number = MONTH_NUMBERS[match["month"].lower()], int(match["day"])
    if match["year"]:
        day = date(int(match["year"]), month, number)
    elif match["month"] in _AMBIGUOUS_MONTHS and not _BEFORE_A_DATE.search(
        match.string[max(0, match.start() - _LONGEST_BEFORE) : match.start()]
    ):
        raise ValueError("a word, not a month")
    else:
        day = _latest(month, number, today)
    return DateRange(day, day)


def _yearless_day(match: re.Match[str], today: date) -> DateRange:
    day = _latest(int(match["month"]), int(match["day"]), today)
    return DateRange(day, day)


def _latest(month: int, number: int, today: date) -> date:
    """Return the latest such day that has begun; a leap day may be years ago."""
    for year in range(today.year, today.year - 9, -1):
        try:
            day = date(year, month, number)
        except ValueError:
            continue
        if day <= today:
            return day
    raise ValueError("no such day")


def _named_month(match: re.Match[str], today: date) -> DateRange:
    month = MONTH_NUMBERS[match["month"].lower()]
    if match["year"]:
        return _whole_month(int(match["year"]), month)
    return _whole_month(today.year - (month > today.month), month)


def _whole_month(year: int, month: int) -> DateRange:
    first = date(year, month, 1)
    following = date(year + month // 12, month % 12 + 1, 1)
    return DateRange(first, following - timedelta(days=1))


def _spoken_day(match: re.Match[str], today: date) -> DateRange:
    word = " ".join(match[0].lower().split())
    ago = {"the day before yesterday": 2, "yesterday": 1, "last night": 1}.get(word, 0)
    day = today - timedelta(days=ago)
    return DateRange(day, day)


def _weekday(match: re.Match[str], today: date) -> DateRange:
    """Return the latest such weekday before today."""
    back = (today.weekday() - WEEKDAYS.index(match["weekday"].lower())) % 7 or 7
    day = today - timedelta(days=back)
    return DateRange(day, day)


def _period(match: re.Match[str], today: date) -> DateRange:
    """Return this or the last weekend, week, month or year."""
    back = 0 if match["which"].lower() == "this" else 1
    return _calendar_unit(match["unit"].lower(), back, today)


def _ago(match: re.Match[str], today: date) -> DateRange:
    """Return one day for "days ago", and the whole unit for weeks, months and years ago, which are not exact."""
    count = " ".join(match["count"].lower().split())
    return _calendar_unit(match["unit"].lower(), _NUMBERS.get(count) or int(count), today)


def _calendar_unit(unit: str, back: int, today: date) -> DateRange:
    if unit == "day":
        day = today - timedelta(days=back)
        return DateRange(day, day)
    if unit == "week":
        monday = today - timedelta(days=today.weekday() + 7 * back)
        return DateRange(monday, monday + timedelta(days=6))
    if unit == "weekend":
        saturday = today - timedelta(days=(today.weekday() + 2) % 7 + 7 * (back - 1))
        return DateRange(saturday, saturday + timedelta(days=1))
    if unit == "month":
        months = today.year * 12 + today.month - 1 - back
        return _whole_month(months // 12, months % 12 + 1)
    return DateRange(date(today.year - back, 1, 1), date(today.year - back, 12, 31))


# The least ambiguous first. The text that a pattern matches is hidden from the next ones.
PATTERNS: Final[Sequence[tuple[re.Pattern[str], _RangeOf]]] = (
    (
        _pattern(r"(?<![0-9])(?P<year>[0-9]{4})([-/.])(?P<month>[0-9]{1,2})\2(?P<day>[0-9]{1,2})(?![0-9])"),
        _numbered_day,
    ),
    (
        _pattern(r"(?P<year>[0-9]{4})\s*[年년]\s*(?P<month>[0-9]{1,2})\s*[月월]\s*(?P<day>[0-9]{1,2})\s*[日号號일]"),
        _numbered_day,
    ),
    (_pattern(r"(?P<year>[0-9]{4})\s*[年년]\s*(?P<month>[0-9]{1,2})\s*[月월]"), _numbered_month),
    (_pattern(r"(?<![0-9])(?P<month>[0-9]{1,2})\s*[月월]\s*(?P<day>[0-9]{1,2})\s*[日号號일]"), _yearless_day),
    (
        _pattern(r"(?<![0-9.])(?P<day>[0-9]{1,2})\.(?P<month>[0-9]{1,2})\.(?P<year>(?:19|20)[0-9]{2})(?![0-9])"),
        _numbered_day,
    ),
    (_pattern(r"(?<![0-9-])(?P<year>(?:19|20)[0-9]{2})-(?P<month>[01][0-9])(?![0-9年년-])"), _numbered_month),
    (_pattern(rf"(?<![\w.]){_DAY}{_OF}\s*{_MONTH}(?:{_OF},?\s*{_YEAR})?"), _named_day),
    (_pattern(rf"\b(?!mars\b){_MONTH}\s+(?:the\s+)?{_DAY}(?!:)(?:,?\s*{_YEAR})?"), _named_day),
    (_pattern(rf"\b{_MONTH}{_OF},?\s*{_YEAR}"), _named_month),
    (_pattern(rf"\b(?:in|during|last|this)\s+{_MONTH}(?P<year>(?!))?(?![\w'])"), _named_month),
    (_pattern(r"\b(?:the\s+day\s+before\s+yesterday|yesterday|today|tonight|last\s+night)\b"), _spoken_day),
    (_pattern(rf"\b(?:last|past|previous|on)\s+(?P<weekday>{'|'.join(WEEKDAYS)})\b"), _weekday),
    (_pattern(r"\b(?P<which>this|last|past|previous)\s+(?P<unit>weekend|week|month|year)\b"), _period),
    (_pattern(rf"\b(?P<count>[0-9]{{1,3}}|{'|'.join(_NUMBERS)})\s+{_UNIT}s?\s+ago\b"), _ago),
)
