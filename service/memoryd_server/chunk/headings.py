"""The headings that a line of Markdown stands under.

Only ATX headings (`## Title`) count, and none inside a code fence.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

MAX_BREADCRUMB_CHARS: Final = 200
_SEPARATOR = " > "

# A heading, or a line that may open or close a code fence. The line feed before it, rather than "^", lets the search
# leap from line to line.
_MARK = re.compile(r"\n {0,3}(?:(#{1,6})(?:[ \t]+(.*))?\r?$|(`{3,}|~{3,})(.*)$)", re.MULTILINE)


class _Heading(NamedTuple):
    line: int
    level: int
    title: str


def breadcrumbs(body: str, lines: Sequence[int]) -> list[str]:
    """Returns, for each line number, the titles of the headings above it, outermost first, joined by " > ".

    `lines` are 1-based and ascending. A heading is not above itself, and closes those of its own level and deeper. Of a
    breadcrumb longer than 200 characters the outermost titles are left out.
    """
    if not lines or lines[-1] == 1 or "#" not in body:
        return [""] * len(lines)
    headings = _headings(body)
    ahead = next(headings, None)
    stack: list[_Heading] = []
    result = []
    for line in lines:
        while ahead and ahead.line <= line:
            _push(stack, ahead)
            ahead = next(headings, None)
        result.append(_join([heading.title for heading in stack if heading.line < line]))
    return result


def _push(stack: list[_Heading], heading: _Heading) -> None:
    while stack and stack[-1].level >= heading.level:
        stack.pop()
    stack.append(heading)


def _join(titles: list[str]) -> str:
    shown = [title for title in titles if title]
    while len(shown) > 1 and len(_SEPARATOR.join(shown)) > MAX_BREADCRUMB_CHARS:
        del shown[0]
    return _SEPARATOR.join(shown)[:MAX_BREADCRUMB_CHARS]


def _headings(body: str) -> Iterator[_Heading]:
    line, counted, fence = 0, 0, ""
    for mark in _MARK.finditer("\n" + body):
        hashes, title, ticks, info = mark.groups()
        if ticks:
            fence = _fence_after(fence, ticks, info)
        elif not fence:
            line += mark.string.count("\n", counted, mark.start(1))
            counted = mark.start(1)
            # A character more than is shown tells that it is too long; each chunk below it would carry the rest along.
            yield _Heading(line, len(hashes), _clean(title or "")[: MAX_BREADCRUMB_CHARS + 1])


def _fence_after(fence: str, ticks: str, info: str) -> str:
    """Returns the fence that is open after a line of `ticks` and `info`, empty when none is."""
    if not fence:
        return "" if ticks[0] == "`" and "`" in info else ticks
    closes = ticks.startswith(fence) and not info.strip()
    return "" if closes else fence


def _clean(title: str) -> str:
    words = " ".join(title.split())
    without_closing = words.rstrip("#")
    if without_closing.endswith(" ") or not without_closing:
        return without_closing.rstrip()
    return words
