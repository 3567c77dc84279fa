"""Checks the name of a time zone."""

import zoneinfo

from .words import did_you_mean


def complaint_about_timezone(name: str) -> str | None:
    """What is wrong with `name` as a time zone, with the nearest right one, or None when nothing is."""
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return f"no such time zone{did_you_mean(name, zoneinfo.available_timezones())}"
    return None
