"""Many concurrent client processes: none is locked out, and the disk space they use is bounded."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from e2e.daemon_fixture import client, last_event, paths
from memoryd.client import MemorydError
from memoryd.messages import SEARCH_MODE_KEYWORD
from waiting import wait_until

pytestmark = pytest.mark.faults

CLIENTS = 8
MOST_LOG_BYTES = 64 * 1024 * 1024
MOST_GROWTH_BYTES = 50 * 1024 * 1024
BUSY_CLIENT = Path(__file__).with_name("busy_client.py")
# docs/demand.md says a minute.
SECONDS = 60


def log_bytes(daemons):
    log = daemons.index.with_name(f"{daemons.index.name}-wal")
    return log.stat().st_size if log.exists() else 0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_eight_processes_that_search_sync_and_write_meet_no_lock(daemons):
    for number in range(200):
        daemons.write(f"memory/note-{number}.md", f"the heron number{number}x stands in the reeds\n")
    served = daemons.start()
    with client(served) as connection:
        last_event(connection)
        running = [
            subprocess.Popen(
                [sys.executable, str(BUSY_CLIENT), served.address, str(daemons.workspace), str(number), str(SECONDS)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(CLIENTS)
        ]
        told = [json.loads(process.communicate(timeout=SECONDS + 120)[0]) for process in running]
        assert [process.returncode for process in running] == [0] * CLIENTS
        assert [each["errors"] for each in told] == [[]] * CLIENTS
        assert all(each["searches"] and each["syncs"] and each["writes"] for each in told), told
        # What each of them wrote last is in the index, and all that was appended stands once.
        last_event(connection)
        for number, each in enumerate(told):
            assert paths(connection, f"writer{number}at{each['writes'] - 1}x") == [f"memory/of-{number}.md"]
        assert len((daemons.memory / "shared.md").read_text().splitlines()) == sum(each["appends"] for each in told)
    assert log_bytes(daemons) <= MOST_LOG_BYTES
    assert served.process.poll() is None
    log = daemons.log.read_text()
    assert "locked" not in log
    assert "busy" not in log.lower()


def cancelled_streams(connection, count):
    """Begins and gives up streams of both kinds, each after its first message or without any."""
    for number in range(count):
        stream = connection.watch() if number % 2 else connection.sync()
        if number % 3:
            next(iter(stream))
        stream.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_streams_that_are_given_up_leave_nothing(daemons):
    daemons.write("memory/a.md", "the heron\n")
    served = daemons.start()
    daemon = psutil.Process(served.process.pid)
    with client(served) as connection:
        last_event(connection)
        cancelled_streams(connection, 1_000)
        before, descriptors, threads = daemon.memory_info().rss, daemon.num_fds(), daemon.num_threads()
        cancelled_streams(connection, 10_000)
        wait_until(lambda: not connection.status().active_sync.sync_id)
        assert daemon.memory_info().rss - before < MOST_GROWTH_BYTES
        assert daemon.num_fds() <= descriptors + 8
        assert daemon.num_threads() <= threads + 8
        assert paths(connection, "heron") == ["memory/a.md"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stalled_reader_slows_no_other_client(daemons):
    """Its streams' events are bounded, the latest of them wins, and syncs go on beside it."""
    daemons.configure(debounce_ms=50, filesPerTransaction=1)
    for number in range(400):
        daemons.write(f"memory/note-{number}.md", f"the heron number{number}x\n")
    served = daemons.start()
    daemon = psutil.Process(served.process.pid)
    with client(served) as stalled, client(served) as connection:
        last_event(connection)
        watching, following = iter(stalled.watch()), iter(stalled.sync())
        next(watching)
        next(following)
        before, passes = daemon.memory_info().rss, 0
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            daemons.write("memory/changing.md", f"the kestrel at{passes}x hovers\n")
            began = time.monotonic()
            assert last_event(connection).failed_files == 0
            assert time.monotonic() - began < 20
            assert paths(connection, f"at{passes}x") == ["memory/changing.md"]
            passes += 1
        assert passes > 3
        assert daemon.memory_info().rss - before < MOST_GROWTH_BYTES
        # It hears of the present and not of each state since it stalled, and its run has ended as it should.
        *_, last = following
        assert last.completed.failed_files == 0
        revision = connection.status().index.revision
        seen = 0
        for state in watching:
            seen += 1
            if state.index_revision >= revision:
                break
        assert seen <= 12 * passes


@pytest.mark.slow
def test_a_client_that_never_ends_its_call_holds_no_other_up(daemons):
    daemons.write("memory/a.md", "the heron\n")
    served = daemons.start()
    with client(served) as patient, client(served) as connection:
        last_event(connection)
        revision = connection.status().index.revision
        failures = []

        def wait():
            try:
                patient.search(query="heron", mode=SEARCH_MODE_KEYWORD, min_revision=revision + 10**9, timeout=4)
            except MemorydError as error:
                failures.append(error.reason)

        threads = [threading.Thread(target=wait) for _ in range(32)]
        for thread in threads:
            thread.start()
        assert paths(connection, "heron") == ["memory/a.md"]
        for thread in threads:
            thread.join()
    assert set(failures) == {"REVISION_NOT_REACHED"}
