"""Pieces: the parts of a text between white space and punctuation; caches of their tokens, and of texts as pieces.

Most pieces of a text occur in earlier texts too, so their tokens are looked up instead of being computed. A search
reads the texts of twenty chunks; these texts are cached as the numbers of their pieces, in which numpy finds the words
of a query.
"""

import itertools
import sys
import threading
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memoryd_server.text.stemming import DEFAULT, Stemmers, compatible
from memoryd_server.text.terms import ScriptRun, ShapeTable, cut, index_tokens

_CONNECTORS = "._/:@#+-"
_SEPARATORS = bytes(code for code in range(128) if not (chr(code).isalnum() or chr(code) in _CONNECTORS))
# Works on UTF-8 bytes: bytes.translate is fast for any script, str.translate is not.
_TO_SPACES = bytes.maketrans(_SEPARATORS, b" " * len(_SEPARATORS))
_WITHIN_LINES = _SEPARATORS.replace(b"\n", b"")
_TO_SPACES_WITHIN_LINES = bytes.maketrans(_WITHIN_LINES, b" " * len(_WITHIN_LINES))

_MAX_CACHED_SHAPES = 50_000

# The overhead of two arrays and a dictionary entry, in addition to the numbers that the arrays hold.
_BYTES_PER_TEXT = 500
_BYTES_PER_ENTRY = 100


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


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The limits of the caches of one language.

    `pieces` is the maximum number of pieces, and of distinct tokens. A search analyzes the texts of twenty chunks, so
    the pieces of a large memory should fit: about 30 MB. `text_bytes` limits the memory of the texts that are cached as
    numbers; a chunk of mean length takes 1,500 bytes. A piece of more than `chars` characters is not cached.

    `PieceCache.by_token` maps a token to the pieces that contain it. A piece is in `PieceCache.unlisted` instead if it
    has more than `tokens` distinct tokens, or if one of them has `pieces_by_token` pieces already.
    """

    pieces: int = 100_000
    text_bytes: int = 12 * 2**20
    chars: int = 40
    tokens: int = 8
    pieces_by_token: int = 500


# All languages together may use this many times the limits of one language.
_MAX_FULL_CACHES = 4
_MAX_LANGUAGES = 24


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """The number of languages and pieces in caches, and the bytes of the texts (`CacheLimits.text_bytes`)."""

    languages: int
    pieces: int
    text_bytes: int

    def exceed(self, limits: CacheLimits) -> bool:
        """Return whether the caches are too many or too large; `limits` are those of one language."""
        return (
            self.languages > _MAX_LANGUAGES
            or self.pieces > _MAX_FULL_CACHES * limits.pieces
            or self.text_bytes > _MAX_FULL_CACHES * limits.text_bytes
        )


@dataclass(frozen=True, slots=True)
class TextPieces:
    """The pieces of a text as numbers, in order.

    `pieces_by_line` has the number of pieces in each line, `line_ends` the offset in the text after each line and its
    line feed. `unlisted` maps each distinct piece that is not in `PieceCache.by_token` to its tokens.
    """

    numbers: NDArray[np.int32]
    pieces_by_line: NDArray[np.int32]
    line_ends: "array[int]"
    unlisted: Mapping[str, str]

    @property
    def bytes(self) -> int:
        """The approximate memory that this text takes in the cache, in bytes."""
        lines = self.pieces_by_line.nbytes + len(self.line_ends) * self.line_ends.itemsize
        tokens = sum(map(sys.getsizeof, self.unlisted.values())) + _BYTES_PER_ENTRY * len(self.unlisted)
        return self.numbers.nbytes + lines + tokens + _BYTES_PER_TEXT


class TextCache:
    """Texts as the numbers of their pieces. If full, it evicts the oldest texts. `pieces` has the piece of each number.

    A number is never used for another piece. Once the pieces take too much memory (`piece_bytes`), or there are
    too many of them, the owner replaces the object; a search in another thread may still be using it.
    """

    def __init__(self, max_bytes: int) -> None:
        self.pieces: list[str] = []
        self.numbers: dict[str, int] = {}
        self.piece_bytes = 0
        self._texts: dict[int, TextPieces] = {}
        self._bytes = 0
        self._max_bytes = max_bytes
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """The memory of the texts and of the characters of their pieces, approximately."""
        return self._bytes + self.piece_bytes

    def get(self, text: str) -> TextPieces | None:
        """Return the pieces of a text; None if it was not added, or was evicted."""
        found = self._texts.get(hash(text))
        return found if found is not None and found.line_ends[-1] == len(text) + 1 else None

    def add(self, text: str, lines: Sequence[Sequence[str]], unlisted: Mapping[str, str]) -> TextPieces:
        """Add a text with the pieces of its lines."""
        pieces = list(itertools.chain.from_iterable(lines))
        with self._lock:
            for piece in dict.fromkeys(pieces):
                if piece not in self.numbers:
                    self.piece_bytes += sys.getsizeof(piece)
                    self.pieces.append(piece)
                    self.numbers[piece] = len(self.pieces) - 1
            shared = {self.pieces[self.numbers[piece]]: tokens for piece, tokens in unlisted.items()}
            added = TextPieces(
                np.fromiter(map(self.numbers.__getitem__, pieces), np.int32, len(pieces)),
                np.fromiter(map(len, lines), np.int32, len(lines)),
                array(
                    "i", (end + line for line, end in enumerate(itertools.accumulate(map(len, text.split("\n"))), 1))
                ),
                shared,
            )
            before = self._texts.pop(hash(text), None)
            self._texts[hash(text)] = added
            self._bytes += added.bytes - (before.bytes if before else 0)
            while self._bytes > self._max_bytes:
                self._bytes -= self._texts.pop(next(iter(self._texts))).bytes
        return added


class PieceCache(dict[str, str]):
    """The tokens of pieces of texts in one language.

    `by_token` maps a token to the pieces that contain it, except those in `unlisted`, which have many tokens or a
    token of many pieces. Entries are never removed. A piece is added to `by_token` or `unlisted` before
    it is added here, so another thread that finds it here also finds it in one of the two.
    """

    def __init__(self, shapes: ShapeTable, stemmers: Stemmers, language: str, limits: CacheLimits) -> None:
        super().__init__()
        self.by_token: dict[str, list[str]] = {}
        self.unlisted: set[str] = set()
        self._texts = TextCache(limits.text_bytes)
        self._shapes = shapes
        self._stemmers = stemmers
        self._language = language
        self._limits = limits

    @property
    def is_full(self) -> bool:
        """Whether the cache is full: further pieces are not cached."""
        return max(len(self), len(self.by_token)) >= self._limits.pieces

    @property
    def text_bytes(self) -> int:
        """The memory of the cached texts, approximately, in bytes."""
        return self._texts.bytes

    @property
    def texts(self) -> TextCache:
        """The cached texts. Replaced by an empty cache once its pieces exceed a limit."""
        texts = self._texts
        if len(texts.pieces) > self._limits.pieces or texts.piece_bytes > self._limits.text_bytes:
            self._texts = TextCache(self._limits.text_bytes)
        return self._texts

    def __missing__(self, piece: str) -> str:
        tokens = self._plain_word(piece) or " ".join(self._tokens(piece))
        if len(piece) <= self._limits.chars and not self.is_full:
            distinct: Collection[str] = tokens.split()
            if len(distinct) > 1:
                distinct = set(distinct)
            most = max((len(self.by_token.get(token, ())) for token in distinct), default=0)
            if len(distinct) > self._limits.tokens or most >= self._limits.pieces_by_token:
                self.unlisted.add(piece)
            else:
                for token in distinct:
                    self.by_token.setdefault(token, []).append(piece)
            self[piece] = tokens
        return tokens

    def add(self, pieces: Iterable[str]) -> dict[str, str]:
        """Cache pieces until the cache is full. Return the tokens of those pieces that are not in `by_token`."""
        distinct = set(pieces)
        missing = {piece: self[piece] for piece in itertools.filterfalse(self.__contains__, distinct)}
        unlisted = {piece: tokens for piece, tokens in missing.items() if tokens and piece not in self}
        return unlisted | {piece: self[piece] for piece in self.unlisted.intersection(distinct)}

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
