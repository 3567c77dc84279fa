"""The index of memoryd 0.1.0 is moved to its present name."""

import itertools
import os
import shutil
import signal
import sys

import apsw
import pytest

from disks import fill_up, small_disk
from memoryd_server.errors import IndexBusy
from memoryd_server.sqlite import opening
from memoryd_server.sqlite.connection import JournalMode, is_full, open_writer
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


def killed(path, text="a heron"):
    """Leave a database at `path` as a daemon that was killed leaves it: its rows are in the log."""
    folder = path.with_name(f"of {path.name}")
    folder.mkdir()
    connection = database(folder / path.name, text, keep_open=True)
    for file in folder.iterdir():
        shutil.copy(file, path.parent)
    connection.close()
    shutil.rmtree(folder)
    assert path.with_name(f"{path.name}-wal").stat().st_size


def test_the_log_of_a_killed_daemon_is_applied_first(wanted, former):
    killed(former)
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


STEPS = {"open", "os.rename", "os.remove", "os.chmod"}


def dies(step, work):
    """Call `work` in a fork that is killed before its change number `step` of a file.

    Return whether the fork was killed, so False if `work` makes fewer changes.
    """
    child = os.fork()
    if child == 0:
        count = itertools.count()

        def hook(event, _):
            if event in STEPS and next(count) == step:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            work()
        except BaseException:  # noqa: BLE001 -- the fork must not continue as a test
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("journal", JournalMode)
def test_a_move_that_is_killed_at_any_step_loses_no_row(tmp_path, journal):
    for step in itertools.count():
        folder = tmp_path / str(step)
        folder.mkdir()
        killed(folder / "main.sqlite")
        killed(folder / "main.embeddings.sqlite", "a vector")
        wanted = folder / "main.memoryd.sqlite"
        was_killed = dies(step, lambda wanted=wanted: opening.move_former(wanted, journal))
        opening.move_former(wanted, journal)
        assert names(folder) == ["main.memoryd.embeddings.sqlite", "main.memoryd.sqlite"]
        assert text_in(wanted) == "a heron"
        assert text_in(folder / "main.memoryd.embeddings.sqlite") == "a vector"
        if not was_killed:
            break
    assert step > 6


@pytest.mark.faults
def test_a_damaged_index_is_moved_as_it_is_if_the_move_is_killed_at_any_step(tmp_path):
    for step in itertools.count():
        folder = tmp_path / str(step)
        folder.mkdir()
        wanted, former = folder / "main.memoryd.sqlite", folder / "main.sqlite"
        database(former)
        damaged = bytearray(former.read_bytes())
        # The version of the file's format.
        damaged[19] = 3
        former.write_bytes(damaged)
        was_killed = dies(step, lambda wanted=wanted: opening.move_former(wanted, JournalMode.LOG))
        opening.move_former(wanted, JournalMode.LOG)
        assert names(folder) == ["main.memoryd.sqlite"]
        assert wanted.read_bytes() == damaged
        if not was_killed:
            break
    assert step > 4


@pytest.mark.faults
def test_an_index_whose_log_does_not_fit_on_the_disk_stays_until_it_does(tmp_path):
    with small_disk(tmp_path / "disk", 512) as disk:
        former, wanted = disk / "main.sqlite", disk / "main.memoryd.sqlite"
        killed(former)
        ballast = fill_up(disk)
        with pytest.raises(apsw.Error) as refused:
            opening.move_former(wanted, JournalMode.LOG)
        assert is_full(refused.value)
        assert former.exists()
        assert not wanted.exists()
        ballast.unlink()
        opening.move_former(wanted, JournalMode.LOG)
        assert text_in(wanted) == "a heron"


@pytest.mark.slow
def test_an_index_that_another_program_reads_stays(wanted, former):
    killed(former)
    reader = apsw.Connection(str(former), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN; SELECT * FROM notes")
    with pytest.raises(apsw.BusyError):
        opening.move_former(wanted, JournalMode.LOG)
    assert not wanted.exists()
    reader.close()
    opening.move_former(wanted, JournalMode.LOG)
    assert text_in(wanted) == "a heron"


def test_a_log_that_a_removed_index_has_left_is_not_applied(wanted, former):
    killed(wanted, "an old index")
    wanted.unlink()
    database(former)
    opening.move_former(wanted, JournalMode.LOG)
    assert text_in(wanted) == "a heron"
