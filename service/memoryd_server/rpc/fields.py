"""Checks request fields one by one and remembers every violation, so that a caller mends them all at once."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from memoryd_server.errors import FieldViolation, InvalidRequest

_T = TypeVar("_T")

DEFAULT_HEARTBEAT_SECONDS = 10.0
_HEARTBEAT_BOUNDS = (1.0, 60.0)


class Fields:
    """The fields of one request. Each check answers with a usable value even when it notes a violation."""

    def __init__(self, request: Message) -> None:
        self._request = request
        self._violations: list[FieldViolation] = []

    def violation(self, field: str, description: str) -> None:
        """Notes that `field` is wrong."""
        self._violations.append(FieldViolation(field, description))

    def check(self) -> None:
        """Ends the checks.

        Raises:
            InvalidRequest: anything was wrong.
        """
        if self._violations:
            raise InvalidRequest(self._violations)

    def has(self, field: str) -> bool:
        """Whether an optional field is set."""
        return self._request.HasField(field)

    def text(self, field: str, *, most_bytes: int, required: bool = False) -> str:
        """A string of at most `most_bytes` bytes of UTF-8; not blank when it is required."""
        value = str(getattr(self._request, field))
        if required and not value.strip():
            self.violation(field, "must not be blank")
        if (size := len(value.encode())) > most_bytes:
            self.violation(field, f"is {size:,} bytes long; at most {most_bytes:,} are allowed")
        return value

    def clamped(self, field: str, default: int, most: int) -> int:
        """An optional positive number; what is above `most` counts as `most`."""
        if not self.has(field):
            return default
        value = int(getattr(self._request, field))
        if value < 1:
            self.violation(field, f"is {value}; it must be at least 1 (leave it unset for {default})")
        return max(1, min(value, most))

    def positive(self, field: str) -> int | None:
        """An optional number that is at least 1."""
        if not self.has(field):
            return None
        value = int(getattr(self._request, field))
        if value < 1:
            self.violation(field, f"is {value}; it must be at least 1 (leave it unset for no limit)")
        return max(1, value)

    def count(self, field: str) -> int:
        """A number that is not negative."""
        value = int(getattr(self._request, field))
        if value < 0:
            self.violation(field, f"is {value}; it must not be negative")
        return max(0, value)

    def optional_count(self, field: str) -> int | None:
        """An optional number that is not negative."""
        return self.count(field) if self.has(field) else None

    def share(self, field: str) -> float | None:
        """An optional number from 0 to 1."""
        if not self.has(field):
            return None
        value = float(getattr(self._request, field))
        if not 0.0 <= value <= 1.0:
            self.violation(field, f"is {value}; it must lie between 0 and 1")
            return None
        return value

    def choice(self, field: str, choices: Mapping[int, _T]) -> _T:
        """An enum's value as ours; an unknown number is a violation."""
        return self._chosen(field, int(getattr(self._request, field)), choices)

    def choices(self, field: str, choices: Mapping[int, _T]) -> tuple[_T, ...]:
        """A repeated enum's values as ours, each once."""
        numbers: Iterable[int] = getattr(self._request, field)
        return tuple(dict.fromkeys(self._chosen(field, number, choices) for number in numbers))

    def _chosen(self, field: str, number: int, choices: Mapping[int, _T]) -> _T:
        if number not in choices:
            self.violation(field, f"has the value {number}, which cannot be asked for here")
            return next(iter(choices.values()))
        return choices[number]

    def heartbeat_seconds(self) -> float:
        """The heartbeat interval, 1..60 s; 10 s when it is unset."""
        if not self.has("heartbeat_interval"):
            return DEFAULT_HEARTBEAT_SECONDS
        interval: Duration = self._request.heartbeat_interval  # type: ignore[attr-defined]
        seconds = interval.seconds + interval.nanos / 1e9
        least, most = _HEARTBEAT_BOUNDS
        if not least <= seconds <= most:
            self.violation("heartbeat_interval", f"is {seconds:g} s; it must lie between {least:g} and {most:g} s")
        return min(max(seconds, least), most)

    def moment(self, now: datetime, time_zone: str) -> tuple[datetime, str]:
        """The caller's clock in UTC and an IANA time zone that has that time; the arguments where they are unset."""
        told, zone = self.now(now), self._time_zone(time_zone)
        try:
            told.astimezone(ZoneInfo(zone))
        except OverflowError:
            self.violation("now", f"falls outside the years 1 to 9999 in the time zone {zone}")
            return now, zone
        return told, zone

    def _time_zone(self, default: str) -> str:
        name = str(getattr(self._request, "time_zone", "")) or default
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            self.violation("time_zone", f"{name[:64]!r} is not an IANA time zone such as Europe/Berlin")
            return "UTC"
        return name

    def now(self, default: datetime) -> datetime:
        """The caller's clock in UTC; `default` when it is unset."""
        if not self.has("now"):
            return default
        stamp: Timestamp = self._request.now  # type: ignore[attr-defined]
        try:
            return stamp.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError):
            self.violation("now", "is not a time between the years 1 and 9999")
            return default
