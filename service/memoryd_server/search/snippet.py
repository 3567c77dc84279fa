"""The part of a chunk that answers a query best, in whole lines if they fit. Pure.

The value of a window (retrieval study, keyword leg, section 5) is the weight of the distinct terms in it, plus the
weight of its best line, plus a little for its length and for each matching line except the last, because the answer
often follows the line that repeats the query. Weights are inverse document frequencies relative to the best line's.
"""

import bisect
import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import NamedTuple

# A line longer than a snippet is split into pieces of this fraction of a snippet, so that the match can be shown.
_PIECES_PER_SNIPPET = 4
# A line longer than a piece may be shown in part if at least this share of a snippet is free.
_MIN_SHARE_OF_PART = 0.125
# The number of characters on each side of the cut between two pieces in which a word across the cut is found.
_MAX_CHARS_ACROSS = 40
# The value of a full window, and of a line that follows a matching one, relative to a line as good as the best.
_LENGTH_VALUE = 0.1
_FOLLOWING_VALUE = 0.125

# Characters that continue the one before although they are not marks: joiners, Thai and Lao AM, skin tones, tags.
_JOINING = re.compile("[\u200c\u200d\u0e33\u0eb3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")
_JAMO = re.compile("[\u1100-\u11ff]")
_LATER_JAMO = re.compile("[\u1160-\u11ff]")
_VIRAMA = 9
_FIRST_JOINING = "\u0300"

_EQUAL: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snippet:
    """A text and its line range."""

    text: str
    start_line: int
    end_line: int


class _Units(NamedTuple):
    """The lines of a text or pieces of them, each with its line feed if it has one, and the number of each one's line.

    `divided` are the lines that consist of pieces. A line of more than `size` characters may be shown in part.
    """

    texts: Sequence[str]
    lines: Sequence[int]
    divided: Collection[int]
    size: int

    def is_long(self, at: int) -> bool:
        """Return whether a unit may be shown in part."""
        return self.lines[at] in self.divided or len(self.texts[at]) > self.size + 1


def best_snippet(
    text: str,
    start_line: int,
    terms: "TermMatcher",
    words_of: Callable[[str], Collection[str]],
    max_chars: int,
    *,
    line_words: Mapping[int, Collection[str]] | None = None,
) -> Snippet:
    """Return the most valuable window of at most `max_chars` code points for `terms`, of whole lines if they fit.

    `words_of` returns the words of a line in the spelling of `terms`. `line_words` has these words for each line with
    any, by its number from 0, if they are known. Among equals, the earliest window that begins at a matching line is
    returned. A window extends down as far as it fits, then up.
    """
    text = text.replace("\r\n", "\n").rstrip("\r\n")
    if len(text) <= max_chars:
        return Snippet(text, start_line, start_line + text.count("\n"))
    units = _units(text, start_line, max_chars)
    masks, across = [0] * len(units.texts), [0] * len(units.texts)
    if line_words is not None and not units.divided:
        for line, words in line_words.items():
            if line < len(masks):
                masks[line] = terms.match(words)
    else:
        for at, line in enumerate(units.lines):
            if line_words is None or line in units.divided:
                masks[at] = terms.match(words_of(units.texts[at]))
            elif line - start_line in line_words:
                masks[at] = terms.match(line_words[line - start_line])
            if units.divided and at and line == units.lines[at - 1]:
                across[at - 1] = terms.match(words_of(_word_across(units.texts[at - 1], units.texts[at])))
    windows = _Windows(units.texts, max_chars)
    first, last = _best_window(masks, across, windows, terms.weight)
    first = windows.highest(first, last)
    return _filled(units, first, last, max_chars)


class TermMatcher:
    """Finds the terms of a query among words. A set of terms is an int with one bit for each term.

    `weights` has the inverse document frequency of each term; 1.0 for a missing one. Terms in `prefixes` match any word
    that they begin.
    """

    def __init__(
        self, terms: Collection[str], weights: Mapping[str, float] = _EQUAL, prefixes: Collection[str] = ()
    ) -> None:
        self._bits = {term: 1 << at for at, term in enumerate(dict.fromkeys(terms))}
        self._prefixes = [(term, bit) for term, bit in self._bits.items() if term in prefixes]
        self._weights = [(bit, weights.get(term, 1.0)) for term, bit in self._bits.items()]
        self._sums = {0: 0.0}

    def match(self, words: Collection[str]) -> int:
        """Return the terms that occur among these words."""
        mask = 0
        for word in words:
            mask |= self._bits.get(word, 0)
        for prefix, bit in self._prefixes:
            if any(word.startswith(prefix) for word in words):
                mask |= bit
        return mask

    def weight(self, terms: int) -> float:
        """Return the sum of the terms' weights."""
        total = self._sums.get(terms)
        if total is None:
            total = self._sums[terms] = sum(weight for bit, weight in self._weights if terms & bit)
        return total


class _Windows:
    """The windows of units whose text fits into a snippet."""

    def __init__(self, texts: Sequence[str], max_chars: int) -> None:
        self._ends = [0, *itertools.accumulate(map(len, texts))]
        # The line feed at a window's end is neither shown nor counted.
        self._max_chars = max_chars + 1

    def lowest(self, first: int) -> int:
        """Return the last unit of the longest window that begins at `first`."""
        return max(first, bisect.bisect_right(self._ends, self._ends[first] + self._max_chars) - 2)

    def highest(self, first: int, last: int) -> int:
        """Return the first unit of the longest window that ends at `last`; at most `first`."""
        return min(first, bisect.bisect_left(self._ends, self._ends[last + 1] - self._max_chars))

    def fullness(self, first: int, last: int) -> float:
        """Return how full a window is, 0..1."""
        return (self._ends[last + 1] - self._ends[first]) / self._max_chars


def _units(text: str, start_line: int, max_chars: int) -> _Units:
    size = max(1, max_chars // _PIECES_PER_SNIPPET)
    contents = text.split("\n")
    if max(map(len, contents)) <= max_chars:
        numbers = range(start_line, start_line + len(contents))
        return _Units([f"{content}\n" for content in contents], numbers, (), size)
    texts: list[str] = []
    lines: list[int] = []
    divided = set()
    for line, content in enumerate(contents, start_line):
        rest = content
        if len(content) > max_chars:
            divided.add(line)
            while len(rest) > size:
                piece = _piece(rest, size)
                texts.append(piece)
                rest = rest[len(piece) :]
        texts.append(f"{rest}\n")
        lines += [line] * (len(texts) - len(lines))
    return _Units(texts, lines, divided, size)


def _piece(text: str, size: int) -> str:
    space = text.rfind(" ", size // 2, size)
    return cut_text(text, space + 1 if space > 0 else size)


def _word_across(piece: str, following: str) -> str:
    """Return the word that the cut between two pieces of a line divides; empty if there is a space at the cut."""
    head, tail = piece[-_MAX_CHARS_ACROSS:], following[:_MAX_CHARS_ACROSS]
    if head[-1:].isspace() or tail[:1].isspace():
        return ""
    return head.split()[-1] + tail.split()[0]


def _best_window(
    masks: Sequence[int], across: Sequence[int], windows: _Windows, weigh: Callable[[int], float]
) -> tuple[int, int]:
    """Return the first and last unit of the best window; it begins at a match, or at the top if there is none.

    `masks` has the terms of each unit, `across` those of the word that the cut after a unit divides. The value of a
    window grows with each unit added below, so only the longest window from each beginning is examined.
    """
    matches = [at for at, (mask, word) in enumerate(zip(masks, across, strict=True)) if mask or word]
    lines = [weigh(masks[at]) for at in matches]
    best_line = max(lines, default=0.0) or max((weigh(across[at]) for at in matches), default=0.0) or 1.0
    sums = [0.0, *itertools.accumulate(lines)]
    best, best_value = (0, windows.lowest(0)), 0.0
    for number, first in enumerate(matches):
        last = windows.lowest(first)
        end = bisect.bisect_right(matches, last)
        mask = reduce(or_, [masks[at] for at in matches[number:end]]) | reduce(
            or_, [across[at] for at in matches[number:end] if at < last], 0
        )
        # The weights of the matching lines that have another line below them in the window.
        following = sums[bisect.bisect_left(matches, last)] - sums[number]
        weight = weigh(mask) + max(lines[number:end]) + _FOLLOWING_VALUE * following
        value = weight / best_line + _LENGTH_VALUE * windows.fullness(first, last)
        if value > best_value:
            best, best_value = (first, last), value
    return best


def _filled(units: _Units, first: int, last: int, max_chars: int) -> Snippet:
    """Return the window with the part that fits of a long line below it, or else above it."""
    text = "".join(units.texts[first : last + 1])
    room = max_chars - len(text)
    if room >= _MIN_SHARE_OF_PART * max_chars:
        if last + 1 < len(units.texts) and units.is_long(last + 1):
            last += 1
            text += _piece(units.texts[last], room)
        elif first and units.is_long(first - 1):
            first -= 1
            text = _end(units.texts[first], room) + text
    text = cut_text(text.rstrip(), max_chars)
    return Snippet(text, units.lines[first], units.lines[first] + text.count("\n"))


def _end(text: str, size: int) -> str:
    """Return the last words of a text, at most `size` code points."""
    at = len(text) - size
    space = text.find(" ", at, at + size // 2)
    if space > 0:
        at = space + 1
    while at < len(text) and _joins_on(text, at):
        at += 1
    return text[at:]


def cut_text(text: str, max_chars: int) -> str:
    """Return at most `max_chars` code points of `text`, never ending inside a combining sequence."""
    if len(text) <= max_chars:
        return text
    end = max_chars
    while end > 0 and _joins_on(text, end):
        end -= 1
    return text[: end or max_chars]


def _joins_on(text: str, at: int) -> bool:
    """Return whether the character at `at` belongs to the one before it, close to Unicode's extended clusters."""
    char, before = text[at], text[at - 1]
    if before == "\u200d":
        return True
    if char < _FIRST_JOINING:
        return False
    if unicodedata.category(char) in ("Mn", "Mc", "Me") or _JOINING.match(char):
        return True
    if _FLAG.match(char):
        # A flag is a pair of letters: after an odd number of letters, this one completes a pair.
        return sum(1 for _ in itertools.takewhile(_FLAG.match, reversed(text[:at]))) % 2 == 1
    # Old Korean is written in jamo; a virama joins the next consonant to its own.
    return bool(_JAMO.match(before) and _LATER_JAMO.match(char)) or unicodedata.combining(before) == _VIRAMA
