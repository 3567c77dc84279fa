"""Front matter becomes metadata; anything doubtful stays text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.chunk.front_matter import split_front_matter


@pytest.mark.parametrize(
    ("text", "metadata", "body", "first_line"),
    [
        ("---\ntitle: Trip\n---\n# Body\n", {"title": "Trip"}, "# Body\n", 4),
        ("---\ntitle: Trip\n...\nBody", {"title": "Trip"}, "Body", 4),
        ("\ufeff---\ntitle: Trip\n---\nBody", {"title": "Trip"}, "Body", 4),
        ("---\r\ntitle: Trip\r\n---\r\nBody\r\n", {"title": "Trip"}, "Body\r\n", 4),
        ("---  \ntitle: Trip\n--- \t\n\nBody", {"title": "Trip"}, "\nBody", 4),
        ("---\ntags: [a, b]\nalso:\n  - c\n---\n", {"tags": ["a", "b"], "also": ["c"]}, "", 6),
        ("---\ndate: 2026-02-08\nv: 1.10\non: yes\n---\n", {"date": "2026-02-08", "v": "1.10", "on": "yes"}, "", 6),
        ("---\ndate: 2026-02-31\n---\n", {"date": "2026-02-31"}, "", 4),
        ("---\nby:\n  name: Ana\n  at: {city: Rio}\n---\n", {"by.name": "Ana", "by.at.city": "Rio"}, "", 6),
        ("---\nl: [[a], {k: b}]\n---\n", {"l": ["a", "b"]}, "", 4),
        ("---\nempty:\nquoted: 'a: b'\n---\n", {"empty": "", "quoted": "a: b"}, "", 5),
        ("---\nx: !!python/object:os.system a\n---\n", {"x": "a"}, "", 4),
        ("---\na: b\n---", {"a": "b"}, "", 4),
    ],
)
def test_a_mapping_between_the_lines_is_metadata(text, metadata, body, first_line):
    found = split_front_matter(text)
    assert (found.metadata, found.body, found.first_line) == (metadata, body, first_line)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "\ufeffplain",
        "---",
        "---\n",
        "---\n---\n",
        "---\ntitle: Trip\n",
        "----\ntitle: Trip\n---\n",
        "---\ntitle: Trip\n----\n",
        " ---\ntitle: Trip\n---\n",
        "\n---\ntitle: Trip\n---\n",
        "---\njust words\n---\nmore",
        "---\n- a\n- b\n---\n",
        "---\na: [b\n---\n",
        "---\na: b: c\n---\n",
        "---\n\tbad: tab\n---\n",
        "---\na: &x [1]\n---\n",
        "---\na: b\nc: *a\n---\n",
        "---\n? [a]\n: b\n---\n",
        "---\na: \ud800\n---\n",
        "---\na: \x00\n---\n",
        "---\na: " + "[" * 30 + "]" * 30 + "\n---\n",
        "---\na: " + "[" * 60_000 + "\n---\n",
        "---\na: " + "x" * 70_000 + "\n---\n",
        "---\na: " + "记" * 30_000 + "\n---\n",
    ],
    ids=lambda text: repr(text[:24]),
)
def test_anything_else_stays_text(text):
    found = split_front_matter(text)
    assert (found.metadata, found.body, found.first_line) == ({}, text, 1)


@given(st.text(st.sampled_from("-.\n\r ab:[]{}&*!'\"\ufeff#?") | st.characters(exclude_categories=()), max_size=80))
def test_splitting_front_matter_never_raises_and_the_body_ends_the_text(text):
    for start in ("", "---\n", "---\na: b\n"):
        whole = start + text
        found = split_front_matter(whole)
        assert whole.endswith(found.body)
        before = whole[: len(whole) - len(found.body)]
        assert found.first_line - 1 in (before.count("\n"), before.count("\n") + 1)
