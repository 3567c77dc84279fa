"""Transcripts are converted to text, and secrets are masked, as in OpenClaw."""

import json
from pathlib import Path

import pytest

from memoryd_server.sources.secrets import mask_secrets
from memoryd_server.sources.transcript_text import parse_message

FOLDER = Path(__file__).parent / "data"
FLATTENED = json.loads((FOLDER / "session_flatten.json").read_text("utf-8"))
MASKED = json.loads((FOLDER / "redact.json").read_text("utf-8"))


@pytest.mark.parametrize("case", FLATTENED, ids=lambda case: case["path"])
def test_a_transcript_is_flattened_as_in_the_reference(case):
    lines = enumerate(case.get("input", "").split("\n"), 1)
    messages = [message for number, line in lines if (message := parse_message(number, line))]
    assert "\n".join(message.labelled for message in messages) == case["content"]
    assert [message.line for message in messages] == case["lineMap"]


@pytest.mark.parametrize("case", MASKED, ids=lambda case: case["text"][:30])
def test_secrets_are_masked_as_in_the_reference(case):
    assert mask_secrets(case["text"]) == case["redacted"]
