"""Thousands of connections that say nothing, half a sentence, or go on slowly: whoever is connected is served on.

They come over TCP, where nobody has shown a token yet. What they hold is bounded, and given back when they are gone.
"""

import contextlib
import resource
import socket
import time

import psutil
import pytest

from daemon_process import serving_heron
from memoryd.client import connect
from waiting import wait_until

pytestmark = pytest.mark.attacks

MOST_GROWTH_BYTES = 300 * 1024 * 1024
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
# The beginning of a HEADERS frame of stream 1 that promises 16 KiB, without the end of the headers.
HALF_HEADERS = bytes([0, 0x40, 0, 1, 0, 0, 0, 0, 1]) + b"\x82\x86"
SENT = {
    "nothing": b"",
    "half a greeting": PREFACE[:10],
    "a greeting": PREFACE + SETTINGS,
    "half a request": PREFACE + SETTINGS + HALF_HEADERS,
    "no HTTP/2": b"GET / HTTP/1.1\r\nHost: x\r\n",
}
COUNTS = [500, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(400)])]


@pytest.fixture
def served(tmp_path):
    with serving_heron(tmp_path) as served:
        yield served


@pytest.fixture
def room():
    """As many descriptors as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def flood(address, count, data):
    """So many connections on which `data` was sent, as far as the other side let it."""
    host, _, port = address.rpartition(":")
    opened = []
    try:
        for _ in range(count):
            made = socket.socket()
            opened.append(made)
            made.setblocking(False)
            made.connect_ex((host, int(port)))
        for made in opened:
            made.settimeout(5)
            with contextlib.suppress(OSError):
                made.sendall(data)
        yield opened
    finally:
        for made in opened:
            made.close()


def answers(client):
    began = time.monotonic()
    assert [hit.path for hit in client.search(query="heron", timeout=20).results] == ["memory/a.md"]
    return time.monotonic() - began


def addresses(served):
    tcp, unix = served.address.split(", ")
    return tcp, unix


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("what", SENT)
def test_existing_connections_are_served_while_thousands_connect(served, room, what, count):
    if room < count + 2_000:
        pytest.skip(f"only {room} descriptors are allowed")
    tcp, unix = addresses(served)
    token = (served.state / "memoryd.token").read_text().split()[0]
    daemon = psutil.Process(served.process.pid)
    with connect(tcp, token) as there, connect(unix) as owner:
        answers(there), answers(owner)
        rss, descriptors = daemon.memory_info().rss, daemon.num_fds()
        with flood(tcp, count, SENT[what]):
            for _ in range(10):
                assert max(answers(there), answers(owner)) < 10
            # Another one of the owner's still gets in: the socket is no part of it.
            with connect(unix) as another:
                answers(another)
            assert daemon.num_fds() - descriptors < 2_000
            assert daemon.memory_info().rss - rss < MOST_GROWTH_BYTES
        wait_until(lambda: daemon.num_fds() <= descriptors + 16)
        with connect(tcp, token) as another:
            wait_until(lambda: answers_in_time(another))
        answers(there)
    assert served.process.poll() is None


def answers_in_time(client):
    """Whether one that comes when all are gone is let in; its first tries may still have been refused."""
    try:
        return answers(client)
    except Exception:  # noqa: BLE001 -- asked again
        return False


@pytest.mark.slow
def test_a_greeting_that_never_ends_is_hung_up_on(served):
    tcp, _ = addresses(served)
    with flood(tcp, 20, b"") as opened:
        began = time.monotonic()
        open_ones = set(opened)
        while open_ones and time.monotonic() - began < 40:
            for made in list(open_ones):
                # A byte of the greeting each second, as long as somebody takes it.
                at = int(time.monotonic() - began)
                made.settimeout(0.01)
                try:
                    made.send(PREFACE[at % len(PREFACE) : at % len(PREFACE) + 1])
                    if made.recv(100) == b"":
                        open_ones.discard(made)
                except TimeoutError:
                    pass
                except OSError:
                    open_ones.discard(made)
            time.sleep(1)
        assert not open_ones, f"{len(open_ones)} were held for {time.monotonic() - began:.0f} s"
