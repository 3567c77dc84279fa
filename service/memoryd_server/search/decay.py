"""How much a note's age takes from its score. Pure.

A daily log is as old as the day in its name, other text as its file; what is kept on purpose without a date does not
age.
"""

import math
import re
from datetime import UTC, date, datetime, time

from memoryd_server.search.fusion import Candidate

_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])")
_LONG_TERM = ("MEMORY.md", "memory.md")
_SECONDS_A_DAY = 86_400


def day_of(path: str) -> date | None:
    """The day that a file under `memory/` is named after: `YYYY-MM-DD`, whatever follows; None if there is none."""
    named = _dated(path)
    try:
        return date(*map(int, named.groups())) if named else None
    except ValueError:
        return None


def _dated(path: str) -> re.Match[str] | None:
    """Return the year, month and day that the name of a file below a `memory` folder begins with, as written."""
    slash = path.rfind("/")
    named = _DAY.match(path, slash + 1) if slash >= 0 else None
    return named if named and (path.startswith("memory/") or path.find("/memory/", 0, slash + 1) >= 0) else None


def is_evergreen(path: str) -> bool:
    """Whether a file is the long-term memory or one under `memory/` that is not named like a day."""
    path = path.removeprefix("./")
    return path in _LONG_TERM or (path.startswith("memory/") and not _dated(path))


def age_days(path: str, modified: datetime, now: datetime) -> float | None:
    """Days, fractions included, from a file's day (its midnight, UTC) or its last change until `now`; negative ahead.

    None for a file that does not age: an evergreen one, and one under `memory/` whose name is no day of any calendar.
    """
    day = day_of(path)
    if day is None and (is_evergreen(path) or _dated(path)):
        return None
    since = modified if day is None else datetime.combine(day, time(), UTC)
    return (now - since).total_seconds() / _SECONDS_A_DAY


def multiplier(age: float, half_life_days: float, floor: float = 0.0) -> float:
    """Halves once per `half_life_days` of `age` in days, never below `floor`; 0 is the reference's.

    1 for an age that is no number or below zero (a clock set back, a note dated tomorrow), so that no score is raised,
    and for a half-life of nothing.
    """
    if not (math.isfinite(age) and age > 0 and half_life_days > 0):
        return 1.0
    return max(min(floor, 1.0), math.exp(-math.log(2) / half_life_days * age))


def decay_of(path: str, modified: datetime, now: datetime, half_life_days: float, floor: float) -> float:
    """What is left of the score of a file's chunks, `floor`..1. Both times are aware."""
    age = age_days(path, modified, now)
    return 1.0 if age is None else multiplier(age, half_life_days, floor)


def decayed(candidate: Candidate, decay: float) -> Candidate:
    """The candidate with what `decay` leaves of its score; what the legs gave it stays."""
    return candidate._replace(score=candidate.score * decay)
