"""Folders that are left out take no watches, however many there are, and new rules are taken up."""

import os

import pytest

from memoryd_server.sources.ignore import IGNORE_FILE
from memoryd_server.sources.roots import Roots
from memoryd_server.sources.watch_scope import WatcherMode
from unit.sources.watching import QUIET, WAYS, ShortReader, modes, watching

FOLDERS_OF_PROGRAMS = 40_000


def make(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "n.md").touch()


def test_ignored_folders_take_no_watches(workspace, roots):
    make(workspace, *(f"memory/archive/{number}" for number in range(50)), "memory/kept")
    (workspace / IGNORE_FILE).write_text("archive/\n")
    with watching(roots, open_native=lambda: ShortReader(3)) as (watcher, changes):
        assert modes(watcher) == {".": WatcherMode.NATIVE}
        make(workspace, "memory/kept/archive/new")
        (workspace / "memory/archive/1/n.md").write_text("x")
        assert not changes.arrive(QUIET)
        (workspace / "memory/kept/n.md").write_text("x")
        assert changes.arrive()
        assert modes(watcher) == {".": WatcherMode.NATIVE}


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS, ids=["native", "polling"])
def test_a_change_of_the_ignore_rules_is_reported_and_in_force_after_a_check(workspace, roots, options):
    make(workspace, "memory/private")
    with watching(roots, **options) as (watcher, changes):
        before = modes(watcher)
        (workspace / IGNORE_FILE).write_text("private/\n")
        assert changes.arrive()
        # The root is the same folder, and watched: nothing is wrong with it meanwhile.
        assert {root.root: root.mode for root in watcher.verified_status()} == before
        watcher.check()
        changes.settle()
        (workspace / "memory/private/n.md").write_text("x")
        assert not changes.arrive(QUIET)
        (workspace / IGNORE_FILE).unlink()
        assert changes.arrive()
        watcher.check()
        changes.settle()
        (workspace / "memory/private/n.md").write_text("xy")
        assert changes.arrive()


@pytest.mark.slow
def test_forty_thousand_folders_of_programs_take_no_watch(tmp_path):
    """No more watches than folders that hold Markdown, of the workspace and of an extra path."""
    workspace, extra = tmp_path / "workspace", tmp_path / ".hidden" / "docs"
    make(workspace, "memory", "memory/topics", "memory/topics/deep")
    make(extra, "guides")
    (workspace / "MEMORY.md").touch()
    (extra / "README.md").touch()
    for number in range(FOLDERS_OF_PROGRAMS):
        top = (workspace / "memory" / "node_modules", extra / ".venv")[number % 2]
        os.makedirs(top / str(number // 200) / str(number % 200), exist_ok=True)  # noqa: PTH103 -- many
    holding = {file.parent for root in (workspace, extra) for file in root.rglob("*.md")}
    roots = Roots(os.fspath(workspace), (os.fspath(extra),))
    with watching(roots, open_native=lambda: ShortReader(len(holding))) as (watcher, changes):
        assert set(modes(watcher).values()) == {WatcherMode.NATIVE}
        for file in [*workspace.rglob("memory/**/n.md"), extra / "guides" / "n.md"]:
            file.write_text("x")
            assert changes.arrive()
            changes.settle()
