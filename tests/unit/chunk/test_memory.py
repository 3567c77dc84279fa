"""Chunks of memory files: entries of curated files, annotations as fields, and line numbers of the file."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.chunk.markdown import indexable_chunks, utf16_length
from memoryd_server.chunk.memory import memory_chunks
from memoryd_server.model import NO_ANNOTATIONS, Annotations
from regex_attacks import takes_longer

CURATED = """\
# Memory

Some introduction.

## Deploys

- The crane is deployed on Fridays. <!-- importance: 9 -->
- Gulls circle.
  They are loud. <!-- trigger: gulls -->

  Also a paragraph. <!-- project: a/b -->
* no entry

## Empty

## People

Marta repairs it.
```
- no entry
# no heading
```
- 2026-03-04: Marta left.
- 2026-13-44: no day
"""
LINES = st.sampled_from(
    [
        "",
        "- entry",
        "- <!-- importance: 3 -->",
        "text",
        "# One",
        "### Three",
        "```",
        "  - nested",
        "x " * 90,
        "\r",
        "- 漢字" * 9,
    ]
)
BODIES = st.lists(LINES, max_size=30).map("\n".join)


def curated(text, tokens=400, overlap=80, first_line=1):
    return memory_chunks(text, tokens, overlap, first_line, curated=True)


def test_each_entry_and_each_section_of_a_curated_file_is_a_chunk_with_its_headings():
    found = [(c.start_line, c.end_line, c.breadcrumb, c.text.split("\n")[0]) for c in curated(CURATED)]
    assert found == [
        (1, 3, "", "# Memory"),
        (7, 7, "Memory > Deploys", "- The crane is deployed on Fridays."),
        (8, 12, "Memory > Deploys", "- Gulls circle."),
        (14, 14, "Memory", "## Empty"),
        (16, 22, "Memory", "## People"),
        (23, 23, "Memory > People", "- 2026-03-04: Marta left."),
        (24, 24, "Memory > People", "- 2026-13-44: no day"),
    ]


def test_the_annotations_of_all_lines_of_an_entry_are_those_of_its_chunk():
    chunks = {c.start_line: c for c in curated(CURATED)}
    assert chunks[7].annotations == Annotations(9)
    assert chunks[8].annotations == Annotations(None, ("gulls",), ("a/b",))
    assert chunks[8].text == "- Gulls circle.\n  They are loud.\n\n  Also a paragraph.\n* no entry"
    assert chunks[23].annotations is NO_ANNOTATIONS
    assert (chunks[23].day, chunks[24].day) == ("2026-03-04", "")


def test_an_entry_longer_than_a_chunk_is_split_and_each_part_has_its_annotations():
    text = "- " + "word " * 200 + "\n  more <!-- importance: 4 -->\n- other"
    *parts, last = curated(text, 40, 8)
    assert len(parts) > 2
    assert {part.annotations for part in parts} == {Annotations(4)}
    assert last.text == "- other"


def test_lines_are_numbered_from_the_first_line_after_the_front_matter():
    chunks = curated(CURATED, first_line=11)
    assert [(c.start_line, c.end_line) for c in chunks][1] == (17, 17)
    (chunk,) = memory_chunks("a\n\nb <!-- project: p -->", 400, 80, 11)
    assert (chunk.start_line, chunk.end_line, chunk.annotations.projects) == (11, 13, ("p",))


def test_importance_and_triggers_count_in_curated_files_only_but_are_removed_everywhere():
    (chunk,) = memory_chunks("a <!-- importance: 9 --> <!-- trigger: t --> <!-- project: p -->", 400, 80)
    assert (chunk.text, chunk.annotations) == ("a", Annotations(projects=("p",)))


def test_a_project_belongs_to_the_chunks_that_contain_its_line():
    text = "\n".join(f"line {number} " + "word " * 20 for number in range(40)) + " <!-- project: p -->"
    *others, last = memory_chunks(text, 100, 0)
    assert last.annotations.projects == ("p",)
    assert all(not chunk.annotations.projects for chunk in others)


@given(
    st.lists(st.sampled_from(["", "a heron", "- b", "# c", "```", "x" * 300, "漢" * 90]), max_size=30).map("\n".join)
)
def test_the_chunks_of_other_files_without_annotations_are_what_they_always_were(body):
    assert memory_chunks(body, 50, 10, 3) == indexable_chunks(body, 50, 10, 3)


@given(st.lists(st.sampled_from(["", "a heron", "-b", "# c", "x" * 300]), max_size=30).map("\n".join))
def test_a_curated_file_without_entries_has_the_chunks_of_other_files(body):
    assert memory_chunks(body, 50, 10, 3, curated=True) == indexable_chunks(body, 50, 10, 3)


def test_the_annotations_of_a_curated_file_without_entries_count():
    (chunk,) = memory_chunks("# a\n\nb <!-- importance: 9 --> <!-- trigger: t -->\n", 400, 80, curated=True)
    assert chunk.annotations == Annotations(importance=9, triggers=("t",))


@given(BODIES, st.sampled_from([(400, 80), (20, 5), (8, 0)]))
def test_every_word_of_a_curated_file_is_in_a_chunk_or_in_its_headings(body, sizes):
    chunks = curated(body, *sizes)
    found = " ".join(f"{chunk.breadcrumb} {chunk.text}" for chunk in chunks)
    for word in ("entry", "text", "One", "Three", "nested"):
        assert (word in body) == (word in found)
    lines = body.split("\n")
    for chunk in chunks:
        assert 1 <= chunk.start_line <= chunk.end_line <= len(lines)
        assert utf16_length(chunk.text) <= max(32, sizes[0] * 4)
        assert hashlib.sha256(chunk.text.encode()).digest() == chunk.content_hash
        assert chunk.text.split("\n")[0].strip() in lines[chunk.start_line - 1]
        assert "<!--" not in chunk.text


@pytest.mark.attacks
@pytest.mark.parametrize("first", ["- entry <!-- importance: 3 -->\n", "- one <!-- trigger: t -->\n\n- entry\n"])
def test_an_entry_takes_time_in_proportion_to_its_lines(first):
    def work(lines):
        assert len(curated(first + "  x\n" * lines, 32, 0)) > lines // 64

    # Four times the lines take four times as long, and sixteen times as long if each chunk reads the whole entry.
    assert not takes_longer(work, 10_000, 40_000, 9)
