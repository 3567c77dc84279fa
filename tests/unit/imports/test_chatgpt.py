"""Conversations of ChatGPT's data export."""

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile_json import fragments, spoil
from memoryd_server.imports.chatgpt import is_chatgpt_file, read_chatgpt
from memoryd_server.imports.conversation import Conversation, Unreadable
from memoryd_server.imports.input_files import InputFiles
from memoryd_server.imports.json_stream import MAX_ELEMENT_BYTES
from properties import examples
from regex_attacks import takes_longer

FIXTURES = Path(__file__).parents[2] / "fixtures" / "imports" / "chatgpt"
START = datetime(2025, 3, 14, 9, 26, 53, tzinfo=UTC)
SECONDS = START.timestamp()


def read(path):
    with InputFiles([path], is_chatgpt_file) as files:
        return list(read_chatgpt(files))


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """Return what is read from a file with these conversations, or with these bytes."""
    path = tmp_path_factory.mktemp("export") / "conversations.json"

    def read_written(*conversations, data=None):
        path.write_bytes(json.dumps(conversations).encode() if data is None else data)
        return read(path)

    return read_written


def message(role, *parts, at=None, **more):
    content = {"content_type": "text", "parts": list(parts)}
    fields = {"author": {"role": role}, "create_time": at, "content": content, "recipient": "all", "metadata": {}}
    return {**fields, **more}


def conversation(*messages, **more):
    """A conversation whose messages follow each other."""
    mapping = {"0": {"id": "0", "parent": None, "message": None}}
    for number, each in enumerate(messages, 1):
        mapping[str(number)] = {"id": str(number), "parent": str(number - 1), "message": each}
    return {"conversation_id": "c-1", "title": "T", "mapping": mapping, "current_node": str(len(messages)), **more}


def spoken(item):
    return [(each.role, each.text) for each in item.messages]


def said(export, *messages, **more):
    """What is read of a conversation with these messages; without the first question."""
    (only,) = export(conversation(message("user", "Q"), *messages, **more))
    assert spoken(only)[0] == ("user", "Q")
    return spoken(only)[1:]


def test_older_export_has_one_file_and_lists_children():
    (only,) = read(FIXTURES / "single")
    assert (only.origin, only.conversation_id) == ("chatgpt", "67d3f1a2-5b1c-8004-9f00-3a2b4c5d6e7f")
    assert (only.title, only.project) == ("Backups of the gateway", "")
    assert only.created == START
    assert only.updated == datetime(2025, 3, 14, 9, 27, 57, 500_000, tzinfo=UTC)
    assert spoken(only) == [
        ("user", "Where are the backups of the gateway kept?"),
        ("assistant", "They are on the NAS:\n\n- daily at 02:00\n- weekly on Sunday"),
        ("user", "Thanks \N{EN DASH} and the key?"),
        ("assistant", "```bash\ngpg --list-keys backup\n```"),
    ]
    assert only.messages[0].time == datetime(2025, 3, 14, 9, 27, 23, tzinfo=UTC)


def test_newer_export_has_numbered_files_and_only_parents():
    panels, greeting = read(FIXTURES / "sharded")
    assert panels.project == "g-p-6789abcdef"
    assert spoken(panels) == [
        ("user", "How many panels fit on this roof?\n\n[attachment: roof.png]"),
        (
            "assistant",
            "About 14 panels fit. A panel of Heliotek is 1.7 m long; see the data sheet (https://example.org/panel.pdf).",
        ),
        ("user", "And what does it cost?"),
        ("assistant", "Between six and eight thousand euros."),
        ("user", "Order it."),
        ("assistant", "I am opening the shop."),
    ]
    assert (greeting.title, greeting.updated) == ("", datetime(2025, 3, 14, 10, 50, 23, tzinfo=UTC))
    assert spoken(greeting) == [("user", "你好 👋"), ("assistant", "你好\N{FULLWIDTH EXCLAMATION MARK}")]


@pytest.mark.parametrize("layout", ["single", "sharded"])
def test_archive_gives_the_same_as_the_folder(tmp_path, layout):
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted((FIXTURES / layout).iterdir()):
            archive.write(file, f"export/{file.name}")
            archive.writestr(f"__MACOSX/export/._{file.name}", b"\x00\x05")
            archive.writestr(f"__MACOSX/export/{file.name}", b"\x00\x05")
    assert read(tmp_path / "export.zip") == read(FIXTURES / layout)


def test_single_file_gives_its_conversations():
    assert read(FIXTURES / "sharded" / "conversations-001.json") == read(FIXTURES / "sharded")[1:]


@pytest.mark.parametrize("path", ["conversations.json", "x/conversations-000.json", "conversations-123.json"])
def test_files_with_conversations_are_known_by_name(path):
    assert is_chatgpt_file(path)


@pytest.mark.parametrize("path", ["shared_conversations.json", "conversations.json.bak", "chat.html", "user.json", ""])
def test_other_files_are_not_read(path):
    assert not is_chatgpt_file(path)


def test_branch_that_is_shown_is_read(export):
    (only,) = export({**FIXED[-1], "current_node": "reply-draft"})
    assert spoken(only) == [
        ("user", "Where is the gateway?"),
        ("assistant", "Which gateway do you mean?"),
    ]


def test_newest_branch_is_read_if_none_is_named(export):
    branches = conversation(message("user", "Q", at=SECONDS), current_node="gone")
    branches["mapping"]["old"] = {"parent": "1", "message": message("assistant", "old", at=SECONDS + 1)}
    branches["mapping"]["new"] = {"parent": "1", "message": message("assistant", "new", at=SECONDS + 9)}
    branches["mapping"]["mid"] = {"parent": "1", "message": message("assistant", "mid", at=SECONDS + 5)}
    (only,) = export(branches)
    assert spoken(only) == [("user", "Q"), ("assistant", "new")]


def test_nodes_that_only_list_their_children_are_followed(export):
    found = conversation(message("user", "Q"), message("assistant", "A"))
    for name, node in found["mapping"].items():
        del node["parent"]
        node["children"] = [str(int(name) + 1)] if name < "2" else []
    (only,) = export(found)
    assert spoken(only) == [("user", "Q"), ("assistant", "A")]


def test_messages_without_any_order_are_read_by_their_times(export):
    found = conversation(message("user", "Q", at=SECONDS), message("assistant", "A", at=SECONDS + 2))
    found["mapping"]["between"] = {"message": message("assistant", "before", at=SECONDS + 1)}
    for node in found["mapping"].values():
        node.pop("parent", None)
    (only,) = export(found)
    assert [text for _, text in spoken(only)] == ["Q", "before", "A"]


@pytest.mark.attacks
def test_cycle_ends_the_branch_and_is_reported(export):
    found = conversation(message("user", "Q"), message("assistant", "A"), message("user", "Q2"))
    found["mapping"]["1"]["parent"] = "3"
    fault, only = export(found)
    assert fault.reason == "its messages form a cycle; some may be missing"
    assert spoken(only) == [("user", "Q"), ("assistant", "A"), ("user", "Q2")]
    found["mapping"]["2"]["parent"] = "2"
    assert [type(each) for each in export(found)] == [Unreadable, Conversation]
    del found["current_node"]
    assert [type(each) for each in export(found)] == [Unreadable, Conversation]


def test_message_that_is_missing_in_the_export_is_reported(export):
    found = conversation(message("user", "Q"), message("assistant", "A"), message("user", "Q2"))
    del found["mapping"]["2"]
    fault, only = export(found)
    assert "a message is missing in the export" in fault.reason
    assert spoken(only) == [("user", "Q2")]


@pytest.mark.parametrize(
    "left_out",
    [
        message("system", "instruction"),
        message("tool", "result"),
        message("assistant", "search", recipient="web.run"),
        message("assistant", "hidden", metadata={"is_visually_hidden_from_conversation": True}),
        message("user", "hidden", weight=0),
        message("assistant", "weighing", channel="analysis"),
        message("assistant", "", "   "),
        message("assistant", content={"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "c"}]}),
        message("assistant", content={"content_type": "reasoning_recap", "content": "Thought for 4s"}),
        message("assistant", content={"content_type": "code", "text": "print(1)"}, recipient="python"),
        message("assistant", content={"content_type": "execution_output", "text": "1"}),
        message("user", content={"content_type": "user_editable_context", "user_profile": "me"}),
        message("user", content={"content_type": "tether_quote", "text": "quoted", "title": "file"}),
        message("assistant", content={"content_type": "something_new", "parts": ["new"]}),
        message("nobody", "text"),
        message("assistant", content=None),
        None,
        "text",
    ],
)
def test_what_is_no_part_of_the_conversation_is_left_out(export, left_out):
    assert said(export, left_out, message("assistant", "A")) == [("assistant", "A")]


def test_comments_on_the_progress_are_left_out_if_an_answer_follows(export):
    look = message("assistant", "I look it up.", channel="commentary")
    answer = message("assistant", "A", channel="final")
    assert said(export, look, look, answer) == [("assistant", "A")]
    assert said(export, answer, look) == [("assistant", "A"), ("assistant", "I look it up.")]
    question = ("user", "Q2")
    assert said(export, look, message("user", "Q2"), answer) == [
        ("assistant", "I look it up."),
        question,
        ("assistant", "A"),
    ]


def test_parts_are_paragraphs(export):
    assert said(export, message("assistant", "one", "", " two\n", {"content_type": "text", "text": "three"})) == [
        ("assistant", "one\n\ntwo\n\nthree")
    ]


def test_code_for_the_user_is_a_code_block(export):
    content = {"content_type": "code", "language": "unknown", "text": "x = '```'\n"}
    assert said(export, message("assistant", content=content)) == [("assistant", "````\nx = '```'\n````")]


def test_files_that_were_attached_are_named_and_images_without_a_name_are_mentioned(export):
    files = {"attachments": [{"name": "a\nb.pdf"}, {"name": "x" * 500}, {"id": "1"}, "c"]}
    image = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://1"}
    picture = message("user", content={"content_type": "multimodal_text", "parts": [image]})
    assert said(export, message("user", "see", metadata=files), picture) == [
        ("user", f"see\n\n[attachment: a b.pdf]\n[attachment: {'x' * 200}]"),
        ("user", "[image]"),
    ]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Yes \ue200cite\ue202turn0search0\ue202turn1news2\ue201.", "Yes."),
        ("Yes\ue200filecite\ue202turn3file0\ue202L2-L2\ue201.", "Yes."),
        ('By \ue200entity\ue202["people","Ada \\"A\\" L.","x"]\ue201 and others', 'By Ada "A" L. and others'),
        ("By \ue200entity\ue202Ada\ue201.", "By Ada."),
        ("By \ue200entity\ue202[1, 2]\ue201.", "By ."),
        ("\ue200url\ue202Site\ue202https://example.org/a\ue201", "Site (https://example.org/a)"),
        ("a\ue200url\ue202Site\ue202javascript:alert(1)\ue201b", "ab"),
        ("See【11†source】 and 【4:0†a.csv】.", "See and."),
        ('As known:chatgpt-content-reference{index="3"}.', "As known."),
        ("Cut \ue200cite\ue202turn0", "Cut citeturn0"),
        ("A \ue203b\ue204", "A b"),
        ("【note】 stays", "【note】 stays"),
    ],
)
def test_references_to_sources_are_removed_from_answers(export, written, shown):
    assert said(export, message("assistant", written)) == [("assistant", shown)]
    assert said(export, message("user", written)) == [("user", written)]


@pytest.mark.parametrize(
    "time", [None, True, "x", -1, 0, 1e300, float("nan"), float("inf"), 10**400, [], "0001-01-01T00:00:00+14:00"]
)
def test_time_that_is_none_is_unknown(export, time):
    (only,) = export(conversation(message("user", "Q", at=time), create_time=time, update_time=time))
    assert (only.created, only.updated, only.messages[0].time) == (None, None, None)


def test_times_of_messages_replace_those_that_a_conversation_lacks(export):
    messages = (message("user", "Q", at=SECONDS), message("assistant", "A", at=SECONDS + 60))
    (only,) = export(conversation(*messages))
    assert (only.created, only.updated) == (START, datetime(2025, 3, 14, 9, 27, 53, tzinfo=UTC))


def test_conversation_in_which_nothing_was_said_is_passed_over(export):
    assert export(conversation(), conversation(message("system", "x")), {**conversation(), "mapping": {}}) == []


def test_conversation_of_unknown_content_is_reported(export):
    renamed = message("user", content={"content_type": "text", "segments": ["Q"]})
    (only,) = export(conversation(renamed))
    assert only.reason == "none of its messages has a known type of content"


@pytest.mark.parametrize("own", [None, "", 7, "x" * 201, "line\nbreak"])
def test_conversation_without_a_usable_id_is_reported(export, own):
    (only,) = export(conversation(message("user", "Q"), conversation_id=own, id=own))
    assert only == Unreadable(only.place, "it has no usable id")
    assert only.place.endswith("conversations.json, conversation 1")


def test_older_name_of_the_id_is_known(export):
    (only,) = export(conversation(message("user", "Q"), conversation_id=None, id="older"))
    assert only.conversation_id == "older"


def test_conversations_with_the_same_id_are_both_read(export):
    assert len(export(conversation(message("user", "Q")), conversation(message("user", "Q2")))) == 2


def test_export_of_claude_is_recognized(export):
    (only,) = export({"uuid": "1", "chat_messages": []})
    assert only.reason.endswith("it is one of Claude: use `memoryd import claude`")


def test_other_objects_are_reported_once_each_up_to_a_limit(export):
    found = export(*[{}] * 150)
    assert len(found) == 101
    assert found[0].reason == "it is not a conversation of ChatGPT; it has no mapping of messages"
    assert found[-1].reason == "50 more of its parts cannot be read"


def test_file_that_is_cut_off_gives_the_conversations_before(export):
    data = json.dumps([conversation(message("user", "Q"))] * 3).encode()
    *found, fault = export(data=data[:-20])
    assert [spoken(each) for each in found] == [[("user", "Q")]] * 2
    assert fault.place.endswith("conversations.json, conversation 3")


def test_damaged_conversation_does_not_cost_the_others(export):
    good = json.dumps(conversation(message("user", "Q")))
    found = export(data=f'[{good}, {{"mapping": {"[" * 500}{"]" * 500}}}, {good}]'.encode())
    assert [type(each) for each in found] == [Conversation, Unreadable, Conversation]


@pytest.mark.slow
def test_conversation_with_too_much_json_is_left_out(export):
    good = conversation(message("user", "Q"))
    found = export(good, conversation(message("user", "x" * MAX_ELEMENT_BYTES)), good)
    assert [type(each) for each in found] == [Conversation, Unreadable, Conversation]
    assert found[1].reason == "it has more than 64 MiB"


def check(items):
    for item in items:
        if isinstance(item, Unreadable):
            assert len(item.place) + len(item.reason) < 1000
            continue
        assert item.conversation_id.isprintable()
        assert item.messages
        for text in (item.title, item.project, *(each.text for each in item.messages)):
            text.encode()
        for time in (item.created, item.updated, *(each.time for each in item.messages)):
            assert time is None or time.tzinfo is UTC
        assert all(each.role in ("user", "assistant") and each.text.strip() for each in item.messages)


FIXED = [json.loads(file.read_text())[0] for file in sorted(FIXTURES.rglob("conversations*.json"))]
KEYS = [
    *("mapping", "current_node", "message", "parent", "children", "author", "role", "content", "content_type", "parts"),
    *(
        "text",
        "id",
        "conversation_id",
        "title",
        "create_time",
        "metadata",
        "attachments",
        "name",
        "recipient",
        "0",
        "1",
    ),
]
STRINGS = [
    "user",
    "assistant",
    "text",
    "multimodal_text",
    "code",
    "all",
    "0",
    "1",
    "\ue200entity\ue202[[]]\ue201",
    "\ud800",
]
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
    check(export(tree, {"id": "1", "mapping": tree}, {"id": "1", "mapping": {"0": {"message": tree}}}))


@pytest.mark.attacks
@pytest.mark.parametrize(
    ("make", "size"),
    [
        pytest.param(lambda n: conversation(*[message("user", "Q")] * n), 2_000, id="messages"),
        pytest.param(lambda n: conversation(message("assistant", "\ue200" * n)), 100_000, id="markers"),
        pytest.param(lambda n: conversation(message("assistant", " 【a†" * n)), 20_000, id="citations"),
        pytest.param(lambda n: conversation(message("assistant", " " * n + "x")), 200_000, id="spaces"),
        pytest.param(lambda n: conversation(message("assistant", *["x"] * n)), 20_000, id="parts"),
    ],
)
def test_time_is_in_proportion_to_the_conversation(tmp_path, make, size):
    def work(path):
        check(read(Path(path)))

    half, whole = tmp_path / "half.json", tmp_path / "whole.json"
    half.write_text(json.dumps([make(size)]))
    whole.write_text(json.dumps([make(2 * size)]))
    assert not takes_longer(work, str(half), str(whole), 5, 0.01)
