"""The MMR order is that of OpenClaw."""

import json
from pathlib import Path

import pytest

from memoryd_server.search.diversity import ascii_words, diversified
from memoryd_server.search.query import Candidate

DATA = json.loads((Path(__file__).parent / "data" / "mmr.json").read_text("utf-8"))
TEXTS = {int(item["id"]): item["content"] for item in DATA["items"]}


@pytest.mark.parametrize("case", DATA["orders"], ids=lambda case: str(case["lambda"]))
def test_the_order_is_that_of_the_reference(case):
    given = [Candidate(int(item["id"]), item["score"]) for item in DATA["items"]]
    assert [str(c.chunk_id) for c in diversified(given, TEXTS, case["lambda"])] == case["order"]


def test_among_equal_scores_the_first_leads_and_its_like_comes_last():
    texts = {0: "the heron stood", 1: "the heron stood", 2: "a kestrel flew"}
    order = diversified([Candidate(i, 0.5) for i in texts], texts, 0.5)
    assert ["abc"[c.chunk_id] for c in order] == DATA["equal_scores_order"]


@pytest.mark.parametrize("case", DATA["tokens"], ids=lambda case: case["t"])
def test_words_are_those_of_the_reference(case):
    assert ascii_words(case["t"]) == case["tokens"]
