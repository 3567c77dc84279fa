"""The files of an unreadable root stay in the index: an unmounted drive does not count as deleted notes."""

import itertools
import os
import shutil
import time

import pytest

from desk import OTHER_IDENTITY, SOUND, Desk, Notes
from memoryd_server.model import RACY_NS
from memoryd_server.sync import prepare
from memoryd_server.sync.progress import SyncMode


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path, extra_paths=("../team",)).open()
    # Late enough that no file counts as one that may still be written.
    desk.now_ns = lambda: time.time_ns() + 10 * RACY_NS
    for path in ("MEMORY.md", "memory/a.md", "memory/sub/b.md", "../team/c.md"):
        desk.write(path, "the heron")
    desk.sync()
    yield desk
    desk.close()


@pytest.fixture
def away(desk, tmp_path):
    """The workspace goes away, as a drive does; returns where to."""
    desk.workspace.rename(tmp_path / "away")
    return tmp_path / "away"


ALL = ["../team/c.md", "MEMORY.md", "memory/a.md", "memory/sub/b.md"]


def check_kept(desk, paths, *, hidden, mode=SyncMode.INCREMENTAL):
    """Check that a sync keeps these rows and reports how many files it could not look for."""
    revision = desk.revision()
    outcome = desk.sync(mode)
    assert (outcome.removed_files, outcome.changed, desk.revision()) == (0, False, revision)
    assert desk.paths() == paths
    plan = desk.engine().compare().plan
    assert (sum(place.files for place in plan.hidden), plan.removed) == (hidden, ())
    assert plan.pending == hidden
    assert not plan.needs_run, "no sync could do anything about it"


def set_device(desk, device, like="%"):
    """Makes the rows say that their files were on another device, as they are after a mount has gone."""
    desk.store._connection.execute("UPDATE files SET device = ? WHERE path LIKE ?", (device, like))


def test_an_unreadable_workspace_keeps_its_rows_and_is_not_read_again_later(desk, away):
    check_kept(desk, ALL, hidden=3)
    away.rename(desk.workspace)
    outcome = desk.sync()
    assert (outcome.indexed_files, outcome.unchanged_files, outcome.changed) == (0, 4, False)
    assert desk.engine().compare().plan.pending == 0


def test_changes_made_while_a_root_was_unreadable_are_synced_later(desk, away):
    desk.sync()
    (away / "memory/a.md").unlink()
    (away / "memory/sub/b.md").write_text("a stork")
    away.rename(desk.workspace)
    outcome = desk.sync()
    assert (outcome.indexed_files, outcome.removed_files) == (1, 1)
    assert desk.found("stork") == ["memory/sub/b.md"]
    assert desk.paths() == ["../team/c.md", "MEMORY.md", "memory/sub/b.md"]
    assert desk.integrity() == SOUND


def test_another_root_is_synced_while_one_is_away(desk, away):
    team = desk.workspace.parent / "team"
    (team / "d.md").write_text("a kestrel")
    (team / "c.md").unlink()
    outcome = desk.sync()
    assert (outcome.indexed_files, outcome.removed_files) == (1, 1)
    assert desk.paths() == ["../team/d.md", "MEMORY.md", "memory/a.md", "memory/sub/b.md"]


def test_an_empty_folder_in_its_place_means_that_the_files_are_deleted(desk, away):
    desk.workspace.mkdir()
    assert desk.sync().removed_files == 3
    assert desk.paths() == ["../team/c.md"]


def test_the_empty_mount_point_of_a_drive_counts_as_unreadable(desk, away):
    desk.workspace.mkdir()
    set_device(desk, 12345, "memory/%")
    set_device(desk, 12345, "MEMORY.md")
    check_kept(desk, ALL, hidden=3)


@pytest.mark.parametrize("device", [7, -7, (1 << 63) + 5 - (1 << 64)])
def test_a_memory_folder_that_was_a_mount_counts_as_unreadable_when_empty(desk, device):
    shutil.rmtree(desk.workspace / "memory")
    (desk.workspace / "memory").mkdir()
    set_device(desk, device, "memory/%")
    check_kept(desk, ALL, hidden=2)
    desk.write("memory/new.md", "it is in use again")
    assert desk.sync().removed_files == 2


def test_a_full_sync_takes_the_disk_as_it_is(desk, away):
    outcome = desk.sync(SyncMode.FULL)
    assert outcome.files == 1
    assert desk.paths() == ["../team/c.md"]
    plan = desk.engine().compare().plan
    assert (plan.hidden, plan.pending) == ((), 0)


def test_a_rebuild_for_other_chunks_waits_for_the_root_to_be_back(desk, away):
    desk.reopen(OTHER_IDENTITY)
    assert desk.store.build_differences
    check_kept(desk, ALL, hidden=3)
    assert desk.store.build_differences
    away.rename(desk.workspace)
    assert desk.sync().indexed_files == 4
    assert not desk.store.build_differences


def test_a_root_that_goes_away_while_its_files_are_read_keeps_its_rows(desk, monkeypatch, tmp_path):
    for path in ("memory/a.md", "memory/sub/b.md"):
        desk.write(path, "the heron has flown")
    plain = prepare.read_file

    def read_file(file, most):
        if desk.workspace.exists():
            desk.workspace.rename(tmp_path / "away")
        return plain(file, most)

    monkeypatch.setattr(prepare, "read_file", read_file)
    notes = Notes()
    outcome = desk.sync(notes=notes)
    monkeypatch.undo()
    assert (notes.errors(), outcome.removed_files) == ({}, 0)
    assert desk.paths() == ALL
    (tmp_path / "away").rename(desk.workspace)
    assert desk.sync().indexed_files == 2
    assert desk.found("flown") == ["memory/a.md", "memory/sub/b.md"]


def test_an_estimate_removes_nothing_of_a_root_that_is_away(desk, away):
    assert desk.engine().estimate(SyncMode.INCREMENTAL).removed_files == 0


# Since when disk and index agree


def agreed(engine):
    return engine.compare().agreed_ns


def test_the_agreement_is_as_old_as_the_last_look_that_found_it(desk):
    ticks = itertools.count(time.time_ns())
    desk.now_ns = lambda: next(ticks)
    engine = desk.engine()
    assert engine.last_comparison.agreed_ns is None
    first = agreed(engine)
    assert agreed(engine) > first
    last = agreed(engine)
    desk.write("memory/new.md", "unseen")
    assert agreed(engine) == last
    engine.run(SyncMode.INCREMENTAL, Notes(), lambda: False)
    assert engine.last_comparison.agreed_ns > last


def test_there_is_no_agreement_with_a_root_that_is_away(desk, tmp_path):
    engine = desk.engine()
    before = agreed(engine)
    desk.workspace.rename(tmp_path / "away")
    engine.run(SyncMode.INCREMENTAL, Notes(), lambda: False)
    assert agreed(engine) == before
    assert [place.place for place in engine.last_comparison.hidden] == [os.fspath(desk.workspace)]
    engine.run(SyncMode.FULL, Notes(), lambda: False)
    assert engine.last_comparison.hidden == ()
    assert engine.last_comparison.agreed_ns > before
