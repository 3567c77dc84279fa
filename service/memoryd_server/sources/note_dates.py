"""The day of a note: the date that its file name begins with, or a date in its front matter. Pure."""

import re
from collections.abc import Mapping
from datetime import date

_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])")
_KEYS = ("date", "day", "created")


def day_of(path: str) -> date | None:
    """Return the day, `YYYY-MM-DD`, that the name of a file under `memory/` begins with; None if there is none."""
    return _date(match_day(path))


def match_day(path: str) -> re.Match[str] | None:
    """Return the year, month and day that the name of a file below a `memory` folder begins with, as written."""
    slash = path.rfind("/")
    match = _DAY.match(path, slash + 1) if slash >= 0 else None
    return match if match and (path.startswith("memory/") or path.find("/memory/", 0, slash + 1) >= 0) else None


def note_day(path: str, metadata: Mapping[str, object]) -> date | None:
    """Return the day that the name of a file begins with, in any folder, or else that of its front matter."""
    day = _date(_DAY.match(path, path.rfind("/") + 1))
    if day is not None:
        return day
    values = (metadata.get(key) for key in _KEYS)
    return next((day for value in values if isinstance(value, str) and (day := _date(_DAY.match(value)))), None)


def _date(match: re.Match[str] | None) -> date | None:
    try:
        return date(*map(int, match.groups())) if match else None
    except ValueError:
        return None
