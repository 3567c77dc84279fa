"""`.memoryignore` says what `.gitignore` would say of the same paths."""

import shutil
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.sources.ignore import (
    IGNORE_FILE,
    MOST_IGNORE_BYTES,
    MOST_RULES,
    NO_RULES,
    IgnoreFileUnusable,
    parse_rules,
    read_rules,
)

PIECES = st.sampled_from(
    ["a", "b", "ab", "a*", "*", "?", "**", "*.md", "a.md", "[ab]", "[!a]", "[^b]", "\\*", "\\!b", "#"]
)
LINES = st.builds(
    lambda back, lead, parts, trail, spaces: f"{back}{lead}{'/'.join(parts)}{trail}{spaces}",
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(PIECES, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
    st.sampled_from(["", "", "  ", "\\ "]),
)
NAMES = st.lists(st.sampled_from(["a", "b", "ab", "ba", "a.md", "b.md", "*", "!b", "#", "a "]), min_size=1, max_size=4)


def check(text, path, left_out=True):
    assert parse_rules(text).ignores_file(path.split("/")) is left_out


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("private/", "private/a.md"),
        ("private/", "memory/private/deep/a.md"),
        ("/memory/private", "memory/private/a.md"),
        ("*.draft.md", "memory/deep/a.draft.md"),
        ("memory/**/old", "memory/old/a.md"),
        ("memory/**/old", "memory/x/y/old/a.md"),
        ("memory/x/**", "memory/x/y/a.md"),
        ("**/secret.md", "secret.md"),
        ("note[0-9].md", "memory/note7.md"),
        ("\\#a.md", "#a.md"),
        ("\\!a.md", "!a.md"),
        ("a.md  ", "a.md"),
        ("\ufeffa.md\r\nb.md\r\n", "a.md"),
        ("# a comment\n\n  \nb.md", "b.md"),
        ("*.md\n!keep.md\nkeep.md", "keep.md"),
        # What a folder leaves out cannot be taken back below it.
        ("private/\n!private/a.md", "private/a.md"),
    ],
)
def test_a_file_is_left_out(text, path):
    check(text, path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "memory/a.md"),
        ("# memory/", "memory/a.md"),
        ("/private", "memory/private/a.md"),
        ("memory/x", "other/memory/x/a.md"),
        ("a.md/", "a.md"),
        ("A.md", "a.md"),
        ("a*b.md", "a/b.md"),
        ("note[!0-9].md", "note7.md"),
        ("*.md\n!keep.md", "memory/keep.md"),
        ("[", "a.md"),
        ("!", "a.md"),
        ("/", "a.md"),
        ("[z-a].md", "z.md"),
        ("\\", "a.md"),
    ],
)
def test_a_file_is_kept(text, path):
    check(text, path, left_out=False)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    git = shutil.which("git")
    if git is None:
        pytest.skip("there is no git to compare with")
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run([git, "init", "-q", str(folder)], check=True, capture_output=True)
    return git, folder


def ignored_by_git(repository, cases):
    """For each case of (text, paths) those of the paths that git would leave out, each case in a folder of its own."""
    git, folder = repository
    for number, (text, _) in enumerate(cases):
        (folder / str(number)).mkdir(exist_ok=True)
        (folder / str(number) / ".gitignore").write_text(text)
    asked = "".join(f"{number}/{path}\0" for number, (_, paths) in enumerate(cases) for path in paths)
    command = [git, "-C", str(folder), "-c", "core.excludesFile=", "check-ignore", "--no-index", "--stdin", "-z"]
    done = subprocess.run(command, input=asked, text=True, capture_output=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    found = [path.split("/", 1) for path in done.stdout.split("\0") if path]
    return [{path for number, path in found if number == str(wanted)} for wanted in range(len(cases))]


def rule_of_file(rules, path):
    """Return the number and the text of the line that ignores a file, or the first ignored folder above it."""
    names = path.split("/")
    for end in range(1, len(names) + 1):
        rule = rules.rule_of(names[:end], folder=end < len(names))
        if rule is not None:
            return f"{rule.line}: {rule.text}"
    return ""


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(LINES, max_size=4).map("\n".join),
            st.lists(NAMES.map("/".join), min_size=1, max_size=12, unique=True),
        ),
        min_size=20,
        max_size=40,
    )
)
def test_any_lines_mean_what_they_mean_to_git(repository, cases):
    ours = [{path for path in paths if parse_rules(text).ignores_file(path.split("/"))} for text, paths in cases]
    ruled = [{path for path in paths if rule_of_file(parse_rules(text), path)} for text, paths in cases]
    assert ruled == ours
    theirs = ignored_by_git(repository, cases)
    assert list(zip(cases, ours, strict=True)) == list(zip(cases, theirs, strict=True))


def test_the_line_that_ignores_a_file_is_the_last_that_matches_it_or_a_folder_above_it():
    rules = parse_rules("# notes\n*.md\r\n!b.md\ndrafts/\n/old/**\n")
    lines = {
        "a.md": "2: *.md",
        "b.md": "",
        "drafts/b.md": "4: drafts/",
        "x/drafts/y/b.md": "4: drafts/",
        "old/b.md": "5: /old/**",
        "x/old/b.md": "",
    }
    assert {path: rule_of_file(rules, path) for path in lines} == lines


@given(st.text(), st.lists(st.text(min_size=1), min_size=1))
def test_no_text_breaks_the_reading(text, names):
    assert parse_rules(text).ignores_file(names) in {True, False}


def test_a_line_made_to_be_costly_takes_no_time():
    rules = parse_rules("\n".join(["*a" * 120 + "b", "/".join(["**", "*"] * 120), "?*" * 120 + "c"]))
    names = ["a" * 255] * 15
    began = time.process_time()
    for _ in range(10):
        rules.ignores_file(names)
    assert time.process_time() - began < 5


def test_the_file_of_a_root_is_read(tmp_path):
    assert read_rules(str(tmp_path), ()) is NO_RULES
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / IGNORE_FILE).write_bytes(b"a.md\n\xff.md\n")
    rules = read_rules(str(tmp_path), ("root",))
    assert rules.ignores_file(["a.md"])
    assert rules.ignores_file(["\udcff.md"])
    assert not rules.ignores_file(["b.md"])


def check_unusable(folder, words):
    with pytest.raises(IgnoreFileUnusable, match=words):
        read_rules(str(folder), ())


def test_an_ignore_file_that_cannot_be_parsed_is_reported(tmp_path):
    file = tmp_path / IGNORE_FILE
    file.mkdir()
    check_unusable(tmp_path, "not a regular file")
    file.rmdir()
    (tmp_path / "elsewhere").write_text("a.md")
    file.symlink_to(tmp_path / "elsewhere")
    check_unusable(tmp_path, "link")
    file.unlink()
    file.write_text("#" * (MOST_IGNORE_BYTES + 1))
    check_unusable(tmp_path, "more than")
    file.write_text("a\n" * (MOST_RULES + 1))
    check_unusable(tmp_path, "rules")


def test_an_unreadable_ignore_file_is_reported(tmp_path, forbid):
    (tmp_path / IGNORE_FILE).write_text("a.md")
    forbid(tmp_path / IGNORE_FILE)
    check_unusable(tmp_path, "denied")
