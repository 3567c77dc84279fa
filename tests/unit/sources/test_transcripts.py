"""Transcripts: what counts as one, and what of it is kept."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.sources.secrets import mask_secrets
from memoryd_server.sources.transcript_text import parse_message
from memoryd_server.sources.transcripts import list_transcripts, read_transcript


def line(role="user", content="x", **record):
    return json.dumps({"type": "message", "message": {"role": role, "content": content}, **record})


def test_transcripts_and_their_rotated_forms_are_listed(tmp_path):
    for name in ("a.jsonl", "a.jsonl.reset.2026-01-01T00", "b.jsonl.deleted.17", "c.jsonl.bak", "d.json", ".jsonl"):
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "e.jsonl").mkdir()
    (tmp_path / "f.jsonl").symlink_to(tmp_path / "a.jsonl")
    os.mkfifo(tmp_path / "g.jsonl")
    listed = [(file.name, file.session_id, file.size_bytes) for file in list_transcripts(tmp_path)]
    assert listed == [("a", "a", 3), ("a.reset.2026-01-01T00", "a", 3), ("b.deleted.17", "b", 3)]


@pytest.mark.parametrize("folder", ["absent", "a file"])
def test_where_there_is_no_folder_there_are_none(tmp_path, folder):
    (tmp_path / "a file").write_text("")
    assert list_transcripts(tmp_path / folder) == []


def test_a_half_written_line_and_bytes_that_are_no_text_are_passed_over(tmp_path):
    file = tmp_path / "s.jsonl"
    file.write_bytes(line(content="kept").encode() + b"\n\xff\xfe\n" + line(content="cut").encode()[:-3])
    (found,) = list_transcripts(tmp_path)
    assert read_transcript(found) == "User: kept"


@pytest.mark.parametrize("reply", ["HEARTBEAT_OK", " NO_REPLY \n"])
def test_an_agent_that_says_nothing_is_not_quoted(reply):
    assert parse_message(1, line("assistant", reply)) is None
    assert parse_message(1, line("assistant", f"I said {reply.strip()}")) is not None


def test_half_a_character_is_replaced():
    assert parse_message(1, line(content="a \ud83e b")).labelled.encode()


@given(st.one_of(st.text(), st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps)))
def test_no_line_breaks_the_reading(text):
    assert parse_message(1, text) is None


@given(st.text())
def test_a_message_of_any_text_is_one_line(text):
    message = parse_message(1, line(content=text))
    assert message is None or "\n" not in message.labelled


@pytest.mark.parametrize(
    "text",
    [
        "the token of my love",
        "a key: value",
        "see https://x.example/a?b=c",
        "sk-1",
        "Bearer of bad news",
        "monkey=1",
        "12:30",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert mask_secrets(text) in (text, text.replace("value", "***").replace("=1", "=***"))


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer abc.def-ghi_jkl012345",
        "AIzaSyA-abcdefghijklmnopqrstuvwxyz0123",
        "npm_abcdefghijklmnopqrstuvwxyz0123",
        "xapp-1-ABCDEFGHIJKLMNOP",
        "--password=correct-horse-battery-staple",
        "-----BEGIN RSA PRIVATE KEY----- MIIEabcdefghijkl -----END RSA PRIVATE KEY-----",
        "DB_PASSWORD: hunter2hunter2hunter2",
    ],
)
def test_secrets_do_not_pass(secret):
    shown = mask_secrets(f"before {secret} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert secret[-12:] not in shown
