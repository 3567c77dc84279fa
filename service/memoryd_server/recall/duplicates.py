"""Texts that repeat others: near-duplicates within a block, and statements that a session has already seen. No I/O.

Two passages are near-duplicates if they share most runs of four words ("shingles"; Broder, "On the resemblance and
containment of documents", 1997), and no word of the one but stop words is missing in the other: a number or a name that
differs makes another fact.

What a session has seen is compared by statements, that is, lines and sentences, so that a line that was changed or
appended is new however much of the passage around it was seen. The first and the last statement of a passage may be
cut; they are also seen if they are part of a seen statement.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from memoryd_server.text import stop_words

REPEATED_SHARE = 0.7
"""A passage is a near-duplicate of one that has at least this share of its shingles."""

_WORDS_PER_SHINGLE = 4
# More words of a text that another one does not have cannot all be stop words.
_MOST_MISSING = 12
# A shorter statement is only seen as a whole: "Ada" is part of many statements.
_LEAST_WORDS_OF_PART = 4
# A word, or one character of a script that is written without spaces.
_UNSPACED = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[^\W_])+")
_STATEMENT_END = re.compile(r"\n|(?<=[.!?…])[^\S\n]+|(?<=[\u3002\uff01\uff1f])(?!\n)")
_SEPARATOR = " | "


class Fingerprint(NamedTuple):
    """The words of a text, without case, punctuation and Markdown: in their order, and as a set."""

    sequence: tuple[str, ...]
    words: frozenset[str]

    def shingles(self) -> frozenset[tuple[str, ...]]:
        """Return the runs of four words; a shorter text is one run."""
        runs = zip(*(self.sequence[at:] for at in range(_WORDS_PER_SHINGLE)), strict=False)
        return frozenset(runs) or frozenset([self.sequence])


class Statement(NamedTuple):
    """A line or sentence of a text: its place there, and its words, separated by spaces."""

    start: int
    end: int
    words: str


def fingerprint(text: str) -> Fingerprint:
    """Return the fingerprint of a text."""
    words = tuple(_WORD.findall(text.casefold()))
    return Fingerprint(words, frozenset(words))


def repeats(own: Fingerprint, other: Fingerprint) -> bool:
    """Return whether a text says nothing but what another one says."""
    # Most texts differ in many words, so that nothing else has to be compared.
    missing = own.words - other.words
    if not own.words or len(missing) > _MOST_MISSING or not missing <= stop_words(own.words, ()):
        return False
    shingles = own.shingles()
    return len(shingles & other.shingles()) >= REPEATED_SHARE * len(shingles)


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a text that have words."""
    start = 0
    for end in (*(match.span() for match in _STATEMENT_END.finditer(text)), (len(text), len(text))):
        words = " ".join(_WORD.findall(text[start : end[0]].casefold()))
        if words:
            yield Statement(start, end[0], words)
        start = end[1]


def shown_text(text: str) -> str:
    """Return the statements of a text in the form in which `unseen_part` looks for parts of them."""
    return f"{_SEPARATOR}{_SEPARATOR.join(each.words for each in statements(text))}{_SEPARATOR}"


def unseen_part(text: str, seen_statements: Collection[str], seen_text: str) -> tuple[int, int] | None:
    """Return where the first new statement of a text begins and the last one ends; None if none is new.

    `seen_statements` has the words of seen statements, `seen_text` those of the last ones by `shown_text`. A text
    without words is not seen.
    """
    found = list(statements(text))
    ends = found[:1] + found[1:][-1:]
    new = [
        each
        for each in found
        if each.words not in seen_statements and not (each in ends and _is_part(each.words, seen_text))
    ]
    if not new:
        return None if found else (0, len(text))
    return new[0].start, new[-1].end


def _is_part(words: str, seen_text: str) -> bool:
    return words.count(" ") >= _LEAST_WORDS_OF_PART - 1 and f" {words} " in seen_text
