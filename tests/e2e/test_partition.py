"""The network between a replica and its database fails: it answers with errors, and another replica takes over."""

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from grpc import StatusCode

from e2e.network_fixture import DATABASE_ADDRESS, Network, network
from e2e.replica_fixture import ReplicaFixture, hits
from e2e.store_checks import check_index, check_writes, print_report
from e2e.store_workers import TEMPORARY, Finder, wait_for_progress, working
from memoryd.client import MemorydError
from memoryd.messages import SEARCH_MODE_KEYWORD
from postgres_server import ROLE, missing, running_server
from waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

CUT_OFF, CONNECTED = 0, 1
CALL_SECONDS = 4.0
LATE_SECONDS = 2.0
"""How much later than its deadline a call may end on a busy machine."""
TAKEOVER_SECONDS = 20
RECOVERY_SECONDS = 60


@contextmanager
def database_server(link):
    """A server in the namespace of the database, which also accepts connections from the other namespace."""
    # The user of the server cannot read the folder of the test.
    with tempfile.NamedTemporaryFile("w", prefix="hba-") as access:
        access.write("local all all trust\nhost all all samenet trust\n")
        access.flush()
        Path(access.name).chmod(0o644)
        settings = (f"listen_addresses={DATABASE_ADDRESS}", f"hba_file={access.name}")
        with running_server(durable=True, settings=settings, within=link.database_server()) as server:
            yield server


@pytest.mark.parametrize("cut", [Network.take_down, Network.lose_packets])
def test_a_replica_without_its_database_gives_no_wrong_answer_and_another_one_takes_over(daemons, cut):
    with network() as link, database_server(link) as server:
        replicas = ReplicaFixture(daemons, server.create_database("parted"), lambda: server.admin("parted"))
        replicas.import_notes(800)
        replicas.use(f"postgresql://{ROLE}@{DATABASE_ADDRESS}/parted")
        replicas.start(1, link.replica_side)
        replicas.start(1, link.database_side)
        with (
            replicas.client(CUT_OFF) as cut_off,
            replicas.client(CONNECTED, timeout=60.0) as connected,
            working(*replicas.addresses, timeout=CALL_SECONDS) as workers,
        ):
            before = connected.append(text="a falcon hunts", path="memory/bird.md")
            assert hits(cut_off, "falcon", before.index_revision)
            wait_for_progress(workers)
            rebuild = replicas.rebuild(CUT_OFF)
            cut(link)
            began = time.monotonic()
            seen = connected.get(path="memory/bird.md").content_sha256
            edit = connected.write(path="memory/bird.md", expected_sha256=seen, content="an osprey fishes\n")
            print(f"indexed through the other replica after {time.monotonic() - began:.1f} s")  # noqa: T201
            assert edit.HasField("index_revision")
            assert time.monotonic() - began < TAKEOVER_SECONDS
            check_errors(cut_off, edit.index_revision)
            wait_for_progress(workers)
            fence = replicas.rows("SELECT fence FROM agents")
            link.restore()
            restored = time.monotonic()
            wait_until(lambda: has_appended(cut_off), RECOVERY_SECONDS)
            print(f"written through the first replica {time.monotonic() - restored:.1f} s later")  # noqa: T201
            rebuild.join(60)
            # It reports an error, or has begun again with a new lease.
            assert rebuild.error is not None or replicas.rows("SELECT fence FROM agents") > fence
            wait_for_progress(workers)
        print_report(workers)
        # The index that the first replica had prepared has the old text.
        assert replicas.indexed("memory/bird.md") == ["an osprey fishes\n"]
        assert all(worker.found for worker in workers if isinstance(worker, Finder))
        check_writes(workers, replicas.rows, other_versions=[edit.version_id])
        for number in (CUT_OFF, CONNECTED):
            with replicas.client(number) as connection:
                assert hits(connection, "osprey", edit.index_revision)
                assert not hits(connection, "falcon")
        with replicas.client(CUT_OFF) as connection:
            check_index(connection, replicas.rows, workers)
        replicas.stop()


def check_errors(cut_off, revision):
    """Check that each kind of call fails in time, with an error that can be retried."""
    timeout = {"timeout": CALL_SECONDS}
    calls = [
        lambda: cut_off.search(query="osprey", mode=SEARCH_MODE_KEYWORD, **timeout),
        lambda: cut_off.search(query="falcon", mode=SEARCH_MODE_KEYWORD, min_revision=revision, **timeout),
        lambda: cut_off.get(path="memory/bird.md", **timeout),
        lambda: cut_off.append(text="a heron waits", path="memory/heron.md", idempotency_key="heron", **timeout),
        lambda: cut_off.write(path="memory/new.md", expected_sha256="", content="an egret\n", **timeout),
    ]
    for call in calls:
        began = time.monotonic()
        with pytest.raises(MemorydError) as found:
            call()
        assert time.monotonic() - began < CALL_SECONDS + LATE_SECONDS
        failure = found.value
        assert failure.code in TEMPORARY, failure
        assert failure.code == StatusCode.DEADLINE_EXCEEDED or failure.retry_after_seconds, failure


def has_appended(connection):
    try:
        answer = connection.append(text="a heron waits", path="memory/heron.md", idempotency_key="heron", timeout=20)
    except MemorydError as error:
        if error.code not in TEMPORARY:
            raise
        return False
    return answer.HasField("index_revision")
