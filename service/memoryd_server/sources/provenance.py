"""Who wrote a text, and the day that it is of, by the location of its file and by structured fields. Pure.

The origin of a message follows from the fields that the gateway stores with it. Nothing in a text can change an origin.
The day of a note is the date that its file name begins with, or a date in its front matter.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from memoryd_server.model import Origin, Source
from memoryd_server.sources.roots import LONG_TERM_NAMES, MEMORY_FOLDER

CURATED_FILES: Final = ("MEMORY.md", "USER.md")
"""The files of the workspace's root that the agent curates: a list of entries, whose annotations all count."""

_GENERATED_FOLDERS = ("memory/dreaming/", "memory/.dreams/")

_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])")
_KEYS = ("date", "day", "created")


def is_curated(path: str) -> bool:
    """Return whether a display path is that of a curated file."""
    return path in CURATED_FILES


def origin_of_file(source: Source, path: str) -> Origin:
    """Return the origin of a file's text, by its display path; of a transcript, that of an unknown sender."""
    if source is Source.SESSIONS:
        return Origin.UNTRUSTED
    if path.startswith(_GENERATED_FOLDERS):
        return Origin.SYSTEM
    if path in CURATED_FILES or path in LONG_TERM_NAMES or path.startswith(f"{MEMORY_FOLDER}/"):
        return Origin.AGENT
    return Origin.UNTRUSTED


def origin_of_message(message: Mapping[str, Any], *, is_answer: bool) -> Origin:
    """Return the origin of a transcript's message, by the structured fields of its record."""
    metadata = message.get("__openclaw")
    fields = metadata if isinstance(metadata, dict) else {}
    if is_answer:
        # The gateway marks the turns in which the agent read untrusted content.
        return Origin.UNTRUSTED if fields.get("turnTainted") is True else Origin.AGENT
    return Origin.OWNER if fields.get("senderIsOwner") is True else Origin.UNTRUSTED


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
