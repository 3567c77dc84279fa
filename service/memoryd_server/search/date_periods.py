"""Arithmetic on periods of days: calendar units, seasons, parts of months and years, and days before and after."""

from datetime import date, timedelta
from typing import Final, NamedTuple

LONGEST_DAYS: Final = 366
"""The longest period that a date in a query names, apart from rounding to whole months."""
_DAYS_OF: Final = {"day": 1, "week": 7}
_WINTER: Final = 12
_MONTHS_OF_SEASON: Final = 3
_MONTHS_OF_YEAR: Final = 12
_LATE: Final = 2


class Days(NamedTuple):
    """Days from `first` to `last`, both included. If `yearless`, the text names no year and may mean another one."""

    first: date
    last: date
    yearless: bool = False


def single_day(day: date, *, yearless: bool = False) -> Days:
    """Return the period of one day."""
    return Days(day, day, yearless)


def latest_day(month: int, number: int, today: date) -> Days:
    """Return the latest such day that has begun; a leap day may be years ago. Raises ValueError if there is none."""
    for year in range(today.year, today.year - 9, -1):
        try:
            day = date(year, month, number)
        except ValueError:
            continue
        if day <= today:
            return single_day(day, yearless=True)
    raise ValueError("no such day")


def whole_month(year: int, month: int, months: int = 1) -> Days:
    """Return `months` months from `month` on. `month` counts from 1 for January of `year`; it may exceed 12."""
    return Days(_month_start(year, month), _month_start(year, month + months) - timedelta(days=1))


def month_of(year: int, month: int) -> Days:
    """Return a month of the year. Raises ValueError if it is not one of 1..12."""
    return whole_month(year, date(year, month, 1).month)


def latest_month(month: int, today: date) -> Days:
    """Return the latest such month that has begun. Raises ValueError if it is not one of 1..12."""
    return month_of(today.year - (month > today.month), month)._replace(yearless=True)


def whole_year(year: int) -> Days:
    """Return the days of a year."""
    return whole_month(year, 1, _MONTHS_OF_YEAR)


def units_ago(unit: str, back: int, today: date) -> Days:
    """Return the day, week, weekend, month or year that is `back` units before today. Weeks begin on Monday."""
    if unit == "day":
        return single_day(today - timedelta(days=back))
    if unit == "week":
        monday = today - timedelta(days=today.weekday() + 7 * back)
        return Days(monday, monday + timedelta(days=6))
    if unit == "weekend":
        return _weekend(today - timedelta(days=(today.weekday() + 2) % 7 + 7 * (back - 1)))
    if unit == "month":
        return whole_month(today.year, today.month - back)
    return whole_year(today.year - back)


def season(year: int, first_month: int) -> Days:
    """Return the three months of a season; that of winter begins in December of `year`."""
    return whole_month(year, first_month, _MONTHS_OF_SEASON)


def last_season(first_month: int, today: date) -> Days:
    """Return the latest such season that has ended."""
    latest = season(today.year, first_month)
    while latest.last >= today:
        latest = season(latest.first.year - 1, first_month)
    return latest


def this_season(first_month: int, today: date) -> Days:
    """Return the season of this year; the winter that is nearest to today."""
    is_past_winter = first_month == _WINTER and today.month < _WINTER - _MONTHS_OF_SEASON
    return season(today.year - is_past_winter, first_month)


def third_of(days: Days, at: int) -> Days:
    """Return the early (0), middle (1) or late (2) part: ten days of a month, and whole months of a season or year.

    Raises:
        ValueError: the period is not a month, a season or a year.
    """
    months = _months_in(days)
    if months == 1:
        first = days.first + timedelta(days=10 * at)
        return days._replace(first=first, last=days.last if at == _LATE else first + timedelta(days=9))
    if months not in {_MONTHS_OF_SEASON, _MONTHS_OF_YEAR}:
        raise ValueError(f"a period of {months} months has no early, middle and late part")
    third = whole_month(days.first.year, days.first.month + at * months // 3, months // 3)
    return third._replace(yearless=days.yearless)


def half_of(days: Days, at: int) -> Days:
    """Return the first (0) or second (1) half of a month, whose first half is 15 days, or of a year.

    Raises:
        ValueError: the period is neither a month nor a year.
    """
    months = _months_in(days)
    if months not in {1, _MONTHS_OF_YEAR} or at not in {0, 1}:
        raise ValueError(f"a period of {months} months has no half {at}")
    middle = days.first + timedelta(days=15) if months == 1 else _month_start(days.first.year, 7)
    return days._replace(first=middle) if at else days._replace(last=middle - timedelta(days=1))


def week_of(days: Days, number: int) -> Days:
    """Return the seven days of a week of a month or year: the first week is days 1-7. -1 is the last seven days."""
    if not _months_in(days):
        raise ValueError("weeks are counted in months and years")
    first = days.last - timedelta(days=6) if number < 0 else days.first + timedelta(days=7 * (number - 1))
    return days._replace(first=first, last=first + timedelta(days=6))


def weekend_of(days: Days, number: int) -> Days:
    """Return the weekend of a month or year whose Saturday has this number, from 1, or -1 for the last."""
    if not _months_in(days):
        raise ValueError("weekends are counted in months and years")
    if number < 0:
        saturday = days.last - timedelta(days=(days.last.weekday() + 2) % 7)
    else:
        saturday = days.first + timedelta(days=(5 - days.first.weekday()) % 7 + 7 * (number - 1))
    return _weekend(saturday)._replace(yearless=days.yearless)


def edge_of(days: Days, unit: str, count: int, *, at_end: bool) -> Days:
    """Return the first or last `count` days, weeks or months of a month, a season or a year.

    Raises:
        ValueError: the period is another one, or is shorter.
    """
    months = _months_in(days)
    if unit == "month":
        start = days.first.month + (months - count if at_end else 0)
        part = whole_month(days.first.year, start, count)
    else:
        away = timedelta(days=count * _length_of(unit) - 1)
        part = Days(days.last - away, days.last) if at_end else Days(days.first, days.first + away)
    if not months or not days.first <= part.first <= part.last <= days.last:
        raise ValueError("the period has no such part")
    return part._replace(yearless=days.yearless)


def until_today(unit: str, count: int, today: date) -> Days:
    """Return the days from `count` days, weeks or months before today to today."""
    if unit == "month":
        month = whole_month(today.year, today.month - count)
        first = min(month.last, month.first + timedelta(days=today.day - 1))
    else:
        first = today - timedelta(days=count * _length_of(unit))
    return checked(Days(first, today))


def units_from(days: Days, unit: str, count: int) -> Days:
    """Return the unit that is `count` units after the period, or before it if `count` is negative.

    A week is seven days next to the period or further away. A weekend and a month are those of the calendar.
    """
    if unit == "weekend":
        return _weekend_from(days, count)
    if unit == "month":
        edge = days.first if count < 0 else days.last
        return whole_month(edge.year, edge.month + count)
    length = _length_of(unit)
    if count < 0:
        first = days.first + timedelta(days=length * count)
    else:
        first = days.last + timedelta(days=length * (count - 1) + 1)
    return Days(first, first + timedelta(days=length - 1))


def week_around(days: Days, unit: str) -> Days:
    """Return the week, or its weekend, in which a day is. Raises ValueError if the period is longer than a day."""
    if days.first != days.last or unit not in {"week", "weekend"}:
        raise ValueError(f"the {unit} of such a period")
    week = units_ago("week", 0, days.first)
    return week if unit == "week" else _weekend(week.last - timedelta(days=1))


def days_within(days: Days, unit: str, count: int) -> Days:
    """Return the days up to `count` days or weeks after the period, or before it if `count` is negative."""
    reach = timedelta(days=count * _length_of(unit))
    if count < 0:
        return checked(Days(days.first + reach, days.first - timedelta(days=1)))
    return checked(Days(days.last + timedelta(days=1), days.last + reach))


def joined(start: Days, end: Days) -> Days:
    """Return the days from the first of `start` to the last of `end`. A year that is missing is that of the other one.

    Raises:
        ValueError: `end` is before `start`, or more than a year after it.
    """
    if start.yearless and not end.yearless:
        start = _moved(start, end.last.year)
        if start.first > end.last:
            start = _moved(start, end.last.year - 1)
    elif end.yearless:
        end = _moved(end, start.first.year) if not start.yearless else end
        if end.last < start.first:
            end = _moved(end, end.first.year + 1)
    return checked(Days(start.first, end.last, start.yearless and end.yearless))


def year_before(days: Days) -> Days:
    """Return the same period of the year before."""
    return _moved(days, days.first.year - 1)


def checked(days: Days) -> Days:
    """Return the period. Raises ValueError if it ends before it begins or is longer than a year."""
    if not 0 <= (days.last - days.first).days <= LONGEST_DAYS:
        raise ValueError(f"{days.first} to {days.last} is not a period of at most {LONGEST_DAYS} days")
    return days


def _length_of(unit: str) -> int:
    if unit not in _DAYS_OF:
        raise ValueError(f"a {unit} has no fixed number of days")
    return _DAYS_OF[unit]


def _month_start(year: int, month: int) -> date:
    months = year * 12 + month - 1
    return date(months // 12, months % 12 + 1, 1)


def _months_in(days: Days) -> int:
    """Return of how many whole months the period consists; 0 if it does not."""
    following = days.last + timedelta(days=1)
    if days.first.day != 1 or following.day != 1:
        return 0
    return (following.year - days.first.year) * 12 + following.month - days.first.month


def _weekend(saturday: date) -> Days:
    return Days(saturday, saturday + timedelta(days=1))


def _weekend_from(days: Days, count: int) -> Days:
    """Return a weekend that has no day in common with the period."""
    if count < 0:
        sunday = days.first - timedelta(days=days.first.weekday() + 1)
        return _weekend(sunday - timedelta(days=7 * (-count - 1) + 1))
    saturday = days.last + timedelta(days=(4 - days.last.weekday()) % 7 + 1)
    return _weekend(saturday + timedelta(days=7 * (count - 1)))


def _moved(days: Days, year: int) -> Days:
    """Return the period with its first day in another year. A period to the end of February keeps this end."""
    years = year - days.first.year
    following = days.last + timedelta(days=1)
    last = _in_year(following, following.year + years) - timedelta(days=1)
    return days._replace(first=_in_year(days.first, year), last=last)


def _in_year(day: date, year: int) -> date:
    """Return the day in another year; a leap day is the first of March of other years."""
    try:
        return day.replace(year=year)
    except ValueError:
        return date(year, 3, 1)
