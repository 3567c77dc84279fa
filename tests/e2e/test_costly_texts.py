"""Text that is made to be costly holds up no call: the daemon indexes it in the time that its size explains.

Anyone who can send the agent a message writes into its transcripts.
"""

import threading

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from e2e.daemon_fixture import client, last_event
from transcript_fixture import assistant, user

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(300)]

SIZES = (64 * 1024, 2**20)
PLAIN = "The harbour crane lifts containers while gulls circle over pier seven. "
# Processor time, compared with plain text of the same size that is indexed by the same daemon.
MOST_TIMES_PLAIN = 5
MOST_MORE_SECONDS = 1.0
# No call takes so long unless the interpreter is held; a guard, not a measure.
PROBE_SECONDS = 20


def filled(piece, size):
    return piece * (size // len(piece))


TEXTS = {
    "heartbeats": lambda size: user(filled("HEARTBEAT.md ", size) + "xHEARTBEAT_OK"),
    "reply tags": lambda size: assistant(filled("[[reply_to:", size)),
    "blanks in a reply tag": lambda size: assistant("[[reply_to:" + filled(" ", size) + "x"),
    "blanks before a silent reply": lambda size: assistant("said" + filled(" ", size) + "NO_REPLY then"),
    "options of a command": lambda size: user("curl -u" + filled("=", size) + " x"),
}


@pytest.fixture
def served(daemons):
    search = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"], "provider": "none"}
    daemons.configure(watch=False, search=search)
    return daemons.start()


class Probe:
    """Asks for the health and the status of a daemon until its block ends; `failures` are calls without an answer."""

    def __init__(self, served):
        self.answers, self.failures = 0, []
        self._served = served
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with grpc.insecure_channel(self._served.address) as channel, client(self._served) as connection:
            health = health_pb2_grpc.HealthStub(channel)
            while not self._stop.wait(0.02):
                try:
                    health.Check(health_pb2.HealthCheckRequest(), timeout=PROBE_SECONDS)
                    connection.status(timeout=PROBE_SECONDS)
                    self.answers += 1
                except Exception as error:  # noqa: BLE001 -- whatever it is, it is no answer
                    self.failures.append(error)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def cost(daemons, served, connection, name, line):
    """Processor seconds that the daemon takes to index a new transcript."""
    folder = daemons.state / "agents" / "main" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    process = psutil.Process(served.process.pid)
    before = process.cpu_times()
    (folder / name).write_text(line)
    assert last_event(connection).failed_files == 0
    after = process.cpu_times()
    return after.user + after.system - before.user - before.system


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_costly_message_in_a_transcript_delays_no_call(daemons, served, name):
    with client(served) as connection:
        last_event(connection)
        for size in SIZES:
            plain = cost(daemons, served, connection, f"plain-{size}.jsonl", user(filled(PLAIN, size)))
            with Probe(served) as probe:
                costly = cost(daemons, served, connection, f"costly-{size}.jsonl", TEXTS[name](size))
            assert probe.failures == []
            assert costly < MOST_TIMES_PLAIN * plain + MOST_MORE_SECONDS, (size, costly, plain, probe.answers)
