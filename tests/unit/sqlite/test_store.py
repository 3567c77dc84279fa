"""An index file is locked by one process, is never another program's, and is replaced if it is damaged."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from desk import IDENTITY, OTHER_IDENTITY, SOUND, Desk
from memoryd_server.errors import IndexBusy, IndexTooNew, IndexUnavailable
from memoryd_server.model import DegradationKind
from memoryd_server.sqlite.connection import APPLICATION_ID
from memoryd_server.sqlite.schema import SCHEMA_VERSION
from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.store.protocol import StoreSizes
from memoryd_server.sync.progress import SyncMode

HOLDER = """
import sys
from pathlib import Path
from memoryd_server.system import FileLock
FileLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(desk):
    desk.path.parent.mkdir(parents=True)
    lock = desk.path.with_name(desk.path.name + ".lock")
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def foreign_database(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs(x)")
    connection.execute("INSERT INTO theirs VALUES('keep me')")
    connection.commit()
    connection.close()
    return path.read_bytes()


def with_a_note(desk):
    desk.write("memory/a.md", "The heron stands in the reeds.")
    desk.open().sync()
    return desk


def damaged(desk, damage):
    with_a_note(desk).close()
    data = bytearray(desk.path.read_bytes())
    desk.path.write_bytes(damage(data))
    return desk


def test_an_index_held_by_another_process_is_refused_with_its_process_id(desk, holder):
    with pytest.raises(IndexBusy, match=rf"process {holder.pid}\b"):
        desk.open()


def test_a_lock_dies_with_its_holder(desk, holder):
    holder.kill()
    holder.wait()
    desk.open()
    assert desk.paths() == []


def test_an_index_is_refused_to_a_second_store_of_the_same_process(opened):
    with pytest.raises(IndexBusy, match=rf"process {os.getpid()}\b"):
        SqliteStore(opened.path, IDENTITY).open()
    assert opened.paths() == []


def test_a_closed_index_may_be_opened_again(opened):
    opened.close()
    opened.close()
    with pytest.raises(IndexUnavailable):
        opened.revision()
    opened.open()
    assert opened.paths() == []


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(IndexUnavailable, match="lock file"):
        SqliteStore(tmp_path / "file" / "main.sqlite", IDENTITY).open()


def test_every_file_of_an_index_is_its_owners_alone(desk):
    before = os.umask(0)
    try:
        with_a_note(desk).sync(SyncMode.FULL)
        modes = {name: oct((desk.path.parent / name).stat().st_mode & 0o777) for name in desk.beside()}
    finally:
        os.umask(before)
    assert "main.sqlite-wal" in modes
    assert set(modes.values()) == {"0o600"}, modes


def test_an_index_that_others_could_read_is_made_private(desk):
    with_a_note(desk).close()
    desk.path.chmod(0o644)
    desk.open().sync()
    assert {oct((desk.path.parent / name).stat().st_mode & 0o777) for name in desk.beside()} == {"0o600"}


def test_another_programs_database_is_left_byte_for_byte_alone(desk):
    before = foreign_database(desk.path)
    stamp = desk.path.stat()
    with_a_note(desk)
    assert desk.found("heron") == ["memory/a.md"]
    desk.sync(SyncMode.FULL)
    desk.close()
    assert desk.path.read_bytes() == before
    assert desk.path.stat() == stamp or desk.path.stat().st_mtime_ns == stamp.st_mtime_ns
    assert desk.beside() == ["main.memoryd.sqlite", "main.sqlite", "main.sqlite.lock"]


def test_the_sibling_of_another_programs_database_is_found_again(desk):
    foreign_database(desk.path)
    with_a_note(desk).reopen()
    assert desk.found("heron") == ["memory/a.md"]
    assert [i.kind for i in desk.store.degradations()] == [DegradationKind.INDEX_IMPAIRED]
    assert desk.store.degradations()[0].used.endswith("main.memoryd.sqlite")


def test_foreign_databases_at_both_paths_are_refused_and_not_changed(desk):
    sibling = desk.path.with_name("main.memoryd.sqlite")
    before = foreign_database(desk.path), foreign_database(sibling)
    with pytest.raises(IndexUnavailable, match="other programs"):
        desk.open()
    assert (desk.path.read_bytes(), sibling.read_bytes()) == before


def zero_page_1(data):
    data[:4096] = bytes(4096)
    return data


DAMAGES = {
    "a zeroed first page": zero_page_1,
    "garbage": lambda data: os.urandom(len(data)),
    "a text file": lambda _: b"not a database\n",
    "cut after the header": lambda data: data[:100],
    "cut in the first page": lambda data: data[:2000],
    "a schema of garbage": lambda data: data[:100] + os.urandom(3996) + data[4096:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_index_is_set_aside_and_built_anew(desk, damage):
    damaged(desk, damage).open()
    assert desk.found("heron") == []
    (aside,) = desk.path.parent.glob("*.damaged-*")
    (impairment,) = desk.store.degradations()
    assert (impairment.kind, impairment.used) == (DegradationKind.INDEX_IMPAIRED, str(aside))
    assert str(aside) in impairment.reason
    desk.sync()
    assert desk.found("heron") == ["memory/a.md"]
    assert desk.integrity() == SOUND
    assert desk.store.degradations() == ()
    assert [remark.used for remark in desk.store.remarks()] == [str(aside)]


def test_a_leftover_log_of_a_damaged_index_does_not_haunt_the_new_one(desk):
    damaged(desk, lambda data: os.urandom(len(data)))
    desk.path.with_name(desk.path.name + "-wal").write_bytes(os.urandom(5000))
    desk.open().sync()
    assert desk.integrity() == SOUND
    assert desk.found("heron") == ["memory/a.md"]


def test_an_empty_file_counts_as_a_new_index(desk):
    desk.path.parent.mkdir(parents=True)
    desk.path.write_bytes(b"")
    with_a_note(desk)
    assert desk.found("heron") == ["memory/a.md"]
    assert desk.store.degradations() == ()


def test_a_new_index_left_empty_next_to_its_log_by_a_power_cut_is_created_again(desk):
    with_a_note(desk)
    log = desk.path.with_name(desk.path.name + "-wal")
    kept = log.read_bytes()
    desk.close()
    desk.path.write_bytes(b"")
    log.write_bytes(kept)
    desk.open().sync()
    assert desk.found("heron") == ["memory/a.md"]
    assert desk.integrity() == SOUND
    desk.close()
    assert desk.path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big")


def test_an_index_of_a_newer_memoryd_is_refused_and_kept(desk):
    with_a_note(desk).close()
    connection = sqlite3.connect(desk.path)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(IndexTooNew, match=f"schema version {SCHEMA_VERSION + 1}"):
        desk.open()
    connection = sqlite3.connect(desk.path)
    assert connection.execute("SELECT count(*) FROM chunks").fetchone() == (1,)
    connection.close()


def test_an_index_that_was_refused_is_not_kept_locked(desk):
    with_a_note(desk).close()
    connection = sqlite3.connect(desk.path)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    for _ in range(2):
        with pytest.raises(IndexTooNew):
            desk.open()


def test_an_index_of_another_identity_answers_until_the_next_run_rebuilds_it(desk):
    desk.write("memory/long.md", "\n".join(f"line {i} of the ledger" for i in range(60)))
    desk.open(IDENTITY).sync()
    few = len(desk.rows()[0])
    desk.reopen(OTHER_IDENTITY)
    assert desk.engine().rebuild_due
    assert desk.found("ledger")
    before = desk.revision()
    desk.sync()
    assert not desk.engine().rebuild_due
    assert len(desk.rows()[0]) > few
    assert desk.revision() > before
    assert desk.sync().changed is False


def test_the_revision_never_falls_and_rises_with_every_change(desk):
    desk.open()
    seen = [desk.revision()]
    for number in range(3):
        desk.write(f"memory/{number}.md", f"note {number}")
        desk.sync()
        seen.append(desk.revision())
        desk.reopen()
        assert desk.revision() == seen[-1]
        desk.sync(SyncMode.FULL)
        seen.append(desk.revision())
        desk.reopen(OTHER_IDENTITY if number % 2 else IDENTITY).sync()
    assert seen == sorted(set(seen)), "strictly rising"


def test_the_size_counts_the_log_and_survives_its_absence(opened):
    opened.write("memory/a.md", "text")
    opened.sync()
    wal = opened.path.with_name(opened.path.name + "-wal")
    assert opened.store.sizes() == StoreSizes(opened.path.stat().st_size, wal.stat().st_size)
    opened.close()
    assert not wal.exists()
    assert opened.store.sizes() == StoreSizes(opened.path.stat().st_size, 0)


def test_an_index_at_rest_is_whole_without_its_log(desk, tmp_path):
    with_a_note(desk)
    desk.store.release_memory()
    alone = tmp_path / "alone.sqlite"
    alone.write_bytes(desk.path.read_bytes())
    with closing(sqlite3.connect(alone)) as connection:
        assert connection.execute("SELECT path FROM files").fetchall() == [("memory/a.md",)]
    desk.write("memory/b.md", "an egret by the canal")
    desk.sync()
    assert desk.found("egret") == ["memory/b.md"]


@pytest.mark.slow
def test_a_large_run_leaves_few_pages_in_memory(opened):
    for number in range(300):
        opened.write(f"memory/{number}.md", " ".join(f"word{number}x{i}" for i in range(900)))
    opened.sync()
    assert opened.path.stat().st_size + opened.path.with_name("main.sqlite-wal").stat().st_size > 8 * 2**20
    kept, _ = opened.store._connection.status(apsw.SQLITE_DBSTATUS_CACHE_USED)
    assert kept < 2 * 2**20
    assert opened.found("word7x7") == ["memory/7.md"]


def test_markdown_is_the_truth_when_the_index_is_deleted(desk):
    with_a_note(desk)
    before = desk.rows()
    desk.close()
    desk.path.unlink()
    desk.open().sync()
    assert desk.rows() == before


def test_indexes_of_two_agents_do_not_hold_each_other_up(tmp_path):
    one, two = Desk(tmp_path, name="one.sqlite"), Desk(tmp_path, name="two.sqlite")
    one.open()
    two.open()
    one.close()
    two.close()
