"""What to say to the agent for a flush, and the day and zone that it is said for."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

SILENT_REPLY: Final = "NO_REPLY"
"""The reply that means "nothing to store" and is not delivered."""

_DAY = "YYYY-MM-DD"
_SYSTEM = (
    "This session is close to compaction, which will shorten what you still see of it. "
    "Store now whatever should be remembered beyond it."
)
_USER = (
    "The session will be compacted soon. Write what should last (decisions, facts, preferences, open tasks) "
    f"to today's notes, memory/{_DAY}.md, so that it can be understood without this conversation."
)
_SAFETY_HINTS = (
    f"Write only to memory/{_DAY}.md: no other file, and no variant of its name.",
    "If that file holds text already, append to it; never overwrite or rewrite it.",
    "MEMORY.md and all other curated files are read-only during this flush.",
)
_SILENT_HINT = f"If there is nothing to store, reply with {SILENT_REPLY} and nothing else."
_TIME_LABEL = "Current time:"


@dataclass(frozen=True, slots=True)
class FlushPrompts:
    """The text for the system prompt, the text for the user turn, and the reply that stands for silence."""

    system: str
    user: str
    silent_reply: str = SILENT_REPLY


def local_time(now: datetime, time_zone: str) -> datetime:
    """Returns `now` in the IANA zone.

    Raises:
        ValueError: the zone is unknown, `now` is naive, or it has no date in that zone.
    """
    if now.tzinfo is None:
        raise ValueError("now has no time zone")
    try:
        return now.astimezone(ZoneInfo(time_zone))
    except OverflowError as error:
        raise ValueError(f"{now.isoformat()} has no date in {time_zone}") from error
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"unknown time zone {time_zone!r}") from error


def target_path(local: datetime) -> str:
    """Returns the display path of the log of that day."""
    return f"memory/{local.date().isoformat()}.md"


def prompts_for(local: datetime, prompt: str | None, system_prompt: str | None) -> FlushPrompts:
    """Returns the texts, custom or default, with missing hints added and the day and the time filled in.

    `local` is in the zone of a `ZoneInfo`. A hint counts as present when it stands in the text word for word; the one
    on silence does when the text names the silent reply.
    """
    return FlushPrompts(
        system=_dated(_complete(_chosen(system_prompt, _SYSTEM)), local),
        user=_timed(_dated(_complete(_chosen(prompt, _USER)), local), local),
    )


def _chosen(custom: str | None, default: str) -> str:
    return custom.strip() if custom and custom.strip() else default


def _complete(text: str) -> str:
    words = _words(text)
    hints = [hint for hint in _SAFETY_HINTS if _words(hint) not in words]
    if SILENT_REPLY not in text:
        hints.append(_SILENT_HINT)
    return "\n".join((text, *hints))


def _words(text: str) -> str:
    return " ".join(text.casefold().split())


def _dated(text: str, local: datetime) -> str:
    return text.replace(_DAY, local.date().isoformat())


def _timed(text: str, local: datetime) -> str:
    if _TIME_LABEL in text:
        return text
    return f"{text}\n{_TIME_LABEL} {local.isoformat(sep=' ', timespec='minutes')} ({local.tzinfo})"
