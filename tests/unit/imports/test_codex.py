"""Threads of Codex: which of their records are the conversation, and which files are a thread."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from string import ascii_letters

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.imports.codex import is_codex_file, read_codex
from memoryd_server.imports.conversation import Conversation, Unreadable
from memoryd_server.imports.input_files import InputFiles
from memoryd_server.sources.compression import zstd
from properties import examples
from regex_attacks import takes_longer

FIXTURES = Path(__file__).parents[2] / "fixtures" / "imports" / "codex"
LOGS = "019df7ae-b036-76c2-a499-fe10385d955a"
FORK = "019e0000-1111-7000-8000-000000000002"
PORT = "019f0000-2222-7000-8000-000000000003"
FIRST_FORMAT = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
THREAD = "019f1111-0000-7000-8000-00000000000a"
OTHER = "019f1111-0000-7000-8000-00000000000b"
PAGES = ("019f1111-0000-7000-8000-0000000000c1", "019f1111-0000-7000-8000-0000000000c2")
START = datetime(2026, 5, 5, 10, tzinfo=UTC)

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
IDS = st.sampled_from([THREAD, OTHER, *PAGES])
BLOCKS = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["input_text", "output_text"]) | JSON, "text": JSON}), max_size=3
)
PAYLOADS = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "thread_rolled_back", "thread_name_updated"]) | JSON},
    optional={
        "role": st.sampled_from(["user", "assistant", "developer"]) | JSON,
        "content": BLOCKS | JSON,
        "num_turns": st.integers(-1, 3) | JSON,
        "thread_name": JSON,
        "internal_chat_message_metadata_passthrough": JSON | st.fixed_dictionaries({"content_item_kinds": JSON}),
        "id": IDS | JSON,
        "timestamp": JSON,
        "cwd": JSON,
        "source": JSON,
        "thread_source": JSON,
        "forked_from_id": IDS | JSON,
        "history_base": JSON | st.fixed_dictionaries({"thread_id": IDS | JSON, "end_ordinal_exclusive": JSON}),
    },
)
RECORDS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["session_meta", "response_item", "event_msg", "message", "compacted"]) | JSON,
        "payload": PAYLOADS | JSON,
    },
    optional={"timestamp": JSON, "ordinal": JSON, "id": JSON, "role": st.just("user"), "content": JSON},
)


def read(*paths, wanted=is_codex_file):
    with InputFiles(paths, wanted) as files:
        return list(read_codex(files))


def by_id(items):
    return {each.conversation_id: each for each in items}


def spoken(conversation):
    return [(message.role, message.text) for message in conversation.messages]


def meta(thread=THREAD, minute=0, **fields):
    time = (START + timedelta(minutes=minute)).isoformat()
    payload = {"id": thread, "timestamp": time, "cwd": "/home/ada", "source": "cli", **fields}
    return {"timestamp": time, "type": "session_meta", "payload": payload}


def said(role, *texts, minute=0, **fields):
    content = [{"type": "output_text" if role == "assistant" else "input_text", "text": text} for text in texts]
    time = (START + timedelta(minutes=minute)).isoformat()
    return {
        "timestamp": time,
        "type": "response_item",
        "payload": {"type": "message", "role": role, "content": content},
    } | fields


def event(kind, **fields):
    return {"timestamp": START.isoformat(), "type": "event_msg", "payload": {"type": kind, **fields}}


def write(folder, *records, name=THREAD, suffix=".jsonl"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rollout-2026-05-05T10-00-00-{name}{suffix}"
    data = "".join(f"{json.dumps(each)}\n" for each in records).encode()
    path.write_bytes(zstd.compress(data) if suffix.endswith(".zst") else data)
    return path


def read_records(folder, *records):
    (conversation,) = read(write(folder, meta(), *records))
    return spoken(conversation)


def test_thread_is_what_user_and_assistant_said():
    conversation = by_id(read(FIXTURES))[LOGS]
    assert conversation.origin == "codex"
    assert conversation.title == "Rotation of the logs"
    assert conversation.project == "/home/ada/gateway"
    assert conversation.created == datetime(2026, 5, 5, 10, 1, tzinfo=UTC)
    assert conversation.updated == datetime(2026, 5, 5, 10, 7, tzinfo=UTC)
    assert spoken(conversation) == [
        ("user", "Rotate the logs of the gateway."),
        ("assistant", "I look at the logs first."),
        ("assistant", "Added `/etc/logrotate.d/gateway`.\n\n- daily\n- 7 files"),
        ("user", "Keep 14 files."),
        ("assistant", "Now 14 files are kept."),
    ]


def test_folder_has_all_threads_without_subagents():
    assert set(by_id(read(FIXTURES))) == {LOGS, FORK, PORT, FIRST_FORMAT}


def test_name_in_the_thread_is_the_title_without_an_index():
    (conversation,) = read(*FIXTURES.glob(f"sessions/*/*/*/*-{LOGS}.jsonl"))
    assert conversation.title == "Logs"


def test_fork_has_only_the_messages_after_the_copied_ones():
    conversation = by_id(read(FIXTURES))[FORK]
    assert spoken(conversation) == [
        ("user", "Compress the old files, too."),
        ("assistant", "They are compressed now."),
    ]
    assert conversation.created == datetime(2026, 5, 6, 8, 1, tzinfo=UTC)
    assert conversation.title == ""


def test_fork_is_complete_if_its_source_is_not_imported():
    (conversation,) = read(*FIXTURES.glob(f"sessions/*/*/*/*-{FORK}.jsonl"))
    assert len(conversation.messages) == 7


def test_page_continues_its_thread_from_the_position_that_it_names():
    assert spoken(by_id(read(FIXTURES))[PORT]) == [
        ("user", "Which port does the gateway use?"),
        ("assistant", "Port 18789."),
        ("user", "Change it to 8080."),
        ("assistant", "Changed to 8080."),
    ]


def test_page_without_its_thread_is_read_alone():
    (conversation,) = read(*FIXTURES.glob("sessions/2026/09/02/*"))
    assert conversation.conversation_id == PORT
    assert len(conversation.messages) == 2


def test_first_format_has_no_envelopes_and_no_times():
    conversation = by_id(read(FIXTURES))[FIRST_FORMAT]
    assert spoken(conversation) == [
        ("user", "What does the Makefile do?"),
        ("assistant", "It builds the gateway."),
    ]
    assert conversation.created == conversation.updated == datetime(2025, 5, 7, 17, 24, 21, 123_000, UTC)
    assert [message.time for message in conversation.messages] == [None, None]


def test_compressed_thread_is_read_and_a_plain_file_takes_precedence(tmp_path):
    # The compressed file is the larger one.
    noise = said("developer", "".join(Random(1).choices(ascii_letters, k=3000)))
    write(tmp_path, meta(), said("user", "compressed"), noise, suffix=".jsonl.zst")
    (conversation,) = read(tmp_path)
    assert spoken(conversation) == [("user", "compressed")]
    write(tmp_path, meta(), said("user", "plain"))
    (conversation,) = read(tmp_path)
    assert spoken(conversation) == [("user", "plain")]


def test_archived_copy_of_a_thread_counts_once(tmp_path):
    records = [meta(), said("user", "a"), said("assistant", "b")]
    write(tmp_path / "sessions" / "2026", *records[:2])
    write(tmp_path / "archived_sessions", *records)
    (conversation,) = read(tmp_path)
    assert spoken(conversation) == [("user", "a"), ("assistant", "b")]


def test_chain_of_pages(tmp_path):
    first, second = PAGES
    write(tmp_path, meta(), said("user", "a"), said("user", "b"), said("user", "reverted"))
    write(
        tmp_path,
        meta(minute=1, history_base={"thread_id": THREAD, "end_ordinal_exclusive": 3}),
        said("user", "c", ordinal=4),
        said("user", "also reverted", ordinal=5),
        name=f"{THREAD}_{first}",
    )
    write(
        tmp_path,
        meta(minute=2, history_base={"thread_id": first, "end_ordinal_exclusive": 5}),
        said("user", "d", ordinal=6),
        name=f"{THREAD}_{second}",
    )
    (conversation,) = read(tmp_path)
    assert [text for _, text in spoken(conversation)] == ["a", "b", "c", "d"]


def test_page_is_the_newer_file_by_its_name_if_the_described_times_are_equal(tmp_path):
    base = {"thread_id": THREAD, "end_ordinal_exclusive": 2}
    page = write(tmp_path, meta(history_base=base), said("user", "b"), name=f"{THREAD}_{PAGES[0]}")
    page.rename(page.with_name(page.name.replace("T10-00-00", "T10-00-01")))
    write(tmp_path, meta(), said("user", "a"), said("user", "reverted " * 100))
    (conversation,) = read(tmp_path)
    assert [text for _, text in spoken(conversation)] == ["a", "b"]


def test_cycle_of_pages_ends(tmp_path):
    first, second = PAGES
    for page, other in ((first, second), (second, first)):
        write(
            tmp_path,
            meta(history_base={"thread_id": other, "end_ordinal_exclusive": 100}),
            said("user", page),
            name=f"{THREAD}_{page}",
        )
    (conversation,) = read(tmp_path)
    assert sorted(text for _, text in spoken(conversation)) == [first, second]


def test_fork_with_a_base_in_another_thread_is_read_alone(tmp_path):
    write(tmp_path, meta(), said("user", "a"))
    base = {"thread_id": THREAD, "end_ordinal_exclusive": 2}
    write(tmp_path, meta(OTHER, forked_from_id=THREAD, history_base=base), said("user", "a"), name=OTHER)
    assert spoken(by_id(read(tmp_path))[OTHER]) == [("user", "a")]


def test_fork_of_a_fork(tmp_path):
    write(tmp_path, meta(), said("user", "a"))
    write(tmp_path, meta(OTHER, forked_from_id=THREAD), meta(), said("user", "a"), said("user", "b"), name=OTHER)
    write(
        tmp_path,
        meta(PAGES[0], forked_from_id=OTHER),
        said("user", "a"),
        said("user", "b"),
        said("user", "c"),
        name=PAGES[0],
    )
    assert [spoken(each) for each in read(tmp_path)] == [[("user", "a")], [("user", "b")], [("user", "c")]]


def test_fork_without_a_new_message_is_left_out(tmp_path):
    write(tmp_path, meta(), said("user", "a"), said("assistant", "b"))
    write(tmp_path, meta(OTHER, forked_from_id=THREAD), said("user", "a"), name=OTHER)
    assert list(by_id(read(tmp_path))) == [THREAD]


def test_rollback_removes_turns(tmp_path):
    turns = [said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d"), said("user", "e")]
    assert read_records(tmp_path, *turns, event("thread_rolled_back", num_turns=2)) == [
        ("user", "a"),
        ("assistant", "b"),
    ]
    for number in (0, -1, 1.5, None, "2", True):
        assert len(read_records(tmp_path, *turns, event("thread_rolled_back", num_turns=number))) == 5
    assert read(write(tmp_path, meta(), *turns, event("thread_rolled_back", num_turns=9))) == []


def test_rollback_does_not_count_generated_messages_as_turns(tmp_path):
    turns = [said("user", "a"), said("user", "b"), said("user", "<turn_aborted>\nx\n</turn_aborted>")]
    assert read_records(tmp_path, *turns, event("thread_rolled_back", num_turns=1)) == [("user", "a")]


@pytest.mark.parametrize(
    "text",
    [
        "# AGENTS.md instructions for /home/ada\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>",
        "# AGENTS.md instructions\n\n<INSTRUCTIONS>\nEnd with </INSTRUCTIONS> always.\n</INSTRUCTIONS>\n",
        "# AGENTS.md instructions\n\n<INSTRUCTIONS>\ncut off",
        "<environment_context>\n  <cwd>/home</cwd>\n</environment_context>",
        "<user_instructions>\nBe brief.\n</user_instructions>",
        "<external_tickets>\nx\n</external_tickets>",
        '<codex_internal_context source="goal">\nx\n</codex_internal_context>',
        "<user_shell_command>\n<command>ls</command>\n</user_shell_command>",
        "<image name=[Image #1]>",
        "</image>",
        "\n",
    ],
)
def test_generated_messages_of_the_user_are_left_out(tmp_path, text):
    assert read_records(tmp_path, said("user", text), said("user", text, "question")) == [("user", "question")]


def test_request_after_generated_text_stays(tmp_path):
    prefix = "# AGENTS.md instructions for /home\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>\n\n<skill>\ny\n</skill>\n\n"
    assert read_records(tmp_path, said("user", f"{prefix}question")) == [("user", "question")]
    editor = "# Context from my IDE setup:\n\n## Open tabs:\n- a\n\n## My request for Codex:\n# question\n"
    assert read_records(tmp_path, said("user", editor)) == [("user", "# question")]


def test_kinds_of_parts_decide_if_they_are_known(tmp_path):
    message = said("user", "from a hook", "<skill>quoted</skill> means what?")
    message["payload"]["internal_chat_message_metadata_passthrough"] = {
        "content_item_kinds": ["hooks.additional_context", "user.text"]
    }
    assert read_records(tmp_path, message) == [("user", "means what?")]
    answer = said("assistant", "from another agent", "answer")
    answer["payload"]["internal_chat_message_metadata_passthrough"] = {
        "content_item_kinds": ["multi_agent.inter_agent_completion_message", ""]
    }
    assert read_records(tmp_path, answer) == [("assistant", "answer")]


@pytest.mark.parametrize(
    "fields",
    [
        {"source": {"subagent": "review"}},
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": THREAD}}}},
        {"source": {"internal": "memory_consolidation"}},
        {"thread_source": "subagent"},
    ],
)
def test_threads_of_other_agents_are_left_out(tmp_path, fields):
    assert read(write(tmp_path, meta(**fields), said("user", "x"))) == []


def test_index_alone_has_no_threads():
    assert read(FIXTURES / "session_index.jsonl") == []


def test_file_of_another_format_is_listed(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"session_id": "x", "ts": 1, "text": "hello"}\n')
    assert read(path) == [Unreadable(str(path), "the file contains no record of a session of Codex")]
    path.write_text("")
    assert read(path) == []


def test_thread_that_is_cut_off_has_the_messages_before(tmp_path):
    path = write(tmp_path, meta(), said("user", "a"))
    with path.open("a") as file:
        file.write(json.dumps(said("assistant", "b"))[:-20])
    conversation, unreadable = read(path)
    assert spoken(conversation) == [("user", "a")]
    assert unreadable == Unreadable(f"{path}:3", "the line is cut off")


def test_thread_with_too_much_text_is_listed(tmp_path):
    # Each character of this text takes four bytes of memory.
    text = "x" * (3 << 20) + "\N{GRINNING FACE}"
    path = write(tmp_path, meta(), *(said("user", text) for _ in range(6)))
    assert read(path) == [Unreadable(str(path), "the session has more than 64 MiB of messages")]


def test_text_that_was_rolled_back_does_not_count(tmp_path):
    text = "x" * (3 << 20) + "\N{GRINNING FACE}"
    turns = [each for _ in range(6) for each in (said("user", text), event("thread_rolled_back", num_turns=1))]
    assert read_records(tmp_path, *turns, said("user", "a")) == [("user", "a")]


def test_id_of_a_file_without_a_description_is_in_its_name(tmp_path):
    (conversation,) = read(write(tmp_path, said("user", "a")))
    assert conversation.conversation_id == THREAD
    path = tmp_path / "copy.jsonl"
    path.write_text(json.dumps(said("user", "a")))
    assert [each.conversation_id for each in read(path)] == ["copy"]


def test_file_without_a_usable_id_is_listed(tmp_path):
    path = tmp_path / "rollout-\u202e.jsonl"
    path.write_text(json.dumps(said("user", "a")))
    (unreadable,) = read(tmp_path)
    assert unreadable.reason == "the file has no usable id of a thread"


@pytest.mark.parametrize(
    ("path", "is_wanted"),
    [
        (f"sessions/2026/05/05/rollout-2026-05-05T10-00-00-{THREAD}.jsonl", True),
        (f"archived_sessions/rollout-2026-05-05T10-00-00-{THREAD}.jsonl.zst", True),
        ("session_index.jsonl", True),
        ("history.jsonl", False),
        ("sessions/rollout-2025-04-01-x.json", False),
    ],
)
def test_names_of_files(path, is_wanted):
    assert is_codex_file(path) is is_wanted


@settings(max_examples=examples(60))
@given(st.lists(st.lists(RECORDS | JSON, max_size=6), min_size=1, max_size=3))
def test_any_records_can_be_read(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("any")
    for name, records in zip((THREAD, f"{THREAD}_{PAGES[0]}", OTHER), files, strict=False):
        write(folder, *records, name=name)
    for item in read(folder):
        if isinstance(item, Conversation):
            assert item.conversation_id
            assert item.messages
            assert all(message.text.strip() and message.role in {"user", "assistant"} for message in item.messages)
            assert all(message.time is None or message.time.tzinfo is UTC for message in item.messages)
            assert isinstance(item.title, str)
            assert isinstance(item.project, str)


@pytest.mark.parametrize(
    "text",
    ["<image></image>", "<skill>", "# AGENTS.md instructions", "</INSTRUCTIONS>", "## My request for Codex:\n", " \n"],
)
def test_generated_text_is_removed_in_linear_time(tmp_path, text):
    def work(count):
        path = write(tmp_path, meta(), said("user", "# " + text * count), said("user", text * count))
        read(path)

    count = 200_000 // len(text) + 1
    assert not takes_longer(work, count, count * 8, 30, 0.01)


def test_many_forks_read_their_source_once(tmp_path):
    for source in (THREAD, OTHER):
        write(tmp_path, meta(source), *(said("user", "x" * 100_000) for _ in range(10)), name=source)
    for number in range(20):
        fork = f"019f1111-0000-7000-9000-{number:012d}"
        source = OTHER if number % 2 else THREAD
        write(tmp_path, meta(fork, forked_from_id=source), said("user", "y"), name=fork)
    with InputFiles([tmp_path], is_codex_file) as files:
        assert len(list(read_codex(files))) == 22
        # The sources are read for their own messages and once for their forks.
        assert files.bytes_read < 3 * files.total_bytes
