"""Cuts a piece of text into runs of one kind of script.

The cut is made on the piece's shape: a string as long as the piece that names the class of each character, so that the
patterns are short and ASCII. Classes: `u` upper case, `l` other letters, `d` digits, `m` marks, `c` CJK, `s` letters of
the unspaced scripts of South-East Asia, connectors as themselves, a space for all else.
"""

import re
import unicodedata
from enum import Enum
from typing import NamedTuple

_CONNECTORS = "._/:@#+-"
_HYPHEN = 0x2010

# Han, kana, Bopomofo and Yi, with their iteration marks; not the punctuation between them.
_CJK = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u309d-\u309f\u30a1-\u30fa"
    "\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\ua48c\uf900-\ufaff"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff]"
)
# Thai, Lao, Myanmar and Khmer.
_SEA = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f]")

_WORD = "[lud][ludm]*"
_RUN = re.compile(
    r"(?P<CJK>c+)|(?P<SEA>s[sm]*)"
    # An option, tag, handle or hidden name: its sign counts only where no word goes before it.
    r"|(?:(?<![ludmcs.:@#+_-])(?P<sigil>--|__|[-#@._]))?"
    rf"(?P<WORD>{_WORD}(?:(?:__|--|::|//|[./:@#+_-]){_WORD})*)"
)


class Script(Enum):
    """How the words of a run are found."""

    WORD = "WORD"
    CJK = "CJK"
    SEA = "SEA"


class Run(NamedTuple):
    """Characters of one kind, with their shape. `sigil` is set where a sign such as `--` or `#` goes before a word."""

    script: Script
    text: str
    shape: str
    sigil: bool = False


class ShapeTable(dict[int, str]):
    """The class of each code point, filled as they are met; a table for `str.translate`."""

    def __missing__(self, code: int) -> str:
        """Finds the class of `code` and remembers it."""
        shape = self[code] = _shape_of(code)
        return shape


def cut(piece: str, table: ShapeTable) -> list[Run]:
    """Returns the runs of `piece`, which is in NFKC, in order."""
    shape = piece.translate(table)
    return [
        Run(Script[name], piece[match.start(name) : match.end(name)], match[name], bool(match["sigil"]))
        for match in _RUN.finditer(shape)
        if (name := match.lastgroup)
    ]


def _shape_of(code: int) -> str:
    char = chr(code)
    if char in _CONNECTORS:
        return char
    if code == _HYPHEN:
        return "-"
    category = unicodedata.category(char)
    if category[0] == "L" or category[0] == "N":
        return _letter_shape(char, category)
    return "m" if category[0] == "M" else " "


def _letter_shape(char: str, category: str) -> str:
    if _CJK.match(char):
        return "c"
    if _SEA.match(char):
        return "s"
    if category[0] == "N":
        return "d"
    return "u" if category in {"Lu", "Lt"} else "l"
