"""Where a Japanese word ends, as far as the writing shows it.

Most words begin in kanji or katakana, and what they end in and what follows them is hiragana: a change back from it
begins a word, and a particle ends one. Two characters across such a place are those of two words, or of none.
"""

import re

_HIRAGANA = "\u3041-\u3096\u309d-\u309f"
_PARTICLES = "はがをにでとのもへや"
# The mark of a long vowel goes on in either kana.
_BEFORE_A_WORD = rf"([{_HIRAGANA}])[^{_HIRAGANA}\u30fc]"
_BEFORE_A_PARTICLE = rf"[^{_HIRAGANA}][{_PARTICLES}]"
_ACROSS = re.compile(f"(?={_BEFORE_A_WORD}|{_BEFORE_A_PARTICLE})")


def across_words(text: str) -> dict[int, int]:
    """Each pair of characters in a run of Japanese that stands across the end of a word; none in Chinese.

    By the place of its first character, the place of the one that is not hiragana: its share of a word. A verb may end
    as if in a particle, so that a pair tells nothing only where that share is known from another one.
    """
    return {match.start(): match.start() + (match[1] is not None) for match in _ACROSS.finditer(text)}
