"""Branches in sessions of Claude Code, and sessions whose records name wrong parents."""

import json
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claude_code_sessions import SESSION, START, read, read_records, record, spoken, write
from memoryd_server.imports.conversation import Unreadable
from memoryd_server.sources import MOST_LINE_BYTES
from properties import examples


def test_parallel_tool_calls_keep_all_parts_of_the_answer(tmp_path):
    def part(text, uuid, parent):
        return record(
            "assistant", text, uuid, parent, message={"id": "msg", "content": [{"type": "text", "text": text}]}
        )

    records = [
        record("user", "go", "u", None),
        part("first", "a1", "u"),
        part("second", "a2", "a1"),
        # A part can repeat the one before it.
        part("sec", "a4", "a2"),
        # The results come in the order in which the tools end.
        record("user", [{"type": "tool_result", "content": "x"}], "r2", "a4"),
        record("user", [{"type": "tool_result", "content": "y"}], "r1", "a1"),
        record("assistant", "done", "a3", "r1"),
    ]
    assert read_records(tmp_path, records) == [
        ("user", "go"),
        ("assistant", "first\n\nsecond"),
        ("assistant", "done"),
    ]


def test_change_of_the_first_message_starts_another_branch(tmp_path):
    records = [
        record("user", "old", "1", None),
        record("assistant", "old answer", "2", "1"),
        record("user", "new", "3", None),
        record("assistant", "new answer", "4", "3"),
    ]
    assert read_records(tmp_path, records) == [("user", "new"), ("assistant", "new answer")]


def test_record_of_the_system_without_a_parent_does_not_end_the_branch(tmp_path):
    records = [
        record("user", "a", "1", None),
        record("assistant", "b", "2", "1"),
        {"type": "system", "subtype": "informational", "uuid": "s", "parentUuid": None, "sessionId": SESSION},
        {"type": "system", "subtype": "compact_boundary", "uuid": "c", "parentUuid": None, "logicalParentUuid": "gone"},
        record("user", "c", "3", "c"),
    ]
    assert read_records(tmp_path, records) == [("user", "a"), ("assistant", "b"), ("user", "c")]


def test_compaction_of_the_last_messages_does_not_remove_them(tmp_path):
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "5", "parentUuid": None}
    records = [
        record("user", "a", "1", None),
        record("assistant", "b", "2", "1"),
        record("user", "c", "3", "2"),
        record("assistant", "d", "4", "3"),
        {**boundary, "logicalParentUuid": "2"},
        record("user", "summary", "6", "5", isCompactSummary=True),
        record("user", "e", "7", "6"),
    ]
    assert [text for _, text in read_records(tmp_path, records)] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("parent", ["2", None])
def test_going_back_over_several_prompts(tmp_path, parent):
    records = [
        record("user", "a", "1", None),
        record("assistant", "b", "2", "1"),
        {"type": "system", "uuid": "3", "parentUuid": parent},
        record("user", "old", "4", "3"),
        record("assistant", "old answer", "5", "4"),
        record("user", "old end", "6", "5"),
        record("user", "c", "7", "2"),
        record("assistant", "d", "8", "7"),
        record("user", "other old end", "9", "8"),
        record("user", "e", "10", "8"),
    ]
    assert [text for _, text in read_records(tmp_path, records)] == ["a", "b", "c", "d", "e"]


def test_parents_that_are_records_of_progress_lose_no_message(tmp_path):
    records = [
        record("user", "a", "1", None),
        record("assistant", "b", "2", "1"),
        {"type": "progress", "uuid": "p", "parentUuid": "2"},
        record("user", [{"type": "tool_result", "content": "x"}], "3", "2"),
        record("assistant", "c", "4", "3"),
        record("user", "d", "5", "p"),
        record("assistant", "e", "6", "5"),
        record("user", "f", "7", "p2"),
        record("assistant", "g", "8", "7"),
    ]
    assert [text for _, text in read_records(tmp_path, records)] == ["a", "b", "c", "d", "e", "f", "g"]


def test_parents_before_the_first_message_lose_no_message(tmp_path):
    records = [
        {"type": "attachment", "uuid": "h", "parentUuid": None},
        {"type": "progress", "uuid": "p", "parentUuid": "h"},
        record("user", "a", "1", "h"),
        record("assistant", "b", "2", "1"),
        record("user", "c", "3", "p"),
    ]
    assert [text for _, text in read_records(tmp_path, records)] == ["a", "b", "c"]
    # The prompt that follows the same record takes the place of the first one.
    changed = [*records, record("user", "d", "4", "h")]
    assert [text for _, text in read_records(tmp_path, changed)] == ["d"]


def test_parent_on_a_branch_that_was_left_loses_no_message(tmp_path):
    records = [
        record("user", "a", "1", None),
        record("assistant", "b", "2", "1"),
        record("user", "old", "3", "2"),
        record("assistant", "old answer", "4", "3"),
        record("user", "old end", "5", "4"),
        record("user", "c", "6", "2"),
        record("assistant", "d", "7", "6"),
        record("user", "e", "8", "7"),
        record("assistant", "f", "9", "8"),
        record("user", "g", "10", "4"),
    ]
    assert [text for _, text in read_records(tmp_path, records)] == ["a", "b", "c", "d", "e", "f", "g"]


@pytest.mark.parametrize("step", [2, 3, 5])
def test_missing_parents_lose_no_message(tmp_path, step):
    kinds = ("user", "assistant")
    records = [record(kinds[n % 2], f"text {n}", str(n), str(n - 1) if n % step else f"gone-{n}") for n in range(50)]
    assert [text for _, text in read_records(tmp_path, records)] == [f"text {n}" for n in range(50)]


def test_prompt_without_a_parent_late_in_a_session_loses_no_message(tmp_path):
    records = [
        record("user", "a", "1", None),
        record("assistant", "b", "2", "1"),
        record("user", "c", "3", "2"),
        record("user", "d", "4", None),
    ]
    assert [text for _, text in read_records(tmp_path, records)] == ["a", "b", "c", "d"]


def test_records_that_name_no_parents_follow_each_other(tmp_path):
    records = [record("user", text, text, None) for text in "abc"]
    assert [text for _, text in read_records(tmp_path, records)] == ["a", "b", "c"]


def test_prompt_whose_request_failed_counts_once(tmp_path):
    records = [
        record("user", "a", "1", None),
        record("assistant", "b", "2", "1"),
        record("user", "c", "3", "2"),
        record("assistant", "API Error: 403", "4", "3", isApiErrorMessage=True),
        record("user", "c", "5", "4"),
        record("user", "d", "6", "2"),
    ]
    assert [text for _, text in read_records(tmp_path, records[:-1])] == ["a", "b", "c"]
    assert [text for _, text in read_records(tmp_path, records)] == ["a", "b", "d"]


def test_line_that_cannot_be_read_does_not_break_the_branch(tmp_path):
    path = write(tmp_path, [record("user", "a", "1", None), record("assistant", "b", "2", "1")])
    with path.open("a") as file:
        file.write('{"type": "user", "uuid": "3", broken\n')
        file.write(json.dumps(record("assistant", "d", "4", "3")) + "\n")
    conversation, unreadable = read(path)
    assert spoken(conversation) == [("user", "a"), ("assistant", "b"), ("assistant", "d")]
    assert unreadable == Unreadable(f"{path}:3", "the line is not a JSON object")


def test_line_beyond_the_limit_is_listed_and_the_rest_is_read(tmp_path):
    path = write(tmp_path, [record("user", "a", "1", None), record("user", "x" * MOST_LINE_BYTES, "2", "1")])
    with path.open("a") as file:
        file.write(json.dumps(record("assistant", "b", "3", "2")))
    conversation, unreadable = read(path)
    assert spoken(conversation) == [("user", "a"), ("assistant", "b")]
    assert unreadable == Unreadable(f"{path}:2", "the line is longer than 16 MiB")


def test_cycle_of_parents_ends(tmp_path):
    records = [
        record("user", "a", "1", "3"),
        record("assistant", "b", "2", "1"),
        record("user", "c", "3", "2"),
        record("user", "d", "4", "4"),
    ]
    assert read_records(tmp_path, records) == [("user", "a"), ("assistant", "b"), ("user", "c"), ("user", "d")]


def test_repeated_record_counts_once(tmp_path):
    records = [record("user", "a", "1", None, 1), record("assistant", "b", "2", "1", 2)]
    again = [{**each, "timestamp": START.isoformat()} for each in records]
    (conversation,) = read(write(tmp_path, [*records, *again]))
    assert spoken(conversation) == [("user", "a"), ("assistant", "b")]
    assert conversation.created == START + timedelta(minutes=1)


def test_records_without_ids_follow_each_other(tmp_path):
    records = [record("user", "a", None, None), record("assistant", "b", None, None), record("user", "c", None, None)]
    assert read_records(tmp_path, records) == [("user", "a"), ("assistant", "b"), ("user", "c")]


def test_queued_prompt_without_an_id_is_part_of_the_branch(tmp_path):
    attachment = {"type": "queued_command", "prompt": [{"type": "text", "text": "and this"}], "commandMode": "prompt"}
    records = [
        record("user", "a", "1", None),
        {"type": "attachment", "attachment": attachment, "timestamp": START.isoformat()},
        record("assistant", "b", "2", "1"),
    ]
    assert read_records(tmp_path, records) == [("user", "a"), ("user", "and this"), ("assistant", "b")]


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans()), max_size=12))
def test_messages_are_in_the_order_of_the_file_and_at_most_once(tmp_path_factory, links):
    records = [
        record("assistant" if answer else "user", f"text {number}", str(uuid), str(parent) if parent else None, number)
        for number, (uuid, parent, answer) in enumerate(links)
    ]
    path = write(tmp_path_factory.mktemp("links"), records)
    found = [int(message.text.split()[1]) for item in read(path) for message in item.messages]
    assert found == sorted(set(found))
    assert not links or found
