"""The page caches of all indexes together stay below a limit, and searches still work."""

from contextlib import ExitStack

import apsw
import pytest

from index_fixture import IndexFixture
from memoryd_server.sqlite import connection

MEBIBYTE = 2**20
ROOM_BYTES = 2 * MEBIBYTE
INDEXES = 4


@pytest.fixture
def indexes(tmp_path):
    """A few of several megabytes each."""
    before = apsw.soft_heap_limit(-1)
    with ExitStack() as stack:
        stack.callback(apsw.soft_heap_limit, before)
        desks = [IndexFixture(tmp_path / str(number)) for number in range(INDEXES)]
        for index in desks:
            for number in range(150):
                index.write(f"memory/{number}.md", " ".join(f"word{number}x{i}" for i in range(900)))
            index.open().sync()
            stack.callback(index.close)
        yield desks


def read_all(desks):
    """The megabytes that SQLite has taken once every page of every index was read, beyond what it had before."""
    before = apsw.memory_used()
    for index in desks:
        assert index.rows()[0]
        assert index.found("word7x7") == ["memory/7.md"]
    return (apsw.memory_used() - before) / MEBIBYTE


@pytest.mark.slow
def test_pages_of_many_indexes_are_bounded_together(indexes):
    unbounded = read_all(indexes)
    for index in indexes:
        index.store.release_memory()
    connection.bound_page_caches(0, shared_bytes=apsw.memory_used() + ROOM_BYTES)
    bounded = read_all(indexes)
    assert unbounded > 8
    assert bounded < 5


def test_more_agents_have_more():
    before = apsw.soft_heap_limit(-1)
    try:
        connection.bound_page_caches(10)
        few = apsw.soft_heap_limit(-1)
        connection.bound_page_caches(1_000)
        assert apsw.soft_heap_limit(-1) - few == 990 * connection.HEAP_BYTES_PER_AGENT
    finally:
        apsw.soft_heap_limit(before)
