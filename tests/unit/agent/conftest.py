import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from memoryd_server.agent.coordinator import SyncCoordinator
from memoryd_server.agent.state import IndexMonitor
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Clock
from memoryd_server.sync.progress import SyncOutcome, SyncPhase, SyncProgress


class FakeEngine:
    """Runs as long as the test wants: each pass waits for `go`, unless the test lets all of them pass.

    `fails` is raised by the next pass; `scripts` are called with the observer, one a pass. `phase` is what it tells
    of, `yields` says for each pass whether it leaves off when it is asked to, and `should_yield` is the pass's.
    """

    rebuild_due = False

    def __init__(self):
        self.modes = []
        self.began = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.free = False
        self.fails = None
        self.scripts = []
        self.phase = SyncPhase.INDEXING
        self.yields = []
        self.should_yield = lambda: False

    def run(self, mode, observer, should_stop, should_yield=lambda: False):
        self.modes.append(mode)
        self.should_yield = should_yield
        number = len(self.modes)
        self.began.release()
        observer.progress(
            SyncProgress(phase=self.phase, completed_files=number, total_files=10, pending_files=10 - number)
        )
        while not self.free and not self.go.acquire(timeout=0.01):
            if should_stop():
                raise SyncCancelled("stopped")
        if self.scripts:
            self.scripts.pop(0)(observer)
        if self.fails is not None:
            failure, self.fails = self.fails, None
            raise failure
        observer.committed(number)
        yielded = bool(self.yields) and self.yields.pop(0) and should_yield()
        return SyncOutcome(revision=number, files=3, indexed_files=1, changed=True, yielded=yielded)


class CoordinatorFixture:
    """A coordinator over a fake engine."""

    def __init__(self):
        self.engine = FakeEngine()
        self.monitor = IndexMonitor()
        self.ended = []
        self.writer_thread = ThreadPoolExecutor(1)
        ids = itertools.count(1)
        self.coordinator = SyncCoordinator(
            self.engine,
            self.monitor,
            self.writer_thread,
            clock=Clock(),
            new_id=lambda: f"run-{next(ids)}",
            on_end=self.ended.append,
        )

    async def pass_begun(self):
        """Waits until a pass has begun."""
        assert await asyncio.get_running_loop().run_in_executor(None, self.engine.began.acquire, True, 10)
        # What it told before is delivered in order, so one turn of the loop is enough.
        await asyncio.sleep(0)

    def let_a_pass_end(self):
        self.engine.go.release()


@pytest.fixture
async def fixture():
    fixture = CoordinatorFixture()
    yield fixture
    fixture.engine.free = True
    await fixture.coordinator.stop()
    fixture.writer_thread.shutdown()
