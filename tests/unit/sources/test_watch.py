import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from memoryd_server.sources.discover import discover_files
from memoryd_server.sources.files import read_file
from memoryd_server.sources.roots import Roots
from memoryd_server.sources.watch_scope import WatcherMode
from unit.sources.watching import QUIET, SOON, WAYS, modes, watching


def check(roots: Roots, act: Callable[[], object], *, noticed: bool, options: dict | None = None) -> None:
    with watching(roots, **(options or {})) as (_, changes):
        act()
        assert changes.arrive(SOON if noticed else QUIET) is noticed


ACTS: dict[str, Callable[[Path], object]] = {
    "long-term memory written": lambda ws: (ws / "MEMORY.md").write_text("x"),
    "legacy memory written": lambda ws: (ws / "memory.md").write_text("x"),
    "note written": lambda ws: (ws / "memory/new.md").write_text("x"),
    "note changed": lambda ws: (ws / "memory/old.md").write_text("more than before"),
    "note appended to": lambda ws: append(ws / "memory/old.md"),
    "note deleted": lambda ws: (ws / "memory/old.md").unlink(),
    "note renamed": lambda ws: (ws / "memory/old.md").rename(ws / "memory/new.md"),
    "note replaced by a temporary file": lambda ws: replace(ws / "memory/old.md", ws / "memory/.old.md.tmp"),
    "note moved in": lambda ws: replace(ws / "memory/new.md", ws / "elsewhere.tmp"),
    "note moved out": lambda ws: (ws / "memory/old.md").rename(ws / "elsewhere.txt"),
    "note edited by sed": lambda ws: subprocess.run(
        ["sed", "-i", "s/o/new and longer/", ws / "memory/old.md"], check=True
    ),
    "nested note written": lambda ws: (ws / "memory/sub/deep/old.md").write_text("changed"),
    "folder made": lambda ws: (ws / "memory/fresh").mkdir(),
    "folder deleted": lambda ws: shutil.rmtree(ws / "memory/sub"),
    "folder renamed": lambda ws: (ws / "memory/sub").rename(ws / "memory/bus"),
    "folder moved in": lambda ws: (ws / "other").rename(ws / "memory/other"),
    "folder moved out": lambda ws: (ws / "memory/sub").rename(ws / "bus"),
    "memory folder deleted": lambda ws: shutil.rmtree(ws / "memory"),
}

NON_ACTS: dict[str, Callable[[Path], object]] = {
    "note read": lambda ws: (ws / "memory/old.md").read_text(),
    "folder listed": lambda ws: list((ws / "memory").rglob("*")),
    "swap file written": lambda ws: (ws / "memory/.old.md.swp").write_text("x"),
    "backup written": lambda ws: (ws / "memory/old.md~").write_text("x"),
    "vim's probe made and removed": lambda ws: ((ws / "memory/4913").touch(), (ws / "memory/4913").unlink()),
    "temporary file renamed": lambda ws: replace(ws / "memory/b.tmp", ws / "memory/a.tmp"),
    "other Markdown of the workspace written": lambda ws: (ws / "README.md").write_text("x"),
    "folder made beside memory": lambda ws: (ws / "src").mkdir(),
    "other folder's note written": lambda ws: (ws / "other/x.md").write_text("changed"),
    "ignored folder filled": lambda ws: ((ws / "memory/.git").mkdir(), (ws / "memory/.git/x.md").touch()),
}


def append(path: Path) -> None:
    with path.open("a") as stream:
        stream.write("more")


def replace(path: Path, temporary: Path) -> None:
    temporary.write_text("x, but longer")
    temporary.replace(path)


@pytest.mark.parametrize("options", WAYS, ids=["native", "polling"])
@pytest.mark.parametrize("act", ACTS)
def test_a_change_of_memory_is_noticed(filled, roots, act, options):
    check(roots, lambda: ACTS[act](filled), noticed=True, options=options)


@pytest.mark.parametrize("options", WAYS, ids=["native", "polling"])
@pytest.mark.parametrize("act", NON_ACTS)
def test_a_change_outside_memory_is_not_noticed(filled, roots, act, options):
    check(roots, lambda: NON_ACTS[act](filled), noticed=False, options=options)


def test_our_own_reading_is_not_noticed(filled, roots):
    with watching(roots) as (_, changes):
        for file in discover_files(roots).files:
            read_file(file, 100)
        assert not changes.arrive(QUIET)


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS, ids=["native", "polling"])
def test_a_folder_that_comes_while_watching_is_watched(filled, roots, options):
    with watching(roots, **options) as (_, changes):
        for make in (
            lambda: (filled / "memory/a/b/c").mkdir(parents=True),
            lambda: (filled / "other").rename(filled / "memory/moved-in"),
            lambda: (filled / "memory/sub").rename(filled / "memory/moved-within"),
        ):
            make()
            changes.settle()
        for folder in ("a/b/c", "moved-in", "moved-within/deep"):
            (filled / "memory" / folder / "n.md").write_text("x")
            assert changes.arrive()
            changes.settle()


def test_a_folder_that_left_is_watched_no_more(filled, roots):
    with watching(roots) as (_, changes):
        (filled / "memory/sub").rename(filled / "bus")
        changes.settle()
        (filled / "bus/deep/old.md").write_text("changed")
        assert not changes.arrive(QUIET)


def test_a_memory_folder_that_comes_later_is_watched_at_once(tmp_path):
    with watching(Roots(os.fspath(tmp_path))) as (watcher, changes):
        assert modes(watcher) == {".": WatcherMode.NATIVE}
        (tmp_path / "memory").mkdir()
        changes.settle()
        (tmp_path / "memory" / "a.md").write_text("x")
        assert changes.arrive()


def test_links_are_not_followed(filled, outside, roots):
    (filled / "memory/link").symlink_to(outside)
    check(roots, lambda: (outside / "secret.md").write_text("x"), noticed=False)
    check(roots, lambda: (outside / "secret.md").write_text("xy"), noticed=False, options=WAYS[1])


@pytest.mark.parametrize("options", WAYS, ids=["native", "polling"])
def test_extra_folders_and_extra_files_are_watched(workspace, tmp_path, options):
    (tmp_path / "team" / "sub").mkdir(parents=True)
    (tmp_path / "one.md").touch()
    roots = Roots(os.fspath(workspace), ("../team", "../one.md"))
    check(roots, lambda: (tmp_path / "team/sub/x.md").write_text("x"), noticed=True, options=options)
    check(roots, lambda: (tmp_path / "one.md").write_text("x"), noticed=True, options=options)
    check(roots, lambda: (tmp_path / "two.md").write_text("x"), noticed=False, options=options)


def test_a_workspace_below_an_ignored_name_is_watched(tmp_path):
    workspace = tmp_path / ".venv" / "node_modules" / "ws"
    (workspace / "memory").mkdir(parents=True)
    check(Roots(os.fspath(workspace)), (workspace / "memory/a.md").touch, noticed=True)


def test_a_workspace_reached_by_a_link_is_watched(workspace, tmp_path):
    (tmp_path / "link").symlink_to(workspace)
    check(Roots(os.fspath(tmp_path / "link")), (workspace / "memory/a.md").touch, noticed=True)


@pytest.mark.slow
def test_a_storm_of_ten_thousand_files_in_new_folders_ends_with_every_folder_watched(workspace, roots):
    with watching(roots) as (watcher, changes):
        for number in range(200):
            folder = workspace / "memory" / f"d{number}"
            folder.mkdir()
            for note in range(50):
                (folder / f"{note}.md").write_text("x")
        changes.settle()
        assert modes(watcher) == {".": WatcherMode.NATIVE}
        for number in range(0, 200, 20):
            (workspace / "memory" / f"d{number}" / "0.md").write_text("changed")
            assert changes.arrive()
            changes.settle()


def test_a_storm_of_renames_within_and_across_folders_ends_with_every_folder_watched(workspace, roots):
    with watching(roots) as (_, changes):
        for number in range(300):
            (workspace / f"memory/a{number}/x").mkdir(parents=True)
            (workspace / f"memory/a{number}").rename(workspace / f"memory/b{number}")
            if number:
                (workspace / f"memory/b{number}").rename(workspace / f"memory/b0/c{number}")
        changes.settle()
        for number in (1, 150, 299):
            (workspace / f"memory/b0/c{number}/x/n.md").touch()
            assert changes.arrive()
            changes.settle()
