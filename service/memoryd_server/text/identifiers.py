"""The forms of a word: whole and in parts.

`foo-bar`, `foo.bar`, `foo_bar` and `fooBar` all give `foo`, `bar` and `foo_bar`, so that each finds the others and the
exact name ranks first. `fooBar` gives `foobar` as well, since names such as GitHub are often written without humps.
"""

import re
from itertools import pairwise
from typing import Final, NamedTuple

from memoryd_server.text.folding import fold
from memoryd_server.text.runs import Run

MAX_PARTS: Final = 12

_SEGMENT = re.compile("[ludm]+")
# Before the capital of "fooBar" and of "s3Bucket", and before the last capital of "HTMLParser"; not within "4F2A".
_HUMP = re.compile("(?<=[lm])(?=u)|(?<=d)(?=ul)|(?<=u)(?=ull)")


class WordForms(NamedTuple):
    """What a run of words consists of, in the text's order.

    `parts` and `solid` (`fooBar` as one word) stand as they were written and are still to be stemmed. `wholes` are
    finished tokens: the parts joined, and the name with its sign.
    """

    parts: list[str]
    solid: list[str]
    wholes: list[str]


def word_forms(run: Run) -> WordForms:
    """Returns the words and names in `run`."""
    parts: list[str] = []
    solid: list[str] = []
    for segment in _SEGMENT.finditer(run.shape):
        word = run.text[segment.start() : segment.end()]
        humps = _humps(word, segment[0])
        parts += humps
        if len(humps) > 1:
            solid.append(word)
    return WordForms(parts, solid, _whole(list(map(fold, parts)), sigil=run.sigil))


def _humps(word: str, shape: str) -> list[str]:
    cuts = [0, *(match.start() for match in _HUMP.finditer(shape)), len(word)]
    # So many humps are a hash or encoded bytes, whose parts mean nothing.
    if len(cuts) - 1 > MAX_PARTS:
        return [word]
    return [word[start:end] for start, end in pairwise(cuts)]


def _whole(parts: list[str], *, sigil: bool) -> list[str]:
    if len(parts) > MAX_PARTS:
        return []
    whole = "_".join(parts)
    return [whole] * (len(parts) > 1) + ["_" + whole] * sigil
