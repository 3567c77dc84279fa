"""Analyzer: the same tokens for indexed text and for queries."""

import itertools
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from memoryd_server.text.languages import detect, stop_words
from memoryd_server.text.stemming import DEFAULT, LONGEST_WORD, STEMMER_VERSION, Stemmers, accented, compatible
from memoryd_server.text.terms import QueryTerm, ScriptRun, ShapeTable, TermKind, cut, index_tokens, query_terms

ANALYZER_VERSION: Final = f"3+unicode{unicodedata.unidata_version}+{STEMMER_VERSION}"
"""Differs if the same text may give other tokens, which requires the keyword index to be rebuilt."""

_CONNECTORS = "._/:@#+-"
_SEPARATORS = bytes(code for code in range(128) if not (chr(code).isalnum() or chr(code) in _CONNECTORS))
# Works on UTF-8 bytes: bytes.translate is fast for any script, str.translate is not.
_TO_SPACES = bytes.maketrans(_SEPARATORS, b" " * len(_SEPARATORS))
_WITHIN_LINES = _SEPARATORS.replace(b"\n", b"")
_TO_SPACES_WITHIN_LINES = bytes.maketrans(_WITHIN_LINES, b" " * len(_WITHIN_LINES))


_MAX_CACHED_SHAPES = 50_000
_MAX_CACHED_QUERY_PIECES = 5_000
_MAX_CACHED_LANGUAGES = 4
_MAX_CACHED_QUERIES = 500
_MAX_CACHED_QUERY_CHARS = 500

# The language is detected in a sample from the beginning, which may have headings, and one from the middle, which has
# sentences.
_SAMPLE_CHARS = 500

# The words of a query that are combined into guessed names of two to five words.
_MAX_GUESSED_WORDS = 24
_MAX_NAME_WORDS = 5
# A query of more words is prose. Each guess costs a lookup in the index, so its guessed names are shorter.
_SHORT_QUERY_WORDS = 6
_MAX_NAME_WORDS_IN_PROSE = 3


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The most pieces, distinct tokens and texts cached per language, and the most characters of a cached piece.

    `pieces` also limits the tokens. A search analyzes the texts of twenty chunks, so the pieces of a large memory
    should fit: about 30 MB per language, and 12 MB for the texts. A piece is not listed by its tokens if it has more
    than `tokens`, or if `pieces_by_token` others have the same one.
    """

    pieces: int = 100_000
    texts: int = 200_000
    chars: int = 40
    tokens: int = 8
    pieces_by_token: int = 500


_WORD_KINDS = frozenset({TermKind.WORD, TermKind.GRAM, TermKind.WHOLE})


class Analyzer:
    """Turns text into tokens and queries into terms, so that a text is found by any of its own words.

    Caches the results for words, in bounded memory. May be shared between threads.
    """

    def __init__(self, limits: CacheLimits | None = None) -> None:
        self._limits = limits or CacheLimits()
        self._shapes = ShapeTable()
        self._stemmers = Stemmers()
        self._pieces: dict[str, _PieceCache] = {}
        # The terms of a piece of a query, by the piece, the languages, and `everything`.
        self._query_pieces: dict[tuple[str, tuple[str, ...], bool], list[QueryTerm]] = {}
        # The terms of a query, by its text and the languages. A search may need them twice, and queries are repeated.
        self._queries: dict[tuple[str, tuple[str, ...]], tuple[QueryTerm, ...]] = {}

    def index_tokens(self, text: str, language: str = DEFAULT) -> str:
        """Return the tokens of `text` in order, separated by spaces; `language` is what `language_of` returned.

        Tokens are folded and have no white space, control character or ASCII punctuation except "_", as an FTS5 table
        with `tokenize="ascii tokenchars '_'"` requires. Any text is accepted.
        """
        cache, pieces = self._cache(language), _pieces(text)
        tokens = " ".join(filter(None, map(cache.__getitem__, pieces)))
        cache.add_text(text, pieces)
        return tokens

    def finder(self, words: Collection[str], prefixes: Collection[str], language: str = DEFAULT) -> "WordFinder":
        """Return a finder of these words, and of words that begin with these prefixes, in texts of one language."""
        return WordFinder(self._cache(language), frozenset(words), tuple(prefixes))

    def query_terms(self, query: str, languages: Collection[str] = ()) -> tuple[QueryTerm, ...]:
        """Return the terms of `query` in order, each word's once, without stop words unless there are no other words.

        `languages` are those of the texts to search; the default language is always included. Neighbouring words are
        added at the end as guessed names. Empty if the query has no word, for example only punctuation.
        """
        key = (query, tuple(languages))
        terms = self._queries.get(key)
        if terms is None:
            terms = self._analyze_query(query, languages)
            if len(query) <= _MAX_CACHED_QUERY_CHARS:
                if len(self._queries) >= _MAX_CACHED_QUERIES:
                    self._queries = {}
                self._queries[key] = terms
        return terms

    def content_words(self, query: str, languages: Collection[str] = ()) -> tuple[str, ...]:
        """Return the words of `query`, each once, without case and accents, that are not stop words of these languages.

        A word of a script without spaces is divided as in the index.
        """
        dropped = stop_words(map(accented, _pieces(query)), languages)
        words = (term.original or term.text for term in self.query_terms(query, languages) if term.kind in _WORD_KINDS)
        return tuple(dict.fromkeys(word for word in words if word not in dropped))

    def _analyze_query(self, query: str, languages: Collection[str]) -> tuple[QueryTerm, ...]:
        pieces = _pieces(query)
        all_languages = tuple(dict.fromkeys((DEFAULT, *languages)))
        terms = self._terms(pieces, all_languages)
        dropped = stop_words(map(accented, pieces), languages)
        kept = [term for term in terms if term.original not in dropped]
        if not any(term.kind is not TermKind.WHOLE for term in kept):
            kept = self._terms(pieces, all_languages, everything=True)
        return tuple(_words_once((*kept, *_guesses(terms, dropped))))

    def language_of(self, text: str) -> str:
        """Return the language of a text in Latin script; empty for English and if none is detected.

        Looks at a sample of some two hundred words.
        """
        middle = max(_SAMPLE_CHARS, (len(text) - _SAMPLE_CHARS) // 2)
        return detect(f"{text[:_SAMPLE_CHARS]} {text[middle : middle + _SAMPLE_CHARS]}")

    def _terms(self, pieces: Sequence[str], languages: tuple[str, ...], *, everything: bool = False) -> list[QueryTerm]:
        if len(self._query_pieces) > _MAX_CACHED_QUERY_PIECES:
            self._query_pieces = {}
        all_terms: list[QueryTerm] = []
        # A repeated piece adds no term. A piece can hold a word many times: U+FDFA alone decomposes into four words.
        for piece in dict.fromkeys(pieces):
            key = (piece, languages, everything)
            terms = self._query_pieces.get(key)
            if terms is None:
                terms = [
                    term
                    for run in dict.fromkeys(_runs(piece, self._shapes))
                    for term in query_terms(run, self._stemmers, languages, everything=everything)
                ]
                if len(piece) <= self._limits.chars:
                    self._query_pieces[key] = terms
            all_terms += terms
        return all_terms

    def _cache(self, language: str) -> "_PieceCache":
        cache = self._pieces.get(language)
        if cache is None or cache.is_full:
            if cache is None and len(self._pieces) >= _MAX_CACHED_LANGUAGES:
                self._pieces = {}
            # A full cache is replaced and not cleared: a search in another thread may be using it.
            cache = self._pieces[language] = _PieceCache(self._shapes, self._stemmers, language, self._limits)
        return cache


class _PieceCache(dict[str, str]):
    """The tokens of pieces of texts in one language, and the texts of which all pieces are cached.

    `by_token` has the pieces that have a token, except those in `unlisted`, which have many tokens or a token of many
    pieces. Entries are never removed. A piece is added to `by_token` or `unlisted` first, so another thread that finds
    it here finds it there.
    """

    def __init__(self, shapes: ShapeTable, stemmers: Stemmers, language: str, limits: CacheLimits) -> None:
        super().__init__()
        self.by_token: dict[str, list[str]] = {}
        self.unlisted: set[str] = set()
        self._texts: set[int] = set()
        self._shapes = shapes
        self._stemmers = stemmers
        self._language = language
        self._limits = limits

    @property
    def is_full(self) -> bool:
        """Whether nothing more is cached."""
        return max(len(self), len(self.by_token)) >= self._limits.pieces

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

    def add_text(self, text: str, pieces: Iterable[str]) -> None:
        """Store that all pieces of a text are cached, unless one is too long or the cache is full."""
        is_short = max(map(len, pieces), default=0) <= self._limits.chars
        if is_short and not self.is_full:
            if len(self._texts) >= self._limits.texts:
                self._texts = set()
            self._texts.add(hash(text))

    def has_text(self, text: str) -> bool:
        """Return whether all pieces of a text are cached."""
        return hash(text) in self._texts

    def _tokens(self, piece: str) -> Iterator[str]:
        # A piece may hold the same word thousands of times, so each word is stemmed once.
        known: dict[ScriptRun, list[str]] = {}
        for run in _runs(piece, self._shapes):
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


class WordFinder:
    """Finds wanted words in many texts. Each piece of text is analyzed once, however often it occurs."""

    def __init__(self, cache: _PieceCache, words: frozenset[str], prefixes: tuple[str, ...]) -> None:
        self._cache = cache
        self._words = words
        self._prefixes = prefixes
        self._wanted: set[str] = set()
        self._cache_size = 0
        self._prefixed: set[str] = set()
        self._tokens_seen = 0
        self._found: dict[str, list[str]] = {}
        # The beginnings of pieces with wanted words; of a long word, a part of a text may have the beginning only.
        self._beginnings: list[str] = []

    def __call__(self, text: str) -> list[str]:
        """Return the wanted words of `text`, in the index's spelling, as often as they occur."""
        pieces = _pieces(text)
        self._find(text, [pieces])
        return self._words_of(pieces)

    def by_line(self, text: str) -> dict[int, list[str]]:
        """Return the wanted words of each line that has any, as often as they occur, by the line's number from 0."""
        lines = _lines(text)
        self._find(text, lines)
        self._cache.add_text(text, itertools.chain.from_iterable(lines))
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
            missing = list(itertools.filterfalse(cache.__contains__, set(pieces(lines))))
            self._add_wanted(missing)
            self._cache_size += sum(map(cache.__contains__, missing))
        if cache.unlisted:
            self._add_wanted(cache.unlisted.intersection(pieces(lines)))
        # The others are found by their tokens. The sizes differ in the first text, or if another thread has added some.
        size = len(cache)
        if size != self._cache_size:
            self._cache_size = size
            for token in self._wanted_tokens():
                self._wanted.update(cache.by_token.get(token, ()))

    def _wanted_tokens(self) -> Collection[str]:
        if self._prefixes:
            # Tokens are never removed, so the new ones are at the end.
            tokens = list(self._cache.by_token)
            new = itertools.islice(tokens, self._tokens_seen, None)
            self._prefixed.update(token for token in new if token.startswith(self._prefixes))
            self._tokens_seen = len(tokens)
        return self._words | self._prefixed

    def _add_wanted(self, pieces: Iterable[str]) -> None:
        self._wanted.update(filter(self._words_in, pieces))

    def _words_in(self, piece: str) -> list[str]:
        found = self._found.get(piece)
        if found is None:
            tokens = self._cache[piece].split()
            found = [token for token in tokens if token in self._words or token.startswith(self._prefixes)]
            self._found[piece] = found
            if found:
                self._beginnings.append(piece[:LONGEST_WORD])
        return found


def _pieces(text: str) -> list[str]:
    """Return the pieces of a text in order."""
    return _translated(text, _TO_SPACES).split()


def _lines(text: str) -> list[list[str]]:
    """Return the pieces of each line of a text, empty lines included."""
    return [line.split() for line in _translated(text, _TO_SPACES_WITHIN_LINES).split("\n")]


def _translated(text: str, table: bytes) -> str:
    return text.encode("utf-8", "replace").translate(table).decode("utf-8")


def _runs(piece: str, shapes: ShapeTable) -> Iterator[ScriptRun]:
    """Return the runs of a piece, each in one kind of script, in order."""
    if len(shapes) > _MAX_CACHED_SHAPES:
        shapes.clear()
    return iter(cut(compatible(piece), shapes))


def _words_once(terms: Sequence[QueryTerm]) -> Iterator[QueryTerm]:
    """Yield the terms of each word that adds a new one. Words may share a stem in one language and not in another."""
    words: dict[str, dict[QueryTerm, None]] = {}
    for term in terms:
        words.setdefault(term.original, {})[term] = None
    seen: set[QueryTerm] = set()
    for group in words.values():
        if not seen.issuperset(group):
            seen.update(group)
            yield from group


def _guesses(terms: Sequence[QueryTerm], dropped: Collection[str]) -> Iterator[QueryTerm]:
    """Yield neighbouring words as names: `vector search` may mean `vector_search`.

    In a short query a stop word may begin or end a name (`is active`), in prose it may not.
    """
    words = list(dict.fromkeys(term.original for term in terms if term.kind is TermKind.WORD))[:_MAX_GUESSED_WORDS]
    short = len(words) <= _SHORT_QUERY_WORDS
    most = _MAX_NAME_WORDS if short else _MAX_NAME_WORDS_IN_PROSE
    for start in range(len(words)):
        for end in range(start + 2, min(start + most, len(words)) + 1):
            kept = [word not in dropped for word in words[start:end]]
            if any(kept) if short else kept[0] and kept[-1]:
                name = "_".join(words[start:end])
                yield QueryTerm(name, kind=TermKind.GUESS, original=name)
