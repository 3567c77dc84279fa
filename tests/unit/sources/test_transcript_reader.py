"""Transcripts of any bytes, read from any line on."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.sources.roots import Location
from memoryd_server.sources.session_messages import last_messages
from memoryd_server.sources.transcript_text import TranscriptParser
from memoryd_server.sources.transcripts import (
    START,
    ReadPosition,
    TranscriptReader,
    is_transcript,
    list_transcripts,
    session_id,
)
from transcript_fixture import assistant, record, user

SAME = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
A, B = user("a").encode(), assistant("b").encode()
HEARTBEAT = record("user", "wake", provenance={"kind": "internal_system", "sourceTool": "heartbeat"}).encode()
OTHER_SESSION = record("user", "from there", provenance={"kind": "inter_session"}).encode()
LINES = st.sampled_from(
    [
        HEARTBEAT,
        OTHER_SESSION,
        A,
        B,
        A[:-1],
        A[: len(A) // 2],
        b"\n",
        b"\r\n",
        b"{}\n",
        b"\xff\xfe\0\n",
        A.replace(b"\n", b"\r\n"),
    ]
)
BYTES = st.lists(LINES | st.binary(max_size=30), max_size=12).map(b"".join)


def reader_of(folder, data, name="s.jsonl", **options):
    (Path(folder) / name).write_bytes(data)
    return TranscriptReader.open(Location(f"sessions/{name}", str(folder), (name,)), **options)


def read(reader, start=START):
    return [(line.message.line, line.message.text) for line in reader.lines(start) if line.message]


def expected(data):
    """By the plainest means: each line that holds a whole message."""
    parser = TranscriptParser()
    found = [parser.parse(number, line.decode("utf-8", "replace")) for number, line in enumerate(data.split(b"\n"), 1)]
    return [(message.line, message.text) for message in found if message]


@SAME
@given(BYTES)
@example(A + B[:-1])
@example(b"\n\n" + A)
def test_whatever_the_bytes_every_whole_message_is_read_with_its_line(tmp_path, data):
    with reader_of(tmp_path, data) as reader:
        assert read(reader) == expected(data)


@SAME
@given(BYTES, BYTES)
def test_reading_on_after_more_was_written_gives_what_reading_all_of_it_gives(tmp_path, data, more):
    with reader_of(tmp_path, data) as reader:
        lines = list(reader.lines(START))
        position = lines[-1].after if lines else START
        mark = reader.prefix_digest(position)
        before = [(line.message.line, line.message.text) for line in lines if line.message]
    with reader_of(tmp_path, data + more) as reader:
        assert reader.prefix_digest(position) == mark
        then = reader.resume_position(position)
        if then is None:
            assert not data.endswith(b"\n"), "only a line that had not ended can have been written on"
        else:
            assert before + read(reader, then) == expected(data + more)


@SAME
@given(BYTES)
def test_lines_are_counted_and_found_as_an_editor_does(tmp_path, data):
    count = data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
    with reader_of(tmp_path, data) as reader:
        assert reader.count_lines_from(START) == count
        for lines in range(data.count(b"\n") + 1):
            position = reader.position_after(lines)
            assert position == ReadPosition(_bytes_of(data, lines), lines)
            assert reader.count_lines_from(position) == count - lines
        assert reader.position_after(count + 5).offset == len(data)


def _bytes_of(data, lines):
    return len(b"".join(piece + b"\n" for piece in data.split(b"\n")[:lines]))


@pytest.mark.parametrize("tool", ["heartbeat", "memory_search", "memory_get"])
def test_everything_from_a_turn_of_the_gateway_to_the_next_user_message_is_left_out(tmp_path, tool):
    turn = record("user", "wake", provenance={"kind": "internal_system", "sourceTool": tool}).encode()
    with reader_of(tmp_path, A + B + turn + B + b"{}\n" + B + OTHER_SESSION + B + turn + B + A + B) as reader:
        assert [line for line, _ in read(reader)] == [1, 2, 8, 11, 12]


def test_a_session_of_a_current_openclaw_is_read_as_openclaw_reads_it(tmp_path):
    """The session 9999 of the fixture, whose messages 2, 3, 5 and 9 OpenClaw 2026.9.6 indexes."""
    other = {"kind": "inter_session", "sourceSessionKey": "agent:main:main", "sourceTool": "sessions_send"}
    picture = [{"type": "text", "text": "With a picture of a kite."}, {"type": "image", "data": "aGVsbG8="}]
    lines = [
        '{"type": "session", "version": 4}\n',
        user("A typed question about the lighthouse."),
        assistant("A typed answer about the lighthouse."),
        record("user", "Sent by another session about tulips.", provenance=other),
        assistant("Answer to the other session about tulips."),
        record("user", "[OpenClaw heartbeat poll]", provenance={"kind": "internal_system", "sourceTool": "heartbeat"}),
        assistant("Answer in a heartbeat turn."),
        user("System: [2026-11-20 10:00:00] Node connected."),
        record("user", picture, __openclaw={"senderId": "7", "senderName": "Ann"}),
        assistant("NO_REPLY"),
    ]
    with reader_of(tmp_path, "".join(lines).encode()) as reader:
        assert [line.message.labelled for line in reader.lines(START) if line.message] == [
            "User: A typed question about the lighthouse.",
            "Assistant: A typed answer about the lighthouse.",
            "Assistant: Answer to the other session about tulips.",
            "User: With a picture of a kite.",
        ]
        assert [line for line, _ in read(reader)] == [2, 3, 5, 9]


def test_another_message_of_the_gateway_does_not_hide_the_answer(tmp_path):
    event = record("user", "wake", provenance={"kind": "internal_system", "sourceTool": "exec"}).encode()
    with reader_of(tmp_path, event + B) as reader:
        assert [line for line, _ in read(reader)] == [2]


@SAME
@given(BYTES, st.integers(0, 15))
def test_reading_from_the_middle_gives_the_end_of_what_reading_all_gives(tmp_path, data, skipped):
    with reader_of(tmp_path, data) as reader:
        position = reader.position_after(skipped)
        assert read(reader, position) == [(line, text) for line, text in expected(data) if line > position.lines]


@pytest.mark.parametrize("filler", [b"{}\n" * 100_000, b'{"pad": "%s"}\n' % (b"x" * 200_000), B * 2_000])
def test_a_turn_that_began_far_before_is_still_left_out(tmp_path, filler):
    data = HEARTBEAT + filler
    with reader_of(tmp_path, data + B + A) as reader:
        start = ReadPosition(len(data), data.count(b"\n"))
        assert [text for _, text in read(reader, start)] == ["a"]
        assert [message.text for message in reader.tail_messages(len(A + B) + 1)] == ["a"]


def test_a_user_message_that_is_too_long_to_be_read_ends_no_turn(tmp_path):
    data = HEARTBEAT + user("x" * 1_000).encode()
    with reader_of(tmp_path, data + B, max_line_bytes=200) as reader:
        assert read(reader) == read(reader, ReadPosition(len(data), 2)) == []


@pytest.mark.parametrize("change", [b"X", b""])
def test_a_mark_differs_if_the_beginning_or_the_end_differs(tmp_path, change):
    data = A * 20_000
    end = ReadPosition(len(data), 20_000)
    with reader_of(tmp_path, data) as reader:
        mark = reader.prefix_digest(end)
    for place in (0, len(data) - 1, len(data) - 1_000):
        changed = data[:place] + change + data[place + 1 :]
        with reader_of(tmp_path, changed + A) as reader:
            assert reader.prefix_digest(end) != mark


def test_a_line_beyond_the_bound_is_passed_over_and_those_after_it_are_not(tmp_path):
    data = A + user("x" * 1_000).encode() + B
    with reader_of(tmp_path, data, max_line_bytes=200) as reader:
        assert read(reader) == [(1, "a"), (3, "b")]
        assert reader.skipped == 1
    with reader_of(tmp_path, data[: -len(B) - 1], max_line_bytes=200) as reader:
        assert [line.after.lines for line in reader.lines(START)] == [1], "what may go on is left for the next time"


def test_no_more_is_read_than_there_was_when_it_was_opened(tmp_path):
    with reader_of(tmp_path, A) as reader, (tmp_path / "s.jsonl").open("ab") as more:
        more.write(B)
        more.flush()
        assert read(reader) == [(1, "a")]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.mkdir(), lambda path: path.symlink_to("other")])
def test_only_plain_files_are_opened(tmp_path, make):
    make(tmp_path / "s.jsonl")
    with pytest.raises(PathNotAllowed):
        TranscriptReader.open(Location("sessions/s.jsonl", str(tmp_path), ("s.jsonl",)))
    with pytest.raises(FileNotFound):
        TranscriptReader.open(Location("sessions/t.jsonl", str(tmp_path), ("t.jsonl",)))


@pytest.mark.parametrize("first", [1, 30, 1 << 20])
def test_the_last_messages_are_the_last_ones_however_little_is_read_at_first(tmp_path, first):
    lines = [user(f"message {number}") if number % 3 else json.dumps({"type": "tool"}) + "\n" for number in range(100)]
    (tmp_path / "s.jsonl").write_text("".join(lines))
    (file,) = list_transcripts(tmp_path)
    wanted = [f"message {number}" for number in range(100) if number % 3]
    for count in (0, 1, 5, 66, 70):
        with TranscriptReader.open(file.source_file) as reader:
            last = last_messages(reader, count, first_tail_bytes=first)
        assert [message.text for message in last] == wanted[len(wanted) - min(count, 66) :]
    with TranscriptReader.open(file.source_file) as reader:
        is_even = lambda message: int(message.text.split()[1]) % 2 == 0  # noqa: E731 -- shorter than a function
        even = last_messages(reader, 2, is_even, first_tail_bytes=first)
    assert [message.text for message in even] == ["message 94", "message 98"]


@pytest.mark.parametrize(
    ("name", "session"),
    [
        ("a.jsonl", "a"),
        ("a.jsonl.reset.2026-02-16T22-26-33.000Z", "a"),
        ("a.b.jsonl.deleted.1771279593000", "a.b"),
        ("a-topic-1.jsonl", "a-topic-1"),
    ],
)
def test_a_session_keeps_its_id_when_its_transcript_is_rotated(name, session):
    assert is_transcript(name)
    assert session_id(name) == session


@pytest.mark.parametrize(
    "name",
    [
        "a.json", ".jsonl", "a.jsonl.bak", "a.jsonl.bak.1", "a.jsonl.reset.1.bak", "a.jsonl.lock", "a.jsonl.reset.",
        "a.jsonl.reset.x/y", "../a.jsonl", "a.jsonl\n", "a.jsonl.reset.1.md", "sessions.json", "a.jsonl.tmp",
        "\0.jsonl", os.fsdecode(b"\xff.jsonl"),
    ],
)  # fmt: skip
def test_other_files_in_the_folder_are_no_transcripts(name):
    assert not is_transcript(name)
