"""Spellings and forms of one word made equal: stems, case, compatibility forms, accents, Korean particles.

A word is stemmed first and folded afterwards, because stemmers know the accents of their language. English and Greek
words are folded first: the English stemmer knows no accents, and the Greek one removes them itself. So both spellings
give one stem.

`normalized` computes Unicode's normal forms in time that is nearly linear in the text. `unicodedata.normalize` sorts
the marks of one letter by moving each past its neighbours, which is quadratic in their number: minutes for a megabyte
of accents in the wrong order.
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
except ImportError:  # could not be built on this machine; pure Python gives the same stems, some fifty times slower
    import snowballstemmer

    _LIBRARY = "snowballstemmer"


STEMMER_VERSION = f"{_LIBRARY.lower()}{version(_LIBRARY)}"
"""The library that makes the stems, and its version; another version may make other stems."""

DEFAULT = ""
"""The language of a text in which no other was detected: English, names and code."""

LONGEST_WORD = 128
"""Longer words are compared by this many letters, because the end of such a word may be in the next chunk.

The beginning is complete in some chunk if chunks overlap by as much. A SHA-512 in hex has exactly this length.
"""

# Folding turns one letter into three at most.
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
    """The stemmers, created when first needed. May be shared between threads; only one of them stems at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stemmers: dict[str, _Stemmer] = {}

    def forms(self, word: str, language: str) -> tuple[str, ...]:
        """Return the forms that a word of a text in `language` is indexed under: one stem, rarely a second form.

        A Korean word gives itself and its stem without particle; a Vietnamese word its forms with and without accents.
        A word with digits is a name and is only folded. A very long word has its folded beginning.
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
        """Return the stem of a lower-case ASCII word in the default language: the same as `forms`, but faster."""
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
            stemmer = self._stemmers.get(algorithm)
            if stemmer is None:
                stemmer = self._stemmers[algorithm] = _new_stemmer(algorithm)
            return stemmer.stemWord(word)


def _new_stemmer(algorithm: str) -> _Stemmer:
    if _LIBRARY == "PyStemmer":
        # The analyzer caches whole pieces of text, so the library's own cache (size 0) would only cost time.
        stemmer: _Stemmer = Stemmer.Stemmer(algorithm, 0)
    else:
        stemmer = snowballstemmer.stemmer(algorithm)
    return stemmer


def _algorithm(word: str, language: str) -> str:
    """Return Snowball's name of the stemmer for `word`; empty if there is none."""
    first = ord(word[0])
    if first <= _LAST_LATIN or first in _LATIN_ADDITIONAL:
        return _LATIN.get(language, "")
    return next((algorithm for start, end, algorithm in _BLOCKS if start <= first <= end), "")


# Characters without a glyph or sound: soft hyphens, joiners, direction and variation marks, the Arabic tatweel.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u0640\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
# Scripts that are commonly typed without their accents: Latin, Greek and Cyrillic.
_ACCENTED = re.compile("[\u0000-\u052f\u1c80-\u1c8f\u1d00-\u1dbf\u1e00-\u1fff\u2c60-\u2c7f\ua640-\ua69f\ua720-\ua7ff]")
# The grave and the acute accent.
_STRESS = re.compile("[\u0300\u0301]")
# Letters with a stroke and ligatures, which no normal form decomposes.
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
    """Return `piece` in NFKC without invisible characters. Case is kept, because it shows the parts of joined names."""
    if piece.isascii():
        return piece
    return normalized("NFKC", _INVISIBLE.sub("", piece))


def accented(word: str) -> str:
    """Return `word` without case, but with its accents."""
    folded = word.casefold()
    return folded if folded.isascii() else normalized("NFC", folded)


def without_stress(word: str) -> str:
    """Return a Cyrillic `word` without case and stress marks. Its letters, such as "й", are kept."""
    return normalized("NFC", _STRESS.sub("", normalized("NFD", word.casefold())))


def fold(word: str) -> str:
    """Return `word` without case and, in Latin, Greek and Cyrillic, without accents; other scripts keep theirs."""
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

# Longer runs of marks are sorted here. No script has so many marks on a letter, so ordinary text is not affected.
_MIN_LONG_RUN = 32
# Marks, and the two letters that NFKC turns into marks. Other characters that are not letters may be included.
_LONG_RUN = re.compile(rf"[\W\uff9e\uff9f]{{{_MIN_LONG_RUN},}}")


def normalized(form: NormalForm, text: str) -> str:
    """Return the same as `unicodedata.normalize(form, text)`, but sort a run of n marks in n log n steps."""
    if len(text) >= _MIN_LONG_RUN and not text.isascii():
        text = _LONG_RUN.sub(lambda run: _decomposed(run[0], compatibly=form == "NFKC"), text)
    return unicodedata.normalize(form, text)


def _decomposed(run: str, *, compatibly: bool) -> str:
    """Return `run` decomposed and with its marks in canonical order; its normal forms are those of `run`."""
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
    """Return `word` without its particle; empty if it has none or too few letters would be left."""
    for particle in _PARTICLES:
        if word.endswith(particle):
            stem = word.removesuffix(particle)
            return stem if len(stem) >= _MIN_STEM else ""
    return ""
