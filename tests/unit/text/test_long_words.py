"""A word longer than a chunk is found by its beginning, given in full or in part."""

import hashlib
import itertools
import random
import string

import pytest

from memoryd_server.chunk.markdown import chunk_markdown
from memoryd_server.text.analyzer import Analyzer
from memoryd_server.text.stemming import LONGEST_WORD
from memoryd_server.text.terms import TermKind

TOKENS, OVERLAP = 400, 80
MOST_QUERY_BYTES = 4_096


def drawn(alphabet, length, seed=0):
    return "".join(random.Random(seed).choices(alphabet, k=length))


HEX = "".join(hashlib.sha512(bytes([number])).hexdigest() for number in range(60))
LETTERS = drawn(string.ascii_lowercase, 3_000)
URL_SAFE = drawn(string.ascii_letters + string.digits, 3_000)
PATHS = "/".join(drawn(string.ascii_lowercase, 9, seed) for seed in range(300))

WORDS = {
    "hex": HEX[:4_000],
    "letters": LETTERS,
    "capitals": LETTERS.upper(),
    "mixed case": URL_SAFE,
    "few humps": "".join(part.capitalize() for part in itertools.repeat(LETTERS[:300], 6)),
    "one hump after a chunk's end": LETTERS[:1_800] + LETTERS[1_800:2_400].capitalize(),
    "base64": drawn(string.ascii_letters + string.digits + "+/", 3_000) + "==",
    "token of three parts": ".".join(drawn(string.ascii_letters + string.digits, 1_000, seed) for seed in range(3)),
    "URL of many parts": f"https://example.org/{PATHS}",
    "URL with a long value": f"https://example.org/a/b?signature={URL_SAFE[:2_500]}&x=1",
    "Cyrillic": drawn("абвгдежзиклмн", 2_000),
    "Greek with accents": drawn("αβγδέήίό", 2_000),
    "sharp s": "straße" * 300,
    "combining": "q\u0307\u0323" * 600,
    "beyond the first plane": drawn("𝒜𐐀𐐁𐐂", 1_000),
    "shorter than a chunk": HEX[:1_500],
}


@pytest.fixture(scope="module")
def analyzer():
    return Analyzer()


def check_found(analyzer, text, query, language=""):
    """Some chunk of `text` holds a word that the query cannot do without, and that no other text would have."""
    assert len(query.encode()) <= MOST_QUERY_BYTES
    wanted = {
        term.text
        for term in analyzer.query_terms(query, (language,) if language else ())
        if term.kind is TermKind.WORD and len(term.text) > 4
    }
    chunks = chunk_markdown(text, TOKENS, OVERLAP)
    held = [wanted & set(analyzer.index_tokens(chunk.text, language).split()) for chunk in chunks]
    assert any(held), f"none of {len(wanted)} terms is in any of {len(chunks)} chunks"


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("before", [0, 3, 700, 1_400, 1_590])
def test_a_long_word_is_found_at_any_position(analyzer, word, before):
    prose = ("lorem ipsum " * 200)[:before]
    for text in (f"{prose.strip()} {word} dolor sit amet", f"# Notes\n\n{prose.strip()}\n{word}\n\ndolor sit amet"):
        check_found(analyzer, text, word)


def test_in_a_dense_script_it_is_found_where_a_line_begins_with_it(analyzer):
    """Elsewhere the chunker may cut such a line anywhere."""
    word = drawn("가나다라마바사", 1_300)
    check_found(analyzer, f"# Notes\n\n{word} dolor", word)


@pytest.mark.parametrize("language", ["", "de", "ru", "tr", "vi", "hu"])
def test_the_language_of_its_note_makes_no_difference(analyzer, language):
    for word in (LETTERS, WORDS["Cyrillic"], HEX[:2_000]):
        check_found(analyzer, word, word, language)


def test_its_beginning_is_enough(analyzer):
    check_found(analyzer, HEX, HEX[:MOST_QUERY_BYTES])
    check_found(analyzer, HEX, HEX[:LONGEST_WORD])
    check_found(analyzer, HEX, HEX[: LONGEST_WORD + 1])


def test_long_words_that_begin_otherwise_are_distinguished(analyzer):
    other = HEX[LONGEST_WORD // 2 :]
    assert not set(analyzer.index_tokens(HEX[:3_000]).split()) & set(analyzer.index_tokens(other).split())


def test_a_word_of_the_longest_length_is_whole_and_stemmed(analyzer):
    word = LETTERS[: LONGEST_WORD - 3] + "ing"
    assert analyzer.index_tokens(word) == LETTERS[: LONGEST_WORD - 3]
    assert analyzer.index_tokens(word + "s") == (word + "s")[:LONGEST_WORD]
    assert analyzer.index_tokens(HEX[:LONGEST_WORD]) == HEX[:LONGEST_WORD]


def test_case_and_accents_make_no_difference_to_a_long_word(analyzer):
    assert analyzer.index_tokens(LETTERS) == analyzer.index_tokens(LETTERS.upper())
    assert analyzer.index_tokens("ß" * LONGEST_WORD) == analyzer.index_tokens("SS" * LONGEST_WORD)
    assert analyzer.index_tokens("é" * 500) == analyzer.index_tokens("E\u0301" * 500) == "e" * LONGEST_WORD


def test_the_part_of_a_text_where_a_long_word_begins_is_known_to_hold_it(analyzer):
    (term,) = [term.text for term in analyzer.query_terms(LETTERS)]
    finder = analyzer.finder([term], [])
    assert finder(f"see {LETTERS} there") == [term]
    assert finder.in_part(f"see {LETTERS[:150]}") == [term]
    assert finder.in_part(f"{LETTERS[150:300]} there") == []
