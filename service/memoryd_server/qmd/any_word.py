"""A second search, for the documents that contain any word of a query.

qmd's `search` requires all words, so most questions find nothing. qmd's query language has a line per list of results,
and qmd fuses the lists by the ranks in them. A query of `lex:` lines alone, without reranking, uses no models.

The lines have words as written, because memoryd and qmd do not stem alike. qmd searches a run of Chinese, Japanese or
Korean characters as a phrase, so such a run is searched by the analyzer's grams, or by its stem without particle.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memoryd_server.qmd.client import QmdSearchMode, search_arguments
from memoryd_server.text import Analyzer, QueryTerm, TermKind

MAX_WORDS = 12
"""The words of a query that are searched; each is a line, and a line costs qmd a search of its index."""

_MAX_CHARS = 2_000

# A qmd older than 2.1 ignores `--no-rerank`. With this variable it fails instead of downloading a model.
WITHOUT_MODELS: Mapping[str, str] = {"CI": "1"}

# The characters that qmd indexes one by one.
_CJK = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
# A term of qmd's syntax: a phrase in quotes or a word, with a minus sign if documents with it are excluded.
_TERM = re.compile(r'(?P<minus>-(?=["\w]))?(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+))')
# qmd removes any other character from a word, and combines the parts on its sides into a word that no text has. Of a
# word with several kinds of connectors, it splits none.
_LETTERS = rf"(?:[^\W_{_CJK}]|[\u0300-\u036f])+"
_WORD = re.compile(rf"[{_CJK}]+|{_LETTERS}(?:(?:-{_LETTERS})+|(?:\.{_LETTERS})+|(?:_{_LETTERS})+)?")
_CJK_RUN = re.compile(f"[{_CJK}]")
_NECESSARY = frozenset({TermKind.WORD, TermKind.GRAM})


@dataclass(frozen=True, slots=True)
class AnyWordQuery:
    """A query in qmd's language. `lines` are lists of words; the first has all of them, each other one has one."""

    lines: tuple[str, ...]

    def arguments(self, collections: Sequence[str], limit: int) -> tuple[str, ...]:
        """Return the arguments of the search, which prints a BM25 score for each line that finds a document."""
        text = "\n".join(f"lex: {line}" for line in self.lines)
        *options, separator, _ = search_arguments(QmdSearchMode.QUERY, "", collections, limit)
        return (*options, "--no-rerank", "--explain", separator, text)

    def score(self, row: Mapping[str, Any]) -> float:
        """Return the score that `search` would give to a row of the output for the words that the document contains.

        qmd's BM25 of several words is the sum of theirs, and a score is `bm25 / (1 + bm25)`. The row's own score is 1
        divided by its rank. The result is 0 if the row has no explanation.
        """
        words = self.lines[1:] or self.lines
        bm25 = sum(score / (1 - score) for line, score in _scores_by_line(row) if line in words)
        return round(bm25 / (1 + bm25), 2)


def _scores_by_line(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    explanation = row.get("explain")
    fusion = explanation.get("rrf") if isinstance(explanation, dict) else None
    lists = fusion.get("contributions") if isinstance(fusion, dict) else None
    for each in lists if isinstance(lists, list) else ():
        line, score = (each.get("query"), each.get("backendScore")) if isinstance(each, dict) else (None, None)
        if isinstance(line, str) and isinstance(score, int | float) and 0 <= score < 1:
            yield line, score


def any_word_query(text: str) -> AnyWordQuery | None:
    """Return a query for documents with any word of `text`; None if that finds the same as the search for all words.

    Stop words are left out unless there are no other words. Documents that `text` excludes remain excluded. Of a long
    text, only the first 2,000 characters count.
    """
    included, excluded = _words_and_exclusions(text[:_MAX_CHARS])
    words = _informative_words(included)[:MAX_WORDS]
    if not words or (len(included) == 1 and words == included):
        return None
    lines = dict.fromkeys((" ".join(words), *words))
    return AnyWordQuery(tuple(line + excluded for line in lines))


def _words_and_exclusions(text: str) -> tuple[list[str], str]:
    """Return each word of `text` once, in order, and the terms that exclude documents, each after a blank."""
    words: list[str] = []
    excluded: dict[str, None] = {}
    for term in _TERM.finditer(text):
        parts = _WORD.findall(term["phrase"] or term["word"] or "")
        if not term["minus"]:
            words += parts
        elif parts:
            excluded[f" -{parts[0]}" if [term["word"]] == parts else f' -"{" ".join(parts)}"'] = None
    return list(dict.fromkeys(words)), "".join(excluded)


def _informative_words(words: Sequence[str]) -> list[str]:
    analyzer = Analyzer()
    kept = {term.original for term in _terms(analyzer, " ".join(words))}
    forms: dict[str, str] = {}
    for word in words:
        for form in _forms(word, _terms(analyzer, word), kept):
            forms.setdefault(form.casefold(), form)
    # qmd finds all words that begin with a line's word, so a single letter finds almost every document.
    return [form for form in forms.values() if len(form) > 1 or _CJK_RUN.match(form)] or list(words)


def _terms(analyzer: Analyzer, text: str) -> list[QueryTerm]:
    return [term for term in analyzer.query_terms(text) if term.kind in _NECESSARY]


def _forms(word: str, terms: Sequence[QueryTerm], kept: Collection[str]) -> list[str]:
    """Return the forms under which a word is searched; none for a stop word."""
    terms = [term for term in terms if term.original in kept]
    if not _CJK_RUN.match(word):
        return [word] if terms else []
    shortest: dict[str, str] = {}
    for term in terms:
        shortest[term.original] = min(shortest.get(term.original, term.text), term.text, key=len)
    return list(shortest.values())
