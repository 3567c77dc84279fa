"""The daemon's side of reader processes, with programs that answer late, wrongly or never."""

import asyncio
import io
import json
import math
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from memoryd_server.agent.reader_handle import PendingSearch, ReaderLimits
from memoryd_server.agent.reader_index import MOST_CHANGED_VECTORS, ReaderIndex
from memoryd_server.agent.reader_processes import ReaderProcesses, SearchQueue
from memoryd_server.errors import IndexUnavailable
from memoryd_server.observe.log import make_log
from memoryd_server.readers import IndexOptions, Search
from memoryd_server.search import RankingConfig, SearchMode, SearchQuery
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.roots import Roots
from waiting import eventually

BEGINNING = """
import dataclasses, socket, sys
from memoryd_server.readers import *
from memoryd_server.search import NO_ANSWER
connection, decoder, received = socket.socket(fileno=int(sys.argv[1])), FrameDecoder(), []
connection.sendall(encode(Ready()))
"""
# Answers each search with the names of all messages so far.
RECORDING = """
while data := connection.recv(65536):
    for message in decoder.feed(data):
        received.append(type(message).__name__)
        if isinstance(message, Search):
            answer = dataclasses.replace(NO_ANSWER, backend=" ".join(received))
            connection.sendall(encode(Answer(message.number, answer)))
        elif isinstance(message, CloseIndex):
            connection.sendall(encode(IndexClosed(message.number)))
"""
SILENT = """
while connection.recv(65536):
    pass
"""
ONLY_ITS_FIRST_SEARCH_IS_LATE = """
import time
number = 0
while data := connection.recv(65536):
    for message in decoder.feed(data):
        if isinstance(message, Search):
            time.sleep(0 if number else 1)
            number += 1
            connection.sendall(encode(Answer(message.number, NO_ANSWER)))
"""
ENDS_AT_ITS_FIRST_SEARCH = """
connection.recv(65536)
"""
GARBAGE = """
connection.recv(65536)
connection.sendall(bytes([255]) * 64)
connection.recv(65536)
"""
FILE = (Path("/index.sqlite"), (1, 2))
QUICK = ReaderLimits(stall_seconds=0.2, late_seconds=0.4, grace_seconds=0.2, close_seconds=0.2)


def query(seconds=60.0):
    return SearchQuery(
        "heron", 6, None, False, (), SearchMode.KEYWORD, 700, False, None, deadline=time.monotonic() + seconds
    )


async def no_answer():
    return None


class Started:
    """Processes that run `program`, and an index for them."""

    def __init__(self, program, count=1, limits=QUICK):
        self._log = io.StringIO()
        command = [sys.executable, "-P", "-c", BEGINNING + program]
        self.processes = ReaderProcesses(count, make_log("info", "json", self._log), command=command, limits=limits)
        self.index = self.new_index("main")

    def new_index(self, key):
        options = IndexOptions(FILE[0], None, FolderCorpus(Roots("/w")), (), RankingConfig(), True, None, 1)
        index = ReaderIndex(self.processes, key, options)
        index.opened(*FILE)
        return index

    async def __aenter__(self):
        self.processes.start()
        await eventually(lambda: len(self.processes.pids) == self.processes.count)
        return self

    async def __aexit__(self, *_):
        await self.processes.stop()

    async def search(self, seconds=60.0, ranking=RankingConfig(), index=None, own=no_answer):  # noqa: B008 -- it is frozen
        """Return the answer of a process, or that of `own`, which is None by default."""
        index = index or self.index
        return await index.search(query(seconds), None, "", identity=None, ranking=ranking, own=own)

    def logged(self, event):
        return [line for line in map(json.loads, self._log.getvalue().splitlines()) if line["event"] == event]

    @property
    def outcomes(self):
        return {outcome: count for outcome, count in self.processes.measured().searches.items() if count}


async def test_messages_arrive_in_the_order_of_the_calls():
    async with Started(RECORDING) as started:
        ranking = RankingConfig()
        await started.search(ranking=ranking)
        await asyncio.to_thread(started.index.apply, {1: b""}, ())
        await started.search(ranking=ranking)
        await asyncio.to_thread(started.index.reset)
        await asyncio.to_thread(started.index.apply, {}, range(MOST_CHANGED_VECTORS + 1))
        await asyncio.to_thread(started.index.release_memory)
        await asyncio.to_thread(started.index.close)
        assert await started.search(ranking=ranking) is None
        # Nothing is sent about a closed index.
        await asyncio.to_thread(started.index.apply, {1: b""}, ())
        started.index.opened(*FILE)
        await started.search(ranking=ranking)
        answer = await started.search(ranking=RankingConfig(mmr=True))
    expected = (
        "OpenIndex Search VectorChanges Search ResetVectors ResetVectors ReleaseMemory CloseIndex OpenIndex Search"
    )
    assert answer.backend == f"{expected} OpenIndex Search"


async def test_a_change_on_another_thread_is_ahead_of_a_search_that_follows_it():
    async with Started(RECORDING) as started:
        ranking = RankingConfig()
        await started.search(ranking=ranking)
        for number in range(1, 50):
            # The event loop does nothing between the change and the search.
            started.index.apply({1: b""}, ())
            answer = await started.search(ranking=ranking)
            assert answer.backend == "OpenIndex Search" + " VectorChanges Search" * number


@pytest.mark.slow
async def test_a_process_that_does_not_answer_is_passed_over_and_killed_after_the_deadline():
    async with Started(SILENT) as started:
        pid = started.processes.pids[0]
        began = time.monotonic()
        assert await asyncio.gather(*(started.search(3.0) for _ in range(5))) == [None] * 5
        assert QUICK.stall_seconds <= time.monotonic() - began < 2.9
        assert not started.processes.is_available
        assert await started.search() is None
        await eventually(lambda: not psutil.pid_exists(pid))
        await eventually(lambda: started.processes.pids)
    assert started.outcomes == {"late": 2, "unavailable": 4}
    assert [each["ended_with"] for each in started.logged("restart-reader")] == ["signal SIGKILL"]


@pytest.mark.slow
async def test_the_daemon_searches_too_when_half_of_the_time_has_passed():
    async with Started(SILENT, limits=ReaderLimits(stall_seconds=0.2, late_seconds=60)) as started:
        began = time.monotonic()
        assert await started.search(6.0) is None
        assert 2.7 < time.monotonic() - began < 5.6
    assert started.outcomes == {"late": 1}


@pytest.mark.slow
async def test_a_process_that_is_late_may_answer_before_the_daemon():
    cancelled = asyncio.Event()

    async def own():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with Started(ONLY_ITS_FIRST_SEARCH_IS_LATE) as started:
        assert await started.search(own=own) is not None
        await cancelled.wait()
        assert started.outcomes == {"late": 1}


@pytest.mark.parametrize("program", [SILENT, ENDS_AT_ITS_FIRST_SEARCH], ids=["late", "ended"])
async def test_an_error_of_the_daemons_own_search_is_that_of_the_call(program):
    async def own():
        raise IndexUnavailable("of this test")

    async with Started(program) as started:
        with pytest.raises(IndexUnavailable, match="of this test"):
            await started.search(own=own)


async def test_a_caller_who_leaves_ends_the_daemons_own_search():
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def own():
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with Started(SILENT) as started:
        search = asyncio.ensure_future(started.search(own=own))
        await began.wait()
        search.cancel()
        await cancelled.wait()


async def test_a_search_ends_at_its_deadline():
    async with Started(SILENT, limits=ReaderLimits(stall_seconds=60, late_seconds=60)) as started:
        began = time.monotonic()
        assert await asyncio.gather(*(started.search(0.3) for _ in range(5))) == [None] * 5
        assert 0.3 <= time.monotonic() - began < 2
    assert started.outcomes == {"late": 5}


@pytest.mark.slow
async def test_a_process_that_answers_again_gets_searches_again():
    async with Started(ONLY_ITS_FIRST_SEARCH_IS_LATE) as started:
        assert await started.search() is None
        await eventually(lambda: started.processes.is_available)
        assert await started.search() is not None
    assert started.outcomes == {"answered": 1, "late": 1}
    assert started.logged("restart-reader") == []


async def test_an_index_is_closed_although_a_process_does_not_confirm_it():
    async with Started(SILENT) as started:
        pid = started.processes.pids[0]
        assert await started.search(0.1) is None
        await asyncio.to_thread(started.index.close)
        assert not psutil.pid_exists(pid)
        assert [each["pid"] for each in started.logged("kill-reader")] == [pid]


async def test_searches_that_wait_end_when_their_index_is_closed():
    async with Started(SILENT, limits=ReaderLimits(close_seconds=0.2)) as started:
        other = started.new_index("other")
        searches = [asyncio.ensure_future(started.search()) for _ in range(5)]
        waiting = asyncio.ensure_future(started.search(index=other))
        await asyncio.sleep(0)
        await asyncio.to_thread(started.index.close)
        # The killed process has ended the two that it had, and the others did not wait for another one.
        assert await asyncio.gather(*searches) == [None] * 5
        await asyncio.to_thread(other.close)
        assert await waiting is None


async def test_a_process_that_sends_something_else_is_replaced():
    async with Started(GARBAGE) as started:
        assert await started.search() is None
        await eventually(lambda: started.logged("restart-reader"))
    assert started.outcomes == {"ended": 1}


@pytest.mark.slow
async def test_a_process_that_ends_at_its_start_is_started_again_after_longer_and_longer_pauses():
    started = Started("raise ValueError('of this test')")
    started.processes.start()
    await eventually(lambda: len(started.logged("restart-reader")) == 3)
    await started.processes.stop()
    assert [each["pause_s"] for each in started.logged("restart-reader")] == [0, 1, 2]


@pytest.fixture
def no_temporary_files():
    folder = tempfile.gettempdir()
    tempfile.tempdir = "/no/such/folder"
    yield
    tempfile.tempdir = folder


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no files in memory")
@pytest.mark.usefixtures("no_temporary_files")
async def test_a_process_starts_without_a_folder_for_temporary_files():
    async with Started(RECORDING) as started:
        assert await started.search() is not None
    assert started.logged("restart-reader") == []


async def test_a_command_that_does_not_exist_is_reported():
    log = io.StringIO()
    processes = ReaderProcesses(1, make_log("info", "json", log), command=["/no/such/program"])
    processes.start()
    await eventually(lambda: "FileNotFoundError" in log.getvalue())
    await processes.stop()


@pytest.mark.slow
async def test_a_process_is_replaced_although_the_system_starts_no_thread_at_first():
    class Threads(ThreadPoolExecutor):
        def __init__(self):
            super().__init__()
            self.refuses = iter(())

        def submit(self, *work):
            if next(self.refuses, False):
                raise RuntimeError("no thread")
            return super().submit(*work)

    threads = Threads()
    asyncio.get_running_loop().set_default_executor(threads)
    async with Started(RECORDING) as started:
        # One thread waits for the end of the process, then one starts another.
        threads.refuses = iter([True, False, True])
        psutil.Process(started.processes.pids[0]).kill()
        await eventually(lambda: len(started.logged("restart-reader")) == 2)
        await eventually(lambda: started.processes.pids)
        assert await started.search() is not None
    ends = [each["ended_with"] for each in started.logged("restart-reader")]
    assert ends == ["signal SIGKILL", "RuntimeError: no thread"]


async def test_a_caller_who_leaves_takes_no_place():
    async with Started(RECORDING) as started:
        searches = [asyncio.ensure_future(started.search()) for _ in range(50)]
        await asyncio.sleep(0)
        for search in searches:
            search.cancel()
        assert await started.search() is not None
    assert started.outcomes == {"answered": 1}


async def test_indexes_take_turns():
    loop, waiting = asyncio.get_running_loop(), SearchQueue()
    for number, key in enumerate("aaabbc"):
        message = Search(number, key, query(math.inf))
        waiting.add(PendingSearch(None, message, loop.create_future()))
    order = []
    while waiting:
        order.append(waiting.take().message)
    assert "".join(each.key for each in order) == "abcaba"
    assert [each.number for each in order if each.key == "a"] == [0, 1, 2]


@pytest.mark.parametrize("when", ["before the start", "after the stop"])
async def test_an_index_can_be_closed_while_there_are_no_processes(when):
    started = Started(SILENT)
    if when == "after the stop":
        started.processes.start()
        await started.processes.stop()
    assert await started.search() is None
    await asyncio.to_thread(started.index.close)
    started.index.apply({1: b""}, ())
