"""Markdown chunks are those of OpenClaw: lines, length in UTF-16 units, and hash."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from memoryd_server.chunk.markdown import chunk_markdown, utf16_length

CASES = json.loads((Path(__file__).parent / "data" / "chunk_markdown.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['name']}-{case['tokens']}-{case['overlap']}")
def test_chunks_are_those_of_the_reference(case):
    chunks = chunk_markdown(case["content"], case["tokens"], case["overlap"])
    assert [
        {
            "startLine": chunk.start_line,
            "endLine": chunk.end_line,
            "len": utf16_length(chunk.text),
            "hash": sha256(chunk.text.encode()).hexdigest(),
        }
        for chunk in chunks
    ] == case["chunks"]
