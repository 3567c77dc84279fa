"""Inputs made from a regular expression to make it slow, and a check that its time grows no faster than they do.

The inputs repeat each part of the pattern: a literal, a character of a class, what a repetition repeats, and each run
of neighbouring parts; a suffix makes the match fail late. Time is that of the calling thread, so that other programs do
not count.
"""

import gc
import itertools
import math
import re
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from re import _constants as op
from re import _parser

# The alphabet that classes are tried with, besides the pattern's own literals.
COMMON = " \na1_.日"
SUFFIXES = ("", "\0")
# How many of a pattern's signs are tried as the end that a class at its end does not match.
MOST_BREAKERS = 4
MOST_BRANCHES = 3
MOST_VARIANTS = 6
MOST_PIECES_IN_A_WINDOW = 3
# A text of so many characters shows a quadratic pattern that has one start at each; longer parts need longer texts.
CHARS = 3072
SMALL = (24, 32, 64, 128, 512)
# Faster than this is not measured further. A linear pattern takes less than a tenth of it for CHARS characters.
FLOOR_SECONDS = 0.002
# No linear pattern takes so long for CHARS characters.
SLOW_SECONDS = 0.1
# How much longer four times the size may take: four times is linear, sixteen quadratic.
TIMES_LONGER = 4
MOST_RATIO = 9
FEWEST_TIMES = 6
REPEATS = 3
# A processor may be slower for a while, so a long text is timed between two short ones, after each of these pauses.
PAUSES = (0, 0.05, 0.2, 0.5)

CATEGORIES = {
    op.CATEGORY_DIGIT: str.isdecimal,
    op.CATEGORY_NOT_DIGIT: lambda char: not char.isdecimal(),
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    op.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    op.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}


@dataclass(frozen=True)
class Attack:
    """`prefix`, `pump` repeated, and `suffix`."""

    prefix: str
    pump: str
    suffix: str

    def text(self, chars):
        """The attack in about so many characters."""
        return self.prefix + self.pump * max(1, chars // len(self.pump)) + self.suffix


@dataclass(frozen=True)
class Piece:
    """A part of a pattern as text that it matches, and what a repetition in it repeats."""

    text: str
    pumps: tuple[str, ...] = ()


def attacks(pattern: re.Pattern[str]) -> list[Attack]:
    """The attacks on a pattern, each once."""
    tree = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    alphabet = _alphabet(tree)
    breakers = tuple(char for char in alphabet if not char.isalnum())[:MOST_BREAKERS]
    found: dict[Attack, None] = {}
    for variant in _variants(tree, alphabet, {}):
        found.update(dict.fromkeys(_attacks_on(_merged(variant), breakers)))
    short = alphabet[:4]
    for pump in (*alphabet, *("".join(pair) for pair in itertools.permutations(short, 2))):
        found.update(dict.fromkeys(Attack("", pump, suffix) for suffix in SUFFIXES))
    return list(found)


def _attacks_on(pieces: list[Piece], breakers: tuple[str, ...]) -> Iterator[Attack]:
    texts = [piece.text for piece in pieces]
    whole = "".join(texts)
    for at, piece in enumerate(pieces):
        rest = "".join(texts[at + 1 :])
        for pump in piece.pumps:
            prefix = "".join(texts[:at])
            yield from (Attack(prefix, pump, suffix) for suffix in dict.fromkeys(("\0", rest[:-1] + "\0")))
    spans = {(0, end) for end in range(1, len(texts) + 1)} | {(start, len(texts)) for start in range(len(texts))}
    spans |= {
        (start, start + length)
        for length in range(1, MOST_PIECES_IN_A_WINDOW + 1)
        for start in range(len(texts) - length + 1)
    }
    for start, end in sorted(spans):
        pump, rest = "".join(texts[start:end]), "".join(texts[end:])
        yield Attack("".join(texts[:start]), pump, "x" + rest)
        for each in dict.fromkeys((pump, pump[:-1], pump + " ")):
            if each:
                yield from (Attack("", each, suffix) for suffix in ("\0", *breakers))
    yield Attack(whole, "x", "\0")


def _merged(pieces: list[Piece]) -> list[Piece]:
    """The pieces with neighbouring literals as one."""
    found: list[Piece] = []
    for piece in pieces:
        if found and not piece.pumps and not found[-1].pumps:
            found[-1] = Piece(found[-1].text + piece.text)
        else:
            found.append(piece)
    return [piece for piece in found if piece.text or piece.pumps]


def _alphabet(tree: _parser.SubPattern) -> str:
    """The characters that the pattern names, and common ones."""
    own = dict.fromkeys(chr(code) for code in _codes(tree))
    first = [char for char in own if not char.isalnum()] + [char for char in own if char.isalnum()]
    return "".join(dict.fromkeys((*first[:8], *COMMON)))


def _codes(tree) -> Iterator[int]:
    for kind, value in tree:
        if kind in (op.LITERAL, op.NOT_LITERAL):
            yield value
        elif kind is op.RANGE:
            yield value[0]
        elif kind is op.IN:
            yield from _codes(value)
        else:
            for inner in _inside(kind, value):
                yield from _codes(inner)


def _inside(kind, value) -> list[_parser.SubPattern]:
    if kind is op.BRANCH:
        return value[1]
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return [value[2]]
    if kind is op.SUBPATTERN:
        return [value[3]]
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return [value[1]]
    if kind is op.ATOMIC_GROUP:
        return [value]
    return []


def _variants(tree, alphabet: str, groups: dict[int, str]) -> list[list[Piece]]:
    """Sequences of pieces that the tree matches; each branch is in one of them."""
    current: list[list[Piece]] = [[]]
    for kind, value in tree:
        choices = _choices(kind, value, alphabet, groups)
        head = [variant + choices[0] for variant in current]
        current = (head + [current[0] + choice for choice in choices[1:]])[:MOST_VARIANTS]
    return current


def _choices(kind, value, alphabet: str, groups: dict[int, str]) -> list[list[Piece]]:  # noqa: PLR0911 -- one a kind
    if kind is op.LITERAL:
        return [[Piece(chr(value))]]
    if kind in (op.IN, op.NOT_LITERAL, op.ANY):
        return [[Piece(_members(kind, value, alphabet)[0])]]
    if kind is op.BRANCH:
        branches = value[1]
        step = math.ceil(len(branches) / MOST_BRANCHES)
        return [variant for branch in branches[::step] for variant in _variants(branch, alphabet, groups)]
    if kind is op.SUBPATTERN:
        found = _variants(value[3], alphabet, groups)
        groups[value[0]] = "".join(piece.text for piece in found[0])
        return found
    if kind is op.ATOMIC_GROUP:
        return _variants(value, alphabet, groups)
    if kind is op.GROUPREF:
        return [[Piece(groups.get(value, ""))]]
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return _repeated(*value, alphabet, groups)
    return [[]]


def _repeated(least: int, most: int, tree, alphabet: str, groups: dict[int, str]) -> list[list[Piece]]:
    inner = _variants(tree, alphabet, groups)
    if most <= 1:
        return [*inner, []]
    pumps = ["".join(piece.text for piece in variant) for variant in inner]
    if len(tree) == 1 and tree[0][0] in (op.IN, op.NOT_LITERAL, op.ANY):
        pumps = _members(*tree[0], alphabet)
    nested = tuple(pump for variant in inner for piece in variant for pump in piece.pumps)
    text = pumps[0] * max(1, min(least, 64))
    found = [[Piece(text, tuple(pump for pump in dict.fromkeys((*pumps, *nested)) if pump))]]
    return found if least else [*found, []]


def _members(kind, value, alphabet: str) -> list[str]:
    """The characters of the alphabet that a class holds; any one where it holds none."""
    if kind is op.ANY:
        return [char for char in alphabet if char != "\n"]
    if kind is op.NOT_LITERAL:
        return [char for char in alphabet if ord(char) != value]
    found = [char for char in alphabet if _is_in(char, value)]
    return found or [chr(next(_codes(value), ord("a")))]


def _is_in(char: str, items) -> bool:
    negated = items[0][0] is op.NEGATE
    return negated is not any(
        (kind is op.LITERAL and ord(char) == value)
        or (kind is op.RANGE and value[0] <= ord(char) <= value[1])
        or (kind is op.CATEGORY and CATEGORIES[value](char))
        for kind, value in items
    )


def use(pattern: re.Pattern[str], method: str):
    """What `method` does with a text, to its end. A pattern of bytes gets the text in Latin-1."""

    def subject(text):
        return text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text

    if method in ("search", "match", "fullmatch"):
        apply = getattr(pattern, method)
        return lambda text: apply(subject(text))
    return lambda text: deque(pattern.finditer(subject(text)), maxlen=0)


def seconds(work, text: str, times: int = 1) -> float:
    """Return the shortest processor time of `times` runs of `work`.

    Garbage collection is off, because its duration depends on the other tests of the process.
    """
    found = []
    collects = gc.isenabled()
    gc.disable()
    try:
        for _ in range(times):
            began = time.thread_time()
            work(text)
            found.append(time.thread_time() - began)
    finally:
        if collects:
            gc.enable()
    return min(found)


def outgrows(work, attack: Attack) -> bool:
    """Whether the time that `work` takes for a text grows faster than the text."""
    for chars in SMALL:
        text = attack.text(chars)
        if seconds(work, text) > SLOW_SECONDS and seconds(work, text, 2) > SLOW_SECONDS:
            return True
    chars = int(CHARS * math.sqrt(min(len(attack.pump), 64)))
    text = attack.text(chars)
    short = seconds(work, text)
    if FLOOR_SECONDS < short < SLOW_SECONDS:
        # Most patterns that pass the floor are linear and slow: a quarter of the text tells that soonest.
        if short < FEWEST_TIMES * seconds(work, attack.text(chars // TIMES_LONGER), 2):
            return False
        short = min(short, seconds(work, text, REPEATS))
    if short < FLOOR_SECONDS or short > SLOW_SECONDS:
        return short > SLOW_SECONDS
    return takes_longer(work, text, attack.text(TIMES_LONGER * chars), MOST_RATIO)


def takes_longer(work, short, long, times: float, least_seconds: float = 0.0) -> bool:
    """Return whether the time of `work(long)` is more than `times` that of `work(short)`, in every round.

    There is one round after each of `PAUSES`. A time of `work(short)` below `least_seconds` counts as `least_seconds`.
    """
    for pause in PAUSES:
        time.sleep(pause)
        before, between, after = (seconds(work, each) for each in (short, long, short))
        if between <= times * max(min(before, after), least_seconds):
            return False
    return True


def weakness(pattern: re.Pattern[str], method: str) -> Attack | None:
    """The first attack under which a pattern takes more time than its text explains; None where there is none."""
    return next((attack for attack in attacks(pattern) if outgrows(use(pattern, method), attack)), None)
