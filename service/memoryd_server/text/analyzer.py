"""The one analyzer of what is indexed and of what is asked."""

import unicodedata
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from memoryd_server.text.languages import detect, stop_words
from memoryd_server.text.stemming import DEFAULT, LONGEST_WORD, STEMMER_VERSION, Stemmers, accented, compatible
from memoryd_server.text.terms import QueryTerm, ScriptRun, ShapeTable, TermKind, cut, index_tokens, query_terms

ANALYZER_VERSION: Final = f"3+unicode{unicodedata.unidata_version}+{STEMMER_VERSION}"
"""Differs whenever the same text may give other tokens, so that the keyword leg must be built anew."""

_CONNECTORS = "._/:@#+-"
_SEPARATORS = bytes(code for code in range(128) if not (chr(code).isalnum() or chr(code) in _CONNECTORS))
# Works on UTF-8 bytes: bytes.translate is fast for any script, str.translate is not.
_TO_SPACES = bytes.maketrans(_SEPARATORS, b" " * len(_SEPARATORS))
_MAX_CACHED_CHARS = 40
_MAX_CACHED_PIECES = 50_000
_MAX_CACHED_SHAPES = 50_000
_MAX_CACHED_ASKED = 5_000
_MAX_CACHED_LANGUAGES = 4

# A language shows in a sample from the beginning, where headings stand, and from the middle, where sentences do.
_SAMPLE_CHARS = 500

# So many words of a question are tried together as names of two to five words.
_MOST_WORDS_JOINED = 24
_MOST_WORDS_IN_A_NAME = 5
# A question of many words is prose, and each guess costs a look into the index.
_FEW_WORDS = 6
_MOST_WORDS_IN_A_NAME_OF_A_LONG_QUESTION = 3


class Analyzer:
    """Turns text into tokens and queries into terms, so that a text is found by any of its own words.

    Holds caches of bounded size that make a second look at a word cheap. May be shared between threads.
    """

    def __init__(self) -> None:
        self._shapes = ShapeTable()
        self._stemmers = Stemmers()
        self._pieces: dict[str, _PieceCache] = {}
        # What a piece of a question asks for, by the languages spoken, and whether everything was wanted.
        self._asked: dict[tuple[str, tuple[str, ...], bool], list[QueryTerm]] = {}

    def index_tokens(self, text: str, language: str = DEFAULT) -> str:
        """Returns the tokens of `text` in order, separated by spaces; `language` is what `language_of` found.

        They are folded and hold no white space, control character or ASCII punctuation but "_", as an FTS5 table with
        `tokenize="ascii tokenchars '_'"` wants them. Any text is accepted.
        """
        return " ".join(filter(None, map(self._cache(language).__getitem__, _pieces(text))))

    def finder(self, words: Collection[str], prefixes: Collection[str], language: str = DEFAULT) -> "WordFinder":
        """Looks for these words, and for words that begin with these prefixes, in texts of one language."""
        return WordFinder(self._cache(language), frozenset(words), tuple(prefixes))

    def query_terms(self, query: str, languages: Collection[str] = ()) -> tuple[QueryTerm, ...]:
        """Returns the terms of `query` in order, each word's once, without stop words unless there is nothing else.

        `languages` are those of the texts to search; the default one is always among them. Words side by side come last
        as guesses at a name. Empty when the query holds no word, for example only punctuation.
        """
        pieces = _pieces(query)
        spoken = tuple(dict.fromkeys((DEFAULT, *languages)))
        terms = self._terms(pieces, spoken)
        dropped = stop_words(map(accented, pieces), languages)
        telling = [term for term in terms if term.original not in dropped]
        if not any(term.kind is not TermKind.WHOLE for term in telling):
            telling = self._terms(pieces, spoken, everything=True)
        return tuple(_words_once((*telling, *_guesses(terms, dropped))))

    def language_of(self, text: str) -> str:
        """Returns the language of Latin script that `text` is written in, empty for English and where none is told.

        Looks at a sample of some two hundred words.
        """
        middle = max(_SAMPLE_CHARS, (len(text) - _SAMPLE_CHARS) // 2)
        return detect(f"{text[:_SAMPLE_CHARS]} {text[middle : middle + _SAMPLE_CHARS]}")

    def _terms(self, pieces: Sequence[str], languages: tuple[str, ...], *, everything: bool = False) -> list[QueryTerm]:
        if len(self._asked) > _MAX_CACHED_ASKED:
            self._asked = {}
        found: list[QueryTerm] = []
        # What is said again asks for nothing new, and one letter may stand for four words (U+FDFA).
        for piece in dict.fromkeys(pieces):
            key = (piece, languages, everything)
            terms = self._asked.get(key)
            if terms is None:
                terms = [
                    term
                    for run in dict.fromkeys(_runs(piece, self._shapes))
                    for term in query_terms(run, self._stemmers, languages, everything=everything)
                ]
                if len(piece) <= _MAX_CACHED_CHARS:
                    self._asked[key] = terms
            found += terms
        return found

    def _cache(self, language: str) -> "_PieceCache":
        cache = self._pieces.get(language)
        if cache is None:
            if len(self._pieces) >= _MAX_CACHED_LANGUAGES:
                self._pieces = {}
            cache = self._pieces[language] = _PieceCache(self._shapes, self._stemmers, language)
        return cache


class _PieceCache(dict[str, str]):
    """The tokens of pieces between white space in texts of one language, by the piece as it stands in the text."""

    def __init__(self, shapes: ShapeTable, stemmers: Stemmers, language: str) -> None:
        super().__init__()
        self._shapes = shapes
        self._stemmers = stemmers
        self._language = language

    def __missing__(self, piece: str) -> str:
        tokens = self._plain_word(piece) or " ".join(self._tokens(piece))
        if len(piece) <= _MAX_CACHED_CHARS:
            if len(self) >= _MAX_CACHED_PIECES:
                self.clear()
            self[piece] = tokens
        return tokens

    def _tokens(self, piece: str) -> Iterator[str]:
        # A piece without spaces may hold the same word thousands of times, and most of all where one letter stands for
        # several words: its stem is made once.
        made: dict[ScriptRun, list[str]] = {}
        for run in _runs(piece, self._shapes):
            tokens = made.get(run)
            if tokens is None:
                tokens = made[run] = index_tokens(run, self._stemmers, self._language)
            yield from tokens

    def _plain_word(self, piece: str) -> str:
        """Returns the token of an English word, perhaps at a sentence's end; empty when it takes more to find out."""
        word = piece.rstrip(_CONNECTORS)
        plain = self._language == DEFAULT and word.isascii() and word.isalpha()
        if plain and (word.islower() or word.istitle() or word.isupper()):
            return self._stemmers.stem_plain(word.lower())
        return ""


class WordFinder:
    """Finds wanted words in many texts: what a piece of text holds is found out once, however often it occurs."""

    def __init__(self, tokens: "_PieceCache", words: frozenset[str], prefixes: tuple[str, ...]) -> None:
        self._tokens = tokens
        self._words = words
        self._prefixes = prefixes
        self._seen: set[str] = set()
        self._held: dict[str, list[str]] = {}
        # A long word may stand in a part with its beginning alone.
        self._signs: list[str] = []

    def __call__(self, text: str) -> list[str]:
        """The wanted words of `text`, in the spelling of the index, as often as they stand there."""
        pieces = _pieces(text)
        self._look_at(set(pieces) - self._seen)
        held = self._held
        return [word for piece in pieces if piece in held for word in held[piece]]

    def in_part(self, text: str) -> list[str]:
        """The same for a part of a text that was looked at before, at next to no cost where the part holds none."""
        return self(text) if any(map(text.__contains__, self._signs)) else []

    def _look_at(self, pieces: set[str]) -> None:
        words, prefixes = self._words, self._prefixes
        for piece, tokens in zip(pieces, map(self._tokens.__getitem__, pieces), strict=True):
            if tokens in words or " " in tokens or tokens.startswith(prefixes):
                held = [token for token in tokens.split() if token in words or token.startswith(prefixes)]
                if held:
                    self._held[piece] = held
                    self._signs.append(piece[:LONGEST_WORD])
        self._seen |= pieces


def _pieces(text: str) -> list[str]:
    return text.encode("utf-8", "replace").translate(_TO_SPACES).decode("utf-8").split()


def _runs(piece: str, shapes: ShapeTable) -> Iterator[ScriptRun]:
    if len(shapes) > _MAX_CACHED_SHAPES:
        shapes.clear()
    return iter(cut(compatible(piece), shapes))


def _words_once(terms: Sequence[QueryTerm]) -> Iterator[QueryTerm]:
    """The terms without those of words that ask for nothing new. Two words may share a stem, where one has another."""
    words: dict[str, dict[QueryTerm, None]] = {}
    for term in terms:
        words.setdefault(term.original, {})[term] = None
    seen: set[QueryTerm] = set()
    for group in words.values():
        if not seen.issuperset(group):
            seen.update(group)
            yield from group


def _guesses(terms: Sequence[QueryTerm], dropped: Collection[str]) -> Iterator[QueryTerm]:
    """Words side by side as names: `vector search` may mean `vector_search`.

    In a question of few words a stop word may begin or end a name (`is active`), in prose it does not.
    """
    words = list(dict.fromkeys(term.original for term in terms if term.kind is TermKind.WORD))[:_MOST_WORDS_JOINED]
    short = len(words) <= _FEW_WORDS
    most = _MOST_WORDS_IN_A_NAME if short else _MOST_WORDS_IN_A_NAME_OF_A_LONG_QUESTION
    for start in range(len(words)):
        for end in range(start + 2, min(start + most, len(words)) + 1):
            telling = [word not in dropped for word in words[start:end]]
            if any(telling) if short else telling[0] and telling[-1]:
                name = "_".join(words[start:end])
                yield QueryTerm(name, kind=TermKind.GUESS, original=name)
