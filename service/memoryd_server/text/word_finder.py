"""WordFinder: the places in texts where a query's words occur."""

import itertools
from collections.abc import Collection, Iterable, Sequence

from memoryd_server.text.pieces import PieceCache, lines_of, pieces_of
from memoryd_server.text.stemming import LONGEST_WORD


class WordFinder:
    """Finds wanted words in many texts. Each piece of text is analyzed once, however often it occurs."""

    def __init__(self, cache: PieceCache, words: frozenset[str], prefixes: tuple[str, ...]) -> None:
        self._cache = cache
        self._words = words
        self._prefixes = prefixes
        self._wanted: set[str] = set()
        self._cache_size = 0
        self._found: dict[str, list[str]] = {}
        # The beginnings of pieces with wanted words; of a long word, a part of a text may have the beginning only.
        self._beginnings: list[str] = []

    def __call__(self, text: str) -> list[str]:
        """Return the wanted words of `text`, in the index's spelling, as often as they occur."""
        pieces = pieces_of(text)
        self._find(text, [pieces])
        return self._words_of(pieces)

    def by_line(self, text: str) -> dict[int, list[str]]:
        """Return the wanted words of each line that has any, as often as they occur, by the line's number from 0."""
        lines = lines_of(text)
        self._find(text, lines)
        is_without = self._wanted.isdisjoint
        return {number: self._words_of(pieces) for number, pieces in enumerate(lines) if not is_without(pieces)}

    def in_part(self, text: str) -> list[str]:
        """Return the wanted words of a part of a text that was searched before; costs almost nothing if it has none."""
        return self(text) if any(map(text.__contains__, self._beginnings)) else []

    def _words_of(self, pieces: Iterable[str]) -> list[str]:
        wanted = self._wanted
        return [word for piece in pieces if piece in wanted for word in self._words_in(piece)]

    def _find(self, text: str, lines: Sequence[Sequence[str]]) -> None:
        """Add the pieces of `text` that have wanted words to `_wanted`."""
        cache, pieces = self._cache, itertools.chain.from_iterable
        if not cache.has_text(text):
            for piece in list(itertools.filterfalse(cache.__contains__, set(pieces(lines)))):
                self._add_if_wanted(piece)
            cache.add_text(text, pieces(lines))
        if cache.compounds:
            for piece in cache.compounds.intersection(pieces(lines)):
                self._add_if_wanted(piece)
        # Other pieces are found by their tokens. A search in another thread may have added some.
        size = len(cache)
        if size != self._cache_size:
            self._cache_size = size
            for token in self._wanted_tokens():
                self._wanted.update(cache.by_token.get(token, ()))

    def _wanted_tokens(self) -> Collection[str]:
        if not self._prefixes:
            return self._words
        return self._words.union(token for token in list(self._cache.by_token) if token.startswith(self._prefixes))

    def _add_if_wanted(self, piece: str) -> None:
        if self._words_in(piece):
            self._wanted.add(piece)

    def _words_in(self, piece: str) -> list[str]:
        found = self._found.get(piece)
        if found is None:
            tokens = self._cache[piece].split()
            found = [token for token in tokens if token in self._words or token.startswith(self._prefixes)]
            self._found[piece] = found
            if found:
                self._beginnings.append(piece[:LONGEST_WORD])
        return found
