"""The SQLite history of writes: the contract, durability, limits, forgotten bytes, and faults of the file and disk."""

import os
import random
import shutil
import tracemalloc
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings

from disks import fill_up, small_disk, unwritable
from memoryd_server.errors import DiskFull, HistoryUnavailable
from memoryd_server.sqlite import SqliteWriteHistory
from memoryd_server.sqlite.connection import JournalMode
from memoryd_server.sqlite.history_rows import RECORD_BYTES
from properties import examples
from unit.store.history_contract import OPERATIONS, SIZE_LIMITS, Clock, HistoryContract, record, sha256

NAME = "main.history.sqlite"


def stored_contents(path):
    """Return each stored content of a closed history by its digest, decompressed."""
    connection = apsw.Connection(str(path))
    found = {digest: zlib.decompress(data) for digest, data in connection.execute("SELECT digest, data FROM contents")}
    (total,) = connection.execute("SELECT bytes FROM totals").fetchone()
    query = f"SELECT (SELECT coalesce(sum(length(data)), 0) FROM contents) + {RECORD_BYTES} * count(*) FROM records"
    assert (total,) == connection.execute(query).fetchone()
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    return found


class SqliteHistoryContract(HistoryContract):
    """The contract, with the contents of the closed file."""

    def cost(self, records, contents):
        return RECORD_BYTES * len(records) + sum(len(zlib.compress(each)) for each in contents.values())

    def check_stored(self, folder, contents):
        if (folder / NAME).exists():
            assert set(stored_contents(folder / NAME)) == contents


class TestSqliteHistory(SqliteHistoryContract):
    """With a write-ahead log."""

    def new_history(self, folder, **options):
        return SqliteWriteHistory(folder / NAME, **options)

    @settings(max_examples=examples(400), deadline=None)
    @given(OPERATIONS, SIZE_LIMITS)
    def test_random_operations_leave_the_records_and_contents_of_the_model(self, operations, max_bytes):
        self.check_operations(operations, max_bytes)


class TestSqliteHistoryWithoutLog(SqliteHistoryContract):
    """With a rollback journal, as on a network file system."""

    def new_history(self, folder, **options):
        return SqliteWriteHistory(folder / NAME, journal=JournalMode.ROLLBACK, **options)

    @settings(max_examples=examples(100), deadline=None)
    @given(OPERATIONS, SIZE_LIMITS)
    def test_random_operations_leave_the_records_and_contents_of_the_model(self, operations, max_bytes):
        self.check_operations(operations, max_bytes)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path / "state" / NAME


@pytest.fixture
def make(path):
    made = []

    def new_history(where=path, **options):
        chosen = {"max_age_seconds": 1e9, "max_bytes": 1 << 30, "now_ms": Clock(10**9)} | options
        made.append(SqliteWriteHistory(where, **chosen))
        return made[-1]

    yield new_history
    for history in made:
        history.close()


def write(history, number, before=None, after=None, where="memory/a.md", **fields):
    history.begin(record(number, where, before, after, **fields), before, after)
    history.finish(f"version-{number}")


def versions(history):
    return [each.version_id for each in history.records("", older_than=None, limit=1000)]


def noise(size, seed=1):
    """Bytes that stay as they are when they are compressed."""
    return random.Random(seed).randbytes(size)


def bytes_on_disk(path):
    return b"".join(each.read_bytes() for each in path.parent.iterdir() if each.name.startswith(path.name))


def test_reading_creates_no_file(make, path):
    history = make()
    assert (history.unfinished(), history.get("x"), history.content(bytes(32)), history.has("a")) == (
        [],
        None,
        None,
        False,
    )
    assert (history.forget_text(b"a"), history.forget_path("a")) == (0, 0)
    history.finish("x")
    history.cancel("x")
    assert list(path.parent.iterdir()) == []


def test_the_files_are_their_owners_alone(make, path):
    write(make(), 1, b"old", b"new")
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {NAME: 0o600, f"{NAME}-wal": 0o600, f"{NAME}-shm": 0o600}


def test_a_begun_write_outlives_a_kill(make, path, tmp_path):
    history = make()
    write(history, 1, None, b"one")
    history.begin(record(2, "memory/a.md", b"one", b"two"), b"one", b"two")
    shutil.copytree(path.parent, tmp_path / "killed")
    later = make(tmp_path / "killed" / NAME)
    assert [each.version_id for each in later.unfinished()] == ["version-2"]
    assert later.content(sha256(b"two")) == b"two"


@pytest.fixture
def synced(tmp_path):
    """A folder with what a power failure leaves: each file as it was when it was last synchronized."""
    folder = tmp_path / "synced"
    folder.mkdir()

    class SyncedFile(apsw.VFSFile):
        def __init__(self, name, flags):
            self.path = Path(name if isinstance(name, str) else name.filename())
            super().__init__("unix", name, flags)

        def xSync(self, flags):
            super().xSync(flags)
            shutil.copy(self.path, folder)

    class SyncedFiles(apsw.VFS):
        def xOpen(self, name, flags):
            return SyncedFile(name, flags)

    files = SyncedFiles("synced", "unix", makedefault=True)
    yield folder
    files.unregister()


@pytest.mark.parametrize("journal", JournalMode)
def test_a_begun_write_outlives_a_power_failure(make, synced, tmp_path, journal):
    history = make(journal=journal)
    for number in range(1, 6):
        history.begin(record(number, after=b"%d" % number), None, b"%d" % number)
        after = tmp_path / f"after-{number}"
        shutil.copytree(synced, after)
        later = make(after / NAME, journal=journal)
        assert [each.version_id for each in later.unfinished()] == [f"version-{number}"]
        assert later.content(sha256(b"%d" % number)) == b"%d" % number
        assert versions(later) == [f"version-{each}" for each in range(number - 1, 0, -1)]
        history.finish(f"version-{number}")


def test_the_oldest_writes_make_room(make):
    history = make(max_bytes=50_000)
    for number in range(1, 21):
        write(history, number, noise(10_000, number - 1), noise(10_000, number))
    assert versions(history) == ["version-20", "version-19", "version-18"]
    assert history.content(sha256(noise(10_000, 16))) is None
    assert history.content(sha256(noise(10_000, 17)))


def test_records_without_contents_count_towards_the_limit(make):
    history = make(max_bytes=RECORD_BYTES * 10)
    for number in range(1, 31):
        write(history, number)
    assert len(versions(history)) == 10


def test_long_paths_count_towards_the_limit(make, path):
    history = make(max_bytes=500_000)
    for number in range(1, 301):
        old, new = (f"memory/{'é' * 1_900}{each}.md" for each in (number, number + 1))
        write(history, number, where=new, moved_from=old, key=f"{'k' * 100}{number}")
    history.close()
    assert path.stat().st_size < 1_000_000


def test_the_newest_write_can_be_undone_whatever_its_size(make):
    history = make(max_bytes=1)
    history.begin(record(1, before=noise(9_000)), noise(9_000), None)
    write(history, 2, noise(20_000, 2), None)
    assert versions(history) == ["version-2"]
    assert history.content(sha256(noise(20_000, 2)))
    assert history.content(sha256(noise(9_000)))


def test_a_lower_limit_is_applied_when_the_history_is_opened(make):
    history = make()
    for number in range(1, 501):
        write(history, number, None, noise(100, number))
    history.close()
    assert len(versions(make(max_bytes=10 * RECORD_BYTES))) == 8


def test_old_writes_are_deleted_when_the_history_is_opened(make):
    clock = Clock(0)
    history = make(now_ms=clock, max_age_seconds=60)
    write(history, 1, None, b"one", time_ms=0)
    history.begin(record(2, before=b"one", time_ms=0), b"one", None)
    clock.ms = 60_001
    history.release_memory()
    assert versions(history) == []
    assert [each.version_id for each in history.unfinished()] == ["version-2"]


@contextmanager
def counted_steps():
    """The steps of the statements that connections execute, opened within the block, and how many scan a table."""
    counts = {"steps": 0, "scanned": 0}

    def add(event):
        status = event["stmt_status"]
        counts["steps"] += status["SQLITE_STMTSTATUS_VM_STEP"]
        counts["scanned"] += status["SQLITE_STMTSTATUS_FULLSCAN_STEP"]

    def trace(connection):
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, add)

    apsw.connection_hooks.append(trace)
    try:
        yield counts
    finally:
        apsw.connection_hooks.remove(trace)


@pytest.mark.slow
def test_the_cost_of_a_write_does_not_grow_with_the_history(make):
    with counted_steps() as counts:
        history = make(max_bytes=10**6)
        costs = []
        for number in range(1, 1_501):
            counts.update(steps=0, scanned=0)
            write(history, number, noise(500, number - 1), noise(500, number), key=f"key-{number}")
            history.unfinished()
            history.with_key(f"key-{number}")
            history.records("memory/a.md", older_than=None, limit=5)
            history.has("memory/a.md")
            costs.append(counts["steps"])
    # The limit is reached after a thousand writes; from then on, each write deletes one.
    assert len(versions(history)) < 1_000
    assert max(costs[-20:]) < 4 * max(costs[10:30])
    assert counts["scanned"] <= 3


def check_forgotten(history, path, contents):
    assert not [each for each in contents if each[100:140] in bytes_on_disk(path)]
    history.close()
    kept = b"".join(stored_contents(path).values())
    assert not [each for each in contents if each[100:140] in kept]


@pytest.mark.parametrize("size", [300, 3_000, 100_000])
@pytest.mark.parametrize("journal", JournalMode)
def test_no_forgotten_byte_is_left_in_the_files(make, path, size, journal):
    history = make(journal=journal)
    for number in range(1, 61):
        write(history, number, noise(size, number), noise(size, 100 + number), f"memory/file-{number % 6}x.md")
    assert history.forget_text(noise(size, 10)[100:140]) == 1
    assert history.forget_text(noise(size, 111)[100:140]) == 1
    assert history.forget_path("memory/file-3x.md") == 20
    gone = [noise(size, each) for each in (10, 111, *range(3, 61, 6), *range(103, 161, 6))]
    assert noise(size, 12)[100:140] in bytes_on_disk(path)
    assert b"memory/file-3x.md" not in bytes_on_disk(path)
    check_forgotten(history, path, gone)


def test_no_byte_of_a_pruned_content_is_left_after_the_next_checkpoint(make, path):
    history = make(max_bytes=30_000)
    for number in range(1, 31):
        write(history, number, None, noise(5_000, number))
    history.close()
    on_disk = bytes_on_disk(path)
    assert [number for number in range(1, 31) if noise(5_000, number)[100:140] in on_disk] == [26, 27, 28, 29, 30]


def test_a_removed_file_is_created_again_and_reported(make, path):
    history = make()
    write(history, 1, b"old", b"new")
    for file in path.parent.iterdir():
        file.unlink()
    assert versions(history) == []
    assert "removed or replaced" in history.problem
    write(history, 2, b"old", b"new")
    assert versions(history) == ["version-2"]
    assert not history.unfinished()


def test_a_file_removed_between_begin_and_finish_harms_nothing(make, path):
    history = make()
    history.begin(record(1), None, None)
    for file in path.parent.iterdir():
        file.unlink()
    history.finish("version-1")
    assert versions(history) == []


def test_a_replaced_file_is_used(make, path, tmp_path):
    other = make(tmp_path / "other.sqlite")
    write(other, 9)
    other.close()
    history = make()
    write(history, 1)
    (tmp_path / "other.sqlite").replace(path)
    assert versions(history) == ["version-9"]
    assert "replaced" in history.problem


@pytest.mark.parametrize("damage", [os.urandom(8192), b"SQLite format 3\0" + bytes(5000)])
def test_a_damaged_file_is_set_aside_and_reported(make, path, damage):
    path.write_bytes(damage)
    history = make()
    assert history.unfinished() == []
    (aside,) = path.parent.glob("*.damaged-*")
    assert aside.read_bytes() == damage
    assert str(aside) in history.problem
    assert "cannot be undone" in history.problem
    write(history, 1, None, b"new")
    assert versions(history) == ["version-1"]


def test_damage_during_a_write_is_set_aside_and_the_write_is_recorded(make, path):
    history = make()
    for number in range(1, 200):
        write(history, number, None, noise(300, number))
    history.release_memory()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    history.begin(record(500, before=b"old"), b"old", None)
    history.finish("version-500")
    assert versions(history) == ["version-500"]
    assert history.content(sha256(b"old")) == b"old"
    assert "set aside" in history.problem


def test_a_damaged_content_is_never_returned_and_is_reported(make, path):
    history = make()
    content = noise(50_000)
    write(history, 1, content, b"new")
    write(history, 2, b"new", b"newer")
    history.close()
    whole = path.read_bytes()
    place = whole.index(content[30_000:30_040])
    path.write_bytes(whole[:place] + b"damage" + whole[place + 6 :])
    history = make()
    assert history.content(sha256(content)) is None
    assert sha256(content).hex() in history.problem
    assert [each.is_restorable for each in history.records("", older_than=None, limit=9)] == [True, False]
    assert history.content(sha256(b"new")) == b"new"
    assert not list(path.parent.glob("*.damaged-*"))


@pytest.mark.parametrize("change", ["data=zeroblob(9)", "bytes=3", "bytes=9999999", "digest=zeroblob(32)"])
def test_a_content_that_is_not_what_was_stored_is_never_returned(make, path, change):
    write(make(), 1, None, b"content" * 100)
    make().close()
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE contents SET {change}")
    connection.close()
    history = make()
    for digest in (sha256(b"content" * 100), bytes(32)):
        assert history.content(digest) is None
    assert history.forget_text(b"content") == 0
    history.close()
    assert stored_contents_count(path) == 0


def stored_contents_count(path):
    connection = apsw.Connection(str(path))
    ((count,),) = connection.execute("SELECT count(*) FROM contents").fetchall()
    connection.close()
    return count


def test_a_content_that_decompresses_to_more_than_its_size_uses_no_more_memory(make, path):
    write(make(), 1, None, b"content")
    make().close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE contents SET data=?", (zlib.compress(bytes(1 << 28)),))
    connection.close()
    history = make()
    tracemalloc.start()
    try:
        assert history.content(sha256(b"content")) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_forgetting_deletes_the_damaged_files_that_may_contain_the_text(make, path):
    history = make()
    write(history, 1, None, b"the secret")
    history.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    history = make()
    assert history.forget_text(b"secret") == 0
    assert [each.name for each in path.parent.iterdir() if ".damaged-" in each.name] == []
    assert "is deleted" in history.problem


def test_an_unknown_kind_of_write_counts_as_damage(make, path):
    write(make(), 1)
    make().close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE records SET kind='PAINT'")
    connection.close()
    history = make()
    assert versions(history) == []
    assert "PAINT" in history.problem


def test_the_history_of_a_newer_memoryd_is_not_changed(make, path):
    write(make(), 1)
    make().close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version=2")
    connection.close()
    history = make()
    with pytest.raises(HistoryUnavailable, match="upgrade memoryd"):
        history.begin(record(2), None, None)
    with pytest.raises(HistoryUnavailable, match="schema version 2"):
        history.unfinished()


def test_the_database_of_another_program_is_not_changed(make, path):
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs(x)")
    connection.close()
    with pytest.raises(HistoryUnavailable, match="another program's database"):
        make().begin(record(1), None, None)
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    connection.close()


def test_a_read_only_folder_is_reported_with_what_to_do(make, path):
    with unwritable(path.parent):
        history = make()
        assert history.unfinished() == []
        with pytest.raises(HistoryUnavailable, match="make the file and its folder writable"):
            history.begin(record(1), None, None)
    history.begin(record(1), None, None)
    history.release_memory()
    with unwritable(path.parent), pytest.raises(HistoryUnavailable, match="writable"):
        history.unfinished()
    assert [each.version_id for each in history.unfinished()] == ["version-1"]


@pytest.mark.slow
def test_a_file_locked_by_another_process_is_reported(make, path):
    history = make(journal=JournalMode.ROLLBACK)
    write(history, 1)
    other = apsw.Connection(str(path))
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(HistoryUnavailable, match="locked by another process") as caught:
        history.begin(record(2), None, None)
    assert caught.value.retry_after_seconds == 1.0
    other.close()
    write(history, 2)


@pytest.mark.parametrize("journal", JournalMode)
def test_a_full_disk_keeps_nothing_of_a_write_and_free_space_resolves_it(make, path, journal):
    with small_disk(path.parent, 800):
        history = make(journal=journal)
        write(history, 1, None, b"one")
        with pytest.raises(DiskFull, match="free some space"):
            history.begin(record(2, before=noise(2 << 20)), noise(2 << 20), None)
        assert history.unfinished() == []
        ballast = fill_up(path.parent)
        with suppress(DiskFull):
            for number in range(3, 100):
                write(history, number, None, noise(5_000, number))
        begun = [each.version_id for each in history.unfinished()]
        assert "version-1" in versions(history)
        ballast.unlink()
        for each in begun:
            history.finish(each)
        write(history, 200, None, b"later")
        assert versions(history)[0] == "version-200"
        assert not history.problem
        history.close()


def test_the_folder_of_the_history_may_be_missing_later(make, path):
    history = make()
    write(history, 1)
    shutil.rmtree(path.parent)
    assert versions(history) == []
    with pytest.raises(HistoryUnavailable, match="check the disk"):
        history.begin(record(2), None, None)


def test_the_first_write_creates_the_folder(make, path):
    history = make(path.parent / "agents" / NAME)
    write(history, 1)
    assert (path.parent / "agents").stat().st_mode & 0o777 == 0o700
    assert versions(history) == ["version-1"]
