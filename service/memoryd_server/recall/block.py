"""The choice of passages for a block, and the block itself, within its budget. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from memoryd_server.model import Origin, Source
from memoryd_server.recall.duplicates import Fingerprint, fingerprint, repeats
from memoryd_server.recall.fence import escape_line, estimated_tokens, fenced, indented_lines
from memoryd_server.recall.shown import FileLines, SeenPassages

MOST_CITATION_CHARS = 300
# A passage that does not fit is cut if this number of characters of it fits.
_LEAST_CUT_CHARS = 120
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
    for passage in passages:
        own = fingerprint(passage.text)
        lines = FileLines(passage.path, passage.start_line, passage.end_line)
        if repeats(own, seen.hashes) or seen.contains_lines(lines, passage.mtime_ns):
            seen_any = True
            continue
        for place, (other, others) in enumerate(kept):
            if repeats(own, others):
                if passage.day > other.day and repeats(others, own):
                    kept[place] = passage, own
                break
        else:
            kept.append((passage, own))
    return Selection([passage for passage, _ in kept], seen_any)


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
        shown.append(fitting)
        lines += _lines(fitting, len(shown))
        if fitting.text != passage.text:
            break
    if not shown:
        return Block("")
    text = fenced(lines)
    return Block(text, tuple(shown), estimated_tokens(text))


def _fitting(passage: Passage, lines: Sequence[str], number: int, budget: Budget) -> Passage | None:
    def fits(text: str) -> bool:
        return budget.allows(fenced((*lines, *_lines(replace(passage, text=text), number))))

    if fits(passage.text):
        return passage
    low, high = 0, len(passage.text) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(f"{passage.text[:middle]}…") else (low, middle - 1)
    cut = passage.text[:low]
    ends = [end for end in (cut.rfind("\n"), cut.rfind(" ")) if end >= _LEAST_CUT_CHARS]
    if low < _LEAST_CUT_CHARS:
        return None
    text = f"{cut[: ends[0]] if ends else cut}…"
    return replace(passage, text=text) if fits(text) else None


def _lines(passage: Passage, number: int) -> list[str]:
    date = f" ({passage.day})" if passage.day else ""
    return [f"[{number}] {escape_line(passage.citation, MOST_CITATION_CHARS)}{date}", *indented_lines(passage.text)]
