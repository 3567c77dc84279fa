"""Callers store transcripts in PostgreSQL while their daemon is killed repeatedly: each record occurs once."""

import threading
import time

import pytest
from grpc import StatusCode

from daemon_process import end
from e2e.crash_fixture import kill, points
from e2e.daemon_fixture import client, last_event
from memoryd.client import MemorydError, connect
from postgres_server import missing, postgres_server  # noqa: F401 -- a fixture
from transcript_fixture import user
from waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.faults,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

SESSIONS = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
KILLS = 4
SEED = 7
PATIENCE_SECONDS = 120


class Caller(threading.Thread):
    """Appends records until `stop`. A call that gets no answer is repeated with the same number of records."""

    def __init__(self, address, session):
        super().__init__(daemon=True)
        self._address, self._session = address, session
        self._stopped = threading.Event()
        self.stored = 0
        self.error = None

    def run(self):
        try:
            while not self._stopped.is_set():
                # Some calls have one record, and some have many.
                count = 40 if self.stored % 7 == 3 else 1
                answer = self._append(count)
                assert answer.records == self.stored + count
                self.stored = answer.records
        except BaseException as error:
            self.error = error
            raise

    def _append(self, count):
        records = [record_of(self._session, self.stored + number) for number in range(count)]
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                # A connection of its own each time: an old one would wait before it dials again.
                with connect(self._address, timeout=20.0) as connection:
                    return connection.session_append(
                        session_id=self._session, records=records, expected_records=self.stored
                    )
            except MemorydError as error:
                if time.monotonic() > until or error.code not in {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED}:
                    raise
                self._stopped.wait(0.02)

    def has_more_than(self, records):
        assert self.error is None
        return self.stored > records

    def stop(self):
        self._stopped.set()
        self.join(PATIENCE_SECONDS)
        assert self.error is None
        assert not self.is_alive()


def record_of(session, number):
    return user(f"{session} has record {number}").removesuffix("\n")


def stored_text(connection, session):
    """Every line of a transcript as memoryd shows it."""
    lines, line = [], 1
    while line:
        page = connection.get(path=f"sessions/{session}.jsonl", start_line=line, line_count=2_000)
        lines += page.text.split("\n")
        line = page.next_start_line
    return lines


def test_every_record_of_two_callers_occurs_once_and_in_order(daemons, postgres_server):  # noqa: F811 -- the fixture
    url = postgres_server.create_database("session_append_kills")
    daemons.configure(search=SESSIONS, store={"url": url})
    served = daemons.start()
    callers = [Caller(served.address, session) for session in ("one", "two")]
    for caller in callers:
        caller.start()
    for seconds in points(KILLS, 0.3, SEED):
        # Each caller stores something between two kills.
        before = [caller.stored for caller in callers]
        wait_until(lambda before=before: all(map(Caller.has_more_than, callers, before)))
        kill(served, seconds)
        served = daemons.start()
    for caller in callers:
        caller.stop()
    with client(served) as connection:
        assert last_event(connection).failed_files == 0
        for caller, session in zip(callers, ("one", "two"), strict=True):
            expected = [f"User: {session} has record {number}" for number in range(caller.stored)]
            assert stored_text(connection, session) == expected
    end(served.process)
