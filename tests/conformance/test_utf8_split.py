"""Texts are split by bytes as in OpenClaw."""

import json
from pathlib import Path

import pytest

from memoryd_server.chunk.markdown import split_utf8

CASES = json.loads((Path(__file__).parent / "data" / "utf8_split.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['text']}-{case['max_bytes']}")
def test_parts_are_those_of_the_reference(case):
    assert split_utf8(case["text"], case["max_bytes"]) == case["parts"]
