"""The words of complaints about settings: where a key stands, and which key was meant."""

import difflib
from collections.abc import Iterable, Sequence

Path = tuple[str, ...]


def dotted(path: Sequence[str]) -> str:
    """`("agents", "list", "[main]", "workspace")` as `agents.list[main].workspace`."""
    text = ""
    for part in path:
        text += part if part.startswith("[") or not text else f".{part}"
    return text


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word closest to `word`, whatever its case, or None when none is close."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word[:100].lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean "x"?)`, or nothing when no known word is close."""
    found = nearest(word, known)
    return f' (did you mean "{found}"?)' if found else ""


def kind_of(value: object) -> str:
    """The JSON type of a value with its article; the value itself may be a secret and is never shown."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, dict) else "an array"
