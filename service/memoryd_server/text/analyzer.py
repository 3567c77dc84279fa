"""Analyzer: the same tokens for indexed text and for queries."""

import threading
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from memoryd_server.text.languages import detect, stop_words
from memoryd_server.text.pieces import CacheLimits, CacheSizes, PieceCache, pieces_of, runs_of
from memoryd_server.text.stemming import DEFAULT, STEMMER_VERSION, Stemmers, accented
from memoryd_server.text.terms import QueryTerm, ShapeTable, TermKind, query_terms
from memoryd_server.text.word_finder import WordFinder

ANALYZER_VERSION: Final = f"3+unicode{unicodedata.unidata_version}+{STEMMER_VERSION}"
"""Differs if the same text may give other tokens, which requires the keyword index to be rebuilt."""

_MAX_CACHED_QUERY_PIECES = 5_000
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


_WORD_KINDS = frozenset({TermKind.WORD, TermKind.GRAM, TermKind.WHOLE})


class Analyzer:
    """Turns text into tokens and queries into terms, so that a text is found by any of its own words.

    Caches the results for words, in bounded memory. May be shared between threads.
    """

    def __init__(self, limits: CacheLimits | None = None) -> None:
        self._limits = limits or CacheLimits()
        self._shapes = ShapeTable()
        self._stemmers = Stemmers()
        self._pieces: dict[str, PieceCache] = {}
        self._lock = threading.Lock()
        # The terms of a piece of a query, by the piece, the languages, and `everything`.
        self._query_pieces: dict[tuple[str, tuple[str, ...], bool], list[QueryTerm]] = {}
        # The terms of a query, by its text and the languages. A search may need them twice, and queries are repeated.
        self._queries: dict[tuple[str, tuple[str, ...]], tuple[QueryTerm, ...]] = {}

    def index_tokens(self, text: str, language: str = DEFAULT) -> str:
        """Return the tokens of `text` in order, separated by spaces; `language` is what `language_of` returned.

        Tokens are folded and have no white space, control character or ASCII punctuation except "_", as an FTS5 table
        with `tokenize="ascii tokenchars '_'"` requires. Any text is accepted.
        """
        return " ".join(filter(None, map(self._cache(language).__getitem__, pieces_of(text))))

    def finder(self, words: Collection[str], prefixes: Collection[str], language: str = DEFAULT) -> WordFinder:
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
        dropped = stop_words(map(accented, pieces_of(query)), languages)
        words = (term.original or term.text for term in self.query_terms(query, languages) if term.kind in _WORD_KINDS)
        return tuple(dict.fromkeys(word for word in words if word not in dropped))

    def _analyze_query(self, query: str, languages: Collection[str]) -> tuple[QueryTerm, ...]:
        pieces = pieces_of(query)
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
                    for run in dict.fromkeys(runs_of(piece, self._shapes))
                    for term in query_terms(run, self._stemmers, languages, everything=everything)
                ]
                if len(piece) <= self._limits.chars:
                    self._query_pieces[key] = terms
            all_terms += terms
        return all_terms

    def _cache(self, language: str) -> PieceCache:
        cache = self._pieces.get(language)
        if cache is None or cache.is_full:
            # A full cache is replaced and not cleared: a search in another thread may be using it.
            cache = PieceCache(self._shapes, self._stemmers, language, self._limits)
            with self._lock:
                self._pieces.pop(language, None)
                self._pieces[language] = cache
        if len(self._pieces) > 1 and self.cache_sizes.exceed(self._limits):
            self._drop_oldest(language)
        return cache

    @property
    def cache_sizes(self) -> CacheSizes:
        """The sizes of the caches of all languages."""
        caches = list(self._pieces.values())
        return CacheSizes(len(caches), sum(map(len, caches)), sum(cache.text_bytes for cache in caches))

    def _drop_oldest(self, kept: str) -> None:
        """Drop the caches of other languages than `kept`, those added first, until all are within the limits."""
        with self._lock:
            while self.cache_sizes.exceed(self._limits):
                oldest = next((language for language in self._pieces if language != kept), None)
                if oldest is None:
                    return
                del self._pieces[oldest]


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
