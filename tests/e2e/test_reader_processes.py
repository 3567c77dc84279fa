"""Reader processes of `memoryd serve`: they end with the daemon, however it ends, and the index stays whole."""

import signal

import psutil
import pytest

from daemon_process import end
from e2e.daemon_fixture import SearchLoop, client, last_event, paths
from memoryd.v1.sync_event_pb2 import SYNC_MODE_FULL
from waiting import wait_until

MODULE = "memoryd_server.readers.process"


@pytest.fixture
def served(daemons):
    for number in range(50):
        daemons.write(f"memory/{number}.md", f"the heron number{number}x in the reeds")
    daemons.configure(readers=2)
    return daemons.start()


def readers(served):
    """Return the reader processes of a daemon."""
    return [each for each in psutil.Process(served.process.pid).children() if MODULE in each.cmdline()]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_daemon(daemons, served, number):
    wait_until(lambda: len(daemons.events("start-reader")) == 2)
    processes = readers(served)
    assert len(processes) == 2
    with client(served) as connection:
        last_event(connection)
        assert paths(connection, "number7x") == ["memory/7.md"]
    end(served.process, number)
    wait_until(lambda: not any(each.is_running() for each in processes))
    verdict, found, chunks, keyword, others = daemons.contents()
    assert (verdict, len(found), chunks, keyword, others) == ("ok", 50, 50, 50, set())


def test_reader_processes_ignore_the_signal_of_ctrl_c(daemons, served):
    wait_until(lambda: len(daemons.events("start-reader")) == 2)
    processes = readers(served)
    for each in processes:
        each.send_signal(signal.SIGINT)
    with client(served) as connection:
        last_event(connection)
        assert paths(connection, "number7x") == ["memory/7.md"]
    assert [each.pid for each in readers(served)] == [each.pid for each in processes]


@pytest.mark.slow
def test_rebuilds_during_searches_leave_a_whole_index(daemons, served):
    wait_until(lambda: len(daemons.events("start-reader")) == 2)
    with client(served) as connection, SearchLoop(served, "heron") as searches:
        for _ in range(10):
            assert last_event(connection, mode=SYNC_MODE_FULL).failed_files == 0
    assert searches.errors == []
    assert end(served.process) == 0
    verdict, found, chunks, keyword, others = daemons.contents()
    assert (verdict, len(found), chunks, keyword, others) == ("ok", 50, 50, 50, set())
