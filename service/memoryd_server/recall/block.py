"""The choice of passages for a block, and the block itself, within its budget. Pure."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from memoryd_server.model import Origin, Source
from memoryd_server.recall.duplicates import Fingerprint, fingerprint, repeats, unseen_part
from memoryd_server.recall.fence import CHARS_PER_TOKEN, escape_line, estimated_tokens, fenced, indented_lines
from memoryd_server.recall.shown import FileLines, SeenPassages
from memoryd_server.search import citation

MOST_CITATION_CHARS = 300
# A passage that does not fit is cut if this number of characters of it fits.
_LEAST_CUT_CHARS = 120
# The number and the date of a passage with its citation, and the indentation of a line with its line feed.
_HEAD_CHARS = 20
_INDENTED_CHARS = 3
# After this number of passages that do not fit, no more are tried.
_MOST_MISSES = 4


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage that may be recalled.

    `citation` identifies it in the block. `source` is None for an entry, which has no lines. `day` is its date, as
    YYYY-MM-DD. `why` says in words why it was found.
    """

    path: str
    start_line: int
    end_line: int
    citation: str
    text: str
    day: str
    score: float
    why: str
    source: Source | None
    origin: Origin
    mtime_ns: int = 0

    def with_lines(self, start_line: int, end_line: int, text: str) -> "Passage":
        """Return the passage with these lines and their text."""
        cited = self.citation if self.source is None else citation(self.path, start_line, end_line)
        return replace(self, start_line=start_line, end_line=end_line, citation=cited, text=text)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most estimated tokens and the most code points of a block. None means no limit."""

    tokens: int | None = None
    chars: int | None = None

    def allows(self, text: str) -> bool:
        """Return whether a text is within the budget."""
        return (self.chars is None or len(text) <= self.chars) and (
            self.tokens is None or estimated_tokens(text) <= self.tokens
        )

    def most_chars(self, text: str) -> int:
        """Return the most characters that can be added to a text."""
        chars = sys.maxsize if self.chars is None else self.chars - len(text)
        tokens = sys.maxsize if self.tokens is None else CHARS_PER_TOKEN * (self.tokens - estimated_tokens(text))
        return max(0, min(chars, tokens))


class Selection(NamedTuple):
    """Passages to show, best first, and whether any was left out because the session has seen it."""

    passages: list[Passage]
    seen_any: bool


class Block(NamedTuple):
    """A block, the passages in it with their texts as shown, and its length in estimated tokens."""

    text: str
    passages: tuple[Passage, ...] = ()
    tokens: int = 0


def select(passages: Iterable[Passage], seen: SeenPassages) -> Selection:
    """Return the passages that are new to a session and do not repeat better ones.

    Of passages that repeat each other, the newest is kept, in the place of the best one.
    """
    kept: list[tuple[Passage, Fingerprint]] = []
    seen_any = False
    for found in passages:
        passage = _unseen(found, seen)
        if passage is None:
            seen_any = True
            continue
        own = fingerprint(passage.text)
        for place, (other, others) in enumerate(kept):
            if repeats(own, others):
                if passage.day > other.day and repeats(others, own):
                    kept[place] = passage, own
                break
        else:
            kept.append((passage, own))
    return Selection([passage for passage, _ in kept], seen_any)


def _unseen(passage: Passage, seen: SeenPassages) -> Passage | None:
    """Return a passage without the statements at its start and end that a session has seen; None if all were seen."""
    if seen.contains_lines(FileLines(passage.path, passage.start_line, passage.end_line), passage.mtime_ns):
        return None
    if not seen.statements:
        return passage
    part = unseen_part(passage.text, seen.statements, seen.text)
    return None if part is None else _part(passage, *part)


def _part(passage: Passage, start: int, end: int) -> Passage:
    """Return a part of the text of a passage, with its lines if these are consecutive."""
    text = passage.text[start:end]
    if text == passage.text:
        return passage
    first, last = passage.start_line, passage.end_line
    if last - first == passage.text.count("\n"):
        first += passage.text.count("\n", 0, start)
        last = first + text.count("\n")
    return passage.with_lines(first, last, text)


def make_block(passages: Sequence[Passage], budget: Budget) -> Block:
    """Return the block of as many of the first passages as the budget allows; empty if it allows none.

    A passage that does not fit is cut at the end of a line or a word, if enough of it fits.
    """
    lines: list[str] = []
    shown: list[Passage] = []
    misses = 0
    for passage in passages:
        fitting = _fitting(passage, lines, len(shown) + 1, budget)
        if fitting is None:
            misses += 1
            if misses == _MOST_MISSES:
                break
            continue
        kept, own = fitting
        shown.append(kept)
        lines += own
        if kept.text != passage.text:
            break
    if not shown:
        return Block("")
    text = fenced(lines)
    return Block(text, tuple(shown), estimated_tokens(text))


def _fitting(passage: Passage, lines: Sequence[str], number: int, budget: Budget) -> tuple[Passage, list[str]] | None:
    """Return as much of a passage as fits after these lines, and its own lines; None if too little fits."""
    most = budget.most_chars(fenced(lines))
    if len(passage.text) <= most:
        own = _lines(passage, number)
        if budget.allows(fenced((*lines, *own))):
            return passage, own
    # The indentation and the escapes of the text are not known before it is cut.
    length = min(len(passage.text) - 1, most - len(passage.citation) - _HEAD_CHARS)
    length -= _INDENTED_CHARS * passage.text.count("\n", 0, max(0, length))
    while length >= _LEAST_CUT_CHARS:
        fitting = _cut(passage, length)
        own = _lines(fitting, number)
        if budget.allows(fenced((*lines, *own))):
            return fitting, own
        length = length * 9 // 10
    return None


def _cut(passage: Passage, length: int) -> Passage:
    """Return the beginning of a passage, at most this long, up to the end of a line or a word."""
    text = passage.text[:length]
    ends = [end for end in (text.rfind("\n"), text.rfind(" ")) if end >= _LEAST_CUT_CHARS]
    end = ends[0] if ends else length
    return replace(_part(passage, 0, end), text=f"{text[:end]}…")


def _lines(passage: Passage, number: int) -> list[str]:
    date = f" ({passage.day})" if passage.day else ""
    return [f"[{number}] {escape_line(passage.citation, MOST_CITATION_CHARS)}{date}", *indented_lines(passage.text)]
