"""The memory of a daemon whose settings are reloaded again and again."""

import json
import signal

import psutil
import pytest

from daemon_process import serving
from memoryd.client import connect
from memoryd_server.writing.ledger import AppendState, LedgerEntry, encode
from waiting import wait_until

AGENTS = ("main", "heron")
# The ledger of an agent then takes 6 MiB.
APPENDS = 10_000
RELOADS = 8
# A call waits while the agents are opened again.
CALL_SECONDS = 30.0
# If the closed agents kept their ledgers until the next collection of garbage, it would be 96 MiB.
MEBIBYTES_GROWN = 36


def write_settings(state, workspace, tokens):
    search = {"provider": "none", "chunking": {"tokens": tokens, "overlap": 20}}
    agents = [{"id": agent, "workspace": str(workspace)} for agent in AGENTS]
    settings = {"agents": {"defaults": {"memorySearch": search}, "list": agents}}
    (state / "memoryd.json5").write_text(json.dumps(settings))


def write_ledgers(state):
    """Write the ledgers of finished appends that the agents read when they are opened."""
    (state / "memory").mkdir()
    lines = b"".join(
        encode(LedgerEntry(f"key-{number}", f"memory/{number}.md", 0, 9, "0" * 64, "0" * 64, 1, 1, AppendState.DONE))
        for number in range(APPENDS)
    )
    for agent in AGENTS:
        (state / "memory" / f"{agent}.appends").write_bytes(lines)


@pytest.mark.slow
def test_closed_agents_keep_no_ledger_in_memory(places):
    home, workspace, state = places
    write_ledgers(state)
    write_settings(state, workspace, 300)
    with serving(workspace, state, home=home) as served, connect(served.address) as client:
        process = psutil.Process(served.process.pid)

        def reload(tokens):
            loads = client.status(timeout=CALL_SECONDS).service.settings_loads
            write_settings(state, workspace, tokens)
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: client.status(timeout=CALL_SECONDS).service.settings_loads > loads)

        reload(400)
        before = process.memory_info().rss
        for number in range(RELOADS):
            reload(400 if number % 2 else 300)
        assert (process.memory_info().rss - before) / 2**20 < MEBIBYTES_GROWN
