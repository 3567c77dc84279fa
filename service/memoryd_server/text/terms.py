"""What a run of letters is found by: the tokens it is indexed under, and the terms it asks for.

Each term of a run is among the run's tokens, or begins one of them where `prefix` is set, so that a text is found by
any of its own words.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from memoryd_server.text.folding import fold
from memoryd_server.text.identifiers import word_forms
from memoryd_server.text.runs import Run, Script
from memoryd_server.text.stemming import Stemmers
from memoryd_server.text.stop_words import stop_spans
from memoryd_server.text.word_ends import across_words

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


def index_tokens(run: Run, stemmers: Stemmers, language: str) -> list[str]:
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


def query_terms(run: Run, stemmers: Stemmers, languages: Sequence[str], *, everything: bool = False) -> list[QueryTerm]:
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


def _clusters(run: Run) -> list[str]:
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
