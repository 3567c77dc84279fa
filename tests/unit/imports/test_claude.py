"""Conversations, memories and projects of Claude's data export."""

import json
import os
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile_json import fragments, spoil
from memoryd_server.imports.claude import is_claude_file, read_claude
from memoryd_server.imports.conversation import Conversation, Document, Unreadable
from memoryd_server.imports.input_files import InputFiles
from properties import examples

FIXTURES = Path(__file__).parents[2] / "fixtures" / "imports" / "claude"
PERSON = "5b0e9d5e-0000-4000-8000-00000000ada0"
PROJECT = "0197c0de-0000-7000-8000-00000000b0a7"
ROOT = "00000000-0000-4000-8000-000000000000"
EXPORTED = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
ATTACHED = "[attachment: list.txt]\n[attachment: pasted text]\n[attachment: hull.jpg]"
VARNISH = [
    ("user", f"Which varnish is right for the boat?\n\n{ATTACHED}"),
    ("assistant", "I look it up.\n\nA two-component varnish."),
    ("user", "How many litres for 12 m²?"),
    ("assistant", "Three litres, in **two** coats."),
]


def read(*paths):
    with InputFiles(paths, is_claude_file) as files:
        return list(read_claude(files))


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """Return what is read from a file with these objects, or with these bytes."""
    path = tmp_path_factory.mktemp("export") / "conversations.json"

    def read_written(*objects, data=None):
        path.write_bytes(json.dumps(objects).encode() if data is None else data)
        os.utime(path, (EXPORTED.timestamp(),) * 2)
        return read(path)

    return read_written


def message(uuid, sender, text, parent=None, **more):
    found = {"uuid": uuid, "sender": sender, "content": [{"type": "text", "text": text}], **more}
    return found if parent is None else {**found, "parent_message_uuid": parent}


def conversation(*messages, **more):
    return {"uuid": "c-1", "name": "T", "chat_messages": list(messages), **more}


def spoken(item):
    return [(each.role, each.text) for each in item.messages]


def texts(item):
    return [each.text for each in item.messages]


def of(kind, items):
    return [each for each in items if isinstance(each, kind)]


def test_archive_has_conversations_projects_and_memories():
    found = read(FIXTURES / "archive")
    varnish, hello = of(Conversation, found)
    assert (varnish.origin, varnish.conversation_id) == ("claude", "0f4f1f9e-aaaa-4bbb-8ccc-000000000001")
    assert (varnish.title, varnish.project) == ("Varnish for the boat", "Boat")
    assert varnish.created == varnish.messages[0].time == datetime(2025, 6, 2, 8, 0, 0, 123_456, tzinfo=UTC)
    assert varnish.updated == datetime(2025, 6, 2, 8, 9, 0, 123_456, tzinfo=UTC)
    assert spoken(varnish) == VARNISH
    assert (hello.title, hello.project) == ("", "")
    assert hello.created == datetime(2024, 2, 1, 9, tzinfo=UTC)
    assert spoken(hello) == [("user", "Hello Claude"), ("assistant", "Hello!\n\nHow can I help?")]

    boat, hull, memories, of_boat = of(Document, found)
    assert (boat.document_id, boat.title, boat.project) == (PROJECT, "Boat", "Boat")
    assert boat.text == "Repairs of the boat in spring.\n\nUse metric units."
    assert (boat.created, boat.updated) == (datetime(2025, 5, 1, 7, tzinfo=UTC), datetime(2025, 5, 3, 7, tzinfo=UTC))
    assert (hull.document_id, hull.title, hull.project) == ("doc-0001", "hull.md", "Boat")
    assert hull.text == "# Hull\n\nOak, built 1971."
    assert (memories.document_id, memories.title) == (f"memories/{PERSON}", "Memories of Claude")
    assert memories.text == "**Work context**\n\nAda repairs boats."
    assert (of_boat.document_id, of_boat.title) == (f"memories/{PERSON}/{PROJECT}", "Memories of Claude: Boat")
    assert (of_boat.text, of_boat.project) == ("The varnish is ordered.", "Boat")
    assert len(found) == 6


def test_newer_export_has_a_file_for_each_project_and_conversations_name_it_by_its_id():
    found = read(FIXTURES / "split")
    varnish, logo = of(Conversation, found)
    assert (varnish.project, spoken(varnish)) == ("Boat", VARNISH)
    assert (logo.title, logo.project, logo.updated) == (
        "Logo",
        "Harbour",
        datetime(2025, 6, 2, 8, 22, 0, 123_456, tzinfo=UTC),
    )
    assert spoken(logo) == [
        ("user", "A logo with an anchor\n\n[attachment: sketch.png]"),
        ("assistant", "Here is a first version."),
    ]
    assert logo.messages[1].time == logo.updated
    preferences = of(Document, found)[-1]
    assert preferences.document_id == f"memories/{PERSON}/preferences.md"
    assert (preferences.title, preferences.text) == ("/preferences.md", "Prefers short answers.")
    assert preferences.updated == datetime(2025, 7, 2, tzinfo=UTC)
    assert len(found) == 7


def test_archives_of_one_export_are_read_together(tmp_path):
    for name, member in {
        "conversations-000.zip": "conversations.json",
        "projects-000.zip": f"projects/{PROJECT}.json",
        "memories-000.zip": f"memories/{PERSON}.json",
        "light_metadata-000.zip": "users.json",
    }.items():
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            info = zipfile.ZipInfo(member, (2026, 5, 4, 3, 2, 0))
            archive.writestr(info, (FIXTURES / "split" / member).read_bytes())
    found = read(*sorted(tmp_path.iterdir()))
    assert found == read(tmp_path)
    (varnish,) = of(Conversation, found)
    assert (varnish.project, spoken(varnish)) == ("Boat", VARNISH)
    assert [each.title for each in of(Document, found)] == [
        "Boat",
        "hull.md",
        "Memories of Claude",
        "Memories of Claude: Boat",
        "/preferences.md",
    ]
    assert of(Document, found)[2].updated == datetime(2026, 5, 4, 3, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    "path",
    [
        "conversations.json",
        "data-2026/conversations.json",
        "conversations-001.json",
        "projects.json",
        "memories.json",
        "projects/0197c0de.json",
        "x/memories/5b0e9d5e.json",
        "design_chats/1.json",
    ],
)
def test_files_of_the_export_are_known_by_name(path):
    assert is_claude_file(path)


@pytest.mark.parametrize("path", ["users.json", "manifest-1.json", "__MACOSX/projects/._a.json", "projects/a.txt", ""])
def test_other_files_are_not_read(path):
    assert not is_claude_file(path)


def test_examples_that_claude_adds_to_an_account_are_left_out(export):
    found = json.loads((FIXTURES / "archive" / "projects.json").read_text())
    assert export(found[1]) == []
    assert len(export({**found[1], "is_starter_project": False})) == 2


def test_newest_branch_is_read(export):
    branches = conversation(
        message("1", "human", "Q", ROOT, created_at="2025-01-01T00:00:00Z"),
        message("2", "assistant", "newest", "1", created_at="2025-01-01T00:09:00Z"),
        message("3", "assistant", "oldest", "1", created_at="2025-01-01T00:01:00Z"),
        message("4", "assistant", "later", "1", created_at="2025-01-01T00:05:00Z"),
    )
    (only,) = export(branches)
    assert texts(only) == ["Q", "newest"]
    (only,) = export({**branches, "current_leaf_message_uuid": "3"})
    assert texts(only) == ["Q", "oldest"]
    (only,) = export({**branches, "current_leaf_message_uuid": "gone"})
    assert texts(only) == ["Q", "newest"]


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([message("1", "human", "Q"), message("2", "assistant", "A")], id="no parents"),
        pytest.param(
            [
                message("1", "human", "Q", parent_message_uuid=None),
                message("2", "assistant", "A", parent_message_uuid=None),
            ],
            id="null",
        ),
        pytest.param([message("1", "human", "Q", "2"), message("2", "assistant", "A", "1")], id="cycle"),
        pytest.param(
            [message("1", "human", "Q", ROOT), message("2", "assistant", "A", "1"), message("2", "human", " ", "1")],
            id="same id",
        ),
        pytest.param(
            [message("1", "human", "Q", ROOT), message("2", "assistant", "A", "gone"), message("3", "human", "", "2")],
            id="a message is missing",
        ),
        pytest.param([message(None, "human", "Q", ROOT), message([], "assistant", "A", ROOT)], id="no ids"),
    ],
)
def test_messages_that_form_no_tree_are_read_in_their_order(export, messages):
    (only,) = export(conversation(*messages))
    assert texts(only) == ["Q", "A"]


@pytest.mark.attacks
def test_branch_that_ends_in_a_cycle_is_not_followed(export):
    found = [message("1", "human", "Q", ROOT), message("2", "assistant", "A", "3"), message("3", "human", "Q2", "2")]
    (only,) = export(conversation(*found, current_leaf_message_uuid="3"))
    assert texts(only) == ["Q", "A", "Q2"]


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "thinking", "thinking": "T"}],
        [{"type": "tool_use", "name": "search", "input": {"query": "Q"}}, {"type": "token_budget"}],
        [{"type": "tool_result", "content": [{"type": "text", "text": "R"}]}],
        [{"type": "something_new", "text": "N"}],
        [None, 3, "text", {"type": ["text"], "text": "x"}, {"type": "text"}],
    ],
)
def test_reasoning_and_tools_are_left_out(export, content):
    tool = {**message("2", "assistant", ""), "content": content, "text": "This block is not supported."}
    (only,) = export(conversation(message("1", "human", "Q"), tool, message("3", "assistant", "A")))
    assert texts(only) == ["Q", "A"]


@pytest.mark.parametrize("content", [None, [], "x", [{"type": "text", "text": ""}]])
def test_text_of_a_message_without_blocks_is_read(export, content):
    (only,) = export(conversation({"sender": "human", "content": content, "text": " Q \n"}))
    assert spoken(only) == [("user", "Q")]


def test_messages_of_others_are_left_out(export):
    (only,) = export(
        conversation(*[message(str(n), sender, "Q") for n, sender in enumerate(["human", "system", None, 3])])
    )
    assert spoken(only) == [("user", "Q")]


def test_conversation_in_which_nothing_was_said_is_passed_over(export):
    assert export(conversation(), conversation(message("1", "human", " ")), conversation(None, 3)) == []


@pytest.mark.parametrize("own", [None, "", 7, "x" * 201, "line\nbreak"])
def test_object_without_a_usable_id_is_reported(export, own):
    found = export(
        conversation(message("1", "human", "Q"), uuid=own),
        {"uuid": own, "messages": [{"role": "user", "content": {"content": "Q"}}]},
        {"uuid": own, "name": "P", "docs": [], "prompt_template": "I"},
    )
    assert [each.reason for each in found] == ["it has no usable id"] * 3
    assert found[2].place.endswith("conversations.json, conversation 3")


def test_memory_whose_path_is_no_id_is_reported(export):
    found = export({"memory_files": [{"path": "x" * 200, "content": "text"}, {"path": "", "content": "all"}]})
    assert [type(each) for each in found] == [Unreadable, Document]
    assert found[1].document_id == "memories"


def test_memories_without_a_time_have_that_of_their_file(export):
    (only,) = export({"conversations_memory": "M", "account_uuid": None})
    assert (only.document_id, only.created, only.updated) == ("memories", None, EXPORTED)


def test_file_of_a_project_without_an_id_is_known_by_its_name(export):
    project = {"uuid": "p", "name": "P", "docs": [{"filename": "a\n.md", "content": "text"}, None, {"content": " "}]}
    (only,) = export(project)
    assert (only.document_id, only.title) == ("p/a .md", "a .md")


def test_files_of_a_project_with_the_same_name_and_no_id_are_all_read(export):
    def file(text, day, name="a.md"):
        return {"filename": name, "content": text, "created_at": f"2025-01-0{day}T00:00:00Z"}

    docs = [file("third", 3), file("first", 1), {"filename": "a.md", "content": " "}, file("own", 4, "a.md (3)")]
    docs.append(file("second", 2))
    expected = [("p/a.md", "first"), ("p/a.md (2)", "second"), ("p/a.md (3)", "third"), ("p/a.md (3) (2)", "own")]
    for listed in (docs, docs[::-1]):
        found = export({"uuid": "p", "name": "P", "docs": listed})
        assert [(each.document_id, each.text) for each in found] == expected
        assert {each.title for each in found} == {"a.md", "a.md (3)"}


def test_memories_whose_paths_differ_only_in_slashes_are_all_read(export):
    files = [{"path": "/a", "content": "1"}, {"path": "a", "content": "2"}, {"path": "/", "content": "3"}]
    found = export({"conversations_memory": "0", "memory_files": files})
    ids = ["memories", "memories/a", "memories/a (2)", "memories (2)"]
    assert [(each.document_id, each.text) for each in found] == list(zip(ids, "0123", strict=True))


def test_export_of_chatgpt_is_recognized(export):
    (only,) = export({"id": "1", "mapping": {}})
    assert only.reason.endswith("it is one of ChatGPT: use `memoryd import chatgpt`")


def test_manifest_of_an_export_is_recognized(export):
    files = [{"category": "conversations", "filename": "conversations-000.zip", "export_url": "https://example.org/1"}]
    (only,) = export(data=json.dumps({"created_at": "2026-09-10T21:25:17Z", "data_files": files}).encode())
    assert "it is the manifest of an export: download the archives" in only.reason


def test_other_objects_are_reported_up_to_a_limit(export):
    found = export(*[{}] * 150)
    assert len(found) == 101
    assert found[0].reason == "it is no conversation, project or memory of Claude; it has none of their keys"


def test_file_that_is_cut_off_gives_the_conversations_before(export):
    data = json.dumps([conversation(message("1", "human", "Q"))] * 3).encode()
    *found, fault = export(data=data[:-10])
    assert [texts(each) for each in found] == [["Q"], ["Q"]]
    assert fault.place.endswith("conversations.json, conversation 3")


def check(items):
    for item in items:
        if isinstance(item, Unreadable):
            assert len(item.place) + len(item.reason) < 1000
            continue
        is_document = isinstance(item, Document)
        own = item.document_id if is_document else item.conversation_id
        assert 0 < len(own) <= 200
        assert own.isprintable()
        messages = () if is_document else item.messages
        assert is_document or messages
        for text in (item.title, item.project, *([item.text] if is_document else [each.text for each in messages])):
            text.encode()
        for time in (item.created, item.updated, *(each.time for each in messages)):
            assert time is None or time.tzinfo is UTC
        assert all(each.role in ("user", "assistant") and each.text.strip() for each in messages)


FIXED = [
    each
    for file in sorted(FIXTURES.rglob("*.json"))
    for loaded in [json.loads(file.read_text())]
    for each in (loaded if isinstance(loaded, list) else [loaded])
]
KEYS = [
    *(
        "uuid",
        "name",
        "chat_messages",
        "messages",
        "sender",
        "role",
        "content",
        "contentBlocks",
        "text",
        "type",
        "docs",
    ),
    *("parent_message_uuid", "created_at", "attachments", "files", "file_name", "project", "project_memories", "path"),
    *("memory_files", "conversations_memory", "prompt_template", "filename", "account_uuid", "description"),
]
STRINGS = ["human", "assistant", "user", "text", "0", "1", "\ud800", "2025-01-01", "0001-01-01T00:00:00+14:00"]
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(STRINGS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(FIXED), st.integers(0, 2000), fragments)
def test_any_value_anywhere_in_an_export_is_survived(export, reply, place, fragment):
    check(export(data=b"[" + spoil(reply, place, fragment) + b"]"))


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(trees)
def test_any_json_is_survived(export, tree):
    own = {"uuid": "1"}
    messages = {**own, "chat_messages": [tree, {"sender": "human", "content": tree, "text": tree}]}
    check(export(tree, messages, {**own, "messages": [tree]}, {**own, "docs": [tree]}, {"memory_files": [tree]}))
