"""Coverage is the share of the query's words that a hit contains; only a threshold withholds an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.search.coverage import (
    alternatives,
    coverage,
    hybrid_confidence,
    keyword_confidence,
    known_names,
    names_in,
    smoothed_idf,
    weights,
)
from memoryd_server.search.cutoff import CosineScale
from memoryd_server.text.analyzer import Analyzer
from memoryd_server.text.terms import QueryTerm, TermKind

ANALYZER = Analyzer()
IDF = {"heron": 3.0, "kestrel": 1.0, "unheard": 6.0}
SHARE = st.floats(0, 1)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_term_weighs_something_and_the_rarer_more(frequency, chunks):
    assert 0 < smoothed_idf(frequency, chunks) <= smoothed_idf(0, chunks)


def test_weights_are_by_term():
    assert weights({"a": 0, "b": 9}, 9) == {"a": smoothed_idf(0, 9), "b": smoothed_idf(9, 9)}


@pytest.mark.parametrize(
    ("found", "share"),
    [
        ({"heron", "kestrel", "unheard"}, 1.0),
        ({"heron"}, 0.3),
        ({"kestrel", "other"}, 0.1),
        (set(), 0.0),
    ],
)
def test_a_word_that_the_index_has_never_seen_counts_in_full(found, share):
    assert coverage(found, IDF) == pytest.approx(share)


def test_of_a_words_stems_one_is_enough_and_the_commonest_weighs():
    words = [("heron", "unheard"), ("kestrel",)]
    assert coverage({"heron"}, IDF, words) == pytest.approx(0.75)
    assert coverage({"unheard", "heron"}, IDF, words) == pytest.approx(0.75)
    assert coverage({"kestrel"}, IDF, words) == pytest.approx(0.25)


def test_a_query_without_words_is_not_covered():
    assert coverage({"heron"}, {}) == 0.0
    assert coverage({"heron"}, IDF, []) == 0.0
    assert coverage({"heron"}, IDF, [()]) == 0.0


@given(st.sets(st.sampled_from(["heron", "kestrel", "unheard", "x"])), st.sampled_from(["heron", "kestrel", "unheard"]))
def test_to_hold_more_is_never_less_covered(found, more):
    assert 0.0 <= coverage(found, IDF) <= coverage(found | {more}, IDF) <= 1.0


def test_names_in_one_piece_and_guesses_are_not_needed():
    terms = [
        QueryTerm("casas", original="casas"),
        QueryTerm("cas", original="casas"),
        QueryTerm("foo_bar", kind=TermKind.WHOLE, original="foo_bar"),
        QueryTerm("casas_bar", kind=TermKind.GUESS, original="casas_bar"),
        QueryTerm("鹭鸟", kind=TermKind.GRAM, original="鹭鸟"),
        QueryTerm("plain"),
    ]
    assert alternatives(terms) == [("casas", "cas"), ("鹭鸟",), ("plain",)]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("When did Melanie paint?", ["Melanie"]),
        ("Melanie painted", []),
        ("Did it rain? Melanie painted. With Jo-Ann's brush, at the D.C. zoo", ["Jo-Ann's", "D.C"]),
        ("“Where” said Éloïse", ["Éloïse"]),
        ("who is maria", []),
        ("in ABC9931 and iPhone", ["ABC9931"]),
        ("今天 Maria", ["Maria"]),
        ("...  Now, Then", ["Then"]),
        ("one\nTwo Three", ["Three"]),
        ("", []),
    ],
)
def test_names_are_capitalised_where_no_sentence_begins(query, names):
    assert names_in(query) == names


def terms_of(word):
    return [term.text for term in ANALYZER.query_terms(word)]


@pytest.mark.parametrize(
    ("query", "known", "share"),
    [
        ("When did Melanie meet Caroline", ["Melanie", "Caroline"], 1.0),
        ("When did Melanie meet Caroline", ["Melanie", "meet"], 0.5),
        ("When did Melanie meet Caroline", [], 0.0),
        ("when did she paint", [], 1.0),
        ("what does It mean", [], 1.0),
        ("what of Melanie's dog", ["Melanie"], 1.0),
    ],
)
def test_names_count_by_what_the_index_knows_of_them(query, known, share):
    held = {token for word in known for token in terms_of(word)}
    frequencies = {term.text: int(term.text in held) for term in ANALYZER.query_terms(query)}
    assert known_names(query, terms_of, frequencies) == share


@pytest.mark.parametrize(
    ("covered", "names", "confidence"), [(0.5, 1.0, 0.5), (0.5, 0.0, 0.1), (0.5, 0.5, 0.3), (0.0, 1.0, 0.0)]
)
def test_an_unknown_name_takes_most_of_the_confidence(covered, names, confidence):
    assert keyword_confidence(covered, names) == pytest.approx(confidence)


@given(SHARE, SHARE)
def test_more_coverage_and_more_known_names_never_lower_the_confidence(covered, names):
    confidence = keyword_confidence(covered, names)
    assert 0 <= confidence <= min(keyword_confidence(1.0, names), keyword_confidence(covered, 1.0))


COSINES = st.floats(-1, 1)


@given(SHARE, COSINES, COSINES)
def test_more_coverage_and_a_nearer_chunk_never_lower_the_confidence_of_both_retrievers(keyword, one, other):
    scale = CosineScale(0.06, 0.22)
    low, high = (hybrid_confidence(keyword, cosine, scale) for cosine in sorted((one, other)))
    assert 0 < low <= high < 1
    assert high <= hybrid_confidence(1.0, max(one, other), scale)


def test_a_scale_without_extent_gives_no_confidence():
    assert hybrid_confidence(0.5, 0.9, CosineScale(0.3, 0.3)) is None
    assert hybrid_confidence(0.5, 0.9, CosineScale(0.72, 0.74)) is not None


@given(st.text())
def test_any_query_has_names_or_none(query):
    assert 0.0 <= known_names(query, terms_of, {}) <= 1.0
    assert all(name in query for name in names_in(query))
