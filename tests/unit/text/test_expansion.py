"""Characters that stand for many: what is done with a text made of them is told by its words, not by their number.

Counted are stems and terms, which take the time, so that a busy machine changes nothing.
"""

import itertools
import tracemalloc

import pytest

from memoryd_server.chunk.markdown import chunk_markdown
from memoryd_server.text.analyzer import Analyzer
from memoryd_server.text.stemming import Stemmers

pytestmark = pytest.mark.attacks

MOST_QUERY_BYTES = 4_096
LANGUAGES = ("de", "fr", "tr", "vi", "es")
PLAIN = " ".join("".join(letters) for letters in itertools.product("bdfklmnprst", "aeiou", "bdfklmnprst"))
TEXTS = {
    "four words": "\ufdfa",
    "four words, joined": "\ufdfa-",
    "four words, apart": "\ufdfa ",
    "four words and a digit": "".join(f"\ufdfa{number % 10}" for number in range(2_000)),
    "two words": "\ufdfb",
    "Arabic ligatures": "".join(map(chr, range(0xFB50, 0xFDFC))),
    "three letters": "\ufb03",
    "six kana": "\u3316",
    "every square of kana": "".join(map(chr, range(0x3300, 0x3358))),
    "company": "\u337f",
    "flags": "\U0001f1e6",
    "marks": "a" + "\u0301\u0316" * 2_000,
    "jamo": "\u1100\u1161\u11a8",
    "lone jamo": "\u1100",
    "joined people": "👩\u200d",
    "letters and joiners": "a\u200d",
    "Thai vowels": "\u0e33",
    "letters of mathematics": "\U0001d400",
    "grows when lower-cased": "\u0130",
    "grows when folded": "\u0390\u1fb7\ufb17",
}
# How often one word's stems may be made: as a word, and as a part of names.
MOST_TIMES_A_WORD = 4
MOST_TIMES_PLAIN_TERMS = 3
MOST_TIMES_PLAIN_MEMORY = 8


def filled(piece, size=MOST_QUERY_BYTES):
    text = piece * (size // len(piece.encode()) + 1)
    return text.encode()[:size].decode(errors="ignore")


@pytest.fixture
def stemmed(monkeypatch):
    """Each word that was stemmed with its language, as often as it was."""
    made = []
    forms = Stemmers.forms

    def counted(self, word, language):
        made.append((word, language))
        return forms(self, word, language)

    monkeypatch.setattr(Stemmers, "forms", counted)
    return made


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_question_asks_for_each_of_its_words_once(stemmed, text):
    terms = Analyzer().query_terms(filled(text), LANGUAGES)
    assert len(stemmed) <= MOST_TIMES_A_WORD * len(set(stemmed))
    assert len(terms) == len(set(terms))
    plain = Analyzer().query_terms(filled(PLAIN + " "), LANGUAGES)
    assert len(terms) <= MOST_TIMES_PLAIN_TERMS * len(plain)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_file_has_each_of_its_words_stemmed_once_a_chunk(stemmed, text):
    analyzer = Analyzer()
    for chunk in chunk_markdown(filled(text, 32 * 1024), 400, 80):
        stemmed.clear()
        analyzer.index_tokens(chunk.text)
        assert len(stemmed) <= MOST_TIMES_A_WORD * len(set(stemmed))


def held_after(questions):
    """Bytes that an analyzer holds after these questions."""
    analyzer = Analyzer()
    tracemalloc.start()
    try:
        for question in questions:
            analyzer.query_terms(question, LANGUAGES)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_expanding_characters_are_cached_in_about_the_memory_of_plain_queries():
    pieces = [f"{number:04}" for number in range(400)]
    plain = held_after(f"{piece}/lorem/ipsum/dolor/sit-amet" for piece in pieces)
    assert held_after(piece + "\ufdfa" * 36 for piece in pieces) < MOST_TIMES_PLAIN_MEMORY * plain


def test_a_word_said_a_thousand_times_ranks_and_shows_as_one():
    analyzer = Analyzer()
    assert analyzer.query_terms("\ufdfa" * 1_000) == analyzer.query_terms("\ufdfa" * 2)
    assert analyzer.query_terms("heron " * 500) == analyzer.query_terms("heron")
    # An index holds every place, as BM25 counts them.
    assert analyzer.index_tokens("heron-" * 20 + "heron").split() == ["heron"] * 21
    assert len(analyzer.index_tokens("\ufdfa" * 10).split()) == 4 + 9 * 3
