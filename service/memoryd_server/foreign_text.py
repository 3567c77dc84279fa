"""Text, JSON and numbers from outside: from providers, qmd and other programs, and from settings and state files.

A Python string can contain lone surrogates: JSON can encode them as escapes, and the operating system returns them for
file names that are not UTF-8. Protobuf, SQLite and HTTP cannot encode such a string. Foreign text is converted by one
of these functions on entry, so that the rest of the program only handles text that can be encoded.

JSON can also be nested more deeply than Python can recurse, contain more lists than fit in memory, and contain numbers
that no database column and no protobuf field can hold. `parse_json` and `scan_json` bound all three, so that code that
reads their result may recurse, and may store every int. Of duplicate keys, the last one counts.
"""

import json
from collections.abc import Collection
from typing import Any, NoReturn

MAX_DEPTH = 64
"""Maximum nesting of lists and objects in foreign JSON."""
MAX_BRACKETS = 1_000_000
"""Maximum number of opening brackets in a foreign JSON text. Each empty list takes 64 bytes of memory."""

_INT64 = 2**63
# More digits than any number of 64 bits has. A longer text is not converted to an int, which takes quadratic time.
_MAX_DIGITS = 20
_CONTAINERS = (list, dict)
_CONTAINER_TYPES = frozenset(_CONTAINERS)


def valid_text(text: str) -> str:
    """Return `text` with U+FFFD in place of each lone surrogate, and with surrogate pairs joined."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def shown_path(path: str) -> str:
    r"""Return a file system path as valid text, with each byte that is not UTF-8 written as \xNN."""
    if path.isascii():
        return path
    try:
        return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return valid_text(path)


def valid_tree(value: Any) -> Any:
    """Return a copy of nested dicts and lists with `valid_text` applied to every string, including dict keys."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, list):
        return [valid_tree(item) for item in value]
    if isinstance(value, dict):
        return {valid_tree(key): valid_tree(item) for key, item in value.items()}
    return value


def is_nested_deeper(value: Any, depth: int) -> bool:
    """Return whether lists and dicts are nested more than `depth` levels deep. Does not recurse."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    while level:
        if depth == 0:
            return True
        depth -= 1
        items = (each.values() if isinstance(each, dict) else each for each in level)
        # The set of types is a fast test for a vector, whose thousands of numbers are not looked at one by one.
        level = [
            item
            for group in items
            if not _CONTAINER_TYPES.isdisjoint(map(type, group))
            for item in group
            if isinstance(item, _CONTAINERS)
        ]
    return False


def is_bounded(value: Any) -> bool:
    """Return whether a decoded JSON value is nested at most `MAX_DEPTH` levels deep, and each int fits in 64 bits.

    Does not recurse. Checking a list of floats takes a tenth of the time of decoding it.
    """
    groups: list[Collection[Any]] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Collection[Any]] = []
        for group in groups:
            types = list(map(type, group))
            if types.count(float) == len(types):
                continue
            if int in types and not all(-_INT64 <= item < _INT64 for item in group if type(item) is int):
                return False
            deeper += [
                item.values() if isinstance(item, dict) else item for item in group if isinstance(item, _CONTAINERS)
            ]
        groups = deeper
        if not groups:
            return True
    return False


def whole_number(value: Any, most: int) -> int | None:
    """Return a foreign number as an int from 0 to `most`; None for a fraction, a bool, and everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return None
    return int(value) if value == int(value) else None


def _int(digits: str) -> int | float:
    """Return an int of 64 bits; the nearest float for any other, infinite if need be."""
    value = int(digits) if len(digits) <= _MAX_DIGITS else _INT64
    return value if -_INT64 <= value < _INT64 else float(digits)


_DECODER = json.JSONDecoder(parse_int=_int)


def parse_json(data: bytes | str) -> Any:
    """Return the value of a JSON text, with valid strings. Bytes that cannot be decoded become U+FFFD.

    An int that does not fit in 64 bits becomes a float. NaN and infinite numbers are floats.

    Raises:
        ValueError: the text is not JSON, is nested more than `MAX_DEPTH` levels deep, or has more than `MAX_BRACKETS`.
    """
    text = valid_text(data) if isinstance(data, str) else data.decode(json.detect_encoding(data), "replace")
    brackets = _count_brackets(text)
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        _refuse_depth()
    return _checked(value, text, brackets)


def scan_json(text: str, start: int) -> Any:
    """Return the value of the JSON that begins at `start`, whatever follows it; otherwise as `parse_json`.

    Raises:
        ValueError: as `parse_json`.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        _refuse_depth()
    found = text[start:end]
    return _checked(value, found, _count_brackets(found))


def _checked(value: Any, text: str, brackets: int) -> Any:
    if brackets > MAX_DEPTH and is_nested_deeper(value, MAX_DEPTH):
        _refuse_depth()
    # Only an escape can encode a surrogate. The substring search is cheap, because vectors contain no backslash.
    may_be_invalid = "\\ud" in text or "\\uD" in text or valid_text(text) is not text
    return valid_tree(value) if may_be_invalid else value


def _count_brackets(text: str) -> int:
    count = text.count("[") + text.count("{")
    if count > MAX_BRACKETS:
        raise ValueError(f"the JSON has more than {MAX_BRACKETS:,} lists and objects")
    return count


def _refuse_depth() -> NoReturn:
    raise ValueError("the JSON is nested too deeply") from None
