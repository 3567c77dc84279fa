"""Readers are few, are given back, and are stopped at the deadline."""

import threading
import time

import apsw
import pytest

from index_fixture import connection_of
from memoryd_server.errors import DeadlineTooShort, IndexUnavailable
from memoryd_server.sqlite.connection import open_reader
from memoryd_server.sqlite.readers import ReaderPool

SIZE = 3

# Counts for many seconds.
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 2e8) SELECT count(*) FROM c"


@pytest.fixture
def made():
    return []


@pytest.fixture
def pool(opened, made):
    def open_connection(path):
        made.append(open_reader(path))
        return made[-1]

    pool = ReaderPool(opened.path, SIZE, open_connection)
    yield pool
    pool.close()


def test_no_more_connections_are_open_than_the_pool_is_large(pool, made):
    at_work, most = [0], [0]
    lock, started = threading.Lock(), threading.Barrier(8)

    def use():
        started.wait()
        for _ in range(50):
            with pool.connection() as connection:
                with lock:
                    at_work[0] += 1
                    most[0] = max(most[0], at_work[0])
                connection.execute("SELECT count(*) FROM files").fetchall()
                with lock:
                    at_work[0] -= 1

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= SIZE
    assert len(made) <= SIZE


def test_no_two_readers_share_a_connection(pool):
    with pool.connection() as one, pool.connection() as two:
        assert one is not two


def test_a_connection_is_used_again(pool, made):
    for _ in range(5):
        with pool.connection():
            pass
    assert len(made) == 1


def test_a_connection_that_failed_is_not_used_again(pool, made):
    with pytest.raises(apsw.SQLError), pool.connection() as connection:
        connection.execute("SELECT nonsense")
    with pool.connection():
        pass
    assert len(made) == 2


def test_a_pool_whose_connections_all_failed_still_hands_them_out(pool):
    for _ in range(SIZE * 2):
        with pytest.raises(apsw.SQLError), pool.connection() as connection:
            connection.execute("SELECT nonsense")
    with pool.connection() as connection:
        assert connection.execute("SELECT count(*) FROM files").fetchall() == [(0,)]


def test_a_file_that_cannot_be_opened_leaves_the_pool_as_large_as_it_was(opened):
    pool = ReaderPool(opened.path.with_name("absent.sqlite"), 1)
    for _ in range(3):
        with pytest.raises(apsw.CantOpenError), pool.connection():
            pass


def test_a_closed_pool_hands_out_nothing(pool):
    pool.close()
    with pytest.raises(IndexUnavailable), pool.connection():
        pass


def test_closing_waits_for_the_reader_at_work(pool):
    closed = threading.Event()

    def close():
        with pool.closed():
            closed.set()

    with pool.connection() as connection:
        worker = threading.Thread(target=close)
        worker.start()
        assert not closed.wait(0.05)
        assert connection.execute("SELECT count(*) FROM files").fetchall() == [(0,)]
    worker.join(10)
    assert closed.is_set()


def check_stopped(store, deadline):
    with pytest.raises(DeadlineTooShort), store.read(deadline) as reader:
        connection_of(reader).execute(ENDLESS).fetchall()


def test_a_query_that_takes_too_long_is_stopped_at_the_deadline(opened):
    began = time.monotonic()
    check_stopped(opened.store, began + 0.05)
    assert time.monotonic() - began < 2


def test_a_reader_serves_on_after_it_was_stopped(opened):
    for _ in range(10):
        check_stopped(opened.store, time.monotonic() - 1)
    with opened.store.read() as reader:
        assert reader.counts().chunks == 0
    assert len(opened.reader_pool._idle) == 1


def test_a_deadline_does_not_outlive_its_search(opened):
    with opened.store.read(time.monotonic() + 0.01) as reader:
        reader.counts()
    with opened.store.read() as reader:
        count = connection_of(reader).execute(ENDLESS.replace("2e8", "3e5")).fetchall()
    assert count == [(300_000,)]


def test_a_reader_sees_one_state_however_much_is_committed_meanwhile(opened):
    opened.write("memory/a.md", "heron")
    opened.sync()
    with opened.store.read() as reader:
        before = reader.counts()
        opened.write("memory/b.md", "heron")
        opened.sync()
        assert reader.counts() == before
    assert opened.revision() > before.revision


def test_a_reader_cannot_write(opened):
    with pytest.raises(IndexUnavailable), opened.store.read() as reader:
        connection_of(reader).execute("DELETE FROM files")


def test_connections_that_nobody_uses_are_given_back_and_those_at_work_go_on(pool, made):
    with pool.connection() as held:
        with pool.connection():
            assert not pool.is_idle
        pool.release()
        assert held.execute("SELECT count(*) FROM files").fetchall() == [(0,)]
        assert not pool.is_idle
    assert not pool.is_idle
    pool.release()
    assert pool.is_idle
    with pytest.raises(apsw.ConnectionClosedError):
        made[0].execute("SELECT 1")
    with pool.connection() as fresh:
        assert fresh.execute("SELECT count(*) FROM files").fetchall() == [(0,)]


def test_giving_back_disturbs_no_reader(pool):
    over, problems = threading.Event(), []

    def read():
        while not over.is_set():
            try:
                with pool.connection() as connection:
                    connection.execute("SELECT count(*) FROM files").fetchall()
            except apsw.Error as error:
                problems.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        pool.release()
    over.set()
    for thread in threads:
        thread.join()
    assert problems == []
