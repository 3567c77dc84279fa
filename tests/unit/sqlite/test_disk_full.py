"""A disk that runs full: the sync says so, nothing is half written, searches go on, and room alone makes all well."""

import pytest

from disks import fill_up, small_disk
from index_fixture import IDENTITY, SOUND, IndexFixture
from memoryd_server.errors import DiskFull, IndexUnavailable
from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.sync.progress import SyncMode


@pytest.fixture
def small(tmp_path):
    """An index with twenty notes on a disk of a megabyte and a half."""
    index = IndexFixture(tmp_path)
    with small_disk(index.path.parent, 1_500):
        for number in range(20):
            index.write(f"memory/n{number}.md", f"heron number{number}x in the reeds")
        index.open().sync()
        yield index
        index.close()


def grow(index, name="big"):
    """Notes that take more room than there is."""
    for number in range(60):
        words = " ".join(f"word{number}y{place}" for place in range(3_000))
        index.write(f"memory/{name}{number}.md", words)


def check_serves(index, before):
    assert (index.rows(), index.revision()) == before
    assert index.found("number7x") == ["memory/n7.md"]
    assert index.integrity() == SOUND


@pytest.mark.slow
def test_a_sync_beyond_the_disk_keeps_nothing_of_its_transaction_and_searches_go_on(small):
    before = small.rows(), small.revision()
    grow(small)
    for _ in range(2):
        with pytest.raises(DiskFull, match="free some space"):
            small.sync()
        check_serves(small, before)
    assert small.store.health.damage is None


def test_what_was_committed_before_the_disk_was_full_stays(small):
    grow(small)
    with pytest.raises(DiskFull):
        small.sync(files_per_transaction=1)
    paths = small.paths()
    assert 20 < len(paths) < 80
    assert small.integrity() == SOUND


def test_room_alone_makes_all_well(small):
    ballast = fill_up(small.path.parent)
    for number in range(50):
        small.write(f"memory/late{number}.md", f"kestrel number{number}z " * 100)
    with pytest.raises(DiskFull):
        small.sync()
    assert small.found("number7x") == ["memory/n7.md"]
    ballast.unlink()
    assert small.sync().indexed_files == 50
    assert len(set(small.found("kestrel"))) == 50
    assert small.integrity() == SOUND


def test_a_rebuild_without_room_leaves_the_old_index_and_no_file(small):
    before = small.rows(), small.revision()
    ballast = fill_up(small.path.parent)
    with pytest.raises(DiskFull):
        small.sync(SyncMode.FULL)
    check_serves(small, before)
    ballast.unlink()
    assert not [name for name in small.file_names() if "rebuilding" in name or "ready" in name]
    assert small.sync(SyncMode.FULL).revision > before[1]


def test_a_restart_on_a_full_disk_answers_and_says_why_it_takes_nothing_up(small):
    small.close()
    ballast = fill_up(small.path.parent)
    small.write("memory/late.md", "kestrel")
    try:
        small.open()
        assert small.found("number7x") == ["memory/n7.md"]
        assert "full" in small.store.degradations()[0].reason
        with pytest.raises(DiskFull):
            small.sync()
        assert small.found("number8x") == ["memory/n8.md"]
    finally:
        ballast.unlink()
    small.sync()
    assert small.found("kestrel") == ["memory/late.md"]
    assert small.store.degradations() == ()


def test_a_full_disk_without_an_index_is_refused_with_that_reason(tmp_path):
    index = IndexFixture(tmp_path)
    with small_disk(index.path.parent, 160):
        ballast = fill_up(index.path.parent)
        with pytest.raises(DiskFull):
            index.open()
        ballast.unlink()
        index.open().sync()
        assert index.integrity() == SOUND
        index.close()


def test_damage_on_a_full_disk_is_mended_when_there_is_room(small):
    before = small.revision()
    small.close()
    with small.path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(small.path.stat().st_size - 4096))
    small.path.with_name("x").write_bytes(b"x")
    ballast = fill_up(small.path.parent)
    with pytest.raises((DiskFull, IndexUnavailable)):
        small.open()
    ballast.unlink()
    small.open().sync()
    assert len(small.paths()) == 20
    assert small.revision() > before
    assert small.integrity() == SOUND


def test_damage_met_at_work_on_a_full_disk_is_mended_when_there_is_room(small):
    before = small.revision()
    ballast = fill_up(small.path.parent)
    # Removed by name, and kept on the disk by somebody who reads it.
    with small.path.open("rb"), small.path.with_name("main.sqlite-wal").open("rb"):
        for name in ("main.sqlite", "main.sqlite-wal", "main.sqlite-shm"):
            small.path.with_name(name).unlink()
        for _ in range(3):
            fill_up(small.path.parent)
            with pytest.raises(DiskFull):
                small.sync()
    ballast.unlink()
    assert small.sync().indexed_files == 20
    assert small.revision() > before
    assert small.integrity() == SOUND


def test_a_lock_file_that_finds_no_room_is_said_so(tmp_path):
    with small_disk(tmp_path / "state", 64):
        fill_up(tmp_path / "state")
        with pytest.raises(DiskFull):
            SqliteStore(tmp_path / "state" / "deep" / "main.sqlite", IDENTITY).open()
