"""OpenClaw writes while its sessions are read: no write fails or waits for a lock, and every message is found."""

import hashlib
import itertools
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memoryd_server.sources.session_database import PAGE_BYTES, PAGE_ROWS, SessionDatabase, change_signature
from memoryd_server.sources.session_list import list_sessions
from memoryd_server.sources.session_reader import SessionReader
from memoryd_server.sources.transcripts import START
from openclaw_home import MAIN, HostWriter, OpenClawIndex, copy_home, path_of

TESTS = Path(__file__).parents[2]

# The longest time for which a read transaction may be open.
MOST_SECONDS = 0.05

OTHER = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
SESSION_KEYS = "SELECT session_key FROM session_nodes WHERE session_key > :after ORDER BY session_key"

# Writes messages until its input ends, and never waits for a lock: a write that another process blocks fails. Reports
# that it has begun, and at last the number of messages.
WRITER = """
import select, sys
sys.path.insert(0, sys.argv[1])
from openclaw_home import MAIN, HostWriter

count = 0
with HostWriter(sys.argv[2]) as writer:
    writer.execute("PRAGMA busy_timeout = 0")
    while not select.select([sys.stdin], [], [], 0)[0]:
        writer.say(MAIN, f"Remark{count} on herons. " * 60, compressed=bool(count % 3))
        count += 1
        if count == 10:
            print("writing", flush=True)
        if count % 50 == 0:
            writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
print(count)
"""


class WriterProcess:
    """A process that appends messages to the main session; a context manager."""

    def __init__(self, database):
        command = [sys.executable, "-c", WRITER, str(TESTS), str(database)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        assert self._process.stdout.readline() == "writing\n"
        return self

    def stop(self):
        """Return the number of messages. Fails if a write has failed, or would have waited for a lock."""
        output, _ = self._process.communicate()
        assert self._process.returncode == 0
        return int(output)

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def index(tmp_path):
    index = OpenClawIndex(tmp_path).open()
    yield index
    index.close()


@pytest.mark.slow
def test_every_message_of_a_writer_beside_the_reader_is_found_and_no_write_fails_or_waits_for_a_lock(index):
    with WriterProcess(index.database) as writer:
        began = time.monotonic()
        syncs = 0
        while time.monotonic() - began < 1 or syncs < 3:
            index.sync()
            syncs += 1
        count = writer.stop()
    assert count > 10
    index.sync()
    text = "\n".join(text for path, text, _ in index.chunks() if path == path_of(MAIN))
    missing = [number for number in range(count) if f"Remark{number} on herons" not in text]
    assert missing == []


def read_everything(database, **limits):
    """List the sessions and read the main one; return the closed connections. Their clock is the thread's CPU time."""
    used = []
    for read in (list_sessions, lambda opened: list(SessionReader(opened, MAIN).lines(START))):
        with SessionDatabase(str(database), monotonic=time.thread_time, **limits) as opened:
            read(opened)
            used.append(opened)
    return used


@pytest.mark.slow
def test_reads_beside_a_writer_are_short_and_block_no_write(index):
    with WriterProcess(index.database) as writer:
        began = time.monotonic()
        while time.monotonic() - began < 20:
            assert all(used.longest_seconds < MOST_SECONDS for used in read_everything(index.database))
        assert writer.stop() > 100


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A database with more sessions than a transaction has rows, and with 600 events of 24 KB in the main one."""
    database = copy_home(tmp_path_factory.mktemp("large"))
    with HostWriter(database) as writer:
        writer.execute("PRAGMA synchronous = OFF")
        for number in range(PAGE_ROWS + 100):
            writer.create(f"session-{number}", f"agent:main:webchat:direct:{number + 100}")
        for number in range(600):
            writer.say(MAIN, f"Remark{number} on herons. " * 1000)
    return database


@pytest.mark.slow
def test_each_transaction_stays_within_its_rows_bytes_and_processor_time(large):
    listed, read = read_everything(large)
    assert listed.most_rows <= PAGE_ROWS
    assert read.most_rows <= PAGE_ROWS
    # The last event of a transaction may exceed the bytes.
    assert read.most_bytes < PAGE_BYTES + (32 << 10)
    assert max(listed.longest_seconds, read.longest_seconds) < MOST_SECONDS


@pytest.mark.slow
def test_the_host_can_truncate_its_log_between_any_two_transactions(large):
    with HostWriter(large) as writer:
        writer.execute("PRAGMA busy_timeout = 0")

        def checkpoint():
            writer.say(OTHER, "Text in the write-ahead log.")
            busy, in_log, _ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert (busy, in_log) == (0, 0)

        writer.create(OTHER, "agent:main:webchat:direct:99")
        with SessionReader(SessionDatabase(str(large), page_rows=50), MAIN) as reader:
            for line in reader.lines(START):
                if line.after.lines % 25 == 0:
                    checkpoint()
        with SessionDatabase(str(large), page_rows=100) as opened:
            for _ in opened.pages(SESSION_KEYS, {}, ""):
                checkpoint()


def test_the_host_can_truncate_its_log_while_sessions_are_read(index):
    with index.writer() as writer, ThreadPoolExecutor(1) as thread:
        for number in range(20):
            reading = thread.submit(read_everything, index.database, page_rows=2)
            writer.say(MAIN, f"Remark {number} on weirs.")
            # The gateway waits up to 5 s for readers.
            assert writer.value("PRAGMA wal_checkpoint(TRUNCATE)") == 0
            reading.result()


@pytest.mark.parametrize("polls", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_polls_change_no_byte_of_the_database_and_take_little_time(tmp_path, polls):
    database = copy_home(tmp_path)
    before = hashlib.sha256(database.read_bytes()).digest()
    began = time.process_time()
    states = set()
    for _ in range(polls):
        states.add(change_signature(str(database)))
        with SessionDatabase(str(database)) as opened:
            list_sessions(opened)
    assert time.process_time() - began < polls * 0.02
    assert hashlib.sha256(database.read_bytes()).digest() == before
    # Only the first connection may create the files of the write-ahead log.
    assert len(states) <= 2


def test_syncs_at_any_moment_give_the_index_of_one_sync(tmp_path):
    often, once = OpenClawIndex(tmp_path / "often").open(), OpenClawIndex(tmp_path / "once").open()
    for index, every in ((often, 1), (once, 100)):
        with index.writer() as writer:
            ids = []
            for number, parent in enumerate(itertools.islice(itertools.cycle([True, True, -3, True, -2]), 30)):
                target = True if parent is True or not ids else ids[parent % len(ids)]
                ids.append(writer.say(MAIN, f"Remark {number} on weirs. " * 20, parent=target))
                if number % every == 0:
                    index.sync()
            index.sync()
    assert often.chunks() == once.chunks()
    often.close()
    once.close()
