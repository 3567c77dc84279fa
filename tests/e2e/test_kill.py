"""`kill -9` at any moment loses nothing, doubles nothing and leaves nothing lying about."""

import contextlib
import random
import signal
import time

import pytest

from daemon_process import end
from e2e.daemon_fixture import SearchLoop, client, last_event, paths
from memoryd.client import MemorydError
from memoryd.v1.sync_event_pb2 import SYNC_MODE_FULL
from waiting import wait_until

pytestmark = pytest.mark.faults

FILES = 3000


def fill(daemons, count=FILES):
    for number in range(count):
        daemons.write(
            f"memory/{number % 30:02}/note-{number}.md", f"# Note {number}\n\nheron number{number}x in the reeds\n"
        )


def check_whole(daemons, count):
    verdict, found, chunks, keyword, others = daemons.contents()
    assert verdict == "ok"
    assert len(found) == len(set(found)) == count
    assert chunks == keyword == count
    assert others == set()


def kill_after(daemons, seconds, query="heron"):
    """Starts a daemon, searches without rest, kills it; returns the searches that failed before."""
    served = daemons.start()
    with SearchLoop(served, query) as searches:
        time.sleep(seconds)
        # Errors from here on are the kill's own.
        errors = list(searches.errors)
        end(served.process, signal.SIGKILL)
    return errors


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.all_kills)])
def test_a_first_index_killed_ten_times_is_finished_by_the_next_run(daemons, seed):
    fill(daemons)
    chance = random.Random(seed)
    for _ in range(10):
        assert kill_after(daemons, chance.uniform(0.0, 0.4)) == []
    served = daemons.start()
    with client(served) as connection, SearchLoop(served, "number2999x") as searches:
        done = last_event(connection)
        assert done.failed_files == 0
        assert paths(connection, "number2999x")[0] == "memory/29/note-2999.md"
    assert searches.errors == []
    assert end(served.process) == 0
    check_whole(daemons, FILES)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rebuild_killed_at_any_moment_leaves_the_old_index_answering(daemons):
    fill(daemons, 1500)
    served = daemons.start()
    with client(served) as connection:
        last_event(connection)
    end(served.process)
    chance = random.Random(7)
    for _ in range(8):
        served = daemons.start()
        with client(served) as connection:
            # The first sync must not be under way, or the rebuild is refused.
            wait_until(lambda c=connection: not c.status().active_sync.sync_id)
            revision = connection.status().index.revision
            stream = connection.sync(mode=SYNC_MODE_FULL)
            next(iter(stream))
            with SearchLoop(served, "number1499x") as searches:
                time.sleep(chance.uniform(0.0, 0.7))
                errors, answers = list(searches.errors), list(searches.answers)
                end(served.process, signal.SIGKILL)
            assert errors == []
            assert 0 not in answers
            # A rebuild that was quicker than the kill has ended by itself.
            with contextlib.suppress(MemorydError):
                list(stream)
    served = daemons.start()
    with client(served) as connection:
        assert paths(connection, "number1499x")
        last_event(connection)
        assert connection.status().index.revision >= revision
    end(served.process)
    check_whole(daemons, 1500)


@pytest.mark.slow
def test_an_index_of_few_files_survives_a_kill_right_after_its_sync(daemons):
    fill(daemons, 50)
    served = daemons.start()
    with client(served) as connection:
        assert last_event(connection).failed_files == 0
    end(served.process, signal.SIGKILL)
    served = daemons.start()
    with client(served) as connection:
        assert paths(connection, "number49x") == ["memory/19/note-49.md"]
    end(served.process)
    check_whole(daemons, 50)


@pytest.mark.slow
def test_a_second_daemon_is_refused_and_the_first_serves_on(daemons):
    served = daemons.start()
    with pytest.raises(AssertionError, match=rf"process {served.process.pid}\b"):
        daemons.start()
    with client(served) as connection:
        assert connection.status().agent_id == "main"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sigterm_in_the_middle_of_a_sync_exits_in_time_and_the_next_start_goes_on(daemons):
    files = 3 * FILES
    fill(daemons, files)
    served = daemons.start()
    time.sleep(0.15)
    began = time.monotonic()
    assert end(served.process, signal.SIGTERM) == 0
    assert time.monotonic() - began < 5
    verdict, found, *_ = daemons.contents()
    assert verdict == "ok"
    assert len(found) < files, "it was not in the middle: give it more files"
    served = daemons.start()
    with client(served) as connection:
        done = last_event(connection)
        assert done.failed_files == 0
        assert done.indexed_files <= files - len(found)
    end(served.process)
    check_whole(daemons, files)
