"""Collections: their names, folders and patterns."""

import pytest

from memoryd_server.model import Source
from memoryd_server.qmd.home import Collection, ConfiguredPath, collections_of, matches
from memoryd_server.sources.roots import ExtraPath, Roots

ROOTS = Roots("/w", ("../extra", "notes/one.md"))


def made(*paths, default_memory=False, sessions_folder=None, roots=ROOTS):
    return collections_of(roots, paths, default_memory=default_memory, sessions_folder=sessions_folder)


def test_the_workspaces_memory_has_the_name_that_users_know():
    memory, extra, file = made(default_memory=True)
    assert memory == Collection("memory-root", "/w", "{MEMORY.md,memory.md,USER.md,memory/**/*.md}", builtin=True)
    assert extra == Collection("extra-1", "/extra", "**/*.md", builtin=True)
    assert file == Collection("extra-2", "/w/notes", "one.md", builtin=True)
    assert [collection.is_one_file for collection in (memory, extra, file)] == [False, False, True]


def test_each_pattern_of_an_extra_path_is_a_collection():
    roots = Roots("/w", (ExtraPath("../extra", "docs\\**"), ExtraPath("../extra", "*.md"), "../other"))
    assert made(default_memory=True, roots=roots)[1:] == (
        Collection("extra-1", "/extra", "docs/**", builtin=True),
        Collection("extra-1-2", "/extra", "*.md", builtin=True),
        Collection("extra-2", "/other", "**/*.md", builtin=True),
    )


def test_transcripts_are_a_collection_of_their_own():
    assert made(sessions_folder="/s") == (Collection("sessions", "/s", "**/*.md", Source.SESSIONS),)


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        (ConfiguredPath("docs"), ("custom-1", "/w/docs", "**/*.md")),
        (ConfiguredPath("/abs/./docs/", name="My Docs!"), ("my-docs", "/abs/docs", "**/*.md")),
        (ConfiguredPath("docs", "*.txt", "日本"), ("collection", "/w/docs", "*.txt")),
        (ConfiguredPath("docs/a[1]{x}.md"), ("custom-1", "/w/docs", r"a\[1\]\{x\}.md")),
        (ConfiguredPath("docs", " ", " "), ("custom-1", "/w/docs", "**/*.md")),
    ],
)
def test_a_configured_path_is_a_folder_or_one_file(configured, expected):
    (collection,) = made(configured)
    assert (collection.name, collection.root, collection.pattern) == expected
    assert not collection.builtin
    assert collection.is_one_file is configured.path.endswith(".md")


def test_names_are_unique_and_what_is_there_twice_is_there_once():
    same = [ConfiguredPath("a", name="Notes"), ConfiguredPath("b", name="notes"), ConfiguredPath("a", name="again")]
    names = [c.name for c in made(*same, ConfiguredPath("c", name="NOTES"), ConfiguredPath("d", name="memory-root"))]
    assert names == ["notes", "notes-2", "notes-3", "memory-root"]
    reserved = made(ConfiguredPath("d", name="Memory Root"), default_memory=True, roots=Roots("/w"))
    assert [c.name for c in reserved] == ["memory-root", "memory-root-2"]


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("**/*.md", "a.md", True),
        ("**/*.md", "a/b/c.md", True),
        ("**/*.md", "a.txt", False),
        ("*.md", "a/b.md", False),
        ("{MEMORY.md,memory/**/*.md}", "memory/x/y.md", True),
        ("{MEMORY.md,memory/**/*.md}", "memory/y.md", True),
        ("{MEMORY.md,memory/**/*.md}", "other/y.md", False),
        ("MEMORY.md,notes/*.txt", "notes/a.txt", True),
        ("notes/**", "notes/a/b.txt", True),
        ("notes/**", "notesx/a", False),
        ("a?.md", "ab.md", True),
        ("a?.md", "a/.md", False),
        ("[ab].md", "b.md", True),
        ("[!ab].md", "b.md", False),
        ("[!ab].md", "c.md", True),
        (r"a\[1\].md", "a[1].md", True),
        (r"a\[1\].md", "a1.md", False),
        ("a}.md", "a}.md", True),
        ("{a,b.md", "b.md", True),
        ("会议/*.md", "会议/x\n.md", True),
        ("!(x)/*.md", "y/z.md", True),
        ("!(x)/*.md", "y/z.txt", False),
        ("a.md", "axmd", False),
    ],
)
def test_globs(pattern, path, expected):
    assert matches(pattern, path) is expected


@pytest.mark.parametrize(
    "path", ["../a.md", "a/../b.md", "./a.md", "a//b.md", ".hidden.md", "a/.git/b.md", "", "a\0.md", "/a.md", "a/"]
)
def test_a_collection_holds_no_path_that_leads_elsewhere_or_is_hidden(path):
    assert not Collection("c", "/w", "**").may_contain(path)
