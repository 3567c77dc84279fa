"""Pieces: the parts of a text between white space and punctuation, and a cache of their tokens by language."""

from collections.abc import Iterable, Iterator
from typing import Final

from memoryd_server.text.stemming import DEFAULT, Stemmers, compatible
from memoryd_server.text.terms import ScriptRun, ShapeTable, cut, index_tokens

_CONNECTORS = "._/:@#+-"
_SEPARATORS = bytes(code for code in range(128) if not (chr(code).isalnum() or chr(code) in _CONNECTORS))
# Works on UTF-8 bytes: bytes.translate is fast for any script, str.translate is not.
_TO_SPACES = bytes.maketrans(_SEPARATORS, b" " * len(_SEPARATORS))
_WITHIN_LINES = _SEPARATORS.replace(b"\n", b"")
_TO_SPACES_WITHIN_LINES = bytes.maketrans(_WITHIN_LINES, b" " * len(_WITHIN_LINES))

MAX_CACHED_CHARS: Final = 40
"""Pieces of more characters are not cached."""
# A search analyzes the texts of twenty chunks, so the pieces of a large memory should fit: about 30 MB per language.
_MAX_CACHED_PIECES = 100_000
_MAX_CACHED_TEXTS = 100_000
_MAX_TOKENS = 8
_MAX_CACHED_SHAPES = 50_000


def pieces_of(text: str) -> list[str]:
    """Return the pieces of a text in order."""
    return _translated(text, _TO_SPACES).split()


def lines_of(text: str) -> list[list[str]]:
    """Return the pieces of each line of a text, empty lines included."""
    return [line.split() for line in _translated(text, _TO_SPACES_WITHIN_LINES).split("\n")]


def _translated(text: str, table: bytes) -> str:
    return text.encode("utf-8", "replace").translate(table).decode("utf-8")


def runs_of(piece: str, shapes: ShapeTable) -> Iterator[ScriptRun]:
    """Return the runs of a piece, each in one kind of script, in order."""
    if len(shapes) > _MAX_CACHED_SHAPES:
        shapes.clear()
    return iter(cut(compatible(piece), shapes))


class PieceCache(dict[str, str]):
    """The tokens of pieces of texts in one language, and the texts of which all pieces are cached.

    `by_token` has the pieces that have a token, except those in `compounds`, which have many tokens. Entries are never
    removed. A piece is added to `by_token` or `compounds` first, so another thread that finds it here finds it there.
    """

    def __init__(self, shapes: ShapeTable, stemmers: Stemmers, language: str) -> None:
        super().__init__()
        self.by_token: dict[str, list[str]] = {}
        self.compounds: set[str] = set()
        self._texts: set[int] = set()
        self._shapes = shapes
        self._stemmers = stemmers
        self._language = language

    @property
    def is_full(self) -> bool:
        """Whether nothing more is cached."""
        return len(self) >= _MAX_CACHED_PIECES or len(self.by_token) >= _MAX_CACHED_PIECES

    def __missing__(self, piece: str) -> str:
        tokens = self._plain_word(piece) or " ".join(self._tokens(piece))
        if len(piece) <= MAX_CACHED_CHARS and not self.is_full:
            distinct = set(tokens.split())
            if len(distinct) > _MAX_TOKENS:
                self.compounds.add(piece)
            else:
                for token in distinct:
                    self.by_token.setdefault(token, []).append(piece)
            self[piece] = tokens
        return tokens

    def add_text(self, text: str, pieces: Iterable[str]) -> None:
        """Store that all pieces of a text are cached, unless one is too long or the cache is full."""
        is_short = max(map(len, pieces), default=0) <= MAX_CACHED_CHARS
        if is_short and not self.is_full and len(self._texts) < _MAX_CACHED_TEXTS:
            self._texts.add(hash(text))

    def has_text(self, text: str) -> bool:
        """Return whether all pieces of a text are cached."""
        return hash(text) in self._texts

    def _tokens(self, piece: str) -> Iterator[str]:
        # A piece may hold the same word thousands of times, so each word is stemmed once.
        known: dict[ScriptRun, list[str]] = {}
        for run in runs_of(piece, self._shapes):
            tokens = known.get(run)
            if tokens is None:
                tokens = known[run] = index_tokens(run, self._stemmers, self._language)
            yield from tokens

    def _plain_word(self, piece: str) -> str:
        """Return the token of an English word, also at the end of a sentence; empty if the piece is anything else."""
        word = piece.rstrip(_CONNECTORS)
        plain = self._language == DEFAULT and word.isascii() and word.isalpha()
        if plain and (word.islower() or word.istitle() or word.isupper()):
            return self._stemmers.stem_plain(word.lower())
        return ""
