"""Leaves out of a question what says nothing about what is looked for."""

import re
from collections.abc import Collection, Iterable, Mapping

from memoryd_server.text.folding import fold
from memoryd_server.text.function_words import ENGLISH, LATIN, SPACED, UNSPACED
from memoryd_server.text.languages import votes
from memoryd_server.text.stemming import DEFAULT

# So many function words show the language of a question that the index holds nothing of.
_FEWEST_IN_A_QUESTION = 2


def _folded(words: str) -> frozenset[str]:
    return frozenset(map(fold, words.split()))


STOP_WORDS = _folded(ENGLISH).union(*map(_folded, SPACED.values()))
"""Function words that are left out of every question, folded: the English ones, and those of other scripts."""

_OF_LATIN_LANGUAGES: Mapping[str, frozenset[str]] = {language: _folded(words) for language, words in LATIN.items()}
_UNSPACED = "|".join(sorted(" ".join(UNSPACED.values()).split(), key=len, reverse=True))
# Japanese particles that stand between function words. The rarer ones are more often the end of a word.
_BETWEEN = "[はがをにでとの]"
_SILENT = re.compile(f"(?:{_BETWEEN}?(?:{_UNSPACED}))+{_BETWEEN}?")


def stop_words(words: Iterable[str], languages: Collection[str]) -> frozenset[str]:
    """The stop words for a question of these words, as they were written but for case, over texts in `languages`.

    "die" says nothing in a German question and much in an English one, so those of another language of Latin script
    count only where it has the most function words in the question.
    """
    counted = votes(words)
    most = max(counted.values(), default=0)
    spoken = [
        language
        for language, count in counted.items()
        if language != DEFAULT and count == most and (language in languages or count >= _FEWEST_IN_A_QUESTION)
    ]
    if not spoken:
        return STOP_WORDS
    return STOP_WORDS.union(*(_OF_LATIN_LANGUAGES[language] for language in spoken))


def stop_spans(text: str) -> list[tuple[int, int]]:
    """Where in a run of unspaced script function words stand, those side by side as one span, particles with them."""
    return [match.span() for match in _SILENT.finditer(text)]
