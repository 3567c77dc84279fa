"""The index of memoryd 0.1.0 is moved to its present name."""

import shutil

import apsw
import pytest

from memoryd_server.errors import IndexBusy
from memoryd_server.sqlite import opening
from memoryd_server.sqlite.connection import JournalMode, open_writer
from memoryd_server.sqlite.relocation import former_path, move_former
from memoryd_server.system import FileLock


@pytest.fixture
def wanted(tmp_path):
    return tmp_path / "main.memoryd.sqlite"


@pytest.fixture
def former(tmp_path):
    return tmp_path / "main.sqlite"


def database(path, text="a heron", *, keep_open=False):
    connection = open_writer(path)
    connection.execute("CREATE TABLE notes(text)").fetchall()
    connection.execute("INSERT INTO notes VALUES (?)", (text,)).fetchall()
    if not keep_open:
        connection.close()
    return connection


def text_in(path):
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute("SELECT text FROM notes").fetchone()[0]
    finally:
        connection.close()


def names(folder):
    return sorted(file.name for file in folder.iterdir() if not file.name.endswith(".lock"))


def test_only_the_present_default_has_a_former_name(tmp_path, wanted, former):
    assert former_path(wanted) == former
    assert former_path(former) is None
    assert former_path(tmp_path / "index.db") is None


def test_the_index_and_its_cache_are_moved(tmp_path, wanted, former):
    database(former)
    database(tmp_path / "main.embeddings.sqlite", "a vector")
    assert opening.former_index(wanted) == former
    opening.move_former(wanted, JournalMode.LOG)
    assert names(tmp_path) == ["main.memoryd.embeddings.sqlite", "main.memoryd.sqlite"]
    assert text_in(wanted) == "a heron"
    assert text_in(tmp_path / "main.memoryd.embeddings.sqlite") == "a vector"
    assert opening.former_index(wanted) is None
    opening.move_former(wanted, JournalMode.LOG)
    assert text_in(wanted) == "a heron"


def test_the_log_of_a_killed_daemon_is_applied_first(tmp_path, wanted, former):
    folder = tmp_path / "killed"
    folder.mkdir()
    connection = database(folder / "main.sqlite", keep_open=True)
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    connection.close()
    assert (tmp_path / "main.sqlite-wal").stat().st_size
    opening.move_former(wanted, JournalMode.LOG)
    assert text_in(wanted) == "a heron"


def test_a_move_that_was_interrupted_is_completed(tmp_path, wanted, former):
    database(former)
    database(tmp_path / "main.memoryd.embeddings.sqlite", "a vector")
    opening.move_former(wanted, JournalMode.LOG)
    assert (text_in(wanted), text_in(tmp_path / "main.memoryd.embeddings.sqlite")) == ("a heron", "a vector")


def test_a_rebuild_that_was_interrupted_is_completed_first(wanted, former):
    database(former, "old")
    database(opening.ready_path(former), "new")
    opening.move_former(wanted, JournalMode.LOG)
    assert text_in(wanted) == "new"
    assert not former.exists()


def test_an_index_at_the_present_name_is_kept(wanted, former):
    database(former, "old")
    database(wanted, "present")
    opening.move_former(wanted, JournalMode.LOG)
    assert (text_in(former), text_in(wanted)) == ("old", "present")


def test_the_database_of_another_program_stays(wanted, former):
    connection = apsw.Connection(str(former))
    connection.execute("CREATE TABLE notes(text)").fetchall()
    connection.close()
    opening.move_former(wanted, JournalMode.LOG)
    assert former.exists()
    assert not wanted.exists()


def test_the_index_of_a_running_daemon_stays(wanted, former):
    database(former)
    lock = FileLock(former.with_name("main.sqlite.lock"))
    lock.acquire()
    with pytest.raises(IndexBusy):
        opening.move_former(wanted, JournalMode.LOG)
    lock.release()
    assert former.exists()
    move_former(wanted, former, JournalMode.LOG)
    assert text_in(wanted) == "a heron"
