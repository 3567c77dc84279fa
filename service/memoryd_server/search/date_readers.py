"""Readers of dates: each turns a match of one pattern of `date_patterns` into the days that the text means."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from memoryd_server.search import date_periods as periods
from memoryd_server.search.date_periods import Days
from memoryd_server.search.date_words import (
    AMBIGUOUS_MONTHS,
    AT_MOST,
    CJK_DAYS_AFTER,
    CJK_HALVES,
    CJK_ORDINALS,
    CJK_PHRASES,
    CJK_SEASONS,
    CJK_THIRDS,
    CJK_UNITS,
    MONTH_NUMBERS,
    ORDINALS,
    WEEKDAYS,
    count_of,
    either,
    month_number,
    phrase_of,
    season_start,
)

MARK: Final = "\x01"
"""The first character of a placeholder, which has the length of the text that it replaces."""
FILL: Final = "\x00"
"""All other characters of a placeholder."""

_BEFORE_A_DATE = re.compile(
    r"\b(?:on|in|of|by|from|since|until|before|after|around|the|le|am|el|il)\s+(?:the\s+)?$", re.IGNORECASE
)
# Not "the": that is also before "late march" as a noun.
_BEFORE_A_PERIOD = re.compile(
    r"\b(?:in|of|by|from|since|until|till|around|during|between|entre|and|to|through|bis|mid)[\s-]+(?:the\s+)?$",
    re.IGNORECASE,
)
_MONTH_BEFORE = re.compile(rf"\b(?:{either(MONTH_NUMBERS)})\.?\s+(?:the\s+)?$", re.IGNORECASE)
_LONGEST_BEFORE = 20


@dataclass(frozen=True, slots=True)
class DatesFound:
    """The dates that were read from a query so far, by position. Those of `at` have a placeholder there."""

    today: date
    at: dict[int, Days] = field(default_factory=dict)
    anchors: dict[int, Days] = field(default_factory=dict)
    """Dates before or after which another date is. Notes of such a day often mention it: "two weeks ago"."""

    def replace(self, text: str, pattern: re.Pattern[str], reader: "Reader") -> str:
        """Return the text with a placeholder for each match that the reader accepts; the length does not change."""

        def placeholder(match: re.Match[str]) -> str:
            try:
                days = reader(match, self)
            except (ValueError, OverflowError):
                return match[0]
            for position, char in enumerate(match[0], match.start()):
                if char == MARK:
                    self.at.pop(position, None)
            self.at[match.start()] = days
            return MARK + FILL * (len(match[0]) - 1)

        return pattern.sub(placeholder, text)

    def named(self, match: re.Match[str], group: str = "named") -> Days:
        """Return the date of the placeholder that a group matched, or the month whose name it matched.

        Raises:
            ValueError: the group matched a control character of the query, or a word that may not be a month.
        """
        start = match.start(group)
        if match[group][0] != MARK:
            return _latest_month(match, group, start, self.today)
        if start not in self.at:
            raise ValueError("a control character, not a placeholder")
        return self.at[start]

    def all(self) -> list[Days]:
        """Return the dates in the order of the query; an anchor that begins where another date does is after it."""
        dates = [*self.at.items(), *self.anchors.items()]
        return [days for _, days in sorted(dates, key=lambda each: each[0])]


Reader = Callable[[re.Match[str], DatesFound], Days]
"""Raises ValueError or OverflowError if the match is not a date."""


def numbered_day(match: re.Match[str], _: DatesFound) -> Days:
    """Return a day whose year, month and day are numbers."""
    return periods.single_day(date(int(match["year"]), int(match["month"]), int(match["day"])))


def numbered_month(match: re.Match[str], _: DatesFound) -> Days:
    """Return a month whose year and month are numbers."""
    return periods.month_of(int(match["year"]), int(match["month"]))


def yearless_day(match: re.Match[str], found: DatesFound) -> Days:
    """Return the latest day of a numbered month that has begun."""
    return periods.latest_day(int(match["month"]), int(match["day"]), found.today)


def numbered_days(match: re.Match[str], found: DatesFound) -> Days:
    """Return the days of a numbered month from one day to another."""
    first = numbered_day(match, found) if match["year"] else yearless_day(match, found)
    return _until(first, int(match["until"]))


def named_day(match: re.Match[str], found: DatesFound) -> Days:
    """Return a day of a month that is named; without a year, the latest that has begun."""
    month, number = month_number(match["month"]), int(match["day"])
    if match["year"]:
        return periods.single_day(date(int(match["year"]), month, number))
    _refuse_word(match["month"], match.string, _BEFORE_A_DATE, match.start())
    return periods.latest_day(month, number, found.today)


def named_days(match: re.Match[str], found: DatesFound) -> Days:
    """Return the days of a month that is named from one day to another."""
    return _until(named_day(match, found), int(match["until"]))


def named_days_first(match: re.Match[str], found: DatesFound) -> Days:
    """Return the days of "3 to 5 May", unless the first day is that of another month, as in "June 3 to 5 July"."""
    if _MONTH_BEFORE.search(_text_before(match.string, match.start())):
        raise ValueError("a day of another month")
    return named_days(match, found)


def named_month(match: re.Match[str], found: DatesFound) -> Days:
    """Return a month that is named; without a year, the latest that has begun."""
    month = month_number(match["month"])
    if match["year"]:
        return periods.month_of(int(match["year"]), month)
    return periods.latest_month(month, found.today)


def part_of_month(match: re.Match[str], found: DatesFound) -> Days:
    """Return a part of a month; without a year, the latest that has begun."""
    if match["year"]:
        return _part_of(named_month(match, found), match)
    return _begun_part_of(_latest_month(match, "month", match.start(), found.today), match, found.today)


def part_of_cjk_month(match: re.Match[str], found: DatesFound) -> Days:
    """Return a part of a month; without a year, the latest that has begun."""
    if match["year"]:
        return _part_of(numbered_month(match, found), match)
    return _begun_part_of(periods.latest_month(int(match["month"]), found.today), match, found.today)


def part_of_year(match: re.Match[str], _: DatesFound) -> Days:
    """Return a part of a year."""
    return _part_of(periods.whole_year(int(match["only_year"])), match)


def part_of_date(match: re.Match[str], found: DatesFound) -> Days:
    """Return a part of a date that was read before, such as "last month"."""
    return _part_of(found.named(match), match)


def named_season(match: re.Match[str], _: DatesFound) -> Days:
    """Return a season of a year; only winter may have two years."""
    year, days = int(match["year"]), season_start(match["season"])
    if match["next"] and (int(match["next"]) - year - 1) % 100:
        raise ValueError("not the next year")
    season = periods.season(year, days)
    if match["next"] and season.last.year == year:
        raise ValueError("a season of one year")
    return season


def relative_season(match: re.Match[str], found: DatesFound) -> Days:
    """Return this or the last season of a name."""
    start = season_start(match["season"])
    this = match["which"].casefold() == "this"
    return (periods.this_season if this else periods.last_season)(start, found.today)


def season_of_year(match: re.Match[str], _: DatesFound) -> Days:
    """Return a season of a year, both in Chinese characters."""
    return periods.season(int(match["only_year"]), CJK_SEASONS[match["season"]])


def season_of_date(match: re.Match[str], found: DatesFound) -> Days:
    """Return a season of a year that was read before, such as "last year"."""
    named = found.named(match)
    season = match["season"]
    start = CJK_SEASONS.get(season) or season_start(season)
    if named[:2] != periods.whole_year(named.first.year)[:2]:
        raise ValueError("seasons are parts of years")
    return periods.season(named.first.year, start)


def phrase(match: re.Match[str], found: DatesFound) -> Days:
    """Return the period that a phrase names, such as "yesterday"."""
    return periods.units_ago(*phrase_of(match[0]), found.today)


def cjk_phrase(match: re.Match[str], found: DatesFound) -> Days:
    """Return the period that a phrase of a language without spaces names."""
    return periods.units_ago(*CJK_PHRASES[" ".join(match[0].split())], found.today)


def weekday(match: re.Match[str], found: DatesFound) -> Days:
    """Return the latest such weekday before today."""
    back = (found.today.weekday() - WEEKDAYS.index(match["weekday"].casefold())) % 7 or 7
    return periods.units_ago("day", back, found.today)


def period(match: re.Match[str], found: DatesFound) -> Days:
    """Return this or the last weekend, week, month or year."""
    back = 0 if match["which"].casefold() == "this" else 1
    return periods.units_ago(match["unit"].casefold(), back, found.today)


def ago(match: re.Match[str], found: DatesFound) -> Days:
    """Return one day for "days ago", and the whole unit for weeks, months and years ago, which are not exact."""
    return periods.units_ago(_unit(match), count_of(match["count"]), found.today)


def until_today(match: re.Match[str], found: DatesFound) -> Days:
    """Return the days, weeks or months before today that the text counts, and today."""
    return periods.until_today(_unit(match), count_of(match["count"], AT_MOST), found.today)


def near_date(match: re.Match[str], found: DatesFound) -> Days:
    """Return one unit before, after or around a date or, if the count is inexact ("a few days"), all days up to it."""
    named, unit, count = found.named(match), _unit(match), " ".join((match["count"] or "").casefold().split())
    if match["around"]:
        if count not in {"", "a", "the"}:
            raise ValueError("one date is in one week")
        return periods.week_around(named, unit)
    sign = -1 if match["before"] else 1
    inexact = "few" if match["plural"] and count in {"", "the"} else count.removeprefix("a ")
    if inexact in AT_MOST:
        days = periods.days_within(named, unit, sign * AT_MOST[inexact])
    else:
        days = periods.units_from(named, unit, sign * count_of(count or "the"))
    found.anchors[match.start("named")] = named
    return days


def cjk_near_date(match: re.Match[str], found: DatesFound) -> Days:
    """Return a day or week next to a date that was read before."""
    named = found.named(match)
    days = periods.units_from(named, *CJK_DAYS_AFTER[match["relation"]])
    found.anchors[match.start("named")] = named
    return days


def date_range(match: re.Match[str], found: DatesFound) -> Days:
    """Return the days from one date that was read before to another."""
    return periods.joined(found.named(match, "start"), found.named(match, "end"))


def _latest_month(match: re.Match[str], group: str, start: int, today: date) -> Days:
    """Return the month that a group names without a year; the match or the group follows a preposition or a capital."""
    name = match[group].rstrip(".")
    if name.casefold() == "mars" and name != "mars":
        raise ValueError("a planet, not a month")
    _refuse_word(name, match.string, _BEFORE_A_PERIOD, start, match.start(group))
    return periods.latest_month(month_number(name), today)


def _refuse_word(name: str, text: str, before: re.Pattern[str], *starts: int) -> None:
    """Raise ValueError if the name of a month may be another word, and none of the positions is after `before`."""
    if name in AMBIGUOUS_MONTHS and not any(before.search(_text_before(text, at)) for at in starts):
        raise ValueError("a word, not a month")


def _text_before(text: str, at: int) -> str:
    return text[max(0, at - _LONGEST_BEFORE) : at]


def _until(first: Days, number: int) -> Days:
    return periods.checked(first._replace(last=first.last.replace(day=number)))


def _unit(match: re.Match[str]) -> str:
    unit = match["unit"].casefold()
    return CJK_UNITS.get(unit, unit)


def _begun_part_of(whole: Days, match: re.Match[str], today: date) -> Days:
    part = _part_of(whole, match)
    return part if part.first <= today else _part_of(periods.year_before(whole), match)


def _part_of(whole: Days, match: re.Match[str]) -> Days:
    """Return the part of a period that the groups of `date_patterns` name."""
    groups = match.groupdict()
    if "ordinal" not in groups:
        return _cjk_part_of(whole, match)
    for at, name in enumerate(("early", "middle", "late")):
        if groups[name]:
            return periods.third_of(whole, at)
    if groups["edge"]:
        at_end = ORDINALS[groups["edge"].casefold()] < 0
        count = count_of(groups["count"] or ("few" if groups["plural"] else "the"), AT_MOST)
        return periods.edge_of(whole, groups["length"].casefold(), count, at_end=at_end)
    ordinal, unit = ORDINALS[groups["ordinal"].casefold()], groups["part"].casefold()
    if unit == "half":
        return periods.half_of(whole, {1: 0, 2: 1, -1: 1}.get(ordinal, ordinal))
    return periods.week_of(whole, ordinal) if unit == "week" else periods.weekend_of(whole, ordinal)


def _cjk_part_of(whole: Days, match: re.Match[str]) -> Days:
    if match["third"]:
        return periods.third_of(whole, CJK_THIRDS[match["third"]])
    if match["half"]:
        return periods.half_of(whole, CJK_HALVES[match["half"]])
    return periods.week_of(whole, CJK_ORDINALS.get(match["week"]) or int(match["week"]))
