"""Clients append while their daemon is killed repeatedly: each text occurs once, at the lines answered."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from daemon_process import end, environment
from e2e.appending_client import text_of
from e2e.crash_fixture import check_equal_to_fresh, found, kill, points
from e2e.daemon_fixture import client, last_event
from waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow]

CHILD = Path(__file__).with_name("appending_client.py")
LOG = "memory/log.md"
CLIENTS = 8
SEED = 5


def started(daemons, name, count):
    command = [sys.executable, CHILD, f"unix:{daemons.state}/m.sock", name, count]
    return subprocess.Popen(
        [str(part) for part in command], env=environment(daemons.home), stdout=subprocess.PIPE, text=True
    )


def answers(process):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize(
    ("kills", "each"), [(8, 20), pytest.param(20, 40, marks=[pytest.mark.all_kills, pytest.mark.timeout(900)])]
)
def test_every_text_of_eight_clients_occurs_once(daemons, tmp_path, kills, each):
    daemons.configure(watch=False)
    daemons.write(LOG, "# Log\n\nwhat was there before, without a newline")
    daemons.write("memory/other.md", "nobody writes here\n")
    before = (daemons.workspace / LOG).read_bytes()
    served = daemons.start()
    names = [f"client{number}" for number in range(CLIENTS)]
    clients = [started(daemons, name, each) for name in names]
    done = 0
    for seconds in points(kills, 0.2, SEED):
        # Somebody must have been served between two kills, and something be left to do, or this would say little.
        wait_until(lambda seen=done: (daemons.workspace / LOG).stat().st_size > len(before) + seen)
        assert any(process.poll() is None for process in clients), "too soon done: give them more texts"
        kill(served, seconds)
        done = (daemons.workspace / LOG).stat().st_size - len(before)
        served = daemons.start()
    heard = {name: answers(process) for name, process in zip(names, clients, strict=True)}

    data = (daemons.workspace / LOG).read_bytes()
    assert data.startswith(before)
    lines = data.decode().split("\n")
    taken = set()
    for name, lists in heard.items():
        assert [answer["number"] for answer in lists] == list(range(each))
        for answer in lists:
            assert "\n".join(lines[answer["first"] - 1 : answer["last"]]) == text_of(name, answer["number"])
            taken.update(range(answer["first"], answer["last"] + 1))
    # What was there, the texts, and the empty string behind the last newline: not a line more.
    assert len(lines) == 3 + len(taken) + 1
    assert (daemons.workspace / "memory/other.md").read_text() == "nobody writes here\n"

    with client(served) as connection:
        assert last_event(connection).failed_files == 0
        assert not [issue for issue in connection.status().source_issues if "append" in issue]
        assert set(found(connection, f"client3-{each - 1}")) == {LOG}
    names = {file.name for file in daemons.index.parent.iterdir()}
    assert {name for name in names if "appends" in name} == {"main.appends"}
    end(served.process)
    check_equal_to_fresh(daemons, tmp_path, vectors=False)
