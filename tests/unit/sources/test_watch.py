import errno
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memoryd_server.sources import Roots, WatchedRoot, Watcher, WatcherMode, discover, read_file
from memoryd_server.sources.watch_inotify import InotifyReader, InotifyWatch

SOON = 10.0
# How long silence must last to count as silence; events take about a millisecond.
QUIET = 0.3
WAYS = [{"polling": False}, {"polling": True, "poll_seconds": 0.05}]


class Changes:
    """Counts calls and lets a test wait for the next one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._unseen = 0
        self.total = 0

    def __call__(self) -> None:
        with self._condition:
            self._unseen += 1
            self.total += 1
            self._condition.notify_all()

    def arrive(self, seconds: float = SOON) -> bool:
        with self._condition:
            return self._condition.wait_for(lambda: self._unseen, seconds) > 0

    def settle(self) -> None:
        while self.arrive(QUIET):
            with self._condition:
                self._unseen = 0


@contextmanager
def watching(roots: Roots, **options) -> Iterator[tuple[Watcher, Changes]]:
    changes = Changes()
    watcher = Watcher(roots, changes, **options)
    watcher.start()
    try:
        yield watcher, changes
    finally:
        watcher.stop()


def check(roots: Roots, act: Callable[[], object], *, noticed: bool, options: dict | None = None) -> None:
    with watching(roots, **(options or {})) as (_, changes):
        act()
        assert changes.arrive(SOON if noticed else QUIET) is noticed


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def modes(watcher: Watcher) -> dict[str, WatcherMode]:
    return {root.root: root.mode for root in watcher.status()}


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


@pytest.fixture
def filled(workspace) -> Path:
    for name in ("memory/old.md", "memory/sub/deep/old.md", "other/x.md"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("o")
    return workspace


@pytest.mark.parametrize("options", WAYS, ids=["native", "polling"])
@pytest.mark.parametrize("act", ACTS)
def test_a_change_of_memory_is_noticed(filled, roots, act, options):
    check(roots, lambda: ACTS[act](filled), noticed=True, options=options)


@pytest.mark.parametrize("options", WAYS, ids=["native", "polling"])
@pytest.mark.parametrize("act", NON_ACTS)
def test_what_is_no_change_of_memory_is_not_noticed(filled, roots, act, options):
    check(roots, lambda: NON_ACTS[act](filled), noticed=False, options=options)


def test_our_own_reading_is_not_noticed(filled, roots):
    with watching(roots) as (_, changes):
        for file in discover(roots).files:
            read_file(file, 100)
        assert not changes.arrive(QUIET)


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


# Repairs


def test_a_dead_reader_is_shown_and_repaired(workspace, roots):
    with watching(roots) as (watcher, changes):
        watcher._reader._reader.stop()
        watcher._reader._reader.join()
        assert modes(watcher) == {".": WatcherMode.DEAD}
        (workspace / "memory" / "missed.md").touch()
        watcher.check()
        assert changes.arrive()
        assert modes(watcher) == {".": WatcherMode.NATIVE}
        changes.settle()
        (workspace / "memory" / "seen.md").touch()
        assert changes.arrive()


def test_a_dead_polling_thread_is_shown_and_repaired(workspace, roots):
    with watching(roots, polling=True, poll_seconds=0.05) as (watcher, changes):
        for emitter in watcher._entries[0].watch._observer.emitters:
            emitter.stop()
            emitter.join()
        assert modes(watcher) == {".": WatcherMode.DEAD}
        watcher.check()
        assert changes.arrive()
        assert modes(watcher) == {".": WatcherMode.POLLING}
        changes.settle()
        (workspace / "memory" / "seen.md").touch()
        assert changes.arrive()


@pytest.mark.parametrize("options", WAYS, ids=["native", "polling"])
def test_a_workspace_deleted_and_made_again_is_watched_after_a_check(workspace, roots, options):
    with watching(roots, **options) as (watcher, changes):
        shutil.rmtree(workspace)
        assert changes.arrive()
        (workspace / "memory").mkdir(parents=True)
        watcher.check()
        changes.settle()
        (workspace / "memory" / "a.md").touch()
        assert changes.arrive()


def test_a_workspace_swapped_for_another_is_watched_after_a_check(workspace, tmp_path, roots):
    with watching(roots) as (watcher, changes):
        workspace.rename(tmp_path / "away")
        (workspace / "memory").mkdir(parents=True)
        watcher.check()
        assert changes.arrive()
        changes.settle()
        (tmp_path / "away" / "memory" / "a.md").touch()
        assert not changes.arrive(QUIET)
        (workspace / "memory" / "a.md").touch()
        assert changes.arrive()


def test_roots_that_appear_later_are_taken_up_by_a_check(tmp_path):
    roots = Roots(os.fspath(tmp_path / "ws"), ("../team", "../one.md"))
    with watching(roots) as (watcher, changes):
        assert set(modes(watcher).values()) == {WatcherMode.OFF}
        (tmp_path / "one.md").touch()
        watcher.check()
        assert modes(watcher)["../one.md"] == WatcherMode.NATIVE
        changes.settle()
        (tmp_path / "ws").mkdir()
        (tmp_path / "team").mkdir()
        watcher.check()
        assert changes.arrive()
        assert modes(watcher)["../team"] == modes(watcher)["."] == WatcherMode.NATIVE
        changes.settle()
        (tmp_path / "team" / "a.md").touch()
        assert changes.arrive()


def test_a_check_that_finds_all_well_changes_nothing(workspace, roots):
    with watching(roots) as (watcher, changes):
        watches = [entry.watch for entry in watcher._entries]
        watcher.check()
        assert [entry.watch for entry in watcher._entries] == watches
        assert not changes.arrive(QUIET)


# Shortages


class ShortReader(InotifyReader):
    """An inotify whose watches run out after `allowance`, as fs.inotify.max_user_watches makes them."""

    def __init__(self, allowance: int) -> None:
        super().__init__()
        self.allowance = allowance

    def add(self, path: str, callback: InotifyWatch):
        if self.allowance <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.allowance -= 1
        return super().add(path, callback)


def no_inotify():
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize(
    ("open_native", "words"), [(lambda: ShortReader(2), "max_user_watches"), (no_inotify, "max_user_instances")]
)
def test_a_root_for_which_inotify_does_not_suffice_is_polled_and_says_why(filled, roots, open_native, words):
    with watching(roots, open_native=open_native, poll_seconds=0.05) as (watcher, changes):
        (status,) = watcher.status()
        assert status.mode is WatcherMode.POLLING
        assert words in status.reason
        watcher.check()
        (filled / "memory/sub/deep/new.md").touch()
        assert changes.arrive()


def test_watches_that_run_out_later_lead_to_polling_at_the_next_check(workspace, roots):
    with watching(roots, open_native=lambda: ShortReader(3), poll_seconds=0.05) as (watcher, changes):
        assert modes(watcher) == {".": WatcherMode.NATIVE}
        (workspace / "memory/a/b/c").mkdir(parents=True)
        changes.settle()
        assert modes(watcher) == {".": WatcherMode.DEAD}
        watcher.check()
        assert modes(watcher) == {".": WatcherMode.POLLING}
        changes.settle()
        (workspace / "memory/a/b/c/n.md").touch()
        assert changes.arrive()


def test_ignored_folders_take_no_watches(workspace, roots):
    for number in range(50):
        (workspace / f"memory/node_modules/p{number}").mkdir(parents=True)
        (workspace / f"src/p{number}").mkdir(parents=True)
    with watching(roots, open_native=lambda: ShortReader(2)) as (watcher, changes):
        (workspace / "memory/.venv/lib/site-packages").mkdir(parents=True)
        changes.settle()
        assert modes(watcher) == {".": WatcherMode.NATIVE}


def test_an_overflowing_queue_is_a_change_and_the_folders_are_watched_afresh(filled, roots):
    with watching(roots) as (watcher, changes):
        watch = watcher._entries[0].watch
        watch._drop(())
        watch.on_queue_overflow()
        assert changes.arrive()
        changes.settle()
        (filled / "memory/sub/deep/new.md").touch()
        assert changes.arrive()


# Life cycle


def test_without_polling_wanted_or_needed_no_reason_is_given(roots):
    with watching(roots) as (watcher, _):
        assert watcher.status() == (WatchedRoot(".", WatcherMode.NATIVE, ""),)


def test_configured_polling_says_so(roots):
    with watching(roots, polling=True) as (watcher, _):
        assert watcher.status() == (WatchedRoot(".", WatcherMode.POLLING, "polling is configured"),)


@pytest.mark.parametrize("options", WAYS, ids=["native", "polling"])
def test_stopping_ends_every_thread_and_descriptor_and_can_be_repeated(workspace, roots, options):
    threads, descriptors = threading.active_count(), open_descriptors()
    changes = Changes()
    watcher = Watcher(roots, changes, **options)
    watcher.stop()
    watcher.check()
    watcher.start()
    watcher.start()
    started = time.monotonic()
    watcher.stop()
    watcher.stop()
    assert time.monotonic() - started < 2
    assert (threading.active_count(), open_descriptors()) == (threads, descriptors)
    (workspace / "memory" / "a.md").touch()
    assert not changes.arrive(QUIET)
    assert watcher.status() == (WatchedRoot(".", WatcherMode.OFF, "the watcher is not running"),)


def test_a_stopped_watcher_starts_again(workspace, roots):
    changes = Changes()
    watcher = Watcher(roots, changes)
    for name in ("a.md", "b.md"):
        watcher.start()
        (workspace / "memory" / name).touch()
        assert changes.arrive()
        changes.settle()
        watcher.stop()


def test_stopping_in_the_middle_of_a_storm_ends(workspace, roots):
    done = threading.Event()

    def storm() -> None:
        number = 0
        while not done.is_set():
            number += 1
            (workspace / f"memory/d{number}/e").mkdir(parents=True)
            (workspace / f"memory/d{number}/e/n.md").touch()

    stormer = threading.Thread(target=storm)
    stormer.start()
    try:
        for _ in range(10):
            with watching(roots) as (watcher, changes):
                assert changes.arrive()
                watcher.check()
    finally:
        done.set()
        stormer.join()
