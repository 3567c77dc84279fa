"""OpenClaw writes while its sessions are read: no write fails or waits, and every message is found."""

import hashlib
import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memoryd_server.sources.session_database import SessionDatabase, change_signature
from memoryd_server.sources.session_list import list_sessions
from memoryd_server.sources.session_reader import SessionReader
from memoryd_server.sources.transcripts import START
from openclaw_home import MAIN, OpenClawIndex, copy_home, path_of

TESTS = Path(__file__).parents[2]

# Writes messages until its input ends. Reports that it has begun, and at last the number of messages, and of writes
# that took more than 100 ms.
WRITER = """
import select, sys, time
sys.path.insert(0, sys.argv[1])
from openclaw_home import MAIN, HostWriter

count, late = 0, 0
with HostWriter(sys.argv[2]) as writer:
    while not select.select([sys.stdin], [], [], float(sys.argv[3]))[0]:
        began = time.perf_counter()
        writer.say(MAIN, f"Remark{count} on herons. " * 60, compressed=bool(count % 3))
        late += time.perf_counter() - began > 0.1
        count += 1
        if count == 10:
            print("writing", flush=True)
        if count % 50 == 0:
            writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
print(count, late)
"""


class WriterProcess:
    """A process that appends messages to the main session; a context manager. `stop` returns its measurements."""

    def __init__(self, database, pause=0.0):
        command = [sys.executable, "-c", WRITER, str(TESTS), str(database), str(pause)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        assert self._process.stdout.readline() == "writing\n"
        return self

    def stop(self):
        """Return the number of messages, and of late writes. Fails if a write has failed."""
        output, _ = self._process.communicate()
        assert self._process.returncode == 0
        count, late = map(int, output.split())
        return count, late

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def index(tmp_path):
    index = OpenClawIndex(tmp_path).open()
    yield index
    index.close()


def test_every_message_of_a_writer_beside_the_reader_is_found_and_no_write_fails(index):
    with WriterProcess(index.database) as writer:
        began = time.monotonic()
        syncs = 0
        while time.monotonic() - began < 1 or syncs < 3:
            index.sync()
            syncs += 1
        count, _ = writer.stop()
    assert count > 10
    index.sync()
    text = "\n".join(text for path, text, _ in index.chunks() if path == path_of(MAIN))
    missing = [number for number in range(count) if f"Remark{number} on herons" not in text]
    assert missing == []


@pytest.mark.slow
def test_reads_beside_a_writer_are_short_and_delay_no_write(index):
    longest = []
    with WriterProcess(index.database) as writer:
        began = time.monotonic()
        while time.monotonic() - began < 20:
            with SessionDatabase(str(index.database)) as database:
                list_sessions(database)
                longest.append(database.longest_seconds)
            database = SessionDatabase(str(index.database))
            with SessionReader(database, MAIN) as reader:
                for _ in reader.lines(START):
                    pass
                longest.append(database.longest_seconds)
        count, late_writes = writer.stop()
    assert count > 100
    late = [seconds for seconds in longest if seconds > 0.05]
    # The system may take the processor from a thread, and the disk may be slow. Readers would delay most writes.
    assert len(late) <= len(longest) // 100
    assert late_writes <= count // 200


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
