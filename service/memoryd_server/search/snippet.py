"""The part of a chunk that answers a query best, in whole lines where they fit. Pure.

The value of a window (retrieval study, keyword leg, section 5): the weight of the distinct terms in it, the weight of
its best line, some for its length, and some for each matching line that it does not end at, since the answer often
follows the line that repeats the question. Weights are inverse document frequencies, taken relative to the best line's.
"""

import bisect
import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import NamedTuple

# A line that is longer than a snippet is looked at in pieces of this share of one, so that the match can be shown.
_PIECES_A_SNIPPET = 4
# A line above a piece's length may be shown in part where at least this share of a snippet is left for it.
_ROOM_FOR_A_PART = 0.125
# The longest word that is looked for across the cut between two pieces, each side.
_LONGEST_ACROSS = 40
# What a full window, and a line that follows a matching one, are worth against a line as good as the best.
_LENGTH = 0.1
_FOLLOWED = 0.125

# Characters that continue the one before although they are no marks: joiners, Thai and Lao AM, skin tones, tags.
_JOINING = re.compile("[\u200c\u200d\u0e33\u0eb3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")
_JAMO = re.compile("[\u1100-\u11ff]")
_LATER_JAMO = re.compile("[\u1160-\u11ff]")
_VIRAMA = 9
_FIRST_THAT_JOINS = "\u0300"

_EQUAL: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snippet:
    """Text and the line range that it stands in."""

    text: str
    start_line: int
    end_line: int


class _Unit(NamedTuple):
    """A line, or a piece of one, with its line feed where it has one. A long line may be shown in part."""

    text: str
    line: int
    long: bool


def best_snippet(
    text: str,
    start_line: int,
    terms: Collection[str],
    words_of: Callable[[str], Collection[str]],
    max_chars: int,
    *,
    weights: Mapping[str, float] = _EQUAL,
    prefixes: Collection[str] = (),
) -> Snippet:
    """The window of at most `max_chars` code points that tells most about `terms`, of whole lines where they fit.

    `weights` gives each term's inverse document frequency, 1.0 where it has none. `words_of` gives the words of a line
    in the spelling of `terms`; those of the terms that are in `prefixes` match any word that they begin. Among equals
    the earliest that begins at a matching line wins; a window reaches down as far as it may, then up.
    """
    text = text.replace("\r\n", "\n").rstrip("\r\n")
    if len(text) <= max_chars:
        return Snippet(text, start_line, start_line + text.count("\n"))
    units = list(_units(text, start_line, max_chars))
    wanted = _Terms(terms, prefixes, weights)
    found = [wanted.among(words_of(unit.text)) for unit in units]
    joined = [wanted.among(words_of(_across(*pair))) if pair[1].long else 0 for pair in itertools.pairwise(units)]
    room = _Room(units, max_chars)
    first, last = _best_window(found, joined, room, wanted.weight)
    first = room.highest(first, last)
    return _filled(units, first, last, max_chars)


class _Terms:
    """What is looked for. Sets of terms are given as bits."""

    def __init__(self, terms: Collection[str], prefixes: Collection[str], weights: Mapping[str, float]) -> None:
        self._bits = {term: 1 << at for at, term in enumerate(dict.fromkeys(terms))}
        self._prefixes = [(term, bit) for term, bit in self._bits.items() if term in prefixes]
        self._weights = [(bit, weights.get(term, 1.0)) for term, bit in self._bits.items()]
        self._known = {0: 0.0}

    def among(self, words: Collection[str]) -> int:
        """The terms that stand among these words."""
        found = 0
        for word in words:
            found |= self._bits.get(word, 0)
        for prefix, bit in self._prefixes:
            if any(word.startswith(prefix) for word in words):
                found |= bit
        return found

    def weight(self, terms: int) -> float:
        """The sum of the terms' weights."""
        known = self._known.get(terms)
        if known is None:
            known = self._known[terms] = sum(weight for bit, weight in self._weights if terms & bit)
        return known


class _Room:
    """What fits into a window."""

    def __init__(self, units: Sequence[_Unit], max_chars: int) -> None:
        self._ends = [0, *itertools.accumulate(len(unit.text) for unit in units)]
        # The line feed at a window's end is not shown and not counted.
        self._most = max_chars + 1

    def lowest(self, first: int) -> int:
        """The last unit of the window that begins at `first`."""
        return max(first, bisect.bisect_right(self._ends, self._ends[first] + self._most) - 2)

    def highest(self, first: int, last: int) -> int:
        """The first unit of the window that ends at `last`; `first` or above it."""
        return min(first, bisect.bisect_left(self._ends, self._ends[last + 1] - self._most))

    def share(self, first: int, last: int) -> float:
        """How full a window is, 0..1."""
        return (self._ends[last + 1] - self._ends[first]) / self._most


def _units(text: str, start_line: int, max_chars: int) -> Iterator[_Unit]:
    size = max(1, max_chars // _PIECES_A_SNIPPET)
    for line, content in enumerate(text.split("\n"), start_line):
        rest, long = content, len(content) > size
        while len(content) > max_chars and len(rest) > size:
            piece = _piece(rest, size)
            yield _Unit(piece, line, long)
            rest = rest[len(piece) :]
        yield _Unit(rest + "\n", line, long)


def _piece(text: str, size: int) -> str:
    space = text.rfind(" ", size // 2, size)
    return cut_text(text, space + 1 if space > 0 else size)


def _across(unit: _Unit, following: _Unit) -> str:
    """What stands across the cut between two pieces of one line; empty where a space does."""
    head, tail = unit.text[-_LONGEST_ACROSS:], following.text[:_LONGEST_ACROSS]
    if unit.line != following.line or head[-1:].isspace() or tail[:1].isspace():
        return ""
    return head.split()[-1] + tail.split()[0]


def _best_window(
    found: Sequence[int], joined: Sequence[int], room: _Room, weigh: Callable[[int], float]
) -> tuple[int, int]:
    """The first and last unit of the best window; it begins at a match, or at the top where there is none.

    All that a window is worth grows as it reaches down, so that only the longest from each beginning is looked at.
    """
    lines = [weigh(mask) for mask in found]
    best_line = max(lines) or max(map(weigh, joined), default=0.0) or 1.0
    followed = [0.0, *itertools.accumulate(lines)]
    best, best_value = (0, room.lowest(0)), 0.0
    starts = [at for at, mask in enumerate(found) if mask or (at < len(joined) and joined[at])]
    for first in starts:
        last = room.lowest(first)
        mask = reduce(or_, found[first : last + 1], 0) | reduce(or_, joined[first:last], 0)
        telling = weigh(mask) + max(lines[first : last + 1]) + _FOLLOWED * (followed[last] - followed[first])
        value = telling / best_line + _LENGTH * room.share(first, last)
        if value > best_value:
            best, best_value = (first, last), value
    return best


def _filled(units: Sequence[_Unit], first: int, last: int, max_chars: int) -> Snippet:
    """The window, and the part that fits of a long line below it, or else above."""
    shown = "".join(unit.text for unit in units[first : last + 1])
    room = max_chars - len(shown)
    if room >= _ROOM_FOR_A_PART * max_chars:
        if last + 1 < len(units) and units[last + 1].long:
            last += 1
            shown += _piece(units[last].text, room)
        elif first and units[first - 1].long:
            first -= 1
            shown = _end(units[first].text, room) + shown
    shown = cut_text(shown.rstrip(), max_chars)
    return Snippet(shown, units[first].line, units[first].line + shown.count("\n"))


def _end(text: str, size: int) -> str:
    """The last words of a text, at most `size` code points."""
    at = len(text) - size
    space = text.find(" ", at, at + size // 2)
    if space > 0:
        return text[space + 1 :]
    while at < len(text) and _joins_on(text, at):
        at += 1
    return text[at:]


def cut_text(text: str, max_chars: int) -> str:
    """At most `max_chars` code points of `text`, never ending inside a combining sequence."""
    if len(text) <= max_chars:
        return text
    end = max_chars
    while end > 0 and _joins_on(text, end):
        end -= 1
    return text[: end or max_chars]


def _joins_on(text: str, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it. Near enough to Unicode's extended clusters."""
    char, before = text[at], text[at - 1]
    if before == "\u200d":
        return True
    if char < _FIRST_THAT_JOINS:
        return False
    if unicodedata.category(char) in ("Mn", "Mc", "Me") or _JOINING.match(char):
        return True
    if _FLAG.match(char):
        # Flags are pairs of letters: an odd number before this one leaves the last without its partner.
        return sum(1 for _ in itertools.takewhile(_FLAG.match, reversed(text[:at]))) % 2 == 1
    # Old Korean is written in jamo; a virama joins the next consonant to its own.
    return bool(_JAMO.match(before) and _LATER_JAMO.match(char)) or unicodedata.combining(before) == _VIRAMA
