"""Which language of Latin script a text is written in, by the votes of its function words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from memoryd_server.text.folding import accented
from memoryd_server.text.function_words import ENGLISH, LATIN
from memoryd_server.text.stemming import DEFAULT

FEWEST_VOTES: Final = 3
LEAST_SHARE: Final = 0.06

_LONG_WORD = 12


def _voters() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for language, words in {DEFAULT: ENGLISH, **LATIN}.items():
        for word in dict.fromkeys(words.split()):
            found[word] = (*found.get(word, ()), language)
    return found


_VOTERS = _voters()


def votes(words: Iterable[str]) -> Counter[str]:
    """How many of these words each language counts among its function words."""
    return Counter(language for word in words if word in _VOTERS for language in _VOTERS[word])


def detect(sample: str) -> str:
    """The language of a text of some hundred words; the default one for English, other scripts and short texts."""
    words = accented(sample).split()
    counted = votes(words)
    if not counted:
        return DEFAULT
    language, most = counted.most_common(1)[0]
    # Scripts without spaces make few words: a French title in a Chinese text is no French text.
    enough = most >= FEWEST_VOTES and most >= LEAST_SHARE * max(len(words), len(sample) // _LONG_WORD)
    return language if enough and most > counted[DEFAULT] else DEFAULT
