"""Forms of a word find each other, in the language of the text, and names are not stemmed."""

# ruff: noqa: RUF001 -- letters that look like others are what is tested

import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memoryd_server.text.analyzer import Analyzer
from memoryd_server.text.stemming import Stemmers
from memoryd_server.text.terms import TermKind

LANGUAGES = (
    "",
    "ca",
    "cs",
    "da",
    "de",
    "es",
    "fi",
    "fr",
    "hu",
    "id",
    "it",
    "nl",
    "no",
    "pl",
    "pt",
    "ro",
    "sv",
    "tr",
    "vi",
)


@pytest.fixture(scope="module")
def analyzer():
    return Analyzer()


def check(analyzer, language, one, other):
    """That a text with one form is found by a question with the other."""
    tokens = analyzer.index_tokens(one, language).split()
    assert {term.text for term in analyzer.query_terms(other, (language,))} & set(tokens), (tokens, other)


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("", "running", "runs"),
        ("", "libraries", "Library"),
        ("", "зелёного", "зеленый"),
        ("", "книгами", "книга"),
        ("", "άνθρωποι", "ανθρωπος"),
        ("", "लड़कियों", "लड़की"),
        ("", "المدرسة", "مدرسة"),
        ("", "GitHubs", "github"),
        ("", "files를", "file"),
        ("de", "Häusern", "Haus"),
        ("de", "Straßen", "Strasse"),
        ("es", "canciones", "cancion"),
        ("fr", "chevaux", "cheval"),
        ("it", "ragazze", "ragazza"),
        ("nl", "boeken", "boek"),
        ("pt", "informações", "informação"),
        ("ro", "copiilor", "copii"),
        ("sv", "fiskarna", "fisk"),
        ("tr", "KIŞIN", "kışın"),
        ("tr", "kitaplarımızda", "kitap"),
        ("vi", "Hà Nội", "ha noi"),
        ("vi", "Hà Nội", "nội"),
    ],
)
def test_a_form_finds_another(analyzer, language, one, other):
    check(analyzer, language, one, other)


@pytest.mark.parametrize("word", ["4f2a9b", "ids7s", "2026", "v2s", "abc123s"])
def test_a_word_with_digits_is_not_stemmed(analyzer, word):
    assert analyzer.index_tokens(word) == word


def test_names_in_one_piece_are_not_stemmed(analyzer):
    assert analyzer.index_tokens("running_tests --verbose") == "run test running_tests verbos _verbose"


def test_vietnamese_words_are_indexed_without_and_with_their_accents(analyzer):
    assert analyzer.index_tokens("mã nguồn", "vi") == "ma mã nguon nguồn"
    assert analyzer.index_tokens("mã nguồn") == "ma nguon"


def test_a_question_asks_for_the_stems_of_each_language_as_one_word(analyzer):
    terms = [term for term in analyzer.query_terms("katten libraries", ("sv", "nl")) if term.kind is TermKind.WORD]
    assert {term.original for term in terms} == {"katten", "libraries"}
    assert {"katten", "katt", "librari"} <= {term.text for term in terms}


@given(st.text(min_size=1, max_size=12).filter(lambda word: not word.isspace()), st.sampled_from(LANGUAGES))
@example("aÀS", "fr")
def test_every_word_of_a_text_finds_it_in_each_language(analyzer, word, language):
    tokens = set(analyzer.index_tokens(word, language).split())
    groups = {}
    for term in analyzer.query_terms(word, (language,)):
        if term.kind is not TermKind.GUESS:
            groups.setdefault(term.original, []).append(term)
    for alternatives in groups.values():
        assert any(any(t.startswith(a.text) if a.prefix else t == a.text for t in tokens) for a in alternatives)


@given(st.text(st.characters(categories=("L", "M")), min_size=1, max_size=12), st.sampled_from(LANGUAGES))
def test_no_stem_is_empty(word, language):
    forms = Stemmers().forms(word, language)
    assert forms
    assert all(forms) or not word.strip("\u0300\u0301")


def test_threads_that_share_an_analyzer_get_the_same_stems():
    words = [
        f"{stem}{ending}" for stem in ("librar", "happ", "connect", "nation") for ending in ("ies", "y", "ing", "al")
    ]
    shared, results = Analyzer(), []

    def work():
        results.append([shared.index_tokens(f"{word} {n}") for n in range(200) for word in words])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fresh = Analyzer()
    assert results == [[fresh.index_tokens(f"{word} {n}") for n in range(200) for word in words]] * 4
