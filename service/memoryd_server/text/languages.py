"""Which language of Latin script a text is written in, by the votes of its function words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from memoryd_server.text.folding import accented
from memoryd_server.text.function_words import ENGLISH, LATIN
from memoryd_server.text.stemming import DEFAULT

FEWEST_VOTES: Final = 3
LEAST_SHARE: Final = 0.06

# Text of Latin script takes at most so many bytes of UTF-8 a character, Vietnamese the most; of other scripts 1.8 to 3.
_MOST_LATIN_BYTES = 1.6


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
    # A French title in a Chinese text makes no French text, though it may hold most of what spaces set apart.
    if len(sample.encode("utf-8", "replace")) > _MOST_LATIN_BYTES * len(sample):
        return DEFAULT
    words = accented(sample).split()
    counted = votes(words)
    if not counted:
        return DEFAULT
    language, most = counted.most_common(1)[0]
    enough = most >= FEWEST_VOTES and most >= LEAST_SHARE * len(words)
    return language if enough and most > counted[DEFAULT] else DEFAULT
