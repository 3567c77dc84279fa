"""A probe is answered at once whatever else is under way: nothing that takes long is done on the event loop.

Compared with the same daemon at rest, and with an idle daemon that is probed in turn with it: on a slow machine, or one
that other programs use, both take longer.
"""

import statistics
import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from e2e.daemon_fixture import DaemonFixture, client, last_event
from memoryd.client import MemorydError
from memoryd.v1.sync_event_pb2 import SYNC_MODE_FULL

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

FILES = 3_000
MOST_SECONDS = 0.1
MOST_TIMES_AT_REST = 10
CHECKS = 300


@pytest.fixture
def served(daemons):
    for number in range(FILES):
        body = f"The heron number{number}x stands in the reeds.\n" * 40
        daemons.write(f"memory/{number % 30:02}/note-{number}.md", f"# Note {number}\n\n{body}")
    daemons.write("memory/long.md", "the kestrel hovers over the field\n" * 200_000)
    return daemons.start()


@pytest.fixture
def idle(tmp_path):
    """A daemon that nothing else calls."""
    daemons = DaemonFixture(tmp_path / "idle")
    yield daemons.start()
    daemons.close()


@pytest.fixture
def probes(served, idle):
    with grpc.insecure_channel(served.address) as channel, grpc.insecure_channel(idle.address) as other:
        yield health_pb2_grpc.HealthStub(channel), health_pb2_grpc.HealthStub(other)


def latencies(probes, goes_on):
    """How long the probes of each daemon took, with pauses, as long as `goes_on` says so."""
    found = [[] for _ in probes]
    while goes_on(len(found[0])):
        for probe, times in zip(probes, found, strict=True):
            began = time.monotonic()
            answer = probe.Check(health_pb2.HealthCheckRequest(), timeout=30)
            times.append(time.monotonic() - began)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        time.sleep(0.003)
    return found


def high(times):
    """The 95th percentile: where the machine is shared, a few of some hundred wait for other programs."""
    return statistics.quantiles(times, n=20)[18]


def rebuild(connection):
    assert last_event(connection, mode=SYNC_MODE_FULL).failed_files == 0


def read_much(connection):
    for _ in range(150):
        assert connection.get(path="memory/long.md", line_count=2_000).text


def search_much(connection):
    for number in range(400):
        assert connection.search(query=f"heron reeds number{number}x", max_results=50, max_snippet_chars=4_000).results


def write_much(connection):
    for number in range(20):
        connection.append(text="the stork\n" * 20_000, path=f"memory/new-{number}.md", timeout=60)


@pytest.mark.parametrize("work", [rebuild, read_much, search_much, write_much])
def test_a_probe_is_answered_at_once_during(served, probes, work):
    with client(served) as connection:
        last_event(connection)
        failures = []

        def run():
            try:
                work(connection)
            except (MemorydError, AssertionError) as error:
                failures.append(error)

        # At rest before and after: other programs come and go.
        before, _ = latencies(probes, lambda count: count < CHECKS)
        worker = threading.Thread(target=run)
        worker.start()
        during, idle = latencies(probes, lambda count: worker.is_alive() or count < 10)
        worker.join()
        after, _ = latencies(probes, lambda count: count < CHECKS)
    assert failures == []
    at_rest = max(high(before), high(after), high(idle))
    assert high(during) < max(MOST_SECONDS, MOST_TIMES_AT_REST * at_rest), (high(during), at_rest, len(during))
