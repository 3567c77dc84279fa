"""Snapshots of a streaming standby: their age, what cancels them, and vectors."""

import itertools
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from memoryd_server.store import ReadBound, StandbyOutcome, StandbyUnusable
from memoryd_server.store.filters import ALL_CHUNKS
from memoryd_server.store.identity import BuildIdentity
from postgres_server import running_server
from postgres_standby import running_standby
from unit.postgres.test_hnsw import SCANS, fill
from unit.store.contract import document
from waiting import wait_until

pytestmark = pytest.mark.postgres

pytest.importorskip("psycopg")
postgres = pytest.importorskip("memoryd_server.postgres")

NUMBERS = itertools.count()
# A statement that delays the replay is cancelled immediately.
SETTINGS = ("max_standby_streaming_delay=0", "wal_retrieve_retry_interval=100ms")
LIMIT = 10


@pytest.fixture(scope="module")
def servers():
    with running_server() as primary, running_standby(primary, settings=SETTINGS) as standby:
        yield SimpleNamespace(primary=primary, standby=standby)


@contextmanager
def opened(url, standby_url, **options):
    """A store whose database has a standby, and the same agent on the standby."""
    standby = postgres.DatabaseConfig(standby_url, is_standby=True)
    database = postgres.Database(postgres.DatabaseConfig(url, renew_seconds=0.2), standby=standby)
    identity = BuildIdentity("1", 400, 80)
    # It holds its lease, so that a test can write at any time.
    store = postgres.PostgresStore(database, "main", identity, keeps_lease=True, **options)
    reads = postgres.PostgresStandby(database.standby, "main", lambda: store.hnsw_index)
    try:
        store.open()
        yield SimpleNamespace(store=store, reads=reads)
    finally:
        store.close()


@pytest.fixture
def name(servers):
    """The name of an empty database, which the standby has too."""
    name = f"standby{next(NUMBERS)}"
    servers.primary.create_database(name)
    servers.standby.catch_up()
    return name


@pytest.fixture
def found(servers, name):
    """A store in that database, and the same agent on the standby."""
    with opened(servers.primary.url_of(name), servers.standby.url_of(name), approximate_above=200) as found:
        yield found


def bound(max_staleness=600.0, seconds=5.0, **more):
    return ReadBound(max_staleness, time.monotonic() + seconds, **more)


def revision_of(reads, **more):
    """Return the revision that the standby has; None if it must not answer."""
    with suppress(StandbyUnusable), reads.view(bound(**more)).read() as reader:
        return reader.revision
    return None


def outcome_of(reads, **more):
    with pytest.raises(StandbyUnusable) as raised, reads.view(bound(**more)).read():
        pass
    return raised.value.outcome


def test_a_snapshot_has_what_was_written_and_is_as_old_as_its_last_beat(servers, found):
    revision = found.store.writer().write([document("memory/a.md", ("crane", ""))])
    found.store.writer().record_sync(1)
    wait_until(lambda: revision_of(found.reads, min_revision=revision) == revision)
    assert outcome_of(found.reads, max_staleness=0.0) is StandbyOutcome.BEHIND
    assert outcome_of(found.reads, min_revision=revision + 1) is StandbyOutcome.BEHIND
    # There is a beat each 0.2 s.
    wait_until(lambda: revision_of(found.reads, max_staleness=1.0) == revision)
    servers.standby.pause_replay()
    try:
        wait_until(lambda: revision_of(found.reads, max_staleness=1.0) is None)
        assert revision_of(found.reads, max_staleness=60.0) == revision
    finally:
        servers.standby.resume_replay()
    wait_until(lambda: revision_of(found.reads, max_staleness=1.0) == revision)


def test_no_revision_is_reached_before_a_sync_has_completed(found):
    revision = found.store.writer().write([document("memory/a.md", ("crane", ""))])
    wait_until(lambda: revision_of(found.reads) == revision)
    assert outcome_of(found.reads, min_revision=revision) is StandbyOutcome.BEHIND


def test_reads_of_one_view_see_the_same_moment(found):
    writer = found.store.writer()
    first = writer.write([document("memory/a.md", ("crane", ""))])
    wait_until(lambda: revision_of(found.reads) == first)
    view = found.reads.view(bound())
    with view.snapshot():
        second = writer.write([document("memory/b.md", ("heron", ""))])
        wait_until(lambda: revision_of(found.reads) == second)
        with view.read() as reader:
            assert reader.revision == first
    with view.read() as reader:
        assert reader.revision == second


def test_a_snapshot_that_delays_the_replay_is_unusable_but_the_standby_is_not(servers, found, name):
    writer = found.store.writer()
    before = writer.write([document(f"memory/{number}.md", ("crane", "")) for number in range(20)])
    wait_until(lambda: revision_of(found.reads) == before)
    view = found.reads.view(bound())
    with pytest.raises(StandbyUnusable) as raised, view.read() as reader:  # noqa: PT012 -- the rows vanish in between
        assert reader.files()
        after = writer.write([], removed=writer.files().values())
        with servers.primary.admin(name) as admin:
            admin.execute("VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) memoryd.files, memoryd.chunks")
        servers.standby.catch_up()
        reader.files()
    assert "conflict with recovery" in str(raised.value)
    assert raised.value.outcome is StandbyOutcome.FAILED
    assert revision_of(found.reads) == after


def test_vector_searches_use_the_hnsw_index_of_the_standby(servers, found, name):
    made = fill(found.store)
    found.store.index_vectors()
    assert found.store.hnsw_index is not None
    query = made[min(made)]
    servers.standby.catch_up()
    wait_until(lambda: revision_of(found.reads) is not None)
    with found.store.read() as reader:
        expected = reader.vector_hits(query, LIMIT, ALL_CHUNKS)
    with found.reads.view(bound()).read() as reader:
        assert reader.vector_hits(query, LIMIT, ALL_CHUNKS) == expected
    # Its sessions report their scans at their ends.
    found.store.close()
    with servers.standby.admin(name) as admin:
        wait_until(lambda: admin.execute(SCANS).fetchone()[0] > 0)


def test_a_standby_without_the_tables_is_used_once_it_has_them(servers):
    name = f"standby{next(NUMBERS)}"
    with servers.primary.admin() as admin:
        admin.execute(f"CREATE DATABASE {name} OWNER memoryd")
    servers.standby.catch_up()
    servers.standby.pause_replay()
    try:
        with servers.primary.admin(name) as admin:
            admin.execute("CREATE EXTENSION vector")
        with opened(servers.primary.url_of(name), servers.standby.url_of(name)) as found:
            made = fill(found.store, files=2)
            assert outcome_of(found.reads) is StandbyOutcome.FAILED
            assert outcome_of(found.reads) is StandbyOutcome.FAILED
            servers.standby.resume_replay()
            wait_until(lambda: revision_of(found.reads) is not None)
            with found.reads.view(bound()).read() as reader:
                assert [hit.chunk_id for hit in reader.vector_hits(made[min(made)], 1, ALL_CHUNKS)] == [min(made)]
    finally:
        servers.standby.resume_replay()


def test_no_heartbeat_is_started_after_the_last_user_has_ended(servers, found, name):
    wait_until(lambda: revision_of(found.reads) is not None)
    found.store.close()
    assert outcome_of(found.reads) is StandbyOutcome.PAUSED
    with servers.primary.admin(name) as admin:
        assert admin.execute("SELECT count(*) FROM memoryd.replicas").fetchone() == (0,)


def test_a_promoted_standby_is_read_as_a_fresh_one():
    with (
        running_server() as primary,
        running_standby(primary) as standby,
        opened(f"{primary.url},{standby.folder}", standby.url) as found,
    ):
        fill(found.store, files=2)
        wait_until(lambda: revision_of(found.reads) is not None)
        standby.catch_up()
        primary.stop()
        standby.promote()
        wait_until(lambda: revision_of(found.reads, max_staleness=1.0) is not None)
        with found.store.read() as reader:
            revision = reader.revision
        assert revision_of(found.reads) == revision
