"""`kill -9` at any moment loses nothing, doubles nothing and leaves nothing lying about."""

import contextlib
import random
import signal
import time

import pytest

from e2e.town import Questioner, client, eventually, last_event, paths
from memoryd.client import MemorydError
from memoryd.v1.sync_event_pb2 import SYNC_MODE_FULL
from serving import end

pytestmark = pytest.mark.faults

FILES = 3000


def fill(town, count=FILES):
    for number in range(count):
        town.write(
            f"memory/{number % 30:02}/note-{number}.md", f"# Note {number}\n\nheron number{number}x in the reeds\n"
        )


def check_whole(town, count):
    verdict, found, chunks, keyword, others = town.contents()
    assert verdict == "ok"
    assert len(found) == len(set(found)) == count
    assert chunks == keyword == count
    assert others == set()


def kill_after(town, seconds, query="heron"):
    """Starts a daemon, searches without rest, kills it; returns the searches that failed before."""
    served = town.start()
    with Questioner(served, query) as questioner:
        time.sleep(seconds)
        # Errors from here on are the kill's own.
        errors = list(questioner.errors)
        end(served.process, signal.SIGKILL)
    return errors


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2))
def test_a_first_index_killed_ten_times_is_finished_by_the_next_run(town, seed):
    fill(town)
    chance = random.Random(seed)
    for _ in range(10):
        assert kill_after(town, chance.uniform(0.0, 0.4)) == []
    served = town.start()
    with client(served) as connection, Questioner(served, "number2999x") as questioner:
        done = last_event(connection)
        assert done.failed_files == 0
        assert paths(connection, "number2999x")[0] == "memory/29/note-2999.md"
    assert questioner.errors == []
    assert end(served.process) == 0
    check_whole(town, FILES)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rebuild_killed_at_any_moment_leaves_the_old_index_answering(town):
    fill(town, 1500)
    served = town.start()
    with client(served) as connection:
        last_event(connection)
    end(served.process)
    chance = random.Random(7)
    for _ in range(8):
        served = town.start()
        with client(served) as connection:
            # The first sync must not be under way, or the rebuild is refused.
            eventually(lambda c=connection: not c.status().active_sync.sync_id)
            revision = connection.status().index.revision
            stream = connection.sync(mode=SYNC_MODE_FULL)
            next(iter(stream))
            with Questioner(served, "number1499x") as questioner:
                time.sleep(chance.uniform(0.0, 0.7))
                errors, answers = list(questioner.errors), list(questioner.answers)
                end(served.process, signal.SIGKILL)
            assert errors == []
            assert 0 not in answers
            # A rebuild that was quicker than the kill has ended by itself.
            with contextlib.suppress(MemorydError):
                list(stream)
    served = town.start()
    with client(served) as connection:
        assert paths(connection, "number1499x")
        last_event(connection)
        assert connection.status().index.revision >= revision
    end(served.process)
    check_whole(town, 1500)


def test_an_index_of_few_files_survives_a_kill_right_after_its_sync(town):
    fill(town, 50)
    served = town.start()
    with client(served) as connection:
        assert last_event(connection).failed_files == 0
    end(served.process, signal.SIGKILL)
    served = town.start()
    with client(served) as connection:
        assert paths(connection, "number49x") == ["memory/19/note-49.md"]
    end(served.process)
    check_whole(town, 50)


@pytest.mark.slow
def test_a_second_daemon_is_refused_and_the_first_serves_on(town):
    served = town.start()
    with pytest.raises(AssertionError, match=rf"process {served.process.pid}\b"):
        town.start()
    with client(served) as connection:
        assert connection.status().agent_id == "main"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sigterm_in_the_middle_of_a_sync_exits_in_time_and_the_next_start_goes_on(town):
    fill(town)
    served = town.start()
    time.sleep(0.15)
    began = time.monotonic()
    assert end(served.process, signal.SIGTERM) == 0
    assert time.monotonic() - began < 5
    verdict, found, *_ = town.contents()
    assert verdict == "ok"
    assert len(found) < FILES, "it was not in the middle: give it more files"
    served = town.start()
    with client(served) as connection:
        done = last_event(connection)
        assert done.failed_files == 0
        assert done.indexed_files <= FILES - len(found)
    end(served.process)
    check_whole(town, FILES)
