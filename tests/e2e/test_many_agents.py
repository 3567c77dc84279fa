"""A daemon of many agents: what each costs in threads, descriptors and memory, and that one answers like any other."""

import json

import psutil
import pytest

from daemon_process import serving
from memoryd.client import connect
from waiting import wait_until

AGENTS = 120
USED = 6
# Of the whole daemon, once the first syncs of all agents have ended: the thread that writes an index ends .2 s later.
THREADS = 24
DESCRIPTORS_OF_AN_AGENT = 12
DESCRIPTORS_BESIDES = 100
MEBIBYTES_OF_AN_AGENT = 1.2
MEBIBYTES_BESIDES = 250


def name(number):
    return f"agent-{number:03}"


@pytest.mark.slow
def test_many_agents_cost_few_threads_and_each_a_little(tmp_path):
    home, state = tmp_path / "h", tmp_path / "s"
    for folder in (home, state):
        folder.mkdir()
    for number in range(AGENTS):
        (tmp_path / name(number) / "memory").mkdir(parents=True)
        (tmp_path / name(number) / "memory" / "a.md").write_text(f"a heron of {name(number)}")
    listed = [{"id": name(number), "workspace": str(tmp_path / name(number))} for number in range(AGENTS)]
    (state / "memoryd.json5").write_text(json.dumps({"agents": {"list": listed}}))
    with serving(tmp_path / name(0), state, home=home) as served:
        process = psutil.Process(served.process.pid)
        with connect(served.address) as client:
            for number in range(USED):
                with client.sync(agent_id=name(number)) as events:
                    list(events)
                (found,) = client.search(query="heron", agent_id=name(number)).results
                assert name(number) in found.snippet
            wait_until(lambda: process.num_threads() <= THREADS)
            assert process.num_fds() <= DESCRIPTORS_BESIDES + DESCRIPTORS_OF_AN_AGENT * AGENTS
            mebibytes = process.memory_info().rss / 2**20
            assert mebibytes <= MEBIBYTES_BESIDES + MEBIBYTES_OF_AN_AGENT * AGENTS
            polled = [w.reason for w in client.status(agent_id=name(AGENTS - 1)).watchers if w.reason]
            assert not polled, "more agents than the system has inotify instances to give"
