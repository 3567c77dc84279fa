"""WordFinder: finds the words of a query in many texts."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memoryd_server.text.pieces import PieceCache, lines_of, pieces_of
from memoryd_server.text.stemming import LONGEST_WORD


@dataclass(frozen=True, slots=True)
class LineMatches:
    """The wanted words of each line that has any, with repetitions, by the number of the line, from 0.

    `line_ends` has the offset in the text after each line and its line feed.
    """

    words: Mapping[int, Sequence[str]]
    line_ends: Sequence[int]


class WordFinder:
    """Finds the wanted words in many texts: those in `words`, and those that begin with one of `prefixes`.

    Words are tokens as in the index: stemmed. Each piece of text is analyzed once, however often it occurs.
    """

    def __init__(self, cache: PieceCache, words: frozenset[str], prefixes: tuple[str, ...]) -> None:
        self._cache = cache
        self._words = words
        self._prefixes = prefixes
        self._wanted: set[str] = set()
        self._cache_size = 0
        self._prefixed: set[str] = set()
        self._tokens_seen = 0
        self._found: dict[str, list[str]] = {}
        # The starts of pieces with wanted words: a part of a text may contain only the start of a long word.
        self._piece_starts: list[str] = []

    def __call__(self, text: str) -> list[str]:
        """Return the wanted words of `text` in order, with repetitions."""
        pieces = pieces_of(text)
        self._find(self._cache.add(pieces))
        wanted = self._wanted
        return [word for piece in pieces if piece in wanted for word in self._words_in(piece)]

    def lines(self, texts: Sequence[str]) -> list[LineMatches]:
        """Return the wanted words of each line of these texts, in the order of the texts."""
        known, read = self._cache.texts, []
        for text in texts:
            pieces = known.get(text)
            if pieces is None:
                lines = lines_of(text)
                pieces = known.add(text, lines, self._cache.add(itertools.chain.from_iterable(lines)))
            read.append(pieces)
        if not read:
            return []
        for pieces in read:
            self._find(pieces.unlisted)
        wanted = [known.numbers[piece] for piece in self._wanted if piece in known.numbers]
        is_wanted = np.zeros(len(known.pieces), np.bool_)
        is_wanted[wanted] = True
        numbers = np.concatenate([pieces.numbers for pieces in read])
        places = np.flatnonzero(is_wanted[numbers])
        # Places and lines are counted through all texts. The line of a place is the first one that ends after it.
        ends = np.concatenate([pieces.pieces_by_line for pieces in read]).cumsum()
        found: list[dict[int, list[str]]] = [{} for _ in read]
        at, first_line, next_text = 0, 0, len(read[0].pieces_by_line)
        for line, number in zip(ends.searchsorted(places, "right").tolist(), numbers[places].tolist(), strict=True):
            while line >= next_text:
                at, first_line = at + 1, next_text
                next_text += len(read[at].pieces_by_line)
            words = self._words_in(known.pieces[number])
            in_text, line_of_text = found[at], line - first_line
            if line_of_text in in_text:
                in_text[line_of_text] += words
            else:
                in_text[line_of_text] = [*words]
        return [LineMatches(words, pieces.line_ends) for words, pieces in zip(found, read, strict=True)]

    def in_part(self, text: str) -> list[str]:
        """Return the wanted words of a part of a text that was searched before. Fast if the part has none."""
        return self(text) if any(map(text.__contains__, self._piece_starts)) else []

    def _find(self, unlisted: Mapping[str, str]) -> None:
        """Add the pieces that have wanted words to `_wanted`: those of these, and all that the cache lists.

        `unlisted` has the tokens of each piece.
        """
        for piece, tokens in unlisted.items():
            if self._words_in(piece, tokens):
                self._wanted.add(piece)
        # The sizes differ in the first call, and after pieces were added to the cache.
        size = len(self._cache)
        if size != self._cache_size:
            self._cache_size = size
            for token in self._wanted_tokens():
                self._wanted.update(self._cache.by_token.get(token, ()))

    def _wanted_tokens(self) -> Collection[str]:
        if self._prefixes:
            # Tokens are never removed, so the new ones are at the end.
            tokens = list(self._cache.by_token)
            new = itertools.islice(tokens, self._tokens_seen, None)
            self._prefixed.update(token for token in new if token.startswith(self._prefixes))
            self._tokens_seen = len(tokens)
        return self._words | self._prefixed

    def _words_in(self, piece: str, tokens: str | None = None) -> list[str]:
        """Return the wanted words of a piece; `tokens` are its tokens, None if they are not known yet."""
        found = self._found.get(piece)
        if found is None:
            each = (self._cache[piece] if tokens is None else tokens).split()
            found = [token for token in each if token in self._words or token.startswith(self._prefixes)]
            self._found[piece] = found
            if found:
                self._piece_starts.append(piece[:LONGEST_WORD])
        return found
