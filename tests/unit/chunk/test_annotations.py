"""Annotations: removed from the text, read where they count, bounded, and parsed in linear time."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memoryd_server.chunk.annotations import (
    INVALID_PROJECT,
    MAX_PROJECT_CHARS,
    MAX_PROJECTS,
    MAX_TRIGGER_CHARS,
    MAX_TRIGGERS,
    project_key,
    split_annotations,
)
from memoryd_server.chunk.memory import memory_chunks
from memoryd_server.model import Annotations
from regex_attacks import Attack, outgrows

PIECES = st.sampled_from(
    [
        "<!--",
        "-->",
        "importance:",
        "trigger:",
        "project:",
        "9",
        "11",
        "a, b",
        "x/y; z",
        " ",
        "\n",
        "\r",
        "- word",
        "<!",
        ";",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join))
# What the parser must find in a text of whole lines, written as one expression.
PLAIN = re.compile(r"<!--[ \t]*(?:trigger|importance|project)[ \t]*:((?:(?!-->)[^\n])*)-->", re.IGNORECASE)


def parsed(line):
    text, found = split_annotations(line)
    return text, found.get(1)


@pytest.mark.parametrize(
    ("line", "text", "annotations"),
    [
        ("- a <!-- importance: 9 -->", "- a", Annotations(9)),
        ("- a <!-- importance: 9 --> ", "- a", Annotations(9)),
        ("- a <!--Importance:07-->\r", "- a\r", Annotations(7)),
        ("- a <!-- importance: 2 --> <!-- importance: 8 -->", "- a", Annotations(8)),
        ("- a <!-- trigger: x y, z; w -->", "- a", Annotations(triggers=("x y", "z", "w"))),
        ("- a <!-- project: GitHub.com/Acme/B; c -->", "- a", Annotations(projects=("github.com/Acme/B", "c"))),
        ("a <!-- project: p --> <!-- importance: 3 --> <!-- trigger: t -->", "a", Annotations(3, ("t",), ("p",))),
        ("<!-- importance: 9 -->", "", Annotations(9)),
        ("a <!-- importance: 9 --> b", "a  b", None),
        ("a <!-- importance: 11 -->", "a", None),
        ("a <!-- importance: 0 -->", "a", None),
        ("a <!-- importance: -3 -->", "a", None),
        ("a <!-- importance: ٣ -->", "a", None),
        ("a <!-- importance: high -->", "a", None),
        ("a <!-- trigger: , ; -->", "a", None),
        ("a <!-- project: ; -->", "a", Annotations(projects=(INVALID_PROJECT,))),
        ("a <!-- project: <b> -->", "a", Annotations(projects=(INVALID_PROJECT,))),
        ("a <!-- note: b -->", "a <!-- note: b -->", None),
        ("a <!-- importance: 9", "a <!-- importance: 9", None),
        ("a <!-- trigger: " + "x" * 2_001 + " -->", "a <!-- trigger: " + "x" * 2_001 + " -->", None),
    ],
)
def test_an_annotation_counts_at_the_end_of_its_line_and_is_removed_from_the_text(line, text, annotations):
    assert parsed(line) == (text, annotations)


def test_an_annotation_over_two_lines_is_text():
    text = "- a <!-- importance:\n9 -->"
    assert split_annotations(text) == (text, {})


def test_the_number_and_the_lengths_of_values_are_bounded_and_control_characters_removed():
    triggers = ", ".join(f"{number}{'x' * 60}" for number in range(30))
    _, found = parsed(f"a <!-- trigger: {triggers} -->")
    assert len(found.triggers) == MAX_TRIGGERS
    _, found = parsed(f"a <!-- trigger: {'x' * 300} -->")
    assert found.triggers == ("x" * MAX_TRIGGER_CHARS,)
    _, found = parsed("a <!-- project: " + ";".join(f"p{number}" for number in range(40)) + " -->")
    assert len(found.projects) == MAX_PROJECTS
    _, found = parsed(f"a <!-- project: {'p' * (MAX_PROJECT_CHARS + 1)} -->")
    assert found.projects == (INVALID_PROJECT,)
    _, found = parsed("a <!-- trigger: x\x1b[31m\u202ey\ud800 -->")
    assert found.triggers == ("x[31my\ufffd",)


@given(TEXTS)
def test_lines_keep_their_numbers_and_only_annotations_are_removed(text):
    plain, found = split_annotations(text)
    assert plain.count("\n") == text.count("\n")
    expected = [PLAIN.sub("", line) for line in text.split("\n")]
    assert [line.rstrip() for line in plain.split("\n")] == [line.rstrip() for line in expected]
    for annotations in found.values():
        assert annotations.importance is None or 1 <= annotations.importance <= 10
        assert len(annotations.triggers) <= MAX_TRIGGERS
        assert all(0 < len(each) <= MAX_TRIGGER_CHARS and each.isprintable() for each in annotations.triggers)
        assert len(annotations.projects) <= MAX_PROJECTS
        assert all(0 < len(each) <= MAX_PROJECT_CHARS and each.isprintable() for each in annotations.projects)


@given(TEXTS)
def test_a_text_without_annotations_is_returned_as_it_is(text):
    plain, _ = split_annotations(text)
    if not PLAIN.search(text):
        assert plain == text


@given(st.text())
@example("a \u200b b")
@example("\u0130" * MAX_PROJECT_CHARS + "/a")
@example("\u0130" * (MAX_PROJECT_CHARS - 2) + "/a")
def test_a_project_key_is_its_own_key(text):
    assert project_key(project_key(text)) == project_key(text)


def test_an_invalid_project_is_never_active():
    assert project_key(INVALID_PROJECT) == ""


@pytest.mark.attacks
@pytest.mark.parametrize(
    "attack",
    [
        Attack("", "<!-- importance:", ""),
        Attack("", "<!-- trigger: a -->", ""),
        Attack("", "<!-- trigger:" + " " * 40, "-->"),
        Attack("<!-- trigger: ", "a,", " -->"),
        Attack("<!-- project: ", ";", " -->"),
        Attack("", "<!--", "-->"),
        Attack("", "- <!-- importance: 3 -->\n", ""),
        Attack("", "```\n", ""),
        Attack("", "- \n", ""),
        Attack("", "# \n", ""),
    ],
    ids=str,
)
def test_parsing_takes_time_in_proportion_to_the_text(attack):
    assert not outgrows(lambda text: memory_chunks(text, 400, 80, curated=True), attack)
