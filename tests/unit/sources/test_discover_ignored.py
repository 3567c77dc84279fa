"""Files that a root's `.memoryignore` matches are not found; all others are."""

import os

import pytest

from memoryd_server.sources.discover import discover_files
from memoryd_server.sources.exclusions import ignoring_rule
from memoryd_server.sources.ignore import IGNORE_FILE, MOST_RULES
from memoryd_server.sources.roots import Roots, resolve_path


def fill(folder, *names, ignore=""):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.fsencode(name))
    if ignore:
        (folder / IGNORE_FILE).write_text(ignore)


def found(roots):
    discovery = discover_files(roots)
    assert discovery.failures == ()
    return [file.path for file in discovery.files]


def test_files_and_folders_of_the_workspace_are_left_out(workspace, roots):
    names = ("MEMORY.md", "memory/a.md", "memory/a.draft.md", "memory/private/b.md", "memory/x/private/c.md")
    fill(workspace, *names, ignore="private/\n*.draft.md\n")
    assert found(roots) == ["MEMORY.md", "memory/a.md"]
    fill(workspace, ignore="/memory/private\n")
    assert found(roots) == ["MEMORY.md", "memory/a.draft.md", "memory/a.md", "memory/x/private/c.md"]
    fill(workspace, ignore="MEMORY.md\nmemory/\n")
    assert found(roots) == []


def test_folders_that_programs_fill_can_be_left_out(workspace, roots):
    fill(workspace, "memory/a.md", "memory/node_modules/p/README.md", ignore="node_modules/\n")
    assert found(roots) == ["memory/a.md"]


def test_each_root_has_rules_of_its_own(workspace, tmp_path):
    fill(workspace, "memory/a.md", "memory/b.md", ignore="a.md\n")
    fill(tmp_path / "team", "a.md", "b.md", "c/b.md", ignore="/b.md\n")
    assert found(Roots(os.fspath(workspace), ("../team",))) == ["../team/a.md", "../team/c/b.md", "memory/b.md"]


def test_an_ignore_file_above_a_root_does_not_apply(tmp_path):
    top = tmp_path / ".hidden" / "private" / "workspace"
    fill(tmp_path, "x", ignore="*\n")
    fill(top, "memory/a.md", "memory/.hidden/b.md", ignore=".hidden/\nprivate\nworkspace\n")
    assert found(Roots(os.fspath(top))) == ["memory/a.md"]


def test_only_the_file_at_the_top_of_a_root_counts(workspace, roots):
    fill(workspace, "memory/sub/a.md", "memory/a.md")
    fill(workspace / "memory", ignore="*\n")
    (workspace / ".gitignore").write_text("memory/\n")
    assert found(roots) == ["memory/a.md", "memory/sub/a.md"]


def test_a_single_file_that_the_settings_name_is_kept(workspace, tmp_path):
    fill(tmp_path, "one.md", ignore="*\n")
    assert found(Roots(os.fspath(workspace), ("../one.md",))) == ["../one.md"]


@pytest.mark.parametrize("ignore", ["a\n" * (MOST_RULES + 1), None], ids=["too-many", "link"])
def test_where_the_rules_cannot_be_read_nothing_is_found_and_nothing_counts_as_deleted(
    workspace, tmp_path, outside, ignore
):
    fill(workspace, "MEMORY.md", "memory/a.md")
    fill(tmp_path / "team", "b.md")
    if ignore is None:
        (workspace / IGNORE_FILE).symlink_to(outside / "secret.md")
    else:
        fill(workspace, ignore=ignore)
    discovery = discover_files(Roots(os.fspath(workspace), ("../team",)))
    assert [file.path for file in discovery.files] == ["../team/b.md"]
    assert [failure.path for failure in discovery.failures] == [IGNORE_FILE]
    (unseen,) = discovery.unseen
    assert all(unseen.would_hold(path) for path in ("MEMORY.md", "memory/a.md"))
    assert not unseen.would_hold("../team/b.md")


def test_the_rule_of_a_file_is_named_if_discovery_does_not_find_it(workspace, tmp_path):
    paths = ["MEMORY.md", "memory/a.md", "memory/x/b.md", "notes/a.md", "notes/inner/a.md", "notes/inner/b.md"]
    fill(workspace, *paths, ignore="b.md\nMEMORY.md\n")
    fill(workspace / "notes", ignore="inner/\na.md\n")
    fill(workspace / "notes" / "inner", ignore="/b.md\n")
    roots = Roots(os.fspath(workspace), ("notes", "notes/inner"))
    rules = {path: ignoring_rule(roots, resolve_path(roots, path)) for path in paths}
    assert {path for path, rule in rules.items() if not rule} == set(found(roots))
    assert rules == {
        "MEMORY.md": ".memoryignore:2: MEMORY.md",
        "memory/a.md": "",
        "memory/x/b.md": ".memoryignore:1: b.md",
        "notes/a.md": "notes/.memoryignore:2: a.md",
        "notes/inner/a.md": "",
        "notes/inner/b.md": "notes/inner/.memoryignore:1: /b.md",
    }
