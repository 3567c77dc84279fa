"""The one analyzer of what is indexed and of what is asked."""

import unicodedata
from collections.abc import Iterator
from typing import Final

from memoryd_server.text.folding import compatible
from memoryd_server.text.runs import Run, ShapeTable, cut
from memoryd_server.text.stop_words import STOP_WORDS
from memoryd_server.text.terms import QueryTerm, index_tokens, query_terms

ANALYZER_VERSION: Final = f"1+unicode{unicodedata.unidata_version}"
"""Differs whenever the same text may give other tokens, so that the keyword leg must be built anew."""

_CONNECTORS = "._/:@#+-"
_SEPARATORS = bytes(code for code in range(128) if not (chr(code).isalnum() or chr(code) in _CONNECTORS))
# Works on UTF-8 bytes: bytes.translate is fast for any script, str.translate is not.
_TO_SPACES = bytes.maketrans(_SEPARATORS, b" " * len(_SEPARATORS))
_MAX_CACHED_CHARS = 40
_MAX_CACHED_PIECES = 50_000
_MAX_CACHED_SHAPES = 50_000


class Analyzer:
    """Turns text into tokens and queries into terms, so that a text is found by any of its own words.

    Holds caches of bounded size that make a second look at a word cheap. May be shared between threads.
    """

    def __init__(self) -> None:
        self._shapes = ShapeTable()
        self._pieces = _PieceCache(self._shapes)

    def index_tokens(self, text: str) -> str:
        """Returns the tokens of `text` in order, separated by spaces.

        They are folded and hold no white space, control character or ASCII punctuation but "_", as an FTS5 table with
        `tokenize="ascii tokenchars '_'"` wants them. Any text is accepted.
        """
        return " ".join(filter(None, map(self._pieces.__getitem__, _pieces(text))))

    def query_terms(self, query: str) -> tuple[QueryTerm, ...]:
        """Returns the distinct terms of `query` in order, without stop words unless there is nothing else.

        Empty when the query holds no word, for example only punctuation.
        """
        runs = (run for piece in _pieces(query) for run in _runs(piece, self._shapes))
        terms = dict.fromkeys(term for run in runs for term in query_terms(run))
        return tuple(term for term in terms if term.text not in STOP_WORDS) or tuple(terms)


class _PieceCache(dict[str, str]):
    """The tokens of pieces between white space, by the piece as it stands in the text."""

    def __init__(self, shapes: ShapeTable) -> None:
        super().__init__()
        self._shapes = shapes

    def __missing__(self, piece: str) -> str:
        tokens = _plain_word(piece) or " ".join(
            token for run in _runs(piece, self._shapes) for token in index_tokens(run)
        )
        if len(piece) <= _MAX_CACHED_CHARS:
            if len(self) >= _MAX_CACHED_PIECES:
                self.clear()
            self[piece] = tokens
        return tokens


def _pieces(text: str) -> list[str]:
    return text.encode("utf-8", "replace").translate(_TO_SPACES).decode("utf-8").split()


def _plain_word(piece: str) -> str:
    """Returns the token of an English word, perhaps at a sentence's end; empty when it takes more to find out."""
    word = piece.rstrip(_CONNECTORS)
    if word.isascii() and word.isalpha() and (word.islower() or word.istitle() or word.isupper()):
        return word.lower()
    return ""


def _runs(piece: str, shapes: ShapeTable) -> Iterator[Run]:
    if len(shapes) > _MAX_CACHED_SHAPES:
        shapes.clear()
    return iter(cut(compatible(piece), shapes))
