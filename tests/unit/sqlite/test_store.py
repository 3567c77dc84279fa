"""An index file is one process's alone, is never another program's, and is never trusted when it is damaged."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from index_fixture import IDENTITY, OTHER_IDENTITY, SOUND, IndexFixture
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
def holder(index):
    index.path.parent.mkdir(parents=True)
    lock = index.path.with_name(index.path.name + ".lock")
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


def with_a_note(index):
    index.write("memory/a.md", "The heron stands in the reeds.")
    index.open().sync()
    return index


def damaged(index, damage):
    with_a_note(index).close()
    data = bytearray(index.path.read_bytes())
    index.path.write_bytes(damage(data))
    return index


def test_an_index_held_by_another_process_is_refused_with_its_process_id(index, holder):
    with pytest.raises(IndexBusy, match=rf"process {holder.pid}\b"):
        index.open()


def test_a_lock_dies_with_its_holder(index, holder):
    holder.kill()
    holder.wait()
    index.open()
    assert index.paths() == []


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


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(IndexUnavailable, match="lock file"):
        SqliteStore(tmp_path / "file" / "main.sqlite", IDENTITY).open()


def test_every_file_of_an_index_is_its_owners_alone(index):
    before = os.umask(0)
    try:
        with_a_note(index).sync(SyncMode.FULL)
        modes = {name: oct((index.path.parent / name).stat().st_mode & 0o777) for name in index.file_names()}
    finally:
        os.umask(before)
    assert "main.sqlite-wal" in modes
    assert set(modes.values()) == {"0o600"}, modes


def test_an_index_that_others_could_read_is_made_private(index):
    with_a_note(index).close()
    index.path.chmod(0o644)
    index.open().sync()
    assert {oct((index.path.parent / name).stat().st_mode & 0o777) for name in index.file_names()} == {"0o600"}


def test_another_programs_database_is_left_byte_for_byte_alone(index):
    before = foreign_database(index.path)
    stamp = index.path.stat()
    with_a_note(index)
    assert index.found("heron") == ["memory/a.md"]
    index.sync(SyncMode.FULL)
    index.close()
    assert index.path.read_bytes() == before
    assert index.path.stat() == stamp or index.path.stat().st_mtime_ns == stamp.st_mtime_ns
    assert index.file_names() == ["main.memoryd.sqlite", "main.sqlite", "main.sqlite.lock"]


def test_the_sibling_of_another_programs_database_is_found_again(index):
    foreign_database(index.path)
    with_a_note(index).reopen()
    assert index.found("heron") == ["memory/a.md"]
    assert [i.kind for i in index.store.degradations()] == [DegradationKind.INDEX_IMPAIRED]
    assert index.store.degradations()[0].used.endswith("main.memoryd.sqlite")


def test_two_foreign_databases_leave_no_place_and_are_both_left_alone(index):
    sibling = index.path.with_name("main.memoryd.sqlite")
    before = foreign_database(index.path), foreign_database(sibling)
    with pytest.raises(IndexUnavailable, match="other programs"):
        index.open()
    assert (index.path.read_bytes(), sibling.read_bytes()) == before


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
def test_a_damaged_index_is_set_aside_and_built_anew(index, damage):
    damaged(index, damage).open()
    assert index.found("heron") == []
    (aside,) = index.path.parent.glob("*.damaged-*")
    (impairment,) = index.store.degradations()
    assert (impairment.kind, impairment.used) == (DegradationKind.INDEX_IMPAIRED, str(aside))
    assert str(aside) in impairment.reason
    index.sync()
    assert index.found("heron") == ["memory/a.md"]
    assert index.integrity() == SOUND
    assert index.store.degradations() == ()
    assert [remark.used for remark in index.store.remarks()] == [str(aside)]


def test_a_leftover_log_of_a_damaged_index_does_not_haunt_the_new_one(index):
    damaged(index, lambda data: os.urandom(len(data)))
    index.path.with_name(index.path.name + "-wal").write_bytes(os.urandom(5000))
    index.open().sync()
    assert index.integrity() == SOUND
    assert index.found("heron") == ["memory/a.md"]


def test_an_empty_file_is_taken_for_a_new_index(index):
    index.path.parent.mkdir(parents=True)
    index.path.write_bytes(b"")
    with_a_note(index)
    assert index.found("heron") == ["memory/a.md"]
    assert index.store.degradations() == ()


def test_a_new_index_that_the_power_cut_left_empty_beside_its_log_is_begun_anew(index):
    with_a_note(index)
    log = index.path.with_name(index.path.name + "-wal")
    kept = log.read_bytes()
    index.close()
    index.path.write_bytes(b"")
    log.write_bytes(kept)
    index.open().sync()
    assert index.found("heron") == ["memory/a.md"]
    assert index.integrity() == SOUND
    index.close()
    assert index.path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big")


def test_an_index_of_a_newer_memoryd_is_refused_and_kept(index):
    with_a_note(index).close()
    connection = sqlite3.connect(index.path)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(IndexTooNew, match=f"schema version {SCHEMA_VERSION + 1}"):
        index.open()
    connection = sqlite3.connect(index.path)
    assert connection.execute("SELECT count(*) FROM chunks").fetchone() == (1,)
    connection.close()


def test_an_index_that_was_refused_is_not_kept_locked(index):
    with_a_note(index).close()
    connection = sqlite3.connect(index.path)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    for _ in range(2):
        with pytest.raises(IndexTooNew):
            index.open()


def test_an_index_of_another_identity_answers_until_the_next_run_rebuilds_it(index):
    index.write("memory/long.md", "\n".join(f"line {i} of the ledger" for i in range(60)))
    index.open(IDENTITY).sync()
    few = len(index.rows()[0])
    index.reopen(OTHER_IDENTITY)
    assert index.engine().rebuild_due
    assert index.found("ledger")
    before = index.revision()
    index.sync()
    assert not index.engine().rebuild_due
    assert len(index.rows()[0]) > few
    assert index.revision() > before
    assert index.sync().changed is False


def test_the_revision_never_falls_and_rises_with_every_change(index):
    index.open()
    seen = [index.revision()]
    for number in range(3):
        index.write(f"memory/{number}.md", f"note {number}")
        index.sync()
        seen.append(index.revision())
        index.reopen()
        assert index.revision() == seen[-1]
        index.sync(SyncMode.FULL)
        seen.append(index.revision())
        index.reopen(OTHER_IDENTITY if number % 2 else IDENTITY).sync()
    assert seen == sorted(set(seen)), "strictly rising"


def test_the_size_counts_the_log_and_survives_its_absence(opened):
    opened.write("memory/a.md", "text")
    opened.sync()
    wal = opened.path.with_name(opened.path.name + "-wal")
    assert opened.store.sizes() == StoreSizes(opened.path.stat().st_size, wal.stat().st_size)
    opened.close()
    assert not wal.exists()
    assert opened.store.sizes() == StoreSizes(opened.path.stat().st_size, 0)


def test_an_index_at_rest_is_whole_without_its_log(index, tmp_path):
    with_a_note(index)
    index.store.release_memory()
    alone = tmp_path / "alone.sqlite"
    alone.write_bytes(index.path.read_bytes())
    with closing(sqlite3.connect(alone)) as connection:
        assert connection.execute("SELECT path FROM files").fetchall() == [("memory/a.md",)]
    index.write("memory/b.md", "an egret by the canal")
    index.sync()
    assert index.found("egret") == ["memory/b.md"]


@pytest.mark.slow
def test_a_large_run_leaves_few_pages_in_memory(opened):
    for number in range(300):
        opened.write(f"memory/{number}.md", " ".join(f"word{number}x{i}" for i in range(900)))
    opened.sync()
    assert opened.path.stat().st_size + opened.path.with_name("main.sqlite-wal").stat().st_size > 8 * 2**20
    kept, _ = opened.connection.status(apsw.SQLITE_DBSTATUS_CACHE_USED)
    assert kept < 2 * 2**20
    assert opened.found("word7x7") == ["memory/7.md"]


def test_markdown_is_the_truth_when_the_index_is_deleted(index):
    with_a_note(index)
    before = index.rows()
    index.close()
    index.path.unlink()
    index.open().sync()
    assert index.rows() == before


def test_indexes_of_two_agents_do_not_hold_each_other_up(tmp_path):
    one, two = IndexFixture(tmp_path, name="one.sqlite"), IndexFixture(tmp_path, name="two.sqlite")
    one.open()
    two.open()
    one.close()
    two.close()
