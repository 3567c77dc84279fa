"""The conditions on files that a caller names in a request: bounds, dates and violations."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from memoryd_server.store import FileFilter, FrontMatterCondition, front_matter_value

MOST_PREFIXES: Final = 32
MOST_CONDITIONS: Final = 16
MOST_VALUES: Final = 32
MOST_KEY_BYTES: Final = 128
MOST_VALUE_BYTES: Final = 256
MOST_PREFIX_BYTES: Final = 4_096

_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?", re.ASCII)
_LAST_MONTH = 12

AddViolation = Callable[[str, str], None]
"""Called with a field and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRequest:
    """Conditions on files, as the contract's `MemoryFilter`.

    `since` and `until` are `YYYY-MM-DD`, `YYYY-MM`, `YYYY` or empty. `front_matter` has keys, each with its values.
    """

    since: str = ""
    until: str = ""
    path_prefixes: tuple[str, ...] = ()
    front_matter: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def resolve(self, add_violation: AddViolation) -> FileFilter:
        """Return the filter. Each violation is passed to `add_violation`."""
        since = _first_day(self.since, "filter.since", add_violation)
        until = _last_day(self.until, "filter.until", add_violation)
        if since is not None and until is not None and since > until:
            add_violation("filter.until", f"is before filter.since ({until} is before {since})")
        return FileFilter(since, until, self._prefixes(add_violation), self._conditions(add_violation))

    def _prefixes(self, add_violation: AddViolation) -> tuple[str, ...]:
        field = "filter.path_prefixes"
        if len(self.path_prefixes) > MOST_PREFIXES:
            add_violation(field, f"has {len(self.path_prefixes):,} elements; at most {MOST_PREFIXES} are allowed")
        elif not all(0 < len(prefix.encode()) <= MOST_PREFIX_BYTES for prefix in self.path_prefixes):
            add_violation(field, f"has an element that is empty or has more than {MOST_PREFIX_BYTES:,} bytes")
        else:
            return tuple(dict.fromkeys(prefix.removeprefix("./") for prefix in self.path_prefixes))
        return ()

    def _conditions(self, add_violation: AddViolation) -> tuple[FrontMatterCondition, ...]:
        field = "filter.front_matter"
        if len(self.front_matter) > MOST_CONDITIONS:
            add_violation(field, f"has {len(self.front_matter):,} conditions; at most {MOST_CONDITIONS} are allowed")
            return ()
        conditions = []
        for key, values in self.front_matter:
            if not key.strip() or len(key.encode()) > MOST_KEY_BYTES:
                add_violation(field, f"has a key that is blank or has more than {MOST_KEY_BYTES} bytes")
            elif not 0 < len(values) <= MOST_VALUES:
                add_violation(field, f"has {len(values):,} values for {key!r}; 1 to {MOST_VALUES} are allowed")
            elif not all(0 < len(value.encode()) <= MOST_VALUE_BYTES for value in values):
                add_violation(field, f"has a value for {key!r} that is empty or has more than {MOST_VALUE_BYTES} bytes")
            else:
                folded = dict.fromkeys(map(front_matter_value, values))
                conditions.append(FrontMatterCondition(key.strip(), tuple(folded)))
        return tuple(conditions)


NO_FILTER: Final = FilterRequest()


def _first_day(text: str, field: str, add_violation: AddViolation) -> date | None:
    year, month, day = _parts(text, field, add_violation)
    return None if not year else _day(year, month or 1, day or 1, field, add_violation)


def _last_day(text: str, field: str, add_violation: AddViolation) -> date | None:
    year, month, day = _parts(text, field, add_violation)
    if not year:
        return None
    if day:
        return _day(year, month, day, field, add_violation)
    first = _day(year, month or _LAST_MONTH, 1, field, add_violation)
    if first is None or (first.year, first.month) == (date.max.year, date.max.month):
        return first and date.max
    following = first.replace(day=28) + timedelta(days=4)
    return following - timedelta(days=following.day)


def _parts(text: str, field: str, add_violation: AddViolation) -> tuple[int, int, int]:
    """Return the year, month and day of a text, 0 for a missing one; all are 0 if there is no date."""
    if not text:
        return 0, 0, 0
    found = _DATE.fullmatch(text.strip())
    if found is None:
        add_violation(field, f"{text[:32]!r} is no date; write YYYY-MM-DD, YYYY-MM or YYYY")
        return 0, 0, 0
    year, month, day = (int(part or 0) for part in found.groups())
    if not year or (found[2] and not month) or (found[3] and not day):
        add_violation(field, f"{text[:32]!r} is no date of the calendar")
        return 0, 0, 0
    return year, month, day


def _day(year: int, month: int, day: int, field: str, add_violation: AddViolation) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        add_violation(field, f"{year:04}-{month:02}-{day:02} is no date of the calendar")
        return None
