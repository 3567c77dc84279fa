"""Weighted text lengths are those of OpenClaw."""

import json
from pathlib import Path

import pytest

from memoryd_server.chunk.markdown import cjk_length

CASES = json.loads((Path(__file__).parent / "data" / "cjk_length.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"] or "empty")
def test_length_is_that_of_the_reference(case):
    assert cjk_length(case["text"]) == case["length"]
