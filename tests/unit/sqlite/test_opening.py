"""Opening an index waits for a lock, and creates no table that exists."""

import contextlib
import threading

import apsw
import pytest

from memoryd_server.sqlite.connection import BUSY_TIMEOUT_MS, JournalMode, open_reader, open_writer


def schema_version(path):
    """SQLite counts each change of what tables there are."""
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        return connection.execute("PRAGMA schema_version").fetchone()[0]


def test_tables_are_defined_once_however_often_an_index_is_opened_and_synced(index):
    index.write("memory/a.md", "The heron stands in the reeds.")
    index.open().sync()
    index.close()
    before = schema_version(index.path)
    assert before > 0
    for number in range(3):
        index.open()
        index.write(f"memory/{number}.md", f"The kestrel number{number}x hovers.")
        index.sync()
        index.close()
        assert schema_version(index.path) == before


@pytest.mark.parametrize("opening", [lambda path: open_writer(path, JournalMode.ROLLBACK), open_reader])
def test_a_lock_that_is_held_when_it_is_opened_is_waited_for(index, opening):
    index.write("memory/a.md", "The heron stands in the reeds.")
    index.open().sync()
    index.close()
    # Without a write-ahead log, a writer keeps readers out as well.
    held = apsw.Connection(str(index.path))
    held.execute("PRAGMA journal_mode=DELETE").fetchall()
    held.execute("BEGIN EXCLUSIVE")
    gone = threading.Event()

    def let_go():
        gone.set()
        held.close()

    release = threading.Timer(BUSY_TIMEOUT_MS / 1000 / 10, let_go)
    release.start()
    try:
        connection = opening(index.path)
        # It came about only when the holder let go.
        assert gone.is_set()
        assert connection.execute("SELECT count(*) FROM files").fetchone() == (1,)
        connection.close()
    finally:
        release.join()
