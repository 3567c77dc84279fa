"""Events of OpenClaw's sessions: decoding, the active branch, generated turns, and reading in parts."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.errors import FileNotFound
from memoryd_server.sources.compression import CompressedLines, zstd
from memoryd_server.sources.session_database import SessionDatabase
from memoryd_server.sources.session_reader import MOST_EVENT_BYTES, SessionReader, decode_event
from memoryd_server.sources.transcripts import START, ReadPosition
from openclaw_home import HostWriter, copy_home


@pytest.fixture
def database(tmp_path):
    return copy_home(tmp_path)


@pytest.fixture
def writer(database):
    with HostWriter(database) as writer:
        writer.create("s", "agent:main:webchat:direct:99")
        yield writer


def messages(database, session="s", start=0, **limits):
    """The messages of a session from event `start` on, by line."""
    with SessionReader(SessionDatabase(str(database), **limits), session) as reader:
        found = reader.lines(ReadPosition(start, start))
        return {line.message.line: line.message.text for line in found if line.message}


@given(st.text(), st.booleans())
def test_an_event_is_the_same_compressed_and_not(text, checksum):
    data = text.encode("utf-8", "replace")
    frame = zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: checksum})
    assert decode_event(data, None, None) == data.decode()
    if data:
        assert decode_event(None, frame, len(data)) == data.decode()


COLUMN = st.one_of(st.none(), st.binary(), st.integers(), st.floats(), st.text())


@given(COLUMN, COLUMN, COLUMN)
def test_any_columns_are_decoded_or_refused(text, frame, size):
    decoded = decode_event(text, frame, size)
    assert decoded is None or isinstance(decoded, str)


@given(st.binary(min_size=1, max_size=3000), st.integers(0, 4000), st.integers(0, 255), st.integers(-3, 3))
def test_a_damaged_frame_is_refused(data, place, byte, more):
    frame = bytearray(zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: True}))
    changed = frame[place % len(frame)] != byte
    frame[place % len(frame)] = byte
    decoded = decode_event(None, bytes(frame), len(data) + more)
    if more:
        assert decoded is None
    elif not changed:
        assert decoded == data.decode("utf-8", "replace")


@pytest.mark.parametrize("claimed", [100, MOST_EVENT_BYTES, 1 << 40])
def test_a_bomb_is_refused_within_little_memory(claimed):
    frame = zstd.compress(bytes(200 << 20))
    tracemalloc.start()
    assert decode_event(None, frame, claimed) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_an_archive_that_expands_too_far_is_an_error(tmp_path):
    path = tmp_path / "bomb.zst"
    path.write_bytes(zstd.compress(bytes(8 << 20)))
    with path.open("rb") as stream, pytest.raises(OSError, match="expands"):
        list(CompressedLines(stream, max_bytes=1 << 20, max_line_bytes=1 << 16))


@pytest.mark.parametrize("data", [b"", b"x", b"not zstd at all", zstd.compress(b"a\nb\n")[:-3]])
def test_a_damaged_archive_yields_its_lines_or_an_error(tmp_path, data):
    path = tmp_path / "damaged.zst"
    path.write_bytes(data)
    with path.open("rb") as stream:
        try:
            lines = list(CompressedLines(stream, max_bytes=1 << 20, max_line_bytes=1 << 16))
        except OSError:
            return
    assert lines == []


def test_lines_of_an_archive_that_are_too_long_are_skipped(tmp_path):
    path = tmp_path / "long.zst"
    path.write_bytes(zstd.compress(b"one\n" + b"x" * 5000 + b"\nthree"))
    with path.open("rb") as stream:
        assert list(CompressedLines(stream, max_bytes=1 << 20, max_line_bytes=100)) == [b"one\n", None, b"three"]


def test_malformed_events_are_skipped_and_counted(database, writer):
    writer.say("s", "One.")
    for _ in range(3):
        writer.say("s", "A long message. " * 100, compressed=True)
    writer.say("s", "Five.")
    writer.execute("PRAGMA ignore_check_constraints = ON")
    change = "UPDATE transcript_events SET {} WHERE session_id = 's' AND seq = ?"
    writer.execute(change.format("event_zstd = x'00112233'"), 2)
    writer.execute(change.format("event_utf8_bytes = 7"), 3)
    writer.execute(change.format("event_zstd = NULL, event_json = '{\"type\": [[['"), 4)
    with SessionReader(SessionDatabase(str(database)), "s") as reader:
        found = {line.message.line: line.message.text for line in reader.lines(START) if line.message}
        assert reader.skipped == 2
    assert found == {2: "One.", 6: "Five."}


@pytest.mark.parametrize("rebuilt", [True, False])
def test_a_compressed_event_that_is_too_large_is_skipped_without_being_read(database, writer, rebuilt):
    writer.say("s", "One.")
    writer.say("s", "A long message. " * 100, compressed=True)
    writer.say("s", "Three.")
    writer.execute("PRAGMA ignore_check_constraints = ON")
    change = "UPDATE transcript_events SET event_zstd = zeroblob(?) WHERE session_id = 's' AND seq = 2"
    writer.execute(change, 40 << 20)
    if not rebuilt:
        writer.execute("UPDATE session_transcript_index_state SET needs_rebuild = 1")
    opened = SessionDatabase(str(database))
    with SessionReader(opened, "s") as reader:
        assert [line.message.line for line in reader.lines(START) if line.message] == [2, 4]
        assert reader.skipped == 1
    assert opened.most_bytes < 1 << 20


@pytest.mark.parametrize("column", ["event_id", "parent_id", "event_type"])
def test_an_id_that_is_too_large_is_not_read(database, writer, column):
    writer.say("s", "One.")
    writer.say("s", "Two.")
    writer.execute("UPDATE session_transcript_index_state SET needs_rebuild = 1")
    change = f"UPDATE transcript_event_identities SET {column} = ? WHERE session_id = 's' AND seq = 2"
    writer.execute(change, "x" * (40 << 20))
    tracemalloc.start()
    found = messages(database)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == {"event_id": {}, "parent_id": {3: "Two."}, "event_type": {2: "One.", 3: "Two."}}[column]
    assert peak < 8 << 20


def test_an_event_that_is_not_utf8_is_read_as_far_as_possible(database, writer):
    writer.say("s", "Before it.")
    writer.say("s", "Damaged X text.")
    statement = "UPDATE transcript_events SET event_json = CAST(? AS TEXT) WHERE session_id = 's' AND seq = 2"
    event = writer.value("SELECT event_json FROM transcript_events WHERE session_id = 's' AND seq = 2")
    writer.execute(statement, event.encode().replace(b"X", b"\xff"))
    assert messages(database) == {2: "Before it.", 3: "Damaged \ufffd text."}


def test_secrets_and_invalid_characters_of_events_are_sanitized(database, writer):
    writer.say("s", "The key is sk-abcdefghijklmnop1234567890 \ud800 \u0000.")
    assert messages(database) == {2: "The key is sk-abc…7890 ? ."}


def test_a_generated_turn_ends_with_the_next_message_of_a_user(database, writer):
    writer.say("s", "A question.")
    writer.say("s", "poll", provenance={"kind": "internal_system", "sourceTool": "heartbeat"})
    for number in range(5):
        writer.say("s", f"Checked {number}.", "assistant")
    writer.say("s", "Recall.", provenance={"kind": "internal_system", "sourceTool": "memory_search"})
    writer.say("s", "Recalled.", "assistant")
    writer.say("s", "A second question.")
    writer.say("s", "An answer.", "assistant")
    expected = {2: "A question.", 11: "A second question.", 12: "An answer."}
    for start in range(13):
        assert messages(database, start=start) == {line: text for line, text in expected.items() if line > start}


@pytest.mark.parametrize("rebuilt", [True, False])
def test_a_long_generated_turn_is_left_out_also_if_reading_begins_in_it(database, writer, rebuilt):
    writer.say("s", "poll", provenance={"kind": "internal_system", "sourceTool": "heartbeat"})
    for number in range(200):
        writer.say("s", f'Checked {number} of "user".', "assistant", compressed=bool(number % 2))
    writer.say("s", "A question.")
    writer.say("s", "An answer.", "assistant")
    if not rebuilt:
        writer.execute("UPDATE session_transcript_index_state SET needs_rebuild = 1")
    for start in (0, 2, 199, 201):
        assert messages(database, start=start, page_rows=7) == {203: "A question.", 204: "An answer."}


TREES = st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=30)


@given(TREES, st.integers(0, 31), st.integers(1, 7), st.booleans())
def test_the_branch_of_any_tree_is_read_whole_and_in_parts(tmp_path_factory, tree, start, page_rows, rebuilt):
    database = copy_home(tmp_path_factory.mktemp("home"))
    ids, parents = {}, {}
    with HostWriter(database) as writer:
        writer.execute("PRAGMA synchronous = OFF")
        writer.create("s", "agent:main:webchat:direct:99")
        for number, (choice, compressed) in enumerate(tree, 1):
            parents[number] = choice % number
            parent = ids.get(parents[number])
            ids[number] = writer.say("s", f"Message {number}.", parent=parent, compressed=compressed)
        branch, at = set(), len(tree)
        while at:
            branch.add(at)
            at = parents[at]
        if rebuilt:
            writer.execute("DELETE FROM session_transcript_active_events WHERE session_id = 's'")
            for position, number in enumerate(sorted(branch)):
                writer.execute(
                    "INSERT INTO session_transcript_active_events VALUES('s', ?, ?, NULL, NULL)", position, number
                )
            writer.execute("UPDATE session_transcript_index_state SET needs_rebuild = 0")
        expected = {number + 1: f"Message {number}." for number in sorted(branch) if number >= start}
        assert messages(database, start=start, page_rows=page_rows) == expected


def test_a_leaf_event_selects_the_branch(database, writer):
    first = writer.say("s", "One.")
    writer.say("s", "Two.")
    writer.append("s", {"type": "leaf", "targetId": first}, parent=first)
    assert messages(database) == {2: "One."}


@pytest.mark.parametrize("parent", ["itself", "unknown"])
def test_a_damaged_tree_ends(database, writer, parent):
    first = writer.say("s", "One.")
    last = writer.say("s", "Two.")
    writer.execute("UPDATE session_transcript_index_state SET needs_rebuild = 1")
    writer.execute("UPDATE transcript_event_identities SET parent_id = ? WHERE event_id = ?", parent, first)
    writer.execute("UPDATE transcript_event_identities SET parent_id = ? WHERE event_id = ?", last, last)
    assert messages(database) == {3: "Two."}


def test_events_that_come_while_a_session_is_read_are_left_for_the_next_time(database, writer):
    for number in range(10):
        writer.say("s", f"Message {number}.")
    with SessionReader(SessionDatabase(str(database), page_rows=3), "s") as reader:
        lines = reader.lines(START)
        found = [next(lines)]
        writer.say("s", "Later.")
        found += lines
    assert [line.message.line for line in found if line.message] == list(range(2, 12))
    assert found[-1].after == ReadPosition(11, 11)
    assert messages(database, start=11) == {12: "Later."}


@pytest.mark.parametrize("change", ["rewrite", "rewind", "delete"])
def test_a_session_that_changes_while_it_is_read_is_not_read_to_its_end(database, writer, change):
    ids = [writer.say("s", f"Message {number}.") for number in range(10)]
    with SessionReader(SessionDatabase(str(database), page_rows=5), "s") as reader:
        lines = reader.lines(START)
        for _ in range(5):
            next(lines)
        if change == "rewrite":
            writer.rewrite("s", 2, "Another message.")
        elif change == "delete":
            writer.delete("s")
        else:
            writer.say("s", "Instead.", parent=ids[1])
            writer.execute("DELETE FROM session_transcript_active_events WHERE session_id = 's' AND event_seq > 2")
        with pytest.raises(FileNotFound):
            list(lines)


def test_a_rewind_between_opening_and_reading_ends_the_read(database, writer):
    first = writer.say("s", "One.")
    writer.say("s", "Two.")
    with SessionReader(SessionDatabase(str(database)), "s") as reader:
        reader.prefix_digest(ReadPosition(3, 3))
        writer.say("s", "Instead.", parent=first)
        writer.execute("DELETE FROM session_transcript_active_events WHERE session_id = 's' AND event_seq = 2")
        with pytest.raises(FileNotFound):
            list(reader.lines(ReadPosition(3, 3)))


def test_a_digest_differs_after_a_rewrite_and_a_rewind_and_is_kept_by_appends(database, writer):
    def digest():
        with SessionReader(SessionDatabase(str(database)), "s") as reader:
            return reader.prefix_digest(ReadPosition(3, 3))

    first = writer.say("s", "One.")
    writer.say("s", "Two.")
    before = digest()
    writer.say("s", "Three.", "assistant")
    assert digest() == before
    writer.rewrite("s", 1, "Another one.")
    rewritten = digest()
    assert rewritten != before
    writer.say("s", "Instead.", parent=first)
    assert digest() not in {before, rewritten}


def test_the_events_are_json_that_is_parsed_within_limits(database, writer):
    writer.append("s", {"type": "message", "message": json.loads("[" * 400 + "]" * 400)})
    writer.say("s", "After it.")
    assert messages(database) == {3: "After it."}
