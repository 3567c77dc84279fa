import errno
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from memoryd_server.sources.roots import Roots
from memoryd_server.sources.watch_scope import WatchedRoot, WatcherMode
from memoryd_server.sources.watcher import Watcher
from unit.sources.watching import (
    QUIET,
    WAYS,
    Changes,
    ShortReader,
    modes,
    polling_threads,
    reader_thread,
    watches,
    watching,
)
from waiting import wait_until


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_dead_reader_is_shown_and_repaired(workspace, roots):
    with watching(roots) as (watcher, changes):
        reader_thread(watcher).stop()
        reader_thread(watcher).join()
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
        for emitter in polling_threads(watcher):
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
        # The new folder may get the inode of the old one: the watch is repaired once the removal has been noticed.
        wait_until(lambda: modes(watcher) == {".": WatcherMode.DEAD})
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
        assert set(modes(watcher).values()) == {WatcherMode.DEAD}
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
        before = watches(watcher)
        watcher.check()
        assert watches(watcher) == before
        assert not changes.arrive(QUIET)


# Shortages


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
        wait_until(lambda: modes(watcher) == {".": WatcherMode.DEAD})
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
        (watch,) = watches(watcher)
        watch._unwatch_tree(())
        watch.on_queue_overflow()
        assert changes.arrive()
        changes.settle()
        (filled / "memory/sub/deep/new.md").touch()
        assert changes.arrive()


def test_a_forbidden_folder_inside_leaves_the_rest_watched(filled, roots, forbid):
    for folder in ("memory/sub", "memory/tub"):
        (filled / folder).mkdir(exist_ok=True)
        forbid(filled / folder)
    with watching(roots) as (watcher, changes):
        assert modes(watcher) == {".": WatcherMode.NATIVE}
        (filled / "memory/old.md").write_text("changed")
        assert changes.arrive()
    for folder in ("memory/sub", "memory/tub"):
        (filled / folder).chmod(0o700)


def test_a_forbidden_workspace_is_dead_and_says_why(workspace, roots, forbid):
    forbid(workspace)
    with watching(roots) as (watcher, _):
        (status,) = watcher.status()
    workspace.chmod(0o700)
    assert (status.mode, status.present) == (WatcherMode.DEAD, False)
    assert "unreadable" in status.reason


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


@pytest.mark.slow
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
