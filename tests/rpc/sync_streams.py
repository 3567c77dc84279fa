"""Holding sync runs under way, and following them."""

import asyncio
import threading

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import sync_event_pb2
from rpc.wire import TIMEOUT, kinds_of

FULL = sync_event_pb2.SYNC_MODE_FULL
CANCEL = sync_event_pb2.ON_DISCONNECT_CANCEL
SESSION_START = sync_event_pb2.SYNC_TRIGGER_SESSION_START
PHASES = {"started": 0, "progress": 1, "file_failed": 1, "heartbeat": 1, "completed": 2}


class PausedSync:
    """Stops a run before its file number `at` until `release`, so that it is under way for as long as a test needs."""

    def __init__(self, running, monkeypatch, at=0, agent_id="main"):
        self._preparer = running.engine(agent_id)._preparer
        self._prepare = self._preparer.prepare
        self._at = at
        self._count = 0
        self._go = threading.Event()
        self.reached = threading.Event()
        monkeypatch.setattr(self._preparer, "prepare", self._held)

    def _held(self, *args):
        if self._count == self._at:
            self.reached.set()
            assert self._go.wait(TIMEOUT)
        self._count += 1
        return self._prepare(*args)

    async def until_reached(self):
        assert await asyncio.to_thread(self.reached.wait, TIMEOUT)

    def release(self):
        self._go.set()


def follow(running, **request):
    return aiter(running.stub.Sync(pb.SyncRequest(**request), timeout=TIMEOUT))


async def rest(stream):
    return [event async for event in stream]


def check_stream(events, *, starts="started"):
    """Starts as it should, ends in `completed`, rises, and is all of one run."""
    kinds = kinds_of(events)
    assert kinds[0] == starts
    assert kinds[-1] == "completed"
    assert kinds.count("started") <= 1
    assert kinds.count("completed") == 1
    assert len({event.sync_id for event in events}) == 1
    assert [event.sequence for event in events] == sorted(event.sequence for event in events)
    numbered = [event.sequence for event in events if event.WhichOneof("event") != "heartbeat"]
    assert len(set(numbered)) == len(numbered)
    assert all(event.cursor and event.time.seconds for event in events)
