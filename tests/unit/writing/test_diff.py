"""Diffs are those of `diff -u`: they can be applied, and are bounded in size and work for every input."""

import difflib
import random
import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memoryd_server.writing.diff import MOST_LINES, MOST_STEPS, unified_diff
from properties import examples

PLENTY = 1 << 30
HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
MARKER = "\\ No newline at end of file"


def diff(before, after, most_bytes=PLENTY):
    return unified_diff(before, after, before_name="a/x.md", after_name="b/x.md", most_bytes=most_bytes)


def text_of(before, after):
    text, cut = diff(before, after)
    assert not cut
    return text


def lines_of(text):
    return [line + "\n" for line in text.split("\n")[:-1]] + ([text.split("\n")[-1]] if text.split("\n")[-1] else [])


def applied(before, patch):
    """Apply a patch to a text; check each header, context line and removed line."""
    old, new, place = lines_of(before), [], 0
    rows = patch.split("\n")
    assert rows.pop() == ""
    rows = rows[2:]
    while rows:
        start, removed, new_start, added = HEADER.fullmatch(rows.pop(0)).groups()
        removed, added = int(removed or 1), int(added or 1)
        first = int(start) - (removed > 0)
        new += old[place:first]
        assert int(new_start) - (added > 0) == len(new)
        place, begun, wanted = first, len(new), first + removed
        while place < wanted or len(new) < begun + added or (rows and rows[0] == MARKER):
            row = rows.pop(0)
            line = row[1:] + ("" if rows and rows[0] == MARKER else "\n")
            if line[-1:] != "\n":
                rows.pop(0)
            if row[0] in " -":
                assert old[place] == line
                place += 1
            if row[0] in " +":
                new.append(line)
        assert (place, len(new)) == (wanted, begun + added)
    return "".join(new + old[place:])


def test_a_changed_line_has_three_lines_of_context():
    before = "".join(f"line {number}\n" for number in range(1, 21))
    assert text_of(before.encode(), before.replace("line 10\n", "line ten\n").encode()) == (
        "--- a/x.md\n+++ b/x.md\n@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+line ten\n"
        " line 11\n line 12\n line 13\n"
    )


def test_equal_contents_have_no_diff():
    assert diff(b"same\n", b"same\n") == ("", False)
    assert diff(None, b"") == ("", False)
    assert diff(None, None) == ("", False)


def test_a_created_and_a_deleted_file_have_no_name():
    assert text_of(None, b"a\nb\n") == "--- /dev/null\n+++ b/x.md\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    assert text_of(b"a\n", None) == "--- a/x.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    assert text_of(b"", b"a\n").startswith("--- a/x.md\n")


@pytest.mark.parametrize(
    ("before", "after", "body"),
    [
        (b"a", b"a\n", f"-a\n{MARKER}\n+a\n"),
        (b"a\n", b"a", f"-a\n+a\n{MARKER}\n"),
        (b"a", b"b", f"-a\n{MARKER}\n+b\n{MARKER}\n"),
        (b"x\na", b"y\na", f"-x\n+y\n a\n{MARKER}\n"),
        (b"a", b"a\nb", f"-a\n{MARKER}\n+a\n+b\n{MARKER}\n"),
    ],
)
def test_a_missing_last_newline_is_marked(before, after, body):
    assert text_of(before, after).split("@@\n")[1] == body


def test_contents_that_differ_only_in_invalid_bytes_have_a_diff():
    assert text_of(b"\xff\n", b"\xfe\n").endswith("@@\n-\ufffd\n+\ufffd\n")


def test_only_a_line_feed_ends_a_line():
    before = "one\u2028two\x0bthree\rfour\n"
    assert applied(before, text_of(before.encode(), b"five\n")) == "five\n"


def test_a_name_stays_on_its_line():
    text, _ = unified_diff(b"a", b"b", before_name="a/x\n+y\x1b", after_name="b/ö.md", most_bytes=PLENTY)
    assert text.startswith("--- a/x\\n+y\\x1b\n+++ b/ö.md\n@@")


def test_distant_changes_have_hunks_of_their_own():
    before = [f"line {number}\n" for number in range(9_000)]
    after = [*before]
    after[3], after[4_000], after[8_998] = "three\n", "four\n", "nine\n"
    text = text_of("".join(before).encode(), "".join(after).encode())
    assert text.count("@@ -") == 3
    assert len(text.splitlines()) < 40
    assert applied("".join(before), text) == "".join(after)


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "ä\n", "a\r\n", "a\u2028b\n"]), max_size=30)
TEXTS = st.builds(lambda lines, end: "".join(lines) + end, LINES, st.sampled_from(["", "", "end", "ü"]))


@settings(max_examples=examples(2_000))
@given(TEXTS, TEXTS)
@example("a\n" * 30, "a\n" * 31)
@example("b\na\n" * 9, "a\nb\n" * 9)
def test_a_diff_applied_to_the_text_before_gives_the_text_after(before, after):
    text = text_of(before.encode(), after.encode())
    assert applied(before, text) == after if text else before == after


@settings(max_examples=examples(500))
@given(st.text(), st.text())
def test_diffs_of_any_text_can_be_applied(before, after):
    text = text_of(before.encode(), after.encode())
    assert applied(before, text) == after if text else before == after


@settings(max_examples=examples(500))
@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(0, 500))
def test_a_cut_diff_is_the_start_of_the_whole_one(before, after, most):
    whole, _ = diff(before, after)
    text, cut = diff(before, after, most)
    assert len(text.encode()) <= most
    assert cut == (len(whole.encode()) > most)
    assert whole.startswith(text)
    # Only a character that does not fit whole is missing.
    assert not cut or len(text.encode()) > most - 4


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_contents_that_differ_always_have_a_diff(before, after):
    assert bool(text_of(before, after)) == (before != after)


@pytest.mark.parametrize("seed", range(4))
def test_patch_accepts_the_diffs(tmp_path, seed):
    chance = random.Random(seed)
    before = [f"line {chance.randrange(40)}\n" for _ in range(400)]
    after = [line for line in before if chance.random() > 0.05]
    for _ in range(20):
        after.insert(chance.randrange(len(after)), f"new {chance.randrange(9)}\n")
    file = tmp_path / "x.md"
    file.write_text("".join(before))
    patch = text_of("".join(before).encode(), "".join(after).encode())
    try:
        done = subprocess.run(["patch", "-s", str(file)], input=patch, text=True, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("`patch` is not installed")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert file.read_text() == "".join(after)


def compared_steps(before, after, most_bytes=1 << 16):
    """Return the diff, and the number of steps of the inner loops of `difflib`."""
    steps = 0

    def count(frame, event, _):
        nonlocal steps
        if event == "call" and frame.f_code is difflib.SequenceMatcher.find_longest_match.__code__:
            matcher, start, end = (frame.f_locals[name] for name in ("self", "alo", "ahi"))
            steps += sum(1 + len(matcher.b2j.get(line, ())) for line in matcher.a[start:end])

    earlier = sys.getprofile()
    sys.setprofile(count)
    try:
        found = diff(before, after, most_bytes)
    finally:
        sys.setprofile(earlier)
    return found, steps


MIB = 1 << 20
HOSTILE = {
    "equal lines": (b"x\n" * 10**6, b"x\n" * (10**6 - 7)),
    "alternating lines": (b"x\ny\n" * 500_000, b"y\nx\n" * 500_000),
    "two lines in random order": tuple(
        b"".join(random.Random(seed).choices([b"x\n", b"y\n"], k=1_900)) for seed in (1, 2)
    ),
    "short runs between unique lines": tuple(
        b"".join(
            b"%d\n" % number + b"".join(random.Random(number + seed).choices([b"x\n", b"y\n"], k=90))
            for number in range(100)
        )
        for seed in (0, 1000)
    ),
    "equal lines between others": (b"x\n" * 5_000, b"".join(b"x\n%d\n" % number for number in range(99))),
    "equal lines in the other order": tuple(
        b"".join(b"%d\n" % (number % 90) for number in numbers) for numbers in (range(9_000), range(180, 0, -1))
    ),
    "few equal lines": tuple(
        b"".join(b"x\n" if n % 9 == 0 else b"%d %d\n" % (n, side) for n in range(size))
        for side, size in enumerate((9_000, 198))
    ),
    "empty lines": (b"\n" * MIB, b"x\n" + b"\n\n" * MIB + b"y"),
    "one long line": (b"x" * (32 * MIB), b"y" + b"x" * (32 * MIB - 1)),
    "no common byte": (b"x\n" * (16 * MIB), b"y\n" * (16 * MIB)),
    "a rewritten file": (b"".join(b"%d\n" % n for n in range(10**5)), b"".join(b"-%d\n" % n for n in range(10**5))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_diff_has_few_steps_whatever_the_contents(name):
    (text, cut), steps = compared_steps(*HOSTILE[name])
    assert steps <= MOST_STEPS
    assert len(text.encode()) <= 1 << 16
    assert text.startswith("--- a/x.md\n+++ b/x.md\n@@ -")
    assert cut or text.endswith("\n")


def test_lines_above_the_limit_are_shown_as_replaced():
    before = [f"line {number}\n" for number in range(MOST_LINES)]
    after = ["first\n", *before[1:-1], "last\n"]
    text = text_of("".join(before).encode(), "".join(after).encode())
    assert text.count("@@ -") == 1
    assert applied("".join(before), text) == "".join(after)


def test_a_long_line_is_cut_at_a_character():
    whole = "--- a/x.md\n+++ b/x.md\n@@ -0,0 +1 @@\n+" + "ä" * 40
    for most in (len(whole.encode()), len(whole.encode()) + 1):
        assert diff(b"", "ä".encode() * MIB, most) == (whole, True)
