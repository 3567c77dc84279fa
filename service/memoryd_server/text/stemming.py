"""Spellings and forms of one word made equal.

Forms of one word brought together: the stem of its script and language, without case and accents.

A word is stemmed first and folded afterwards, since stemmers know the accents of their language. Where they know none
(English, Greek, whose stemmer takes them off itself) the folding comes first, so that both spellings give one stem.

Spellings of the same word made equal: case, compatibility forms, accents.

Unicode's normal forms, in time that grows with the text alone.

`unicodedata.normalize` puts the marks on one letter in their order by moving each past its neighbours, which takes the
square of their number: minutes for a megabyte of accents that stand in the wrong order.

Korean words without their particles.
"""

import re
import threading
import unicodedata
from collections.abc import Mapping
from importlib.metadata import version
from itertools import groupby
from typing import Final, Literal, Protocol

try:
    import Stemmer

    _LIBRARY = "PyStemmer"
except ImportError:  # nothing could build it here: the same stems from Python, some fifty times slower
    import snowballstemmer

    _LIBRARY = "snowballstemmer"


STEMMER_VERSION = f"{_LIBRARY.lower()}{version(_LIBRARY)}"
"""Which library makes the stems; another version may make others."""

DEFAULT = ""
"""The language of a text in which no other was recognised: English, names and code."""

LONGEST_WORD = 128
"""Letters of a longer word after these tell nothing: its end may stand in the next chunk.

Beginnings are whole in some chunk, as long as chunks overlap by as much. A SHA-512 in hex is just within.
"""

# Folding makes three letters of one at most.
_SURELY_SHORT = LONGEST_WORD // 3

VIETNAMESE = "vi"
TURKISH = "tr"

# The languages of Latin script that both Snowball and `languages` know. Vietnamese words do not change.
_LATIN: Mapping[str, str] = {
    DEFAULT: "english",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "id": "indonesian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "sv": "swedish",
    TURKISH: "turkish",
    VIETNAMESE: "",
}
# By the block of the first letter: (first code point, last, algorithm).
_BLOCKS = (
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x052F, "russian"),
    (0x0530, 0x058F, "armenian"),
    (0x0600, 0x06FF, "arabic"),
    (0x0750, 0x077F, "arabic"),
    (0x0900, 0x097F, "hindi"),
    (0x0B80, 0x0BFF, "tamil"),
    (0x1F00, 0x1FFF, "greek"),
)
_LAST_LATIN = 0x024F
_LATIN_ADDITIONAL = range(0x1E00, 0x1F00)
_TURKISH_CAPITALS = str.maketrans({"I": "\N{LATIN SMALL LETTER DOTLESS I}", "İ": "i"})


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 -- the library's name


class Stemmers:
    """The stemmers in use, made when first needed. May be shared between threads: one of them stems at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, _Stemmer] = {}

    def forms(self, word: str, language: str) -> tuple[str, ...]:
        """Returns what a word of a text in `language` is indexed under: one stem, seldom a second form beside it.

        A Korean word gives itself and its stem without the particle, a Vietnamese one itself without and with accents.
        A word with digits in it is a name, and is only folded. A very long word gives its folded beginning.
        """
        if len(word) > _SURELY_SHORT:
            folded = fold(word)
            if len(folded) > LONGEST_WORD:
                return (folded[:LONGEST_WORD],)
        if any(map(str.isnumeric, word)):
            return (fold(word),)
        if HANGUL.match(word[-1]):
            bare = without_particle(word)
            return (fold(word), *(self.forms(bare, language) if bare else ()))
        algorithm = _algorithm(word, language)
        if algorithm:
            return (self._stem(word, algorithm, language),)
        if language == VIETNAMESE:
            return tuple(dict.fromkeys((fold(word), accented(word))))
        return (fold(word),)

    def stem_plain(self, word: str) -> str:
        """Returns the stem of a lower-case ASCII word in the default language: the same as `forms`, sooner."""
        return self._stemmed(word, "english") if len(word) <= LONGEST_WORD else word[:LONGEST_WORD]

    def _stem(self, word: str, algorithm: str, language: str) -> str:
        if algorithm in {"english", "greek"}:
            plain = fold(word)
        elif algorithm == "russian":
            plain = without_stress(word)
        elif language == TURKISH:
            plain = accented(word.translate(_TURKISH_CAPITALS))
        else:
            plain = accented(word)
        return fold(self._stemmed(plain, algorithm)) or fold(word)

    def _stemmed(self, word: str, algorithm: str) -> str:
        with self._lock:
            stemmer = self._made.get(algorithm)
            if stemmer is None:
                stemmer = self._made[algorithm] = _make(algorithm)
            return stemmer.stemWord(word)


def _make(algorithm: str) -> _Stemmer:
    # The analyzer remembers whole pieces of text, so the library's own cache would only be in the way.
    made: _Stemmer = Stemmer.Stemmer(algorithm, 0) if _LIBRARY == "PyStemmer" else snowballstemmer.stemmer(algorithm)
    return made


def _algorithm(word: str, language: str) -> str:
    """Returns Snowball's name of what stems `word`, empty when nothing does."""
    first = ord(word[0])
    if first <= _LAST_LATIN or first in _LATIN_ADDITIONAL:
        return _LATIN.get(language, "")
    return next((algorithm for start, end, algorithm in _BLOCKS if start <= first <= end), "")


# What is not seen and not said: soft hyphens, joiners, direction and variation marks, the Arabic stretcher.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u0640\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
# Scripts that are commonly typed without their accents: Latin, Greek and Cyrillic.
_ACCENTED = re.compile("[\u0000-\u052f\u1c80-\u1c8f\u1d00-\u1dbf\u1e00-\u1fff\u2c60-\u2c7f\ua640-\ua69f\ua720-\ua7ff]")
# The grave and the acute accent.
_STRESS = re.compile("[\u0300\u0301]")
# Letters with a stroke and ligatures, which no normal form takes apart.
_PLAIN: Mapping[int, str] = {
    ord("\N{LATIN SMALL LETTER DOTLESS I}"): "i",
    ord("ø"): "o",
    ord("đ"): "d",
    ord("ð"): "d",
    ord("ħ"): "h",
    ord("ł"): "l",
    ord("ŧ"): "t",
    ord("þ"): "th",
    ord("æ"): "ae",
    ord("œ"): "oe",
}


def compatible(piece: str) -> str:
    """Returns `piece` in NFKC without what cannot be seen. Case stays, since it tells where names are joined."""
    if piece.isascii():
        return piece
    return normalized("NFKC", _INVISIBLE.sub("", piece))


def accented(word: str) -> str:
    """Returns `word` without case, its accents kept."""
    folded = word.casefold()
    return folded if folded.isascii() else normalized("NFC", folded)


def without_stress(word: str) -> str:
    """Returns a Cyrillic `word` without case and stress marks; its letters, of which "й" is one, stay."""
    return normalized("NFC", _STRESS.sub("", normalized("NFD", word.casefold())))


def fold(word: str) -> str:
    """Returns `word` without case and, in Latin, Greek and Cyrillic, without accents; other scripts keep theirs."""
    folded = word.casefold()
    if folded.isascii():
        return folded
    return normalized("NFC", _without_accents(normalized("NFD", folded)).translate(_PLAIN))


def _without_accents(decomposed: str) -> str:
    kept = []
    accented = False
    for char in decomposed:
        if unicodedata.category(char)[0] != "M":
            accented = bool(_ACCENTED.match(char))
        elif accented:
            continue
        kept.append(char)
    return "".join(kept)


NormalForm = Literal["NFC", "NFD", "NFKC"]

# No script puts so many marks on a letter that this would matter to ordinary text.
_MANY = 32
# Marks, and the two letters that compatibility makes marks of; other characters that are no letters do no harm here.
_LONG_RUN = re.compile(rf"[\W\uff9e\uff9f]{{{_MANY},}}")


def normalized(form: NormalForm, text: str) -> str:
    """The same as `unicodedata.normalize(form, text)`, a run of marks in n log n."""
    if len(text) >= _MANY and not text.isascii():
        text = _LONG_RUN.sub(lambda run: _decomposed(run[0], compatibly=form == "NFKC"), text)
    return unicodedata.normalize(form, text)


def _decomposed(run: str, *, compatibly: bool) -> str:
    """`run` with each character taken apart and its marks in canonical order; the normal forms of both are the same."""
    apart = "".join(unicodedata.normalize("NFKD" if compatibly else "NFD", char) for char in run)
    marks = groupby(apart, key=lambda char: unicodedata.combining(char) > 0)
    return "".join(char for are, some in marks for char in (sorted(some, key=unicodedata.combining) if are else some))


HANGUL: Final = re.compile("[\uac00-\ud7a3]")

# Longest first.
_PARTICLES = (
    *("에서는", "으로는", "에게서", "이라는"),
    *("에서", "으로", "에게", "한테", "까지", "부터", "처럼", "보다", "이나", "라는", "하고", "에는"),
    *("은", "는", "이", "가", "을", "를", "에", "의", "와", "과", "도", "로", "만"),
)
_MIN_STEM = 2


def without_particle(word: str) -> str:
    """Returns `word` without its particle, empty when it has none or too little would be left."""
    for particle in _PARTICLES:
        if word.endswith(particle):
            stem = word.removesuffix(particle)
            return stem if len(stem) >= _MIN_STEM else ""
    return ""
