"""When the results of a search say something about a turn."""

from dataclasses import replace

import pytest

from memoryd_server.model import Source
from memoryd_server.recall import CONVERSATION_WORDS, LeastConfidence, is_relevant
from memoryd_server.recall.relevance import LEAST_EVIDENCE, LEAST_NEARNESS, LEAST_NEARNESS_TO_QUESTION
from memoryd_server.search import NO_ANSWER, Hit, SearchMode
from memoryd_server.text import Analyzer

LEAST = LeastConfidence(hybrid=0.4, keyword=0.1)
HIT = Hit("memory/a.md", Source.MEMORY, 1, 1, 0.5, "text", 1, 1, 0, words=("crane", "moved"), evidence=0.0)


def relevant(confidence=0.9, *, mode=SearchMode.KEYWORD, nearness=None, least=LEAST, turn=((), False), **fields):
    answer = replace(NO_ANSWER, hits=(replace(HIT, **fields),), served_mode=mode, confidence=confidence)
    names, is_question = turn
    return is_relevant(replace(answer, nearness=nearness), least, frozenset(names), is_question=is_question)


def test_without_results_nothing_is_relevant():
    assert not is_relevant(replace(NO_ANSWER, confidence=1.0), LEAST, frozenset({"crane"}), is_question=True)


@pytest.mark.parametrize(
    ("confidence", "mode", "expected"),
    [
        (0.09, SearchMode.KEYWORD, False),
        (0.1, SearchMode.KEYWORD, True),
        (0.39, SearchMode.HYBRID, False),
        (0.4, SearchMode.HYBRID, True),
        (None, SearchMode.HYBRID, True),
    ],
)
def test_the_bound_of_the_confidence_is_that_of_the_searches_that_ran(confidence, mode, expected):
    assert relevant(confidence, mode=mode, evidence=1.0, evidence_words=2) is expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"evidence": LEAST_EVIDENCE, "evidence_words": 2}, True),
        ({"evidence": LEAST_EVIDENCE - 0.01, "evidence_words": 2}, False),
        ({"evidence": 1.0, "evidence_words": 1}, False),
        ({"evidence": None}, False),
        ({"identifiers": ("booking_cache_ttl",)}, True),
        ({"turn": ({"crane"}, False)}, True),
        ({"turn": ({"ada"}, False)}, False),
        ({"nearness": LEAST_NEARNESS}, True),
        ({"nearness": LEAST_NEARNESS - 0.01}, False),
    ],
)
def test_confidence_is_not_enough_without_evidence(fields, expected):
    assert relevant(**fields) is expected
    assert relevant(None, **fields) is expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"evidence": LEAST_EVIDENCE, "evidence_words": 1}, True),
        ({"evidence": LEAST_EVIDENCE - 0.01, "evidence_words": 1}, False),
        ({"nearness": LEAST_NEARNESS_TO_QUESTION}, True),
        ({"nearness": LEAST_NEARNESS_TO_QUESTION - 0.01}, False),
    ],
)
def test_a_question_needs_less_evidence(fields, expected):
    assert relevant(turn=((), True), **fields) is expected


def test_a_least_confidence_of_zero_accepts_any_result():
    assert relevant(0.0, least=LeastConfidence(0.0, 0.0))


def test_words_of_conversation_are_in_the_form_in_which_the_analyzer_returns_them():
    assert {"thanks", "danke", "gracias", "hola", "спасибо", "谢谢"} <= CONVERSATION_WORDS
    analyzer = Analyzer()
    assert all(analyzer.content_words(word) in {(word,), ()} for word in CONVERSATION_WORDS)
