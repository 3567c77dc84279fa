"""Changes of a content: the bytes and the lines after them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.errors import InvalidRequest
from memoryd_server.writing.changes import (
    ChangeResult,
    FileDeletion,
    LineDeletion,
    LineInsertion,
    NewContent,
    TextReplacement,
    count_lines,
)
from properties import examples


def lines_of(data):
    """Return the lines of a content with their line feeds; the last one may have none."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (NewContent(b"a\nb"), b"x", ChangeResult(b"a\nb", 1, 2)),
        (NewContent(b""), b"x", ChangeResult(b"", 1, 0)),
        (FileDeletion(), b"x", ChangeResult(None, 0, 0)),
        (TextReplacement(b"two", b"2"), b"one\ntwo\nthree\n", ChangeResult(b"one\n2\nthree\n", 2, 2)),
        (TextReplacement(b"two\n", b"2\n3\n"), b"one\ntwo\nthree\n", ChangeResult(b"one\n2\n3\nthree\n", 2, 3)),
        (TextReplacement(b"two", b"2\n3"), b"one\ntwo\n", ChangeResult(b"one\n2\n3\n", 2, 3)),
        (TextReplacement(b"two\n", b""), b"one\ntwo\nthree\n", ChangeResult(b"one\nthree\n", 2, 1)),
        (TextReplacement(b"\n", b" "), b"one\ntwo", ChangeResult(b"one two", 1, 1)),
        (TextReplacement(b"\xff", b"\xfe"), b"a\xffb", ChangeResult(b"a\xfeb", 1, 1)),
        (LineInsertion(0, b"new"), b"one\n", ChangeResult(b"new\none\n", 1, 1)),
        (LineInsertion(1, b"a\nb\n"), b"one\ntwo\n", ChangeResult(b"one\na\nb\ntwo\n", 2, 3)),
        (LineInsertion(2, b"end"), b"one\ntwo", ChangeResult(b"one\ntwo\nend\n", 3, 3)),
        (LineInsertion(0, b"first"), b"", ChangeResult(b"first\n", 1, 1)),
        (LineInsertion(1, b"\n"), b"one\n", ChangeResult(b"one\n\n", 2, 2)),
        (LineInsertion(1, b"new"), b"one\r\ntwo\r\n", ChangeResult(b"one\r\nnew\ntwo\r\n", 2, 2)),
        (LineDeletion(2, 2), b"one\ntwo\nthree\n", ChangeResult(b"one\nthree\n", 2, 1)),
        (LineDeletion(1, 3), b"one\ntwo\nthree", ChangeResult(b"", 1, 0)),
        (LineDeletion(2, 2), b"one\ntwo", ChangeResult(b"one\n", 2, 1)),
        (LineDeletion(1, 1), b"\n\n", ChangeResult(b"\n", 1, 0)),
    ],
)
def test_a_change_gives_the_content_and_the_lines_after_it(change, before, after):
    assert change.apply(before) == after


@pytest.mark.parametrize(
    ("change", "data", "field", "words"),
    [
        (TextReplacement(b"", b"x"), b"one\n", "replace.old_text", "must not be empty"),
        (TextReplacement(b"four", b"x"), b"one\n", "replace.old_text", "does not occur in the file"),
        (TextReplacement(b"a", b"x"), b"a\nb\na\n", "replace.old_text", "more than once, in lines 1, 3;"),
        (TextReplacement(b"a", b"x"), b"a b a\n", "replace.old_text", "more than once, in line 1;"),
        (TextReplacement(b"a", b"x"), b"a\n" * 9, "replace.old_text", "in lines 1, 2, 3, 4, 5 and others;"),
        # Overlapping occurrences: it is not clear which one is meant.
        (TextReplacement(b"aa", b"x"), b"aaa\n", "replace.old_text", "more than once"),
        (LineInsertion(-1, b"x"), b"one\n", "insert.after_line", "is -1, but the file has 1 lines"),
        (LineInsertion(2, b"x"), b"one\n", "insert.after_line", "is 2, but the file has 1 lines"),
        (LineInsertion(1, b"x"), b"", "insert.after_line", "has 0 lines"),
        (LineInsertion(0, b""), b"one\n", "insert.text", "must not be empty"),
        (LineDeletion(0, 1), b"one\n", "delete_lines.start_line", "numbered from 1"),
        (LineDeletion(2, 1), b"one\n", "delete_lines.end_line", "less than start_line 2"),
        (LineDeletion(1, 2), b"one\n", "delete_lines.end_line", "is 2, but the file has 1 lines"),
        (LineDeletion(1, 1), b"", "delete_lines.end_line", "has 0 lines"),
    ],
)
def test_a_change_that_does_not_fit_the_file_is_refused_with_the_field(change, data, field, words):
    with pytest.raises(InvalidRequest, match=words) as caught:
        change.apply(data)
    assert [violation.field for violation in caught.value.violations] == [field]


contents = st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r\n", b"\xff", "é".encode(), b"\0"]), max_size=20).map(
    b"".join
)


@settings(max_examples=examples(500), deadline=None)
@given(data=contents)
def test_lines_are_counted_as_they_are_split(data):
    assert count_lines(data) == len(lines_of(data))


@settings(max_examples=examples(500), deadline=None)
@given(data=contents, text=contents.filter(bool), line=st.integers(0, 21))
def test_inserted_lines_are_at_the_returned_place_and_all_others_are_kept(data, text, line):
    lines = lines_of(data)
    if line > len(lines):
        with pytest.raises(InvalidRequest):
            LineInsertion(line, text).apply(data)
        return
    done = LineInsertion(line, text).apply(data)
    after = lines_of(done.data)
    assert b"".join(after[done.start_line - 1 : done.end_line]) == text.removesuffix(b"\n") + b"\n"
    kept = after[: done.start_line - 1] + after[done.end_line :]
    assert b"".join(kept).removesuffix(b"\n") == data.removesuffix(b"\n")
    assert len(after) == len(lines) + done.end_line - done.start_line + 1


@settings(max_examples=examples(500), deadline=None)
@given(data=contents, start=st.integers(-1, 21), end=st.integers(-1, 21))
def test_exactly_the_named_lines_are_deleted(data, start, end):
    lines = lines_of(data)
    if not 1 <= start <= end <= len(lines):
        with pytest.raises(InvalidRequest):
            LineDeletion(start, end).apply(data)
        return
    done = LineDeletion(start, end).apply(data)
    assert done == ChangeResult(b"".join(lines[: start - 1] + lines[end:]), start, start - 1)


@settings(max_examples=examples(500), deadline=None)
@given(before=contents, old=contents.filter(bool), after=contents, new=contents)
def test_a_text_is_replaced_only_if_its_place_is_unique(before, old, after, new):
    data = before + old + after
    places = [at for at in range(len(data)) if data.startswith(old, at)]
    if len(places) > 1:
        with pytest.raises(InvalidRequest):
            TextReplacement(old, new).apply(data)
        return
    done = TextReplacement(old, new).apply(data)
    assert done.data == before + new + after
    assert done.start_line == before.count(b"\n") + 1
    assert done.end_line == done.start_line + len(lines_of(new)) - 1
