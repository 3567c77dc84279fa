"""Readers see a complete rebuild or none, also if a step crashes or is read concurrently."""

import shutil
import threading

import pytest

from index_fixture import SOUND, RecordingObserver, searching
from memoryd_server.errors import IndexUnavailable, SyncCancelled
from memoryd_server.sqlite import opening
from memoryd_server.sync.progress import SyncMode

OLD, NEW = "heron", "kestrel"


class CrashError(Exception):
    pass


def crash(*_args, **_kwargs):
    raise CrashError


@pytest.fixture
def two_indexes(index):
    """Files of an old index as `kill -9` leaves them, with a log, and those of a finished rebuild."""
    index.write("memory/a.md", OLD)
    index.open().sync(SyncMode.FULL)
    index.write("memory/a.md", f"{OLD} again")
    index.sync()
    old = index.path.parent.parent / "old"
    shutil.copytree(index.path.parent, old)
    assert (old / "main.sqlite-wal").stat().st_size > 0
    index.write("memory/a.md", NEW)
    index.sync(SyncMode.FULL)
    revision = index.revision()
    index.close()
    new = index.path.parent.parent / "new.sqlite"
    index.path.replace(new)
    shutil.rmtree(index.path.parent)
    shutil.copytree(old, index.path.parent)
    return new, revision


def check_state(index, expected, gone=()):
    """The index answers with `expected` alone, is sound, and nothing of a rebuild is left."""
    index.open()
    other = NEW if expected == OLD else OLD
    assert index.found(expected) == ["memory/a.md"]
    assert index.found(other) == []
    assert index.integrity() == SOUND
    assert set(index.file_names()) <= {"main.sqlite", "main.sqlite-wal", "main.sqlite-shm", "main.sqlite.lock"}
    index.sync()
    assert index.found(NEW) == ["memory/a.md"]


def test_a_crash_in_the_middle_of_a_rebuild_leaves_the_old_index(index, two_indexes):
    new, _ = two_indexes
    beside = opening.rebuilding_path(index.path)
    beside.write_bytes(new.read_bytes()[:5000])
    for suffix in ("-wal", "-shm"):
        beside.with_name(beside.name + suffix).write_bytes(b"x" * 5000)
    check_state(index, OLD)


def test_a_crash_before_the_rebuild_is_declared_ready_leaves_the_old_index(index, two_indexes):
    new, _ = two_indexes
    shutil.copy(new, opening.rebuilding_path(index.path))
    check_state(index, OLD)


def test_a_crash_after_the_rebuild_is_declared_ready_leaves_the_new_index(index, two_indexes):
    new, _ = two_indexes
    shutil.copy(new, opening.ready_path(index.path))
    check_state(index, NEW)


@pytest.mark.parametrize("removed", [("-wal",), ("-shm",), ("-wal", "-shm")])
def test_a_crash_while_the_old_log_is_removed_leaves_the_new_index(index, two_indexes, removed):
    new, _ = two_indexes
    shutil.copy(new, opening.ready_path(index.path))
    for suffix in removed:
        index.path.with_name(index.path.name + suffix).unlink(missing_ok=True)
    check_state(index, NEW)


def test_a_crash_after_the_last_rename_leaves_the_new_index(index, two_indexes):
    new, _ = two_indexes
    opening.remove_database(index.path)
    shutil.copy(new, index.path)
    check_state(index, NEW)


def test_the_revision_does_not_fall_when_a_swap_is_finished_at_start_up(index, two_indexes):
    new, revision = two_indexes
    shutil.copy(new, opening.ready_path(index.path))
    index.open()
    assert index.revision() == revision


def test_a_leftover_log_would_have_brought_the_old_rows_back(index, two_indexes):
    """Why the log must go before the rename: without it, this is what a reader sees."""
    new, _ = two_indexes
    shutil.copy(new, opening.ready_path(index.path))
    opening.recover(index.path)
    assert not index.path.with_name("main.sqlite-wal").exists()
    assert index.path.read_bytes() == new.read_bytes()


@pytest.mark.parametrize("step", ["_finish", "sync_folder"])
def test_a_swap_that_fails_leaves_an_index_that_answers_and_can_be_synced(opened, monkeypatch, step):
    opened.write("memory/a.md", OLD)
    opened.sync()
    before = opened.revision()
    opened.write("memory/b.md", NEW)
    monkeypatch.setattr(opening, step, crash)
    with pytest.raises(CrashError):
        opened.sync(SyncMode.FULL)
    monkeypatch.undo()
    assert opened.found(OLD) == ["memory/a.md"]
    opened.sync()
    assert opened.found(NEW) == ["memory/b.md"]
    opened.sync(SyncMode.FULL)
    opened.reopen()
    assert opened.revision() > before
    assert opened.found(NEW) == ["memory/b.md"]
    assert not opening.ready_path(opened.path).exists()


def test_a_swap_that_failed_is_not_taken_for_newer_at_the_next_start(opened, monkeypatch):
    opened.write("memory/a.md", OLD)
    opened.sync()
    monkeypatch.setattr(opening, "_finish", crash)
    with pytest.raises(CrashError):
        opened.sync(SyncMode.FULL)
    monkeypatch.undo()
    opened.write("memory/b.md", NEW)
    opened.sync()
    revision = opened.revision()
    opened.reopen()
    assert opened.revision() >= revision
    assert opened.found(NEW) == ["memory/b.md"]


def test_a_rebuild_that_is_stopped_leaves_the_old_index_and_no_file(opened):
    opened.write("memory/a.md", OLD)
    opened.sync()
    before = opened.rows(), opened.revision()
    opened.write("memory/b.md", NEW)
    with pytest.raises(SyncCancelled):
        opened.sync(SyncMode.FULL, should_stop=lambda: True)
    assert (opened.rows(), opened.revision()) == before
    assert "main.sqlite.rebuilding" not in opened.file_names()


def test_readers_see_the_old_index_until_the_swap_and_the_new_one_after(opened):
    opened.write("memory/a.md", OLD)
    opened.sync()
    before = opened.revision()
    opened.write("memory/a.md", NEW)
    seen = []

    def look(_progress):
        seen.append((opened.found(OLD), opened.found(NEW), opened.revision()))

    notes = RecordingObserver(on_progress=look)
    outcome = opened.sync(SyncMode.FULL, notes)
    assert len(seen) >= 3
    assert set(map(str, seen)) == {str((["memory/a.md"], [], before))}
    assert opened.found(NEW) == ["memory/a.md"]
    assert notes.revisions == [outcome.revision] == [opened.revision()]


def test_a_swap_waits_for_open_readers_and_no_reader_sees_two_indexes(opened):
    opened.write("memory/a.md", OLD)
    opened.sync()
    opened.write("memory/a.md", NEW)
    reached_swap, done = threading.Event(), threading.Event()

    def rebuild():
        opened.sync(
            SyncMode.FULL, RecordingObserver(on_progress=lambda p: p.phase == "SWAPPING" and reached_swap.set())
        )
        done.set()

    with opened.store.read() as reader:
        worker = threading.Thread(target=rebuild)
        worker.start()
        assert reached_swap.wait(10)
        assert not done.wait(0.1)
        rows = reader.matches(f'"{OLD}"', 10)
        assert len(rows) == 1
        assert reader.chunks([rows[0].chunk_id])[rows[0].chunk_id].text == OLD
    worker.join(10)
    assert done.is_set()
    assert opened.found(NEW) == ["memory/a.md"]


def test_searches_on_many_threads_never_fail_and_always_find_something_during_swaps(opened):
    opened.write("memory/a.md", f"{OLD} {NEW}")
    opened.sync()
    with searching(opened, OLD, "memory/a.md"):
        for _ in range(5):
            opened.sync(SyncMode.FULL)


def test_a_reader_that_waits_through_close_does_not_open_the_file_again(opened):
    pool = opened.reader_pool
    entered, refused = threading.Event(), []

    def late():
        entered.set()
        try:
            with pool.connection():
                pass
        except IndexUnavailable as error:
            refused.append(error)

    worker = threading.Thread(target=late)
    with pool.closed():
        worker.start()
        entered.wait(10)
        pool._ended = True
    worker.join(10)
    assert len(refused) == 1


def test_a_swap_comes_before_the_readers_that_arrive_after_it(opened):
    """Readers that never rest must not keep a swap waiting for ever."""
    pool, stop = opened.reader_pool, threading.Event()

    def read():
        while not stop.is_set():
            with pool.connection():
                pass

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        with pool.closed():
            assert opened.idle_readers == []
    stop.set()
    for thread in threads:
        thread.join(10)
