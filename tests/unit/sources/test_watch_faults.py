"""What breaks behind the watcher's back: it shows at once, and a check mends it."""

import os
import resource
import threading
import time
from pathlib import Path

import pytest

from memoryd_server.sources.discover import discover_files
from memoryd_server.sources.inotify import InotifyReader
from memoryd_server.sources.roots import Roots
from memoryd_server.sources.watch_scope import WatchedRoot, WatcherMode
from unit.sources.watching import QUIET, age_reports, modes, reader_thread, watching

NATIVE, DEAD, POLLING = WatcherMode.NATIVE, WatcherMode.DEAD, WatcherMode.POLLING
LONG_AGO_NS = 60_000_000_000


def inotify_descriptors():
    found = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [int(path.name) for path in found if path.readlink() == Path("anon_inode:inotify")]


def check_mended(watcher, changes, note):
    """A check reports what may have been missed, and from then on changes are seen."""
    watcher.check()
    assert changes.arrive()
    assert set(modes(watcher).values()) == {NATIVE}
    changes.settle()
    note.write_text("seen")
    assert changes.arrive()


def check_mode(watcher, mode, words=""):
    (root,) = watcher.verified_status()
    assert (root.mode, words in root.reason) == (mode, True), root


def test_a_descriptor_closed_behind_the_watchers_back_is_noticed_and_replaced(workspace, roots):
    with watching(roots) as (watcher, changes):
        (number,) = inotify_descriptors()
        os.close(number)
        check_mode(watcher, DEAD, "inotify")
        check_mended(watcher, changes, workspace / "memory/a.md")
    assert inotify_descriptors() == []


def test_a_descriptor_closed_while_events_come_costs_no_processor_time(workspace, roots):
    with watching(roots) as (watcher, _):
        (number,) = inotify_descriptors()
        os.close(number)
        thread = reader_thread(watcher)
        # Wakes the thread, which then finds its descriptor gone.
        (workspace / "memory/a.md").touch()
        thread.join(10)
        assert not thread.is_alive()
        before = resource.getrusage(resource.RUSAGE_SELF)
        time.sleep(0.2)
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.15


def test_another_file_that_got_the_number_of_a_closed_descriptor_is_left_alone(workspace, roots, tmp_path):
    (tmp_path / "others").write_text("their words")
    with watching(roots) as (watcher, changes):
        (number,) = inotify_descriptors()
        others = os.open(tmp_path / "others", os.O_RDONLY)
        os.dup2(others, number)
        (workspace / "memory/a.md").touch()
        check_mode(watcher, DEAD)
        check_mended(watcher, changes, workspace / "memory/b.md")
        assert os.read(number, 100) == b"their words"
        os.close(others)
    os.fstat(number)
    os.close(number)


def test_a_thread_that_died_of_an_error_leaves_no_descriptor_behind(workspace, roots, monkeypatch):
    with watching(roots) as (watcher, changes):
        thread = reader_thread(watcher)

        def fails(**_):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(thread, "read_events", fails)
        (workspace / "memory/a.md").touch()
        (workspace / "memory/b.md").touch()
        thread.join(10)
        assert not thread.is_alive()
        assert inotify_descriptors() == []
        check_mode(watcher, DEAD, "thread")
        monkeypatch.undo()
        check_mended(watcher, changes, workspace / "memory/c.md")


def test_threads_that_cannot_be_started_are_a_reason_and_no_error(roots, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with watching(roots) as (watcher, _):
            check_mode(watcher, DEAD, "thread")
            assert inotify_descriptors() == []
            patch.undo()
            watcher.check()
            check_mode(watcher, NATIVE)


# The root itself


def test_a_root_renamed_away_and_back_is_dead_in_between(workspace, tmp_path, roots):
    with watching(roots) as (watcher, changes):
        workspace.rename(tmp_path / "away")
        check_mode(watcher, DEAD, "missing")
        watcher.check()
        check_mode(watcher, DEAD, "missing")
        assert not watcher.status()[0].present
        (tmp_path / "away").rename(workspace)
        changes.settle()
        check_mended(watcher, changes, workspace / "memory/a.md")


def test_a_root_replaced_by_another_is_no_watched_root_until_the_next_check(workspace, tmp_path, roots):
    with watching(roots) as (watcher, changes):
        workspace.rename(tmp_path / "away")
        (workspace / "memory").mkdir(parents=True)
        check_mode(watcher, DEAD, "replaced")
        check_mended(watcher, changes, workspace / "memory/a.md")
        check_mode(watcher, NATIVE)


def test_a_link_above_the_root_that_is_pointed_elsewhere_is_followed_by_the_next_check(workspace, tmp_path):
    link, other = tmp_path / "link", tmp_path / "other"
    (other / "memory").mkdir(parents=True)
    link.symlink_to(workspace)
    with watching(Roots(os.fspath(link))) as (watcher, changes):
        check_mode(watcher, NATIVE)
        link.unlink()
        check_mode(watcher, DEAD, "missing")
        link.symlink_to(other)
        check_mended(watcher, changes, other / "memory/a.md")
        changes.settle()
        (workspace / "memory/a.md").write_text("not ours any more")
        assert not changes.arrive(QUIET)


# Events that never come


class DeafReader(InotifyReader):
    """Inotify on a mount that tells of nothing: watches can be had, and no event comes."""

    def watch(self, scope, on_change):
        return super().watch(scope, lambda: None)


def check_missed(watcher, roots, *, mode, words=""):
    watcher.record_missed(discover_files(roots).files)
    check_mode(watcher, mode, words)


def test_a_root_that_was_silent_about_changes_is_polled_and_says_why(filled, roots):
    later = [0]
    options = {"open_native": DeafReader, "poll_seconds": 0.05, "now_ns": lambda: time.time_ns() + later[0]}
    with watching(roots, **options) as (watcher, changes):
        age_reports(watcher, LONG_AGO_NS)
        (filled / "memory/new.md").write_text("nobody told")
        check_missed(watcher, roots, mode=NATIVE)
        later[0] = LONG_AGO_NS
        check_missed(watcher, roots, mode=POLLING, words="changes came without one")
        changes.settle()
        (filled / "memory/newer.md").write_text("seen by looking")
        assert changes.arrive()
        watcher.check()
        check_mode(watcher, POLLING, words="without one")


def test_a_root_that_tells_is_never_taken_for_a_silent_one(filled, roots):
    later = [0]
    with watching(roots, now_ns=lambda: time.time_ns() + later[0]) as (watcher, changes):
        age_reports(watcher, LONG_AGO_NS)
        (filled / "memory/new.md").write_text("told")
        assert changes.arrive()
        changes.settle()
        later[0] = LONG_AGO_NS
        check_missed(watcher, roots, mode=NATIVE)


@pytest.mark.parametrize("path", ["memory/node_modules/x.md", "memory/.git/x.md", "other/y.md"])
def test_what_is_not_watched_says_nothing_about_the_events(filled, roots, path):
    with watching(roots, open_native=DeafReader, now_ns=lambda: time.time_ns() + LONG_AGO_NS) as (watcher, _):
        age_reports(watcher, 2 * LONG_AGO_NS)
        for note in filled.rglob("*.md"):
            os.utime(note, (1, 1))
        (filled / path).parent.mkdir(parents=True, exist_ok=True)
        (filled / path).write_text("x")
        check_missed(watcher, roots, mode=NATIVE)


def test_files_from_before_the_watch_say_nothing_about_the_events(filled, roots):
    with watching(roots, open_native=DeafReader, now_ns=lambda: time.time_ns() + LONG_AGO_NS) as (watcher, _):
        (filled / "memory/old.md").chmod(0o600)
        check_missed(watcher, roots, mode=NATIVE)


def test_a_watcher_that_is_off_says_so_from_the_disk_too(roots):
    with watching(roots) as (watcher, _):
        pass
    assert watcher.verified_status() == (WatchedRoot(".", WatcherMode.OFF, "the watcher is not running"),)
    watcher.record_missed(())
