"""Spellings of the same word made equal: case, compatibility forms, accents."""

import re
import unicodedata
from collections.abc import Mapping

from memoryd_server.text.normal_forms import normalized

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
