"""Globs of extra paths match as OpenClaw's do, within bounds on their size and time."""

import time

import pytest

from memoryd_server.globs import MOST_ALTERNATIVES, MOST_CHARS, MOST_NAMES, MOST_NESTED, Glob, GlobError


def matches(pattern: str, path: str) -> bool:
    return Glob.parse(pattern).matches(path.split("/"))


# Each result is that of OpenClaw's own matcher.
@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("**/*.md", "a.md", True),
        ("**/*.md", "x/y/a.md", True),
        ("**/*.md", ".a.md", False),
        ("**/*.md", ".d/a.md", False),
        ("**/*.md", "x/.d/a.md", False),
        ("*.md", "a.md", True),
        ("*.md", "x/a.md", False),
        ("*", "a.md", True),
        ("**", "a/b.md", True),
        ("**", ".a/b.md", False),
        (".d/*.md", ".d/a.md", True),
        (".d/**", ".d/a/b.md", True),
        (".d/**", ".d/.a/b.md", False),
        (".*/*.md", ".d/a.md", True),
        ("**/.d/*.md", "x/.d/a.md", True),
        ("{.d,e}/*.md", ".d/a.md", True),
        ("x{.d,e}/*.md", "x.d/a.md", True),
        ("{a,.}b.md", ".b.md", True),
        ("?.md", "a.md", True),
        ("?a.md", ".a.md", False),
        ("[a-c].md", "b.md", True),
        ("[!ab].md", "c.md", True),
        ("[!ab].md", "a.md", False),
        ("[^ab].md", "c.md", True),
        ("[^ab].md", "a.md", False),
        ("[]a].md", "a.md", True),
        ("{a,b}/*.md", "b/x.md", True),
        ("{a,b/**}/*.md", "b/c/d/x.md", True),
        ("{a,{b,c}}.md", "c.md", True),
        ("{,x}a.md", "a.md", True),
        ("*.{md,txt}", "a.md", True),
        ("{a}.md", "a.md", False),
        ("{a}.md", "{a}.md", True),
        ("{a.md", "{a.md", True),
        ("[a.md", "[a.md", True),
        ("a.md,b.md", "a.md", False),
        ("a.md,b.md", "a.md,b.md", True),
        ("notes/", "notes/a.md", False),
        ("notes", "notes/a.md", False),
        ("notes/**", "notes/a.md", True),
        ("notes/**", "notes", False),
        ("./a.md", "a.md", False),
        ("/a.md", "a.md", False),
        ("../*.md", "a.md", False),
        ("**/", "a/b.md", False),
        ("a//b.md", "a/b.md", True),
        ("a/**/b.md", "a/b.md", True),
        ("**/a/**/b.md", "a/x/b.md", True),
        ("**/**/**/b.md", "b.md", True),
        ("a**b.md", "axb.md", True),
        ("a**b.md", "a/x/b.md", False),
        ("**.md", "x/a.md", False),
        ("A.md", "a.md", False),
        ("!a.md", "b.md", False),
        ("#a.md", "#a.md", True),
        ("a\\b.md", "a/b.md", True),
        ("\\*.md", "*.md", False),
    ],
)
def test_a_glob_matches_as_in_openclaw(pattern, path, expected):
    assert matches(pattern, path) is expected


@pytest.mark.parametrize(
    ("pattern", "folder", "expected"),
    [
        ("docs/*.md", "docs", True),
        ("docs/*.md", "docs/x", False),
        ("docs/*.md", "src", False),
        ("docs/**", "docs/x/y", True),
        ("docs/**", "docs/.git", False),
        ("{a/b,c}/*.md", "a", True),
        ("{a/b,c}/*.md", "a/c", False),
        ("**/*.md", "x", True),
        ("**/*.md", ".x", False),
        ("*.md", "x.md", False),
    ],
)
def test_a_folder_is_entered_only_if_a_file_below_it_can_match(pattern, folder, expected):
    assert Glob.parse(pattern).may_match_below(folder.split("/")) is expected


def test_the_top_folder_is_always_entered():
    assert Glob.parse("/never").may_match_below(())


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "empty"),
        ("x" * (MOST_CHARS + 1), f"{MOST_CHARS + 1} characters"),
        ("{a,b}" * 7, f"more than {MOST_ALTERNATIVES} alternatives"),
        ("{a,b}" * 100, f"more than {MOST_ALTERNATIVES} alternatives"),
        ("{a," * (MOST_NESTED + 1) + "b" + "}" * (MOST_NESTED + 1), f"more than {MOST_NESTED} nested"),
        ("{" * 500, f"more than {MOST_NESTED} nested"),
        ("a/" * MOST_NAMES + "b", f"more than the {MOST_NAMES} allowed"),
        ("!(a).md", r'"!\("'),
        ("+(a|b).md", r'"\+\("'),
        ("[[:alpha:]].md", r'"\[:"'),
        ("{1..3}.md", r"range \"{1..3}\""),
        ("{a..f}.md", r"range \"{a..f}\""),
    ],
)
def test_a_glob_that_is_too_large_or_has_another_form_is_refused(pattern, reason):
    with pytest.raises(GlobError, match=reason):
        Glob.parse(pattern)


@pytest.mark.attacks
@pytest.mark.parametrize(
    "pattern",
    [
        "**/a/" * 15 + "b.md",
        "*a" * 200 + "b.md",
        "?*" * 200 + "b.md",
        "[a-z]*" * 80 + "b.md",
        "{" + ",".join([f"**/a{n}*" for n in range(30)] + [f"**/{n}" for n in range(30)]) + "}/b.md",
    ],
)
def test_matching_takes_time_in_proportion_to_pattern_and_path(pattern):
    path = ["a" * 255] * 8 + ["a"] * 56
    glob, started = Glob.parse(pattern), time.process_time()
    assert not glob.matches(path)
    assert time.process_time() - started < 1
