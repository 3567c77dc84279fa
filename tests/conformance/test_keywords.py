"""The keywords that OpenClaw extracts from a query are among memoryd's search terms; exceptions have reasons."""

import json
from pathlib import Path

import pytest

from memoryd_server.text.analyzer import Analyzer

CASES = json.loads((Path(__file__).parent / "data" / "keywords.json").read_text("utf-8"))

# A single character says nothing where the pairs that it stands in are asked for; "don" is what is left of "don't".
LEFT_OUT = {"飞书插件配置": set("飞书插件配置"), "don't stop": {"don"}}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["query"])
def test_every_keyword_of_the_reference_is_asked_for(case):
    analyzer = Analyzer()
    terms = {term.text for term in analyzer.query_terms(case["query"])}
    for keyword in set(case["keywords"]) - LEFT_OUT.get(case["query"], set()):
        assert {term.text for term in analyzer.query_terms(keyword)} <= terms, keyword


@pytest.mark.parametrize("case", [case for case in CASES if not case["keywords"]], ids=lambda case: case["query"])
def test_a_question_without_keywords_asks_for_the_words_that_it_has(case):
    # The reference then searches for nothing; here a note that holds just these words is found.
    assert bool(Analyzer().query_terms(case["query"])) == bool(case["query"].strip())
