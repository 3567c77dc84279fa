"""What discovery leaves out because of a rule, and the rule."""

import os

import pytest

from memoryd_server.sources.discover import discover_files, excluded_places
from memoryd_server.sources.exclusions import LINK, SECOND_NAME, RootFinder, ignoring_rule, pattern_rule
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.ignore import IGNORE_FILE, MOST_RULES
from memoryd_server.sources.roots import ExtraPath, Roots, resolve_path


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "w" / "memory").mkdir(parents=True)
    return tmp_path / "w"


def fill(folder, *paths, ignore=None):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"text of {path}")
    if ignore is not None:
        (folder / IGNORE_FILE).write_text(ignore)


def excluded(roots, **options):
    places = excluded_places(roots, **options)
    assert len({place.path for place in places}) == len(places)
    return {place.path: place.rule for place in places}


def test_files_and_folders_are_named_with_the_line_that_excludes_them(workspace):
    fill(
        workspace,
        "MEMORY.md",
        "memory/a.md",
        "memory/b.tmp.md",
        "memory/drafts/c.md",
        "memory/drafts/deep/d.md",
        "memory/x/kept.tmp.md",
        "memory/picture.png",
        ignore="# private\ndrafts/\n*.tmp.md\n!kept.tmp.md\n/MEMORY.md\n",
    )
    roots = Roots(os.fspath(workspace))
    assert excluded(roots) == {
        "MEMORY.md": ".memoryignore:5: /MEMORY.md",
        "memory/b.tmp.md": ".memoryignore:3: *.tmp.md",
        "memory/drafts/": ".memoryignore:2: drafts/",
    }


WHOLE, A, Z = "notes", ExtraPath("notes", "**/a.md"), ExtraPath("notes", "z/*")


@pytest.mark.parametrize(
    "extras",
    [
        (),
        (WHOLE,),
        (A, Z),
        ("notes/x", A, Z),
        (A, Z, "notes/x"),
        (WHOLE, "notes/x"),
        ("notes/x", WHOLE),
        (Z, "notes/x"),
    ],
)
def test_every_file_is_found_or_named_with_the_rule_that_excludes_it(workspace, extras):
    names = ["a.md", "b.md", "x/a.md", "x/b.md", "x/y/c.md", "z/c.md"]
    fill(workspace, *(f"memory/{name}" for name in names), *(f"notes/{name}" for name in names), ignore="b.md\ny/\n")
    fill(workspace / "notes", ignore="/z\n!b.md\n")
    fill(workspace / "notes" / "x", ignore="a.md\n")
    roots = Roots(os.fspath(workspace), extras)
    found = {file.path for file in discover_files(roots).files}
    named = excluded(roots)
    folders = (
        ("memory", "notes") if WHOLE in extras or A in extras else ("memory", "notes/x") if extras else ("memory",)
    )
    for name in sorted({f"memory/{name}" for name in names} | {f"notes/{name}" for name in names}):
        if not name.startswith(folders):
            continue
        above = [path for path in named if path.endswith("/") and name.startswith(path)]
        assert (name in found) != (name in named or bool(above)), name
        if name in named:
            patterns = pattern_rule(roots, name)
            assert named[name] == (patterns or ignoring_rule(roots, resolve_path(roots, name)))
        for folder in above:
            assert named[folder] == ignoring_rule(roots, resolve_path(roots, name))


def test_files_and_folders_that_patterns_do_not_match_are_named_with_the_patterns(workspace):
    fill(workspace, "code/README.md", "code/docs/a.md", "code/docs/deep/b.md", "code/src/c.md")
    roots = Roots(os.fspath(workspace), (ExtraPath("code", "docs/*.md"), ExtraPath("code", "CHANGES.md")))
    rule = "docs/*.md, CHANGES.md"
    assert excluded(roots) == {"code/README.md": rule, "code/docs/deep/": rule, "code/src/": rule}


def test_a_folder_that_is_another_extra_path_is_not_excluded(workspace):
    fill(workspace, "code/src/a.md", "code/docs/b.md", "memory/private/c.md", ignore="private/\n")
    roots = Roots(os.fspath(workspace), (ExtraPath("code", "docs/*"), "code/src", "memory/private"))
    assert excluded(roots) == {}
    assert len(discover_files(roots).files) == 3


def test_an_ignored_memory_folder_is_one_entry(workspace):
    fill(workspace, "memory/a.md", ignore="memory\n")
    assert excluded(Roots(os.fspath(workspace))) == {"memory/": ".memoryignore:1: memory"}


def test_links_are_named_and_not_followed(workspace, tmp_path):
    fill(tmp_path / "outside", "a.md")
    fill(workspace, "memory/kept.md", ignore="drafts/\nsecret.md\n")
    memory = workspace / "memory"
    for name in ("drafts", "archive", "link.md", "secret.md", "picture.png"):
        (memory / name).symlink_to(tmp_path / "outside")
    (workspace / "MEMORY.md").symlink_to(tmp_path / "outside" / "a.md")
    assert excluded(Roots(os.fspath(workspace))) == {
        "MEMORY.md": LINK,
        # The rule is one for folders.
        "memory/drafts": LINK,
        "memory/archive": LINK,
        "memory/link.md": LINK,
        "memory/secret.md": ".memoryignore:2: secret.md",
    }


def test_a_memory_folder_that_is_a_link_is_named(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "memory").symlink_to(tmp_path)
    assert excluded(Roots(os.fspath(tmp_path / "w"))) == {"memory": LINK}


def test_a_second_name_of_a_file_is_named(workspace):
    fill(workspace, "memory/a.md")
    (workspace / "memory" / "b.md").hardlink_to(workspace / "memory" / "a.md")
    assert excluded(Roots(os.fspath(workspace))) == {"memory/b.md": SECOND_NAME}
    assert excluded(Roots(os.fspath(workspace), ("memory/a.md", "memory"))) == {"memory/b.md": SECOND_NAME}


def test_a_file_that_two_roots_find_under_other_display_paths_has_no_second_name(workspace):
    fill(workspace, "MEMORY.md", "memory/a.md", "plan.md")
    assert excluded(Roots(os.fspath(workspace), ("..", "."))) == {}


def test_names_and_rules_that_are_not_utf_8_are_shown_with_their_bytes(workspace):
    (workspace / IGNORE_FILE).write_bytes(b"caf\xe9*\n")
    name = os.fsdecode(b"caf\xe9")
    (workspace / "memory" / f"{name}s").mkdir()
    (workspace / "memory" / f"{name}.md").touch()
    rule = r".memoryignore:1: caf\xe9*"
    assert excluded(Roots(os.fspath(workspace))) == {r"memory/caf\xe9.md": rule, r"memory/caf\xe9s/": rule}


def test_nothing_is_named_in_a_root_whose_ignore_file_cannot_be_used(workspace):
    fill(workspace, "memory/a.md", "notes/b.md", ignore="x\n" * (MOST_RULES + 1))
    fill(workspace / "notes", ignore="b.md\n")
    assert excluded(Roots(os.fspath(workspace), ("notes",))) == {"notes/b.md": "notes/.memoryignore:1: b.md"}
    (workspace / "notes" / IGNORE_FILE).unlink()
    (workspace / "notes" / IGNORE_FILE).symlink_to(workspace / IGNORE_FILE)
    assert excluded(Roots(os.fspath(workspace), ("notes",))) == {}


def test_the_list_says_where_it_ends(workspace):
    fill(workspace, *(f"memory/x/{number}.md" for number in range(10)), "memory/a.md", ignore="/memory/x/*\n")
    named = excluded(Roots(os.fspath(workspace)), most=4)
    assert len(named) == 5
    assert named.pop("memory/x/") == "the list ends after 4 excluded files and folders; this folder has others"
    assert set(named.values()) == {".memoryignore:1: /memory/x/*"}
    assert len(excluded(Roots(os.fspath(workspace)), most=10)) == 10


def test_a_corpus_without_memory_excludes_nothing(workspace):
    fill(workspace, "memory/a.md", ignore="*.md\n")
    roots = Roots(os.fspath(workspace))
    assert [place.path for place in FolderCorpus(roots).excluded()] == ["memory/a.md"]
    assert FolderCorpus(roots, memory=False).excluded() == []


def test_a_long_rule_that_excludes_many_files_is_kept_once(workspace):
    line = "[!" + "x" * 20_000 + "]*"
    fill(workspace, *(f"memory/{number}.md" for number in range(200)), ignore=f"{line}\n!memory\n")
    places = excluded_places(Roots(os.fspath(workspace)))
    assert len(places) == 200
    assert len({id(place.rule) for place in places}) == 1


@pytest.mark.parametrize(
    ("extras", "expected"),
    [
        (("notes",), {"memory/a.md": ".", "notes/a.md": "notes", "notes/x/a.md": "notes"}),
        (("notes", "notes/x"), {"notes/a.md": "notes", "notes/x/a.md": "notes"}),
        (("notes/x", "notes"), {"notes/a.md": "notes", "notes/x/a.md": "notes/x"}),
        # The walk of `notes` does not enter the ignored folder.
        (("notes", "notes/drafts"), {"notes/a.md": "notes", "notes/drafts/a.md": "notes/drafts"}),
        (("notes", "notes/secret.md"), {"notes/a.md": "notes", "notes/secret.md": "notes/secret.md"}),
        (("notes/a.md", "notes"), {"notes/a.md": "notes/a.md", "notes/x/a.md": "notes"}),
        ((".",), {"MEMORY.md": ".", "plan.md": ".", "memory/a.md": ".", "notes/a.md": "."}),
        (("..",), {"MEMORY.md": ".", "../w/plan.md": "..", "memory/a.md": ".", "../w/notes/a.md": ".."}),
    ],
)
def test_the_root_of_a_file_is_the_one_whose_discovery_finds_it(workspace, extras, expected):
    paths = [
        "MEMORY.md",
        "plan.md",
        "memory/a.md",
        "notes/a.md",
        "notes/x/a.md",
        "notes/drafts/a.md",
        "notes/secret.md",
    ]
    fill(workspace, *paths)
    fill(workspace / "notes", ignore="drafts/\nsecret.md\n")
    roots = Roots(os.fspath(workspace), extras)
    finder = RootFinder(roots)
    found = {file.path: finder.root_of(file.path) for file in discover_files(roots).files}
    assert expected.items() <= found.items()
    assert {root for root in found.values() if root != "."} <= set(extras)
    assert finder.root_of("elsewhere/a.md") in {".", ".."}
