"""Search terms for a run of letters: the tokens that it is indexed under, and the terms that it searches for.

Each term of a run is one of the run's tokens, or the beginning of one if `prefix` is set, so that a text is found by
any of its own words.

Words are indexed whole and in parts. `foo-bar`, `foo.bar`, `foo_bar` and `fooBar` all give `foo`, `bar` and `foo_bar`,
so that each finds the others and the exact name ranks first. `fooBar` gives `foobar` as well, because names such as
GitHub are often written without capitals.

`cut` splits a piece of text into runs of one kind of script. It matches patterns against the piece's shape: a string
of the same length that has the class of each character, so that the patterns are short and ASCII. Classes: `u` upper
case, `l` other letters, `d` digits, `m` marks, `c` CJK, `s` letters of the unspaced scripts of South-East Asia,
connectors as themselves, a space for everything else.

Scripts without spaces are indexed as overlapping grams. In Japanese, the ends of words can often be seen: most words
begin in kanji or katakana and end in hiragana, so a change from hiragana begins a word, and a particle ends one. A
pair of characters across such a place carries no meaning.
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
    # An option, tag, handle or hidden name: its sign counts only if no word precedes it.
    r"|(?:(?<![ludmcs.:@#+_-])(?P<sigil>--|__|[-#@._]))?"
    rf"(?P<WORD>{_WORD}(?:(?:__|--|::|//|[./:@#+_-]){_WORD})*)"
)


class Script(Enum):
    """How the words of a run are found: as words, or as grams of a script without spaces."""

    WORD = "WORD"
    CJK = "CJK"
    SEA = "SEA"


class ScriptRun(NamedTuple):
    """Characters of one kind, with their shape. `sigil` is set if a sign such as `--` or `#` precedes a word."""

    script: Script
    text: str
    shape: str
    sigil: bool = False


class ShapeTable(dict[int, str]):
    """The class of each code point, added when first needed; a table for `str.translate`."""

    def __missing__(self, code: int) -> str:
        """Determine the class of `code` and store it."""
        shape = self[code] = _shape_of(code)
        return shape


def cut(piece: str, table: ShapeTable) -> list[ScriptRun]:
    """Return the runs of `piece`, which is in NFKC, in order."""
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
    """What a term is. A text must have the query's words and grams; wholes and guesses are optional."""

    WORD = "WORD"
    GRAM = "GRAM"
    """Two or three characters of a script without spaces between words."""
    WHOLE = "WHOLE"
    """A name in one piece, in addition to its parts; a text may have only the parts."""
    GUESS = "GUESS"
    """Neighbouring words as one name; searched only if it occurs in the index."""


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A token to search for; with `prefix`, any token that begins with it.

    Terms with the same `original`, the word as written without case and accents, are its stems in several languages:
    alternatives, of which a text needs one.
    """

    text: str
    prefix: bool = False
    kind: TermKind = field(default=TermKind.WORD, compare=False)
    original: str = field(default="", compare=False)


def index_tokens(run: ScriptRun, stemmers: Stemmers, language: str) -> list[str]:
    """Return the tokens that a text in `language` with this run is indexed under."""
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
    """Return the terms that this run searches for in texts of these languages.

    For a script without spaces, stop words are left out, and perhaps no term remains, unless `everything` is set.
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
        grams = _without_stop_words(text, grams)
    unique = dict.fromkeys(text[start:end] for start, end in grams)
    return [QueryTerm(gram, kind=TermKind.GRAM, original=gram) for gram in unique]


def _without_stop_words(text: str, grams: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the grams without those that carry no meaning.

    Left out are grams within stop words, and grams across a word's end if another gram has their character of a word.
    """
    stop_end = {at: end for start, end in stop_spans(text) for at in range(start, end)}
    kept = [(start, end) for start, end in grams if end > stop_end.get(start, 0)]
    across = across_words(text)
    if not across:
        return kept
    within = {at for start, end in kept if start not in across for at in range(start, end)}
    return [(start, end) for start, end in kept if across.get(start) not in within]


MAX_PARTS: Final = 12

_SEGMENT = re.compile("[ludm]+")
# Before the capital of "fooBar" and of "s3Bucket", and before the last capital of "HTMLParser"; not within "4F2A".
_HUMP = re.compile("(?<=[lm])(?=u)|(?<=d)(?=ul)|(?<=u)(?=ull)")


class WordForms(NamedTuple):
    """The parts and names of a run of words, in the text's order.

    `parts` and `solid` (`fooBar` as one word) are as written and have to be stemmed. `wholes` are finished tokens: the
    parts joined, and the name with its sign.
    """

    parts: list[str]
    solid: list[str]
    wholes: list[str]


def word_forms(run: ScriptRun) -> WordForms:
    """Return the words and names in `run`."""
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
    # A word with more parts is a hash or encoded bytes, whose parts have no meaning.
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
# The mark of a long vowel continues either kana.
_BEFORE_A_WORD = rf"([{_HIRAGANA}])[^{_HIRAGANA}\u30fc]"
_BEFORE_A_PARTICLE = rf"[^{_HIRAGANA}][{_PARTICLES}]"
_ACROSS = re.compile(f"(?={_BEFORE_A_WORD}|{_BEFORE_A_PARTICLE})")


def across_words(text: str) -> dict[int, int]:
    """Return each pair of characters across the end of a Japanese word; none in Chinese.

    Maps the position of the pair's first character to that of its character that is not hiragana, which is part of a
    word. A verb may seem to end in a particle, so a pair is left out only if another gram has that character.
    """
    return {match.start(): match.start() + (match[1] is not None) for match in _ACROSS.finditer(text)}
