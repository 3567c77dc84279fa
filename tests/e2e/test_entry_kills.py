"""Entries are stored while their daemon is killed again and again: what was acknowledged is there, once."""

import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from daemon_process import end, start
from e2e.crash_fixture import points
from entry_fixture import needs_lancedb
from memoryd.client import MemorydError, connect
from memoryd.messages import REMEMBER_ACTION_ALREADY_STORED, REMEMBER_ACTION_DUPLICATE, REMEMBER_ACTION_STORED
from object_store import BUCKET, needs_object_store, object_store

pytestmark = [needs_lancedb, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

WRITERS = "ab"
BETWEEN_KILLS = 5
SEED = 8
PATIENCE_SECONDS = 120.0
ACCEPTED = {REMEMBER_ACTION_STORED, REMEMBER_ACTION_ALREADY_STORED, REMEMBER_ACTION_DUPLICATE}


class Writers:
    """Threads that store entries, each until it is acknowledged, whatever daemon answers at the address."""

    def __init__(self, address):
        self._address = address
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(len(WRITERS))
        self.acknowledged = {}

    def __enter__(self):
        self._work = [self._threads.submit(self._write, name) for name in WRITERS]
        return self

    def __exit__(self, *error):
        self._stop.set()
        self._threads.shutdown()
        for work in self._work:
            work.result()

    def _write(self, name):
        with connect(self._address) as client:
            number = 0
            while not self._stop.is_set():
                key = f"{name}-{number}"
                try:
                    done = client.entries.remember(text=f"entry {key}", idempotency_key=key, timeout=30)
                except MemorydError:
                    time.sleep(0.02)
                    continue
                assert done.action in ACCEPTED
                self.acknowledged[f"entry {key}"] = done.entry.entry_id
                number += 1

    def wait_for(self, more):
        """Waits until so many more were acknowledged: a kill that interrupts nothing says little."""
        wanted, until = len(self.acknowledged) + more, time.monotonic() + PATIENCE_SECONDS
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < until, f"only {len(self.acknowledged)} of {wanted} were acknowledged"
            assert not any(work.done() for work in self._work), "a writer gave up"
            time.sleep(0.01)


def listed(address):
    """The text and the id of every entry that is there."""
    with connect(address) as client:
        found, token = [], None
        while token != "":
            page = client.entries.list(page_size=1_000, page_token=token or "")
            found += [(entry.text, entry.entry_id) for entry in page.entries]
            token = page.next_page_token
        return found


def check_kills(folder, config, kills):
    """Entries kept as `config` says are there, once each, after so many kills during writes."""
    workspace, state = folder / "w", folder / "s"
    workspace.mkdir()
    state.mkdir()
    settings = {
        "plugins": {"slots": {"memory": "memory-lancedb"}, "entries": {"memory-lancedb": {"config": config}}},
        "agents": {"defaults": {"memorySearch": {"provider": "none"}}},
    }
    (state / "memoryd.json5").write_text(json.dumps(settings))
    served = start(workspace, state, home=folder)
    try:
        with Writers(served.address) as writers:
            for seconds in points(kills, 0.2, SEED):
                writers.wait_for(BETWEEN_KILLS)
                time.sleep(seconds)
                end(served.process, signal.SIGKILL)
                served = start(workspace, state, home=folder)
            writers.wait_for(BETWEEN_KILLS)
        found = listed(served.address)
    finally:
        end(served.process)
    assert len({text for text, _ in found}) == len(found), "something is there twice"
    assert writers.acknowledged.items() <= dict(found).items(), "something that was acknowledged is gone"
    # What a writer's last call stored may not have been acknowledged.
    assert len(found) <= len(writers.acknowledged) + len(WRITERS)


@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.all_kills)])
def test_every_acknowledged_entry_is_there_once_however_often_the_daemon_is_killed(tmp_path, kills):
    check_kills(tmp_path, {}, kills)


@needs_object_store
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.all_kills)])
def test_the_same_holds_in_an_object_store(tmp_path, kills):
    with object_store() as options:
        check_kills(tmp_path, {"dbPath": f"s3://{BUCKET}/killed", "storageOptions": options}, kills)
