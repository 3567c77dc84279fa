"""Text and JSON from outside: from providers, qmd and other programs, and from settings and state files.

A Python string can contain lone surrogates: JSON can encode them as escapes, and the operating system returns them for
file names that are not UTF-8. Protobuf, SQLite and HTTP cannot encode such a string. Foreign text is converted by one
of these functions on entry, so that the rest of the program only handles text that can be encoded.
"""

import json
from typing import Any


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


def parse_json(data: bytes | str) -> Any:
    """Return the value of a JSON text, with valid strings. Bytes that cannot be decoded become U+FFFD.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    text = valid_text(data) if isinstance(data, str) else data.decode(json.detect_encoding(data), "replace")
    try:
        value = json.loads(text)
        # Only an escape can encode a surrogate. The substring search is cheap, because vectors contain no backslash.
        return valid_tree(value) if "\\ud" in text or "\\uD" in text else value
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
