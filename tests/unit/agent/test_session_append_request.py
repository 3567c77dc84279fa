"""Which records and session ids SessionAppend accepts."""

import json

import pytest

from memoryd_server.agent import SessionAppendRequest
from memoryd_server.agent.session_requests import MOST_RECORD_BYTES, MOST_RECORDS
from memoryd_server.errors import InvalidRequest
from memoryd_server.sources import session_id_problem
from memoryd_server.sources.transcripts import is_transcript, session_id


def resolve(*records, session="abc", **fields):
    return SessionAppendRequest(session_id=session, records=records, **fields).resolve("main")


def violations(*records, **fields):
    with pytest.raises(InvalidRequest) as caught:
        resolve(*records, **fields)
    return {violation.field: violation.description for violation in caught.value.violations}


@pytest.mark.parametrize(
    "record",
    [
        "{}",
        ' {"type": "message"}\t',
        '{"text": "a\u2028b\u0085c 🦩"}',
        r'{"text": "\u0000 \ud800 \n"}',
        '{"type": "a", "type": "b"}',
        '{"number": 1e999, "deep": ' + "[" * 100 + "]" * 100 + "}",
    ],
)
def test_an_object_on_one_line_is_stored_unchanged(record):
    assert resolve(record) == (record.encode(),)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("", "is not valid JSON"),
        ("{", "is not valid JSON"),
        ("{} {}", "is not valid JSON"),
        ("{'a': 1}", "is not valid JSON"),
        ('{"a": "\0"}', "is not valid JSON"),
        ("\ufeff{}", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ('"{}"', "is not a JSON object"),
        ("null", "is not a JSON object"),
        ('{"a":\n1}', "contains a line break"),
        ("{}\n", "contains a line break"),
        ("{}\r", "contains a line break"),
        ('{"a": NaN}', "has a number that cannot be read"),
        ('{"a": -Infinity}', "has a number that cannot be read"),
        ('{"a": ' + "1" * 5_000 + "}", "has a number that cannot be read"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "is nested too deeply"),
    ],
)
def test_any_other_record_is_refused_with_its_index(record, words):
    found = violations("{}", record)
    assert set(found) == {"records[1]"}
    assert found["records[1]"].startswith(words)


def test_number_and_size_of_records_are_limited():
    assert len(resolve(*["{}"] * MOST_RECORDS)) == MOST_RECORDS
    assert violations(*["{}"] * (MOST_RECORDS + 1)) == {"records": "has 1,001 records; 1 to 1,000 are allowed"}
    assert set(violations()) == {"records"}
    # The size is in bytes, not in characters.
    text = "é" * ((MOST_RECORD_BYTES - len('{"a": ""}')) // 2)
    largest = json.dumps({"a": text}, ensure_ascii=False)
    assert resolve(largest) == (largest.encode(),)
    assert violations(largest, "{}") == {"records": "has 3,145,729 bytes in total; at most 3,145,728 are allowed"}


def test_other_fields_are_checked():
    assert resolve("{}", expected_records=0, session_key="agent:main:main")
    assert set(violations("{}", expected_records=-1)) == {"expected_records"}
    assert set(violations("{}", session_key="agent:work:main")) == {"session_key"}
    assert set(violations("{}", session="a/b")) == {"session_id"}


@pytest.mark.parametrize(
    "session", ["abc", "7f3c0e1a-topic-12", ".", "..", ".hidden", "a b", "é" * 100, "a.jsonl", "a.md", "a.bak", "*?'\\"]
)
def test_a_session_id_is_that_of_the_transcript_with_its_name(session):
    assert session_id_problem(session) == ""
    assert is_transcript(f"{session}.jsonl")
    assert session_id(f"{session}.jsonl") == session


@pytest.mark.parametrize(
    "session",
    [
        "",
        " ",
        "/",
        "../a",
        "a/b",
        "a\0b",
        "a\nb",
        "a\u2028b",
        "a\u200bb",
        "x" * 201,
        "é" * 101,
        "a.jsonl.reset.1",
        "\ud800",
    ],
)
def test_other_session_ids_are_refused(session):
    assert session_id_problem(session)
