"""A daemon reads and writes its connections in one thread of gRPC; a pool of threads would cost each call more."""

from importlib.metadata import version
from pathlib import Path

import pytest

from daemon_process import serving_heron
from memoryd.client import connect

CALLS = 200


def switches_of_pool(pid):
    """Return how often the threads of gRPC's pool have waited since their start."""
    waits = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text("ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        if fields["Name"].strip() == "event_engine":
            waits += int(fields["voluntary_ctxt_switches"])
    return waits


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed in /proc on Linux only")
@pytest.mark.skipif(tuple(map(int, version("grpcio").split(".")[:2])) > (1, 85), reason="not known of this gRPC")
def test_calls_do_not_use_the_pool_of_threads(tmp_path):
    with serving_heron(tmp_path) as served:
        address = f"unix:{served.state}/m.sock"
        with connect(address) as client:
            client.list_agents()
            before = switches_of_pool(served.process.pid)
            for _ in range(CALLS):
                client.list_agents()
            after = switches_of_pool(served.process.pid)
    # With the pool there are about seven for each call.
    assert after - before < CALLS
