"""What a run of letters is found by.

What a run of letters is found by: the tokens it is indexed under, and the terms it asks for.

Each term of a run is among the run's tokens, or begins one of them where `prefix` is set, so that a text is found by
any of its own words.

The forms of a word: whole and in parts.

`foo-bar`, `foo.bar`, `foo_bar` and `fooBar` all give `foo`, `bar` and `foo_bar`, so that each finds the others and the
exact name ranks first. `fooBar` gives `foobar` as well, since names such as GitHub are often written without humps.

Cuts a piece of text into runs of one kind of script.

The cut is made on the piece's shape: a string as long as the piece that names the class of each character, so that the
patterns are short and ASCII. Classes: `u` upper case, `l` other letters, `d` digits, `m` marks, `c` CJK, `s` letters of
the unspaced scripts of South-East Asia, connectors as themselves, a space for all else.

Where a Japanese word ends, as far as the writing shows it.

Most words begin in kanji or katakana, and what they end in and what follows them is hiragana: a change back from it
begins a word, and a particle ends one. Two characters across such a place are those of two words, or of none.
"""

import itertools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

from memoryd_server.text.languages import stop_spans
from memoryd_server.text.stemming import Stemmers, fold

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


class ScriptRun(NamedTuple):
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


def cut(piece: str, table: ShapeTable) -> list[ScriptRun]:
    """Returns the runs of `piece`, which is in NFKC, in order."""
    shape = piece.translate(table)
    return [
        ScriptRun(Script[name], piece[match.start(name) : match.end(name)], match[name], bool(match["sigil"]))
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


_CJK_GRAM = 2
_SEA_GRAM = 3
_CLUSTER = re.compile("sm*")


class TermKind(Enum):
    """What a term stands for. Only words and grams are what the question cannot do without."""

    WORD = "WORD"
    GRAM = "GRAM"
    """Two or three characters of a script that puts no spaces between words."""
    WHOLE = "WHOLE"
    """A name in one piece, beside its parts: it may be missing where they are found."""
    GUESS = "GUESS"
    """Words side by side tried as one name; worth asking for only if the index knows it."""


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A token to look for; with `prefix`, any token that begins with it.

    Terms of one `original`, the word as it was written but for case and accents, are its stems in several languages:
    alternatives, of which a text needs one.
    """

    text: str
    prefix: bool = False
    kind: TermKind = field(default=TermKind.WORD, compare=False)
    original: str = field(default="", compare=False)


def index_tokens(run: ScriptRun, stemmers: Stemmers, language: str) -> list[str]:
    """Returns the tokens that a text in `language` with this run is indexed under."""
    if run.script is Script.CJK:
        # The last slice is the last character alone, so that every single character begins some token.
        return [run.text[i : i + _CJK_GRAM] for i in range(len(run.text))]
    if run.script is Script.SEA:
        clusters = _clusters(run)
        return ["".join(clusters[i : i + _SEA_GRAM]) for i in range(len(clusters))]
    forms = word_forms(run)
    stems = [stem for word in forms.parts + forms.solid for stem in stemmers.forms(word, language)]
    return stems + forms.wholes


def query_terms(
    run: ScriptRun, stemmers: Stemmers, languages: Sequence[str], *, everything: bool = False
) -> list[QueryTerm]:
    """Returns the terms that this run asks for in texts of these languages.

    Of a script without spaces, only those that tell what is looked for, perhaps none, unless `everything` is wanted.
    """
    if run.script is Script.CJK:
        return _gram_terms(list(run.text), _CJK_GRAM, everything=everything)
    if run.script is Script.SEA:
        return _gram_terms(_clusters(run), _SEA_GRAM, everything=everything)
    forms = word_forms(run)
    words = [(word, TermKind.WORD) for word in forms.parts] + [(word, TermKind.WHOLE) for word in forms.solid]
    stems = [term for word, kind in words for term in _stem_terms(word, kind, stemmers, languages)]
    return stems + [QueryTerm(whole, kind=TermKind.WHOLE, original=whole) for whole in forms.wholes]


def _stem_terms(word: str, kind: TermKind, stemmers: Stemmers, languages: Sequence[str]) -> list[QueryTerm]:
    original = fold(word)
    # Most languages give a word the same stem, and scripts of one language always do.
    stems = dict.fromkeys(stem for language in languages for stem in stemmers.forms(word, language))
    return [QueryTerm(stem, kind=kind, original=original) for stem in stems]


def _clusters(run: ScriptRun) -> list[str]:
    return [run.text[match.start() : match.end()] for match in _CLUSTER.finditer(run.shape)]


def _gram_terms(units: Sequence[str], size: int, *, everything: bool) -> list[QueryTerm]:
    text = "".join(units)
    if len(units) < size:
        return [QueryTerm(text, prefix=True, kind=TermKind.GRAM, original=text)]
    starts = list(itertools.accumulate(map(len, units), initial=0))
    grams = list(zip(starts, starts[size:], strict=False))
    if not everything:
        grams = _telling(text, grams)
    asked = dict.fromkeys(text[start:end] for start, end in grams)
    return [QueryTerm(gram, kind=TermKind.GRAM, original=gram) for gram in asked]


def _telling(text: str, grams: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The grams that tell what is looked for.

    Left out are those within what says nothing, and those across a word's end whose share of a word is in others.
    """
    silent_until = {at: end for start, end in stop_spans(text) for at in range(start, end)}
    telling = [(start, end) for start, end in grams if end > silent_until.get(start, 0)]
    across = across_words(text)
    if not across:
        return telling
    within = {at for start, end in telling if start not in across for at in range(start, end)}
    return [(start, end) for start, end in telling if across.get(start) not in within]


MAX_PARTS: Final = 12

_SEGMENT = re.compile("[ludm]+")
# Before the capital of "fooBar" and of "s3Bucket", and before the last capital of "HTMLParser"; not within "4F2A".
_HUMP = re.compile("(?<=[lm])(?=u)|(?<=d)(?=ul)|(?<=u)(?=ull)")


class WordForms(NamedTuple):
    """What a run of words consists of, in the text's order.

    `parts` and `solid` (`fooBar` as one word) stand as they were written and are still to be stemmed. `wholes` are
    finished tokens: the parts joined, and the name with its sign.
    """

    parts: list[str]
    solid: list[str]
    wholes: list[str]


def word_forms(run: ScriptRun) -> WordForms:
    """Returns the words and names in `run`."""
    parts: list[str] = []
    solid: list[str] = []
    for segment in _SEGMENT.finditer(run.shape):
        word = run.text[segment.start() : segment.end()]
        humps = _humps(word, segment[0])
        parts += humps
        if len(humps) > 1:
            solid.append(word)
    return WordForms(parts, solid, _whole(list(map(fold, parts)), sigil=run.sigil))


def _humps(word: str, shape: str) -> list[str]:
    cuts = [0, *(match.start() for match in _HUMP.finditer(shape)), len(word)]
    # So many humps are a hash or encoded bytes, whose parts mean nothing.
    if len(cuts) - 1 > MAX_PARTS:
        return [word]
    return [word[start:end] for start, end in pairwise(cuts)]


def _whole(parts: list[str], *, sigil: bool) -> list[str]:
    if len(parts) > MAX_PARTS:
        return []
    whole = "_".join(parts)
    return [whole] * (len(parts) > 1) + ["_" + whole] * sigil


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
