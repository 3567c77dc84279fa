"""Forms of one word brought together: the stem of its script and language, without case and accents.

A word is stemmed first and folded afterwards, since stemmers know the accents of their language. Where they know none
(English, Greek, whose stemmer takes them off itself) the folding comes first, so that both spellings give one stem.
"""

import threading
from collections.abc import Mapping
from importlib.metadata import version
from typing import Protocol

from memoryd_server.text.folding import accented, fold, without_stress
from memoryd_server.text.korean import HANGUL, without_particle

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
