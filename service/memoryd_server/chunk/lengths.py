"""Lengths of text: UTF-16 units, and the weighted length that chunk sizes are reckoned in.

Both are never smaller than the number of code points, and equal to it for ASCII. A lone surrogate is one unit.
"""

import re
from collections.abc import Callable

# Characters of scripts in which one character is about a token, so that it weighs as much as four Latin letters.
_WIDE = re.compile("[\u2e80-\u9fff\ua000-\ua4ff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f]+")
_WIDE_WEIGHT = 4
# All that may weigh other than 1: the scripts above, and what UTF-16 writes as a pair.
_NOT_SINGLE = re.compile("[\u2e80-\U0010ffff]")


def utf16_length(text: str) -> int:
    """Returns the number of UTF-16 code units of `text`."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def cjk_length(text: str) -> int:
    """Returns the weighted length of `text`: 4 for each CJK, Yi or Hangul character, else its UTF-16 units."""
    if text.isascii():
        return len(text)
    narrow = _WIDE.sub("", text)
    return utf16_length(narrow) + _WIDE_WEIGHT * (len(text) - len(narrow))


def measure_for(text: str) -> Callable[[str], int]:
    """Returns the cheapest function that gives `cjk_length` for every part of `text`."""
    return len if text.isascii() or not _NOT_SINGLE.search(text) else cjk_length


def head(text: str, units: int) -> str:
    """Returns the longest beginning of `text` that has at most `units` UTF-16 units and ends between code points."""
    part = text[: max(0, units)]
    while (excess := utf16_length(part) - units) > 0 and part:
        part = part[: -max(1, excess // 2)]
    return part


def tail(text: str, units: int) -> str:
    """Returns the longest end of `text` that has at most `units` UTF-16 units and begins between code points."""
    part = text[-units:] if units > 0 else ""
    while (excess := utf16_length(part) - units) > 0 and part:
        part = part[max(1, excess // 2) :]
    return part
