"""One inotify instance for all agents: each receives the events of its folders, and stopping one leaves the others."""

import sys
import threading
from pathlib import Path

import pytest

from memoryd_server.sources.roots import Roots
from memoryd_server.sources.watch_scope import WatcherMode
from memoryd_server.sources.watcher import SharedInotify, open_inotify
from unit.sources.watching import modes, watching

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

NATIVE = {"": WatcherMode.NATIVE}


@pytest.fixture
def made():
    return []


@pytest.fixture
def shared(made):
    def open_native():
        made.append(open_inotify())
        return made[-1]

    return SharedInotify(open_native)


@pytest.fixture
def folders(tmp_path):
    """Two workspaces with a memory folder each."""
    roots = []
    for name in ("one", "two"):
        (tmp_path / name / "memory").mkdir(parents=True)
        roots.append(Roots(str(tmp_path / name)))
    return roots


def write(roots, name="a.md"):
    Path(roots.base(), "memory", name).write_text("a heron")


def alive(made):
    return [reader.is_alive() for reader in made]


def test_two_watchers_share_one_reader_and_hear_of_their_own_alone(shared, made, folders):
    one, two = folders
    with watching(one, open_native=shared.open) as (_, of_one), watching(two, open_native=shared.open) as (_, of_two):
        assert len(made) == 1
        write(one)
        assert of_one.arrive()
        assert not of_two.arrive(0.3)
        write(two)
        assert of_two.arrive()


def test_stopping_one_agent_leaves_the_other_watched_and_the_last_ends_the_reader(shared, made, folders):
    one, two = folders
    with watching(one, open_native=shared.open) as (watcher, changes):
        with watching(two, open_native=shared.open):
            pass
        assert alive(made) == [True]
        assert set(modes(watcher).values()) == {WatcherMode.NATIVE}
        write(one)
        assert changes.arrive()
    assert alive(made) == [False]
    with watching(one, open_native=shared.open) as (_, changes):
        assert alive(made) == [False, True]
        write(one, "b.md")
        assert changes.arrive()


def test_the_same_folder_may_be_watched_by_two(shared, folders):
    one, _ = folders
    with watching(one, open_native=shared.open) as (_, first):
        with watching(one, open_native=shared.open) as (_, second):
            write(one)
            assert first.arrive()
            assert second.arrive()
        first.settle()
        write(one, "b.md")
        assert first.arrive()


def test_a_reader_that_died_is_replaced_for_all_who_check(shared, made, folders):
    one, two = folders
    with watching(one, open_native=shared.open) as (of_one, _), watching(two, open_native=shared.open) as (of_two, _):
        made[0].stop()
        assert not made[0].is_alive()
        of_one.check()
        of_two.check()
        assert alive(made) == [False, True]
        assert set(modes(of_one).values()) == set(modes(of_two).values()) == {WatcherMode.NATIVE}
    assert alive(made) == [False, False]


def test_no_event_arrives_after_stop():
    told, in_call, go_on = [], threading.Event(), threading.Event()

    class Reader:
        def watch(self, scope, on_change):
            return on_change

        def is_alive(self):
            return True

        def stop(self):
            told.append("stopped")

    lease = SharedInotify(Reader).open()

    def slow():
        in_call.set()
        go_on.wait(10)
        told.append("change")

    tell, late = lease.watch(None, slow), lease.watch(None, lambda: told.append("late"))
    event = threading.Thread(target=tell)
    event.start()
    in_call.wait(10)
    ending = threading.Thread(target=lease.stop)
    ending.start()
    assert told == []
    go_on.set()
    ending.join(10)
    event.join(10)
    late()
    lease.stop()
    assert told == ["change", "stopped"]


def test_a_system_that_has_no_instance_to_give_is_reported(folders):
    def none_left():
        raise OSError(24, "too many")

    with watching(folders[0], open_native=SharedInotify(none_left).open, poll_seconds=0.05) as (watcher, changes):
        assert set(modes(watcher).values()) == {WatcherMode.POLLING}
        write(folders[0])
        assert changes.arrive()
