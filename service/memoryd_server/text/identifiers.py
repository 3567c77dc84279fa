"""The forms of a word: whole, in parts, and without a Korean particle.

`foo-bar`, `foo.bar`, `foo_bar` and `fooBar` all give `foo`, `bar` and `foo_bar`, so that each finds the others and the
exact name ranks first. `fooBar` gives `foobar` as well, since names such as GitHub are often written without humps.
"""

import re
from itertools import pairwise
from typing import Final

from memoryd_server.text.folding import fold
from memoryd_server.text.runs import Run

MAX_PARTS: Final = 12

_SEGMENT = re.compile("[ludm]+")
# Before the capital of "fooBar" and of "s3Bucket", and before the last capital of "HTMLParser"; not within "4F2A".
_HUMP = re.compile("(?<=[lm])(?=u)|(?<=d)(?=ul)|(?<=u)(?=ull)")
_HANGUL = re.compile("[\uac00-\ud7a3]")
# Longest first.
_PARTICLES = (
    *("에서는", "으로는", "에게서", "이라는"),
    *("에서", "으로", "에게", "한테", "까지", "부터", "처럼", "보다", "이나", "라는", "하고", "에는"),
    *("은", "는", "이", "가", "을", "를", "에", "의", "와", "과", "도", "로", "만"),
)
_MIN_STEM = 2


def word_forms(run: Run) -> list[str]:
    """Returns the tokens of a word in the order of its parts, the whole last."""
    parts: list[str] = []
    solid: list[str] = []
    for segment in _SEGMENT.finditer(run.shape):
        word = run.text[segment.start() : segment.end()]
        humps = _humps(word, segment[0])
        parts += map(fold, humps)
        if len(humps) > 1:
            solid.append(fold(word))
    forms = parts + solid + _whole(parts, sigil=run.sigil)
    return forms if run.text.isascii() else forms + _stems(forms)


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


def _stems(forms: list[str]) -> list[str]:
    stems = (_stem(form) for form in forms if _HANGUL.match(form[-1]))
    return [stem for stem in stems if stem]


def _stem(word: str) -> str:
    """Returns `word` without its particle, empty when it has none or too little would be left."""
    for particle in _PARTICLES:
        if word.endswith(particle):
            stem = word.removesuffix(particle)
            return stem if len(stem) >= _MIN_STEM else ""
    return ""
