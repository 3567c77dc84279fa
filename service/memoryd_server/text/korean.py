"""Korean words without their particles."""

import re
from typing import Final

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
