"""Sessions of Claude Code: which of their records are the conversation."""

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claude_code_sessions import SESSION, read, read_records, record, spoken, write
from memoryd_server.imports.claude_code import MOST_RECORDS, is_claude_code_file
from memoryd_server.imports.conversation import Conversation, Unreadable
from properties import examples
from regex_attacks import takes_longer

FIXTURES = Path(__file__).parents[2] / "fixtures" / "imports" / "claude-code"
GATEWAY = FIXTURES / "projects" / "-home-ada-gateway"
BACKGROUND = "7d9e2f40-8c1a-4f6b-b0d3-2a5e4c6f8b02"
SORTING = "b7b0a3f2-1d4e-4a8c-8f27-93c5e6d7a803"

IDS = st.sampled_from(["a", "b", "c", "d", "e"])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BLOCKS = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "tool_use", "tool_result"]) | JSON, "text": JSON}),
    max_size=3,
)
MESSAGES = st.fixed_dictionaries({"content": JSON | BLOCKS, "id": IDS | JSON, "model": JSON}) | JSON
RECORDS = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "attachment", "system", "summary", "custom-title"]) | JSON},
    optional={
        "uuid": IDS | JSON,
        "parentUuid": IDS | JSON,
        "logicalParentUuid": IDS | JSON,
        "timestamp": st.sampled_from(["2026-03-14T09:00:00Z", "9999-12-31T23:59:59-10:00"]) | JSON,
        "message": MESSAGES,
        "attachment": JSON | st.fixed_dictionaries({"type": st.just("queued_command"), "prompt": JSON, "origin": JSON}),
        "isMeta": JSON,
        "isSidechain": JSON,
        "sessionId": JSON,
        "cwd": JSON,
        "customTitle": JSON,
        "summary": JSON,
        "leafUuid": IDS | JSON,
    },
)


def test_session_is_what_user_and_assistant_said_in_the_last_branch():
    (conversation,) = read(GATEWAY / f"{SESSION}.jsonl")
    assert conversation.origin == "claude-code"
    assert conversation.conversation_id == SESSION
    assert conversation.title == "Backups of the gateway"
    assert conversation.project == "/home/ada/gateway"
    assert conversation.created == datetime(2026, 3, 14, 9, 1, 0, 123_000, UTC)
    assert conversation.updated == datetime(2026, 3, 14, 9, 7, 5, 123_000, UTC)
    assert spoken(conversation) == [
        ("user", "Where are the backups of the gateway?\n\nI need the last one."),
        ("assistant", "I look into the folder of the backups."),
        ("user", "And how long are they kept?"),
        (
            "assistant",
            "They are in `/var/backups`, the last one is of **13 March**.\n\nEach is kept for 14 days.",
        ),
        ("user", "Keep them for 30 days instead."),
        ("assistant", "Done: `keep = 30`."),
        ("user", "/review the change of backup.conf"),
        ("assistant", "The change is fine."),
        ("user", "Thanks. What did we change?"),
        ("assistant", "We changed `keep` from 14 to 30."),
    ]


def test_folder_has_the_sessions_of_all_projects_without_subagents():
    found = {each.conversation_id: each for each in read(FIXTURES)}
    assert set(found) == {SESSION, BACKGROUND, SORTING}
    assert found[SORTING].title == "Sorting of notes"
    assert found[SORTING].project == "/home/ada/notes"


def test_session_in_the_background_has_only_the_messages_after_the_copied_ones():
    found = {each.conversation_id: each for each in read(GATEWAY)}
    assert spoken(found[BACKGROUND]) == [
        ("user", "Check every morning whether there is a new backup."),
        ("assistant", "I check it each day at 8."),
    ]
    assert len(found[SESSION].messages) == 10


def test_session_in_the_background_is_complete_if_its_source_is_not_imported():
    (conversation,) = read(GATEWAY / f"{BACKGROUND}.jsonl")
    assert len(conversation.messages) == 12


def test_order_of_the_files_does_not_change_which_session_is_the_copy():
    paths = [GATEWAY / f"{name}.jsonl" for name in (BACKGROUND, SESSION)]
    assert sorted(map(repr, read(*paths))) == sorted(map(repr, read(*reversed(paths))))


def test_forks_without_a_mark_share_no_message(tmp_path):
    shared = [record("user", "a", "1", None, 1), record("assistant", "b", "2", "1", 2)]
    write(tmp_path, [*shared, record("user", "c", "3", "2", 3)], SESSION)
    # A fork by the SDK has new ids.
    renamed = [record("user", "a", "7", None, 1), record("assistant", "b", "8", "7", 2)]
    write(tmp_path, [*renamed, record("user", "d", "9", "8", 9)], BACKGROUND)
    assert {each.conversation_id: spoken(each) for each in read(tmp_path)} == {
        SESSION: [("user", "a"), ("assistant", "b"), ("user", "c")],
        BACKGROUND: [("user", "d")],
    }


@pytest.mark.parametrize("folders", [("one", "two"), ("two", "one")])
def test_copy_of_a_session_in_another_project_counts_once(tmp_path, folders):
    records = [record("user", "a", "1", None, 1), record("assistant", "b", "2", "1", 2)]
    write(tmp_path / folders[0], records)
    write(tmp_path / folders[1], [*records, record("user", "c", "3", "2", 3)])
    (conversation,) = read(tmp_path)
    assert spoken(conversation) == [("user", "a"), ("assistant", "b"), ("user", "c")]


def test_equal_messages_of_different_times_are_different_sessions(tmp_path):
    write(tmp_path, [record("user", "hello", "1", None, 1)], SESSION)
    write(tmp_path, [record("user", "hello", "1", None, 2)], BACKGROUND)
    assert len(read(tmp_path)) == 2


def test_subagents_are_left_out_of_a_single_file(tmp_path):
    assert read(GATEWAY / "agent-0badcafe.jsonl") == []


def test_sessions_in_a_zip_archive(tmp_path):
    archive = tmp_path / "claude.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(GATEWAY / f"{SESSION}.jsonl", f"projects/x/{SESSION}.jsonl")
        file.writestr(f"projects/x/{SESSION}/subagents/{SORTING}.jsonl", "{}")
    (conversation,) = read(archive)
    assert conversation.conversation_id == SESSION


@pytest.mark.parametrize(
    ("path", "is_wanted"),
    [
        (f"{SESSION}.jsonl", True),
        (f"projects/-home-ada/{SESSION.upper()}.jsonl", True),
        ("projects/-home-ada/agent-a1b2c3d.jsonl", False),
        (f"projects/x/{SESSION}/subagents/agent-a1b2c3d.jsonl", False),
        (f"projects/x/{SESSION}/subagents/{SESSION}.jsonl", False),
        ("history.jsonl", False),
        (f"{SESSION}.json", False),
    ],
)
def test_names_of_session_files(path, is_wanted):
    assert is_claude_code_file(path) is is_wanted


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "file"},
        {"commandMode": "task-notification"},
        {"origin": {"kind": "coordinator"}},
        {"origin": {"kind": []}},
        {"prompt": None},
    ],
)
def test_attachments_that_the_user_did_not_write_are_left_out(tmp_path, fields):
    attachment = {"type": "queued_command", "prompt": "x", "commandMode": "prompt", **fields}
    records = [record("user", "a", "1", None), record("attachment", "", "2", "1", attachment=attachment)]
    assert read_records(tmp_path, records) == [("user", "a")]


@pytest.mark.parametrize(
    "text",
    [
        "<system-reminder>x</system-reminder>",
        "[Request interrupted by user for tool use]",
        "<bash-input>ls</bash-input>",
        "<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>",
        "<command-name>/clear</command-name>\n<command-message>clear</command-message>\n<command-args></command-args>",
        "Caveat: The messages below were generated by the user while running local commands. DO NOT respond",
        "This session is being continued from a previous conversation that ran out of context. Summary: x",
        '<teammate-message teammate_id="lead">go</teammate-message>',
        " \n ",
    ],
)
def test_generated_messages_of_the_user_are_left_out(tmp_path, text):
    records = [record("user", "a", "1", None), record("user", text, "2", "1"), record("assistant", "b", "3", "2")]
    assert read_records(tmp_path, records) == [("user", "a"), ("assistant", "b")]


@pytest.mark.parametrize(
    "fields",
    [
        {"isMeta": True},
        {"isCompactSummary": True},
        {"isApiErrorMessage": True},
        {"isSidechain": True},
        {"teamName": "builders", "agentName": "roofer"},
        {"message": {"model": "<synthetic>", "content": [{"type": "text", "text": "Prompt is too long"}]}},
    ],
)
def test_marked_records_are_left_out(tmp_path, fields):
    records = [record("user", "a", "1", None), record("assistant", "x", "2", "1", **fields)]
    assert read_records(tmp_path, [*records, record("assistant", "b", "3", "2")]) == [("user", "a"), ("assistant", "b")]


@pytest.mark.parametrize("name", [{}, {"agentName": "team-lead"}])
def test_session_of_the_leader_of_a_team_is_read(tmp_path, name):
    records = [record("user", "a", "1", None, teamName="builders", **name)]
    assert read_records(tmp_path, records) == [("user", "a")]


def test_quoted_elements_within_a_message_stay(tmp_path):
    text = "What does this mean?\n<system-reminder>x</system-reminder>\nIt is in the log."
    assert read_records(tmp_path, [record("user", text, "1", None)]) == [("user", text)]


def test_file_of_another_format_is_listed(tmp_path):
    path = tmp_path / "rollout.jsonl"
    path.write_text('{"type": "session_meta", "payload": {"id": "x"}}\n')
    assert read(path) == [Unreadable(str(path), "the file contains no record of a session of Claude Code")]


def test_empty_session_is_silent(tmp_path):
    path = write(tmp_path, [])
    assert read(path) == []
    assert read(FIXTURES / "projects" / "-home-ada-notes" / "c0ffee00-1111-4222-8333-444455556604.jsonl") == []


def test_renamed_file_has_the_id_of_its_records(tmp_path):
    (conversation,) = read(write(tmp_path, [record("user", "a", "1", None)], "my session"))
    assert conversation.conversation_id == SESSION
    records = [{**record("user", "a", "1", None), "sessionId": "a\nb"}]
    (conversation,) = read(write(tmp_path, records, "my session"))
    assert conversation.conversation_id == "my session"


def test_session_without_a_usable_id_is_listed(tmp_path):
    write(tmp_path, [{**record("user", "a", "1", None), "sessionId": 7}], "a\u202eb")
    (unreadable,) = read(tmp_path, wanted=lambda _: True)
    assert unreadable.reason == "the session has no usable id"


def test_session_with_too_much_text_is_listed(tmp_path):
    # Each character of this text takes four bytes of memory.
    text = "x" * (3 << 20) + "\N{GRINNING FACE}"
    path = write(tmp_path, [record("user", text, str(number), None) for number in range(6)])
    (unreadable,) = read(path)
    assert unreadable == Unreadable(str(path), "the session has more than 64 MiB of messages")


def test_output_of_tools_does_not_count_as_text(tmp_path):
    output = [{"type": "tool_result", "content": "x" * (1 << 18) + "\N{GRINNING FACE}"}]
    records = [record("user", "a", "0", None)]
    records += [record("user", output, str(number), str(number - 1)) for number in range(1, 80)]
    assert read_records(tmp_path, records) == [("user", "a")]


@pytest.mark.slow
def test_session_with_too_many_records_is_listed(tmp_path):
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_text("".join(f'{{"type":"system","uuid":"{number}"}}\n' for number in range(MOST_RECORDS + 1)))
    assert read(path) == [Unreadable(str(path), "the session has more than 300,000 records")]


@settings(max_examples=examples(60))
@given(st.lists(RECORDS | JSON, max_size=12))
def test_any_records_can_be_read(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("any") / f"{SESSION}.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    for item in read(path, path):
        if isinstance(item, Conversation):
            assert item.messages
            assert all(message.text.strip() and message.role in {"user", "assistant"} for message in item.messages)
            assert all(message.time is None or message.time.tzinfo is UTC for message in item.messages)
            assert isinstance(item.title, str)
            assert isinstance(item.project, str)


@pytest.mark.parametrize(
    "text",
    [
        "<system-reminder></system-reminder>",
        "<system-reminder>",
        "<command-name>/a",
        "<system-reminder ",
        "</system-reminder>",
        " \n",
    ],
)
def test_elements_are_removed_in_linear_time(tmp_path, text):
    def work(count):
        path = write(tmp_path, [record("user", text * count, "1", None)])
        read(path)

    count = 200_000 // len(text) + 1
    assert not takes_longer(work, count, count * 8, 30, 0.01)
