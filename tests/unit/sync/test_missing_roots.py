"""A root that cannot be looked into keeps its place in the index: an unmounted drive is not a pile of deleted notes."""

import itertools
import os
import shutil
import time

import pytest

from index_fixture import OTHER_IDENTITY, SOUND, IndexFixture, RecordingObserver
from memoryd_server.model import RACY_NS
from memoryd_server.sources.files import read_file
from memoryd_server.sync.progress import SyncMode


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path, extra_paths=("../team",)).open()
    # Late enough that no file counts as one that may still be written.
    index.now_ns = lambda: time.time_ns() + 10 * RACY_NS
    for path in ("MEMORY.md", "memory/a.md", "memory/sub/b.md", "../team/c.md"):
        index.write(path, "the heron")
    index.sync()
    yield index
    index.close()


@pytest.fixture
def away(index, tmp_path):
    """The workspace goes away, as a drive does; returns where to."""
    index.workspace.rename(tmp_path / "away")
    return tmp_path / "away"


ALL = ["../team/c.md", "MEMORY.md", "memory/a.md", "memory/sub/b.md"]


def check_kept(index, paths, *, hidden, mode=SyncMode.INCREMENTAL):
    """A sync changes nothing, keeps these rows, and tells how many files it could not look for."""
    revision = index.revision()
    outcome = index.sync(mode)
    assert (outcome.removed_files, outcome.changed, index.revision()) == (0, False, revision)
    assert index.paths() == paths
    plan = index.engine().compare().plan
    assert (sum(place.files for place in plan.hidden), plan.removed) == (hidden, ())
    assert plan.pending == hidden
    assert not plan.needs_run, "no sync could do anything about it"


def set_device(index, device, like="%"):
    """Makes the rows say that their files were on another device, as they are after a mount has gone."""
    index.connection.execute("UPDATE files SET device = ? WHERE path LIKE ?", (device, like))


def test_a_workspace_that_is_away_keeps_its_rows_and_is_taken_up_again_unread(index, away):
    check_kept(index, ALL, hidden=3)
    away.rename(index.workspace)
    outcome = index.sync()
    assert (outcome.indexed_files, outcome.unchanged_files, outcome.changed) == (0, 4, False)
    assert index.engine().compare().plan.pending == 0


def test_what_changed_while_it_was_away_is_synced_when_it_is_back(index, away):
    index.sync()
    (away / "memory/a.md").unlink()
    (away / "memory/sub/b.md").write_text("a stork")
    away.rename(index.workspace)
    outcome = index.sync()
    assert (outcome.indexed_files, outcome.removed_files) == (1, 1)
    assert index.found("stork") == ["memory/sub/b.md"]
    assert index.paths() == ["../team/c.md", "MEMORY.md", "memory/sub/b.md"]
    assert index.integrity() == SOUND


def test_another_root_is_synced_while_one_is_away(index, away):
    team = index.workspace.parent / "team"
    (team / "d.md").write_text("a kestrel")
    (team / "c.md").unlink()
    outcome = index.sync()
    assert (outcome.indexed_files, outcome.removed_files) == (1, 1)
    assert index.paths() == ["../team/d.md", "MEMORY.md", "memory/a.md", "memory/sub/b.md"]


def test_an_empty_folder_in_its_place_means_that_the_files_are_deleted(index, away):
    index.workspace.mkdir()
    assert index.sync().removed_files == 3
    assert index.paths() == ["../team/c.md"]


def test_the_empty_folder_where_a_drive_was_mounted_means_that_it_is_away(index, away):
    index.workspace.mkdir()
    set_device(index, 12345, "memory/%")
    set_device(index, 12345, "MEMORY.md")
    check_kept(index, ALL, hidden=3)


@pytest.mark.parametrize("device", [7, -7, (1 << 63) + 5 - (1 << 64)])
def test_a_memory_folder_that_was_a_mount_of_its_own_is_away_when_it_is_empty(index, device):
    shutil.rmtree(index.workspace / "memory")
    (index.workspace / "memory").mkdir()
    set_device(index, device, "memory/%")
    check_kept(index, ALL, hidden=2)
    index.write("memory/new.md", "it is in use again")
    assert index.sync().removed_files == 2


def test_a_full_sync_takes_the_disk_as_it_is(index, away):
    outcome = index.sync(SyncMode.FULL)
    assert outcome.files == 1
    assert index.paths() == ["../team/c.md"]
    plan = index.engine().compare().plan
    assert (plan.hidden, plan.pending) == ((), 0)


def test_a_rebuild_for_other_chunks_waits_for_the_root_to_be_back(index, away):
    index.reopen(OTHER_IDENTITY)
    assert index.store.build_differences
    check_kept(index, ALL, hidden=3)
    assert index.store.build_differences
    away.rename(index.workspace)
    assert index.sync().indexed_files == 4
    assert not index.store.build_differences


def test_a_root_that_goes_away_while_its_files_are_read_keeps_its_rows(index, tmp_path):
    for path in ("memory/a.md", "memory/sub/b.md"):
        index.write(path, "the heron has flown")

    def read(file, most):
        if index.workspace.exists():
            index.workspace.rename(tmp_path / "away")
        return read_file(file, most)

    index.read_file = read
    notes = RecordingObserver()
    outcome = index.sync(observer=notes)
    index.read_file = read_file
    assert (notes.errors(), outcome.removed_files) == ({}, 0)
    assert index.paths() == ALL
    (tmp_path / "away").rename(index.workspace)
    assert index.sync().indexed_files == 2
    assert index.found("flown") == ["memory/a.md", "memory/sub/b.md"]


def test_an_estimate_removes_nothing_of_a_root_that_is_away(index, away):
    assert index.engine().estimate(SyncMode.INCREMENTAL).removed_files == 0


# Since when disk and index agree


def agreed(engine):
    return engine.compare().agreed_ns


def test_the_agreement_is_as_old_as_the_last_look_that_found_it(index):
    ticks = itertools.count(time.time_ns())
    index.now_ns = lambda: next(ticks)
    engine = index.engine()
    assert engine.last_comparison.agreed_ns is None
    first = agreed(engine)
    assert agreed(engine) > first
    last = agreed(engine)
    index.write("memory/new.md", "unseen")
    assert agreed(engine) == last
    engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False)
    assert engine.last_comparison.agreed_ns > last


def test_there_is_no_agreement_with_a_root_that_is_away(index, tmp_path):
    engine = index.engine()
    before = agreed(engine)
    index.workspace.rename(tmp_path / "away")
    engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False)
    assert agreed(engine) == before
    assert [place.place for place in engine.last_comparison.hidden] == [os.fspath(index.workspace)]
    engine.run(SyncMode.FULL, RecordingObserver(), lambda: False)
    assert engine.last_comparison.hidden == ()
    assert engine.last_comparison.agreed_ns > before
