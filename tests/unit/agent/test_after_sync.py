"""What follows a sync run before its end is told, and holds up nobody but those who wait for that run."""

import asyncio
import dataclasses

import pytest

from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.errors import BackendUnavailable
from memoryd_server.sync.progress import SyncMode


@pytest.fixture
def held(bench):
    """What follows a run waits for `go`."""
    held = asyncio.Event()

    async def after(_, outcome):
        await held.wait()
        return dataclasses.replace(outcome, unchanged_files=7)

    bench.coordinator.accompany(after, None)
    bench.engine.free = True
    return held


async def test_the_end_is_told_after_what_follows(bench, held):
    run = await bench.coordinator.request(SyncTrigger.MANUAL)
    await bench.pass_begun()
    async with asyncio.timeout(10):
        while bench.coordinator.active is not None:
            await bench.board.next_change()
    assert not run.finished.is_set()
    held.set()
    await asyncio.wait_for(run.finished.wait(), 10)
    assert run.outcome.unchanged_files == 7
    assert bench.ended == [run]


async def test_the_next_run_does_not_wait_for_it(bench, held):
    first = await bench.coordinator.request(SyncTrigger.MANUAL)
    await bench.pass_begun()
    async with asyncio.timeout(10):
        while bench.coordinator.active is not None:
            await bench.board.next_change()
    second = await bench.coordinator.request(SyncTrigger.APPEND, SyncMode.FULL)
    await bench.pass_begun()
    assert second is not first
    assert bench.coordinator.find(first.sync_id) is first
    held.set()
    await asyncio.wait_for(first.finished.wait(), 10)
    await asyncio.wait_for(second.finished.wait(), 10)


@pytest.mark.parametrize("error", [BackendUnavailable("no qmd"), ValueError("a bug")])
async def test_what_fails_then_fails_the_run_and_not_the_index(bench, error):
    async def after(*_):
        raise error

    bench.coordinator.accompany(after, None)
    bench.engine.free = True
    run = await bench.coordinator.request(SyncTrigger.MANUAL)
    await asyncio.wait_for(run.finished.wait(), 10)
    assert run.outcome is None
    assert str(error) in run.failure.message
    assert bench.coordinator.last_error is None
    assert bench.board.current.whole


async def test_stopping_waits_for_it(bench, held):
    await bench.coordinator.request(SyncTrigger.MANUAL)
    await bench.pass_begun()
    stopping = asyncio.ensure_future(bench.coordinator.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    held.set()
    await asyncio.wait_for(stopping, 10)
