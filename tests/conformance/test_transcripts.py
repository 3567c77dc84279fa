"""What is kept of a session's transcript, and how secrets in it are masked, as in the reference."""

import json
from pathlib import Path

import pytest

from memoryd_server.sources.flattening import flatten
from memoryd_server.sources.masking import masked

FOLDER = Path(__file__).parent / "data"
FLATTENED = json.loads((FOLDER / "session_flatten.json").read_text("utf-8"))
MASKED = json.loads((FOLDER / "redact.json").read_text("utf-8"))


@pytest.mark.parametrize("case", FLATTENED, ids=lambda case: case["path"])
def test_a_transcript_is_flattened_as_in_the_reference(case):
    transcript = flatten(case.get("input", "").split("\n"))
    assert transcript.content == case["content"]
    assert list(transcript.line_numbers) == case["lineMap"]
    assert transcript.digest == case["hash"]


@pytest.mark.parametrize("case", MASKED, ids=lambda case: case["text"][:30])
def test_secrets_are_masked_as_in_the_reference(case):
    assert masked(case["text"]) == case["redacted"]
