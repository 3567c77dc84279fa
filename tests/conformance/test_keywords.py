"""Queries contain all keywords that OpenClaw extracts; this file gives the reason for each exception."""

import json
from pathlib import Path

import pytest

from memoryd_server.text.analyzer import Analyzer

CASES = json.loads((Path(__file__).parent / "data" / "keywords.json").read_text("utf-8"))

# A single character is redundant if the query contains its pairs; "don" is a fragment of "don't".
LEFT_OUT = {"飞书插件配置": set("飞书插件配置"), "don't stop": {"don"}}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["query"])
def test_every_keyword_of_the_reference_is_asked_for(case):
    analyzer = Analyzer()
    terms = {term.text for term in analyzer.query_terms(case["query"])}
    for keyword in set(case["keywords"]) - LEFT_OUT.get(case["query"], set()):
        assert {term.text for term in analyzer.query_terms(keyword)} <= terms, keyword


@pytest.mark.parametrize("case", [case for case in CASES if not case["keywords"]], ids=lambda case: case["query"])
def test_a_question_without_keywords_asks_for_the_words_that_it_has(case):
    # OpenClaw then searches for nothing; memoryd finds a note that consists of these words.
    assert bool(Analyzer().query_terms(case["query"])) == bool(case["query"].strip())
