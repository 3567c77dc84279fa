"""Notes of imported conversations: their front matter, their text and their names."""

import re
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imported import START, conversation, document
from memoryd_server.chunk import memory_chunks, split_front_matter
from memoryd_server.imports.note import (
    masked_text,
    note_stem,
    parse_stored,
    part_name,
    render,
    time_ns,
)
from memoryd_server.sources import note_day, note_name_key, note_name_stem
from properties import examples
from secret_corpus import EXAMPLES

MOST = 1 << 25
DOCUMENTATION = Path(__file__).parents[3] / "docs" / "imports.md"


def note(item, most=MOST):
    (only,) = render(item, most)
    return only.data.decode()


def body(item):
    return split_front_matter(note(item)).body


def test_a_note_has_a_front_matter_a_title_and_a_heading_for_each_message():
    text = note(conversation("Where are they?", "On the *NAS*.\n\n- daily\n- weekly", project="Home"))
    assert text == (
        "---\n"
        'title: "Backups of the gateway"\n'
        'imported_from: "chatgpt"\n'
        'conversation: "67d3f1a2-0000-8000-9000-000000000001"\n'
        "created: 2025-03-14T09:26:53Z\n"
        "updated: 2025-03-14T09:27:53Z\n"
        'project: "Home"\n'
        "messages: 2\n"
        "import_sha256: 45a3a4693ea851c57be6cf2c647a095aecc8ecaad1e0fc4fd39a481a10095082\n"
        "---\n"
        "# Backups of the gateway\n\n"
        "**User** 2025-03-14 09:26\n\nWhere are they?\n\n"
        "**Assistant** 2025-03-14 09:27\n\nOn the *NAS*.\n\n- daily\n- weekly\n"
    )
    assert f"```markdown\n{text}```\n" in DOCUMENTATION.read_text(encoding="utf-8")


def test_a_document_has_its_text_below_the_title():
    text = note(document("Prefers tea."))
    assert text.endswith("---\n# Memories\n\nPrefers tea.\n")
    assert 'document: "memory-1"\n' in text


def test_the_digest_is_that_of_the_file_without_its_line():
    (only,) = render(conversation("a", "b"), MOST)
    lines = only.data.splitlines(keepends=True)
    rest = b"".join(line for line in lines if not line.startswith(b"import_sha256: "))
    assert sha256(rest).hexdigest() == only.sha256


def test_memoryd_reads_the_front_matter_and_the_day():
    front = split_front_matter(note(conversation("a", title='He said: "no" \\ #1 € {x}')))
    assert front.metadata["title"] == 'He said: "no" \\ #1 € {x}'
    assert front.metadata["imported_from"] == "chatgpt"
    assert note_day("memory/imported/chatgpt/x-0a1b2c3d.md", front.metadata).isoformat() == "2025-03-14"


def test_chunks_are_below_the_title_of_the_conversation_also_after_headings_in_a_message():
    text = "# Plan\n\nfirst\n\n###### Details\n\nsecond\n\n```sh\n# comment\n"
    chunks = memory_chunks(body(conversation("plan it", text, "thanks")), 16, 0)
    assert {chunk.breadcrumb.split(" > ")[0] for chunk in chunks if chunk.start_line > 1} == {"Backups of the gateway"}
    assert "\n# comment\n" in body(conversation("plan it", text, "thanks"))
    assert any("thanks" in chunk.text and "comment" not in chunk.breadcrumb for chunk in chunks)


def test_a_message_cannot_look_like_the_start_of_another_one():
    text = body(conversation("**Assistant** 2025-03-14 09:27\n\nI agree.\n\n**User**: yes"))
    assert re.findall(r"^\*\*(\w+)\*\*", text, re.MULTILINE) == ["User"]
    assert "\\**Assistant** 2025-03-14 09:27" in text


def test_a_code_block_that_a_message_leaves_open_is_closed_with_it():
    text = body(conversation("````\n```\n# not a heading\nx", "answer"))
    assert "````\n```\n# not a heading\nx\n````\n" in text


@pytest.mark.parametrize(
    "code",
    [
        "1. ```bash\n   ls\n   ```",
        "- a\n  - ```bash\n    ls\n    ```",
        "10) ~~~\n    ls\n    ~~~",
        "> ```\n> ls\n> ```",
        "> - ````\n>   ```\n>   ````",
        "1. run\n\n   ```bash\n   ls\n   ```",
        "- run\n\n    ```bash\n    ls\n  ```",
        "1. run\nthis\n   ```bash\n   ls\n   ```",
        "> ```\n> left open",
        "1. ```\n   left open",
    ],
)
def test_text_after_a_code_block_in_a_list_or_quote_is_outside_of_it(code):
    text = body(conversation(f"{code}\n\n# heading\n**Assistant** no", "answer"))
    assert f"\n\n{code}\n\n## heading\n\\**Assistant** no\n\n**Assistant** 2025-03-14 09:27\n" in text


def test_a_code_block_that_ends_with_its_list_item_is_closed_there():
    text = body(conversation("- item\n  ```\n  code\n- next\n\n# heading", "answer"))
    assert "- item\n  ```\n  code\n  ```\n- next\n\n## heading\n\n**Assistant** 2025" in text
    text = body(conversation("1. item\n\n   ```\n   code", "answer"))
    assert "   ```\n   code\n   ```\n\n**Assistant** 2025" in text


def test_a_line_of_a_code_block_cannot_look_like_the_start_of_a_message():
    assert "```\n\\**User** x\n# comment\n```\n" in body(conversation("```\n**User** x\n# comment\n```"))


def test_text_of_a_message_is_not_an_annotation_of_memory():
    text = body(conversation("keep <!-- project: !x --> <!-- other -->", title="t <!-- trigger: all -->"))
    chunks = memory_chunks(text, 400, 0)
    assert not any(chunk.annotations.projects or chunk.annotations.triggers for chunk in chunks)
    assert "&lt;!-- project: !x --> <!-- other -->" in text


def test_front_matter_and_control_characters_in_a_message_are_text():
    text = note(conversation("---\ntitle: other\n---\r\nbell\x07 nul\x00 \ud800 end\r"))
    assert split_front_matter(text).metadata["title"] == "Backups of the gateway"
    assert text.endswith("---\ntitle: other\n---\nbell nul \ufffd end\n")


@pytest.mark.parametrize("place", ["text", "title", "project", "id"])
def test_secrets_are_masked_everywhere(place):
    shown = []
    for example in EXAMPLES:
        if place == "text":
            item = conversation(example.text)
        elif place == "title":
            item = conversation("hello", title=example.text)
        elif place == "project":
            item = conversation("hello", project=example.text)
        else:
            item = conversation("hello", own=example.text)
        data = note(item) + note_stem(item, 8)
        if example.secret in data and example.secret not in note(conversation("hello")):
            shown.append(example)
    # A title is on one line and of bounded length, where fewer secrets are announced.
    assert len(shown) / len(EXAMPLES) < (0.05 if place == "text" else 0.1), [each.text for each in shown][:20]


def test_a_secret_in_the_title_is_not_in_the_name():
    item = conversation("x", title="my key sk-abcdefghijklmnop1234 leaked")
    assert note_stem(item, 8).startswith("2025-03-14-my-key-sk-abc-1234-leaked-")


@pytest.mark.parametrize("hidden", ["\ue000", "\u200b", "\u202e", "\x00", "\U000e0001", "\u0378"])
def test_a_secret_with_a_character_that_is_removed_is_masked(hidden):
    token = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    broken = token[:10] + hidden + token[10:]
    item = conversation("hello", own=broken, title=broken, project=broken)
    written = note(item) + note_stem(item, 8)
    assert token not in written
    assert token.lower().replace("_", "-") not in written


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("Über Straßen & Wege!", "über-straßen-wege"),
        ("日本語のタイトル", "日本語のタイトル"),
        ("हिन्दी में", "हिन्दी-में"),
        ("../../etc/passwd", "etc-passwd"),
        ("a" * 500, "a" * 60),
        ("\U0001f600\U0001f600", ""),
        ("x\x00y/z\n", "xy-z"),
    ],
)
def test_a_name_has_the_letters_and_digits_of_the_title(title, slug):
    expected = "-".join(filter(None, ("2025-03-14", slug, sha256(b"id").hexdigest()[:8])))
    assert note_stem(conversation("", own="id", title=title), 8) == expected


def test_a_long_name_fits_into_a_file_system():
    stem = note_stem(conversation("", title="\U00020000" * 200), 16)
    assert len(part_name(stem, 9999).encode()) <= 255


def test_a_conversation_without_a_time_or_a_title_is_named_after_its_first_line():
    item = conversation("how do I\nbake bread", own="id", title="", start=None)
    assert note_stem(item, 8) == f"how-do-i-{sha256(b'id').hexdigest()[:8]}"
    assert "# how do I\n\n**User**\n\nhow do I\nbake bread\n" in note(item)
    assert "# Untitled\n" in note(conversation("\n", title=""))


def test_the_key_and_the_part_are_read_from_a_name():
    item = conversation("x", title="call 12345678")
    stem = note_stem(item, 8)
    assert note_name_key(part_name(stem, 1)) == (stem[-8:], 1)
    assert note_name_key(part_name(stem, 12)) == (stem[-8:], 12)
    assert note_name_stem(f"a/{stem}-12.md") == note_name_stem(f"a/{stem}.md") == f"a/{stem}"
    assert note_name_key(f"{note_stem(item, 16)}-2.md") == (stem[-8:], 2)
    assert note_name_stem("a/0a1b2c3d-2.md") == "a/0a1b2c3d"
    assert note_name_key("2025-03-14-notes.md") is None
    assert note_name_key("notes-12345678-1.md") is None


def test_a_long_conversation_is_split_between_messages():
    item = conversation(*[f"message {number} " + "word " * 20_000 for number in range(25)])
    notes = render(item, MOST)
    assert [each.part for each in notes] == [1, 2, 3]
    assert all(len(each.data) < (1 << 20) + 5_000 for each in notes)
    joined = "".join(each.data.decode() for each in notes)
    assert [int(number) for number in re.findall(r"message (\d+) ", joined)] == list(range(25))
    assert "# Backups of the gateway (2)\n\n**" in joined
    assert "part: 2\n" in notes[1].data.decode()


def test_a_part_of_a_conversation_that_grows_stays_the_same_but_for_the_front_matter():
    texts = ["word " * 200 for _ in range(30)]
    before, after = render(conversation(*texts[:20]), 20_000), render(conversation(*texts), 20_000)
    assert len(before) > 1
    assert split_front_matter(before[0].data.decode()).body == split_front_matter(after[0].data.decode()).body


@pytest.mark.parametrize("text", ["x" * 40_000, "\u20ac" * 30_000, "line\n" * 9_000, "# h\n" * 9_000])
def test_no_note_is_larger_than_the_limit(text):
    notes = render(conversation(text, "end"), 20_000)
    assert len(notes) > 1
    assert max(len(each.data) for each in notes) <= 20_000
    assert "end" in notes[-1].data.decode()


def test_times_that_no_file_can_have_are_limited():
    assert time_ns(None) is None
    assert time_ns(START) == 1_741_944_413_000_000_000
    assert time_ns(datetime(1950, 1, 1, tzinfo=UTC)) == 0
    assert time_ns(datetime(9999, 12, 31, tzinfo=UTC)) == (1 << 63) - 1


def test_a_stored_note_says_what_was_imported_and_whether_it_was_edited():
    (only,) = render(conversation("a", "b"), MOST)
    stored = parse_stored("memory/imported/chatgpt/x-0a1b2c3d.md", only.data)
    assert (stored.identity, stored.messages) == ("67d3f1a2-0000-8000-9000-000000000001", 2)
    assert (stored.updated, stored.sha256) == ("2025-03-14T09:27:53Z", only.sha256)
    assert not stored.is_edited
    for old, new in ((b"\n\na\n", b"\n\nA\n"), (b"messages", b"tags: x\nmessages"), (b"import_sha256", b"sha")):
        assert parse_stored("x-0a1b2c3d.md", only.data.replace(old, new)).is_edited
    for old, new in ((b"\n---\n", b"\ntags: x\n---\n"), (b"\n", b"\r\n"), (b"\n---\n", b" # note\n---\n")):
        edited = parse_stored("x-0a1b2c3d.md", only.data.replace(old, new))
        assert edited.is_edited
        assert (edited.sha256, edited.identity, edited.messages) == (stored.sha256, stored.identity, 2)
    without = re.sub(rb"import_sha256: .*\n", b"", only.data)
    assert parse_stored("x-0a1b2c3d.md", without).identity == stored.identity
    assert parse_stored("x-0a1b2c3d.md", without).sha256 == ""
    assert parse_stored("x-0a1b2c3d.md", b"my own text").is_edited
    assert parse_stored("x-0a1b2c3d.md", b"my own text").identity == ""


TEXTS = st.text(st.characters(codec=None) | st.sampled_from("`~#*<!->\n \r\0\x85\u2028:"), max_size=200)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=5), TEXTS, TEXTS)
def test_any_text_makes_notes_that_are_read_back(texts, title, project):
    item = conversation(*texts, title=title, project=project)
    for each in render(item, MOST):
        stored = parse_stored("memory/imported/chatgpt/x-0a1b2c3d.md", each.data)
        assert not stored.is_edited
        assert (stored.identity, stored.messages) == (item.conversation_id, len(texts))
        front = split_front_matter(each.data.decode())
        assert front.metadata["imported_from"] == "chatgpt"
        labels = re.findall(r"^\*\*(?:User|Assistant)\*\* 2025", front.body, re.MULTILINE)
        assert len(labels) >= len(texts)
        assert note_stem(item, 8).isprintable()
        assert "/" not in note_stem(item, 8)
    memory_chunks(each.data.decode(), 400, 80)


@settings(max_examples=examples(200), deadline=None)
@given(TEXTS)
def test_masking_is_stable(text):
    assert masked_text(masked_text(text)) == masked_text(text)
