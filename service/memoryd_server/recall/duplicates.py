"""Fingerprints of texts, to recognize a passage that repeats another one, in whole or in part. Pure.

A fingerprint is a set of hashes of four consecutive words ("shingles"). Of a long text, only the hashes divisible by 4
are kept, so that two texts that share a part keep the same hashes of that part. How much of a text another one contains
is the share of its hashes that the other has (Broder, "On the resemblance and containment of documents", 1997).
"""

import re
import zlib
from collections.abc import Collection

REPEATED_SHARE = 0.7
"""A text repeats others if they have at least this share of its fingerprint."""

_WORDS_PER_SHINGLE = 4
_SAMPLING = 4
# A text of fewer shingles keeps all of them.
_LEAST_SAMPLED = 32
# A word, or one character of a script that is written without spaces.
_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+")

Fingerprint = frozenset[int]


def fingerprint(text: str) -> Fingerprint:
    """Return the fingerprint of a text, without its case, punctuation and Markdown; empty for a text without words."""
    words = [word.encode() for word in _WORD.findall(text.casefold())]
    last = max(1, len(words) - _WORDS_PER_SHINGLE + 1)
    hashes = {zlib.crc32(b" ".join(words[at : at + _WORDS_PER_SHINGLE])) for at in range(last)} if words else set()
    if len(hashes) < _LEAST_SAMPLED:
        return frozenset(hashes)
    return frozenset(value for value in hashes if not value % _SAMPLING) or frozenset(hashes)


def repeats(own: Fingerprint, others: Collection[int]) -> bool:
    """Return whether the texts with the hashes `others` contain most of the text with the fingerprint `own`."""
    return bool(own) and sum(value in others for value in own) >= REPEATED_SHARE * len(own)
