"""When qmd's index is brought up to date, over an index that does as it is told."""

import asyncio
import threading
from pathlib import Path

import pytest

from memoryd_server.qmd.client import QmdFailure, QmdFailureReason, QmdSearchMode
from memoryd_server.qmd.config import QmdConfig, QmdLimitsConfig, QmdUpdateConfig
from memoryd_server.qmd.host import QmdHost
from memoryd_server.qmd.index import DocumentCounts, UpdateCounts
from memoryd_server.qmd.updates import QmdUpdates
from waiting import eventually

PATIENCE = 10


class ScriptedIndex:
    """Counts what is asked of it. `failures` are raised one a call; a held one waits for `go`."""

    def __init__(self):
        self.ready = True
        self.changed = False
        self.updates = self.embeds = 0
        self.at_once = self.most_at_once = 0
        self.failures = []
        self.held = False
        self.go = threading.Semaphore(0)

    def prepare(self):
        return self.changed

    def update(self, run):
        self.updates += 1
        self._work()
        return UpdateCounts(new=self.updates)

    def embed(self, run):
        self.embeds += 1
        self._work()
        return DocumentCounts(1, 1, 0)

    def _work(self):
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            if self.held:
                assert self.go.acquire(timeout=PATIENCE)
            if self.failures:
                raise self.failures.pop(0)
        finally:
            self.at_once -= 1


class UpdatesFixture:
    def __init__(self):
        self.index = ScriptedIndex()
        self.host = QmdHost()
        self.snapshots = 0
        self.made = []

    def updates(self, *, search_mode=QmdSearchMode.SEARCH, **changes):
        times = {
            "on_boot": False,
            "wait_for_boot_sync": False,
            "interval_seconds": 0,
            "debounce_seconds": 0,
            "embed_interval_seconds": 0,
            "command_timeout_seconds": 5,
            "update_timeout_seconds": 5,
            "embed_timeout_seconds": 5,
            **changes,
        }
        config = QmdConfig(
            Path("/qmd"),
            "qmd",
            search_mode,
            (),
            {},
            QmdUpdateConfig(**times),
            QmdLimitsConfig(6, 700, 4000, 4),
            None,
            None,
            True,
            Path("/lock"),
        )
        self.made.append(QmdUpdates(config, self.index, self.host, self.snapshot))
        return self.made[-1]

    def snapshot(self):
        self.snapshots += 1
        return self.snapshots


@pytest.fixture
async def fixture():
    fixture = UpdatesFixture()
    yield fixture
    fixture.index.held = False
    fixture.index.go.release(100)
    for updates in fixture.made:
        await updates.stop()
    await asyncio.to_thread(fixture.host.close)


def busy():
    return QmdFailure(QmdFailureReason.BUSY, "busy")


def broken():
    return QmdFailure(QmdFailureReason.EXIT_CODE, "broken")


async def test_nothing_runs_by_itself_unless_it_is_wanted(fixture):
    await fixture.updates(on_boot=True).start(background=False)
    await fixture.updates().start(background=True)
    await asyncio.sleep(0.05)
    assert fixture.index.updates == 0


@pytest.mark.parametrize("why", ["on_boot", "changed", "not ready"])
async def test_the_start_updates_when_it_must(fixture, why):
    fixture.index.changed, fixture.index.ready = why == "changed", why != "not ready"
    await fixture.updates(on_boot=why == "on_boot").start(background=True)
    await eventually(lambda: fixture.index.updates == 1)


async def test_the_start_waits_only_when_it_is_told_to(fixture):
    fixture.index.held = True
    await fixture.updates(on_boot=True).start(background=True)
    fixture.index.go.release()
    waiting = asyncio.ensure_future(fixture.updates(on_boot=True, wait_for_boot_sync=True).start(background=True))
    await eventually(lambda: fixture.index.updates == 2)
    assert not waiting.done()
    fixture.index.go.release()
    await waiting


async def test_a_first_update_that_meets_another_writer_is_tried_again(fixture):
    fixture.index.failures = [busy()]
    updates = fixture.updates(on_boot=True, wait_for_boot_sync=True)
    await updates.start(background=True)
    assert (fixture.index.updates, updates.updating.failure) == (2, None)


async def test_what_was_asked_for_is_done_once_after_the_debounce(fixture):
    updates = fixture.updates(debounce_seconds=0.2)
    await updates.start(background=True)
    await updates.update_now()
    for _ in range(5):
        updates.request()
    assert updates.pending
    await asyncio.sleep(0.05)
    assert fixture.index.updates == 1
    await eventually(lambda: not updates.pending)
    assert fixture.index.updates == 2


async def test_what_is_asked_for_during_an_update_is_done_after_it(fixture):
    updates = fixture.updates()
    await updates.start(background=True)
    fixture.index.held = True
    updates.request()
    await eventually(lambda: fixture.index.updates == 1)
    updates.request()
    fixture.index.go.release(2)
    await eventually(lambda: fixture.index.updates == 2 and not updates.pending)


async def test_it_runs_at_intervals(fixture):
    await fixture.updates(interval_seconds=0.02).start(background=True)
    await eventually(lambda: fixture.index.updates >= 3)


async def test_one_writer_at_a_time_and_each_caller_has_an_update_of_its_own(fixture):
    updates = fixture.updates(search_mode=QmdSearchMode.QUERY)
    await asyncio.gather(*(updates.update_now() for _ in range(4)))
    assert (fixture.index.updates, fixture.index.embeds, fixture.index.most_at_once) == (4, 4, 1)


async def test_what_is_covered_was_seen_before_the_update(fixture):
    updates = fixture.updates()
    fixture.index.held = True
    working = asyncio.ensure_future(updates.update_now())
    await eventually(lambda: fixture.index.updates == 1)
    assert (fixture.snapshots, updates.covered) == (1, None)
    fixture.index.go.release()
    assert await working == updates.last == UpdateCounts(new=1)
    assert updates.covered == 1


async def test_a_search_by_words_needs_no_vectors(fixture):
    await fixture.updates(search_mode=QmdSearchMode.SEARCH).update_now()
    assert fixture.index.embeds == 0


async def test_vectors_are_made_the_first_time_and_then_at_their_interval(fixture):
    updates = fixture.updates(search_mode=QmdSearchMode.VSEARCH, embed_interval_seconds=3_600)
    await updates.start(background=True)
    for count in (1, 2, 3):
        updates.request()
        await eventually(lambda count=count: fixture.index.updates == count and not updates.pending)
    await eventually(lambda: fixture.index.embeds == 1)
    await updates.update_now()
    assert fixture.index.embeds == 2


async def test_a_failure_is_told_and_pauses_what_nobody_asked_for(fixture):
    fixture.index.failures = [broken()]
    updates = fixture.updates(interval_seconds=0.02)
    await updates.start(background=True)
    await eventually(lambda: updates.updating.failure is not None)
    assert updates.updating.failure.message == "broken"
    await asyncio.sleep(0.1)
    assert fixture.index.updates == 1
    assert updates.pending
    await updates.update_now()
    assert updates.updating.failure is None


async def test_pauses_double_up_to_an_hour(fixture):
    updates = fixture.updates()
    pauses = []
    for _ in range(8):
        fixture.index.failures = [broken()]
        with pytest.raises(QmdFailure):
            await updates.update_now()
        pauses.append(updates.updating.pause)
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600]


async def test_resuming_ends_the_pause(fixture):
    fixture.index.failures = [broken()]
    updates = fixture.updates()
    await updates.start(background=True)
    updates.request()
    await eventually(lambda: updates.updating.failure is not None)
    updates.resume()
    await eventually(lambda: updates.updating.failure is None)
    assert fixture.index.updates == 2


async def test_a_snapshot_that_fails_is_a_failure_of_the_update(fixture):
    def snapshot():
        raise OSError("the disk is gone")

    updates = fixture.updates()
    updates._snapshot = snapshot
    with pytest.raises(QmdFailure, match="the disk is gone"):
        await updates.update_now()
    assert fixture.index.updates == 0


async def test_stopping_ends_the_waiting(fixture):
    updates = fixture.updates()
    fixture.index.held = True
    waiting = [asyncio.ensure_future(updates.update_now()) for _ in range(2)]
    await eventually(lambda: fixture.index.updates == 1)
    stopping = asyncio.ensure_future(updates.stop())
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [failure.reason for failure in found] == [QmdFailureReason.CANCELLED] * 2
    fixture.index.go.release(2)
    await stopping
    with pytest.raises(QmdFailure, match="stopping"):
        await updates.update_now()


async def test_a_caller_that_leaves_does_not_end_the_update(fixture):
    updates = fixture.updates()
    fixture.index.held = True
    waiting = asyncio.ensure_future(updates.update_now())
    await eventually(lambda: fixture.index.updates == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    fixture.index.go.release()
    await eventually(lambda: updates.covered == 1)


async def test_unexpected_exception_of_an_update_ends_no_loop_and_is_reported(fixture):
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    fixture.index.failures = [ValueError("a fault")]
    updates = fixture.updates()
    await updates.start(background=True)
    updates.request()
    await eventually(lambda: updates.updating.failure)
    assert "ValueError: a fault" in updates.updating.failure.message
    assert [str(error) for error in reported] == ["a fault"]
    updates.resume()
    await eventually(lambda: updates.updating.failure is None)
    assert fixture.index.updates == 2
