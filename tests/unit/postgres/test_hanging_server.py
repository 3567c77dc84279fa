"""A server that stops answering, but closes no connection: its processes are stopped, as by a disk that hangs."""

import threading
import time

import pytest

from memoryd_server.errors import DeadlineTooShort, IndexUnavailable
from memoryd_server.store.filters import ALL_CHUNKS
from memoryd_server.text.terms import QueryTerm
from postgres_server import running_server
from unit.store.contract import document

pytestmark = pytest.mark.postgres

pytest.importorskip("psycopg")

CHECK_SECONDS, CONNECT_SECONDS = 0.5, 2
LATE_SECONDS = 1.5
"""How much later than allowed a call may end: the margin of the driver, and a busy machine."""


@pytest.fixture(scope="module")
def server():
    """A server of these tests alone, because a stopped one stops every other test."""
    with running_server() as server:
        yield server


@pytest.fixture
def database(postgres_module, server):
    return postgres_module.database(server.url, connect_seconds=CONNECT_SECONDS, check_seconds=CHECK_SECONDS)


@pytest.fixture
def store(postgres_module, database, request):
    store = postgres_module.new_store(f"agent of {request.node.name}", database)
    store.open()
    store.writer().write([document("a.md", ("heron", ""))])
    yield store
    store.close()


def heron(store, deadline=None):
    with store.read(deadline) as reader:
        return len(reader.keyword_hits([QueryTerm("heron")], ALL_CHUNKS, 100))


def failed(error, call, most_seconds):
    """Check that a call fails with `error` and a time to retry, in time."""
    started = time.monotonic()
    with pytest.raises(error, match="PostgreSQL server") as found:
        call()
    assert time.monotonic() - started < most_seconds + LATE_SECONDS
    assert found.value.retry_after_seconds
    return found.value


def test_a_search_ends_at_its_deadline_and_the_next_one_succeeds_when_the_server_continues(server, store):
    assert heron(store) == 1
    with server.hanging():
        for _ in range(3):
            failed(DeadlineTooShort, lambda: heron(store, time.monotonic() + 0.3), 0.3)
    assert heron(store, time.monotonic() + 10) == 1


def test_a_search_ends_at_its_deadline_during_its_statements(server, store):
    def search():
        with store.read(time.monotonic() + 1) as reader, server.hanging():
            reader.hashes_containing("heron")

    failed(DeadlineTooShort, search, 1)
    assert heron(store, time.monotonic() + 10) == 1


def test_calls_without_a_deadline_end_when_the_server_accepts_no_connection_either(server, store):
    writer = store.writer()
    with server.hanging():
        for call in (lambda: writer.write([document("b.md", ("heron", ""))]), lambda: heron(store)):
            failed(IndexUnavailable, call, CHECK_SECONDS + CONNECT_SECONDS)
    # An attempt to connect that failed is not repeated for a second.
    deadline = time.monotonic() + 10
    while True:
        try:
            writer.write([document("b.md", ("heron", ""))])
        except IndexUnavailable:
            assert time.monotonic() < deadline
            threading.Event().wait(0.1)
        else:
            break
    assert heron(store) == 2


def test_a_statement_that_takes_long_is_waited_for_while_the_server_answers(server, store, database, request):
    with database.write(f"agent of {request.node.name}") as connection:
        assert connection.execute("SELECT 1 FROM pg_sleep(%s)", (4 * CHECK_SECONDS,)).fetchone() == (1,)
    assert heron(store) == 1


def test_a_closed_agent_does_not_wait_for_the_server(server, postgres_module, database):
    store = postgres_module.new_store("closed", database)
    store.open()
    started = time.monotonic()
    with server.hanging():
        store.close()
    assert time.monotonic() - started < 10
