"""Clients that begin calls and then send or read nothing: other calls are served, and no shutdown waits for them."""

import signal
import subprocess
import time

import psutil
import pytest

from daemon_process import serving_heron
from memoryd.client import connect
from memoryd.v1 import memory_service_pb2 as pb
from raw_http2 import DATA, RawConnection

pytestmark = pytest.mark.attacks

GET = "/memoryd.v1.MemoryService/MemoryGet"
SEARCH = "/memoryd.v1.MemoryService/MemorySearch"
LIST_AGENTS = "/memoryd.v1.MemoryService/ListAgents"
WATCH_INDEX = "/memoryd.v1.MemoryService/WatchIndex"
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
EMPTY = b""
# The grace of the daemon is 2 s; a process that takes this long waits for a client.
STOP_SECONDS = 12


@pytest.fixture
def served(tmp_path):
    with serving_heron(tmp_path, "{memoryd: {limits: {shutdownGraceSeconds: 2}}}") as served:
        yield served


@pytest.fixture
def tcp(served):
    return served.address.split(", ")[0]


@pytest.fixture
def unix(served):
    return served.address.split(", ")[1]


@pytest.fixture
def token(served):
    return (served.state / "memoryd.token").read_text().split()[0]


def check_answers(address, token=None):
    with connect(address, token) if token else connect(address) as client:
        assert [hit.path for hit in client.search(query="heron", timeout=10).results] == ["memory/a.md"]


def check_stops(served):
    began = time.monotonic()
    served.process.send_signal(signal.SIGTERM)
    try:
        assert served.process.wait(timeout=STOP_SECONDS) == 0
    except subprocess.TimeoutExpired:
        pytest.fail(f"the daemon still runs {time.monotonic() - began:.0f} s after SIGTERM")


@pytest.mark.slow
def test_headers_without_requests_from_tcp_leave_the_socket_and_other_tokens_served(served, tcp, unix, token):
    check_answers(unix)
    connections = [RawConnection(tcp) for _ in range(3)]
    try:
        for connection in connections:
            # gRPC refuses what comes faster than it is accepted, so the calls are begun a few at a time.
            for _ in range(41):
                connection.open_many(SEARCH, 100)
                connection.read(0.05)
        for connection in connections:
            connection.read(0.5)
            check_answers(unix)
            check_answers(tcp, token)
    finally:
        for connection in connections:
            connection.close()
    check_stops(served)


@pytest.mark.slow
def test_call_without_a_token_ends_at_its_headers(tcp):
    with RawConnection(tcp) as connection:
        streams = connection.open_many(SEARCH, 50)
        assert connection.read_until(lambda: connection.ended >= {*streams}), "no request was sent, and none is needed"


@pytest.mark.slow
def test_calls_whose_requests_do_not_come_end(tcp, token):
    with RawConnection(tcp) as connection:
        streams = {
            connection.open(method, token) for method in (SEARCH, LIST_AGENTS, WATCH_INDEX, HEALTH_WATCH, REFLECTION)
        }
        connection.read(1)
        assert not connection.ended
        assert connection.read_until(lambda: connection.ended == streams)


@pytest.mark.slow
def test_requests_that_do_not_come_take_only_the_places_of_their_token(served, tcp, unix, token):
    other = served.memoryd("token", "new", "--name", "other").stdout.split()[0]
    with RawConnection(tcp) as connection:
        connection.open_many(SEARCH, 200, token)
        connection.read(1)
        check_answers(unix)
        check_answers(tcp, other)
        assert connection.read_until(lambda: len(connection.ended) == 200)
        check_answers(tcp, token)


@pytest.mark.slow
def test_health_watch_that_reads_nothing_keeps_no_shutdown_and_no_other_watch_waiting(served, tcp, unix, token):
    with RawConnection(tcp, window=0) as stalled, RawConnection(unix, window=0) as owner, RawConnection(tcp) as reading:
        stalled.open(HEALTH_WATCH, token, EMPTY)
        owner.open(HEALTH_WATCH, None, EMPTY)
        stalled.read(0.5)
        stream = reading.open(HEALTH_WATCH, token, EMPTY)
        assert reading.read_until(lambda: messages(reading, stream) == [b"\x08\x01"])
        served.process.send_signal(signal.SIGTERM)
        assert reading.read_until(lambda: messages(reading, stream) == [b"\x08\x01", b"\x08\x02"])
        assert served.process.wait(timeout=STOP_SECONDS) == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", [SEARCH, WATCH_INDEX])
def test_reply_that_is_not_read_keeps_no_shutdown_waiting(served, tcp, unix, token, method):
    request = pb.MemorySearchRequest(query="heron").SerializeToString() if method == SEARCH else EMPTY
    with RawConnection(tcp, window=0) as stalled, RawConnection(unix, window=0) as owner:
        stalled.open_many(method, 20, token, request)
        owner.open_many(method, 20, None, request)
        stalled.read(1)
        owner.read(0.2)
        check_answers(unix)
        check_answers(tcp, token)
        check_stops(served)


@pytest.mark.slow
def test_unread_replies_of_one_token_hold_little_memory(served, tcp, unix, token):
    (served.workspace / "memory" / "long.md").write_text(("the kestrel hovers over us " * 40 + "\n") * 240)
    other = served.memoryd("token", "new", "--name", "other").stdout.split()[0]
    request = pb.MemoryGetRequest(path="memory/long.md", line_count=240).SerializeToString()
    daemon = psutil.Process(served.process.pid)
    with connect(tcp, token) as client:
        assert len(client.get(path="memory/long.md", line_count=240).text) > 250_000
    before = daemon.memory_info().rss
    with RawConnection(tcp, window=0) as first, RawConnection(tcp, window=0) as second:
        for connection in (first, second):
            # The token's rate allows a burst of 1,000 calls, and 640 calls fit on a connection.
            for _ in range(4):
                connection.open_many(GET, 100, token, request)
                connection.read(0.5)
        # All but the 64 calls that a token may have at once are refused.
        assert first.read_until(lambda: len(first.ended) >= 400 - 64)
        assert second.read_until(lambda: len(first.ended) + len(second.ended) >= 800 - 64)
        grown = daemon.memory_info().rss - before
        assert grown < 100 * 2**20, f"{grown / 2**20:.0f} MiB"
        check_answers(unix)
        check_answers(tcp, other)
    check_stops(served)


def messages(connection, stream):
    """The protobuf messages of a stream, each of which came in one DATA frame of its own."""
    data = b"".join(payload for kind, payload in connection.received.get(stream, ()) if kind == DATA)
    found = []
    while data:
        size = int.from_bytes(data[1:5], "big")
        found.append(data[5 : 5 + size])
        data = data[5 + size :]
    return found
