"""The part of a chunk that answers a query best, in whole lines where they fit. Pure."""

import bisect
import itertools
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

# A line that is longer than a snippet is looked at in pieces of this share of one, so that the match can be shown.
_PIECES_A_SNIPPET = 4


@dataclass(frozen=True, slots=True)
class Snippet:
    """Text and the line range that it stands in."""

    text: str
    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True)
class _Unit:
    """A line, or a piece of a long one, with its line feed where it has one."""

    text: str
    line: int


def best_snippet(
    text: str, start_line: int, terms: Collection[str], words_of: Callable[[str], Collection[str]], max_chars: int
) -> Snippet:
    """The window of at most `max_chars` code points that holds the most distinct terms, of whole lines where they fit.

    Among equals the earliest that begins at a matching line wins, and a window reaches down as far as it may.
    `words_of` gives the words of a line in the spelling of `terms`.
    """
    text = text.replace("\r\n", "\n").rstrip("\r\n")
    if len(text) <= max_chars:
        return Snippet(text, start_line, start_line + text.count("\n"))
    units = list(_units(text, start_line, max_chars))
    wanted = set(terms)
    found = [wanted & set(words_of(unit.text)) for unit in units]
    joined = [_across(units[i], units[i + 1], wanted, words_of) for i in range(len(units) - 1)]
    first, last = _best_window(units, found, joined, max_chars)
    shown = "".join(unit.text for unit in units[first : last + 1]).rstrip("\n")
    return Snippet(cut(shown, max_chars), units[first].line, units[last].line)


def _units(text: str, start_line: int, max_chars: int) -> Iterator[_Unit]:
    for line, content in enumerate(text.split("\n"), start_line):
        rest = content
        while len(rest) > max_chars:
            piece = _piece(rest, max(1, max_chars // _PIECES_A_SNIPPET))
            yield _Unit(piece, line)
            rest = rest[len(piece) :]
        yield _Unit(rest + "\n", line)


def _piece(text: str, size: int) -> str:
    space = text.rfind(" ", size // 2, size)
    return cut(text, space + 1 if space > 0 else size)


def _across(unit: _Unit, following: _Unit, wanted: set[str], words_of: Callable[[str], Collection[str]]) -> set[str]:
    """The terms that stand across the cut between two pieces of one line."""
    if unit.line != following.line:
        return set()
    apart = {*words_of(unit.text), *words_of(following.text)}
    return (wanted & set(words_of(unit.text + following.text))) - apart


def _best_window(
    units: Sequence[_Unit], found: Sequence[set[str]], joined: Sequence[set[str]], max_chars: int
) -> tuple[int, int]:
    """The first and last unit of the window with the most distinct terms; a window begins at a match, or at the top."""
    ends = list(itertools.accumulate(len(unit.text) for unit in units))
    matching = [at for at, terms in enumerate(found) if terms]
    crossing = [at for at, terms in enumerate(joined) if terms]
    best, best_value = (0, _reach(ends, 0, max_chars)), 0
    for first in sorted({*matching, *crossing}):
        last = _reach(ends, first, max_chars)
        held = [found[at] for at in matching if first <= at <= last]
        held += [joined[at] for at in crossing if first <= at < last]
        value = len(set().union(*held))
        if value > best_value:
            best, best_value = (first, last), value
    return best


def _reach(ends: Sequence[int], first: int, max_chars: int) -> int:
    """The last unit of the window that begins at `first`; the line feed at its end is not shown and not counted."""
    begin = ends[first - 1] if first else 0
    return max(first, bisect.bisect_right(ends, begin + max_chars + 1) - 1)


def cut(text: str, max_chars: int) -> str:
    """At most `max_chars` code points of `text`, never ending inside a combining sequence."""
    if len(text) <= max_chars:
        return text
    end = max_chars
    while end > 0 and _joins_on(text, end):
        end -= 1
    return text[: end or max_chars]


def _joins_on(text: str, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it."""
    return unicodedata.category(text[at]) in ("Mn", "Mc", "Me") or "\u200d" in text[at - 1 : at + 1]
