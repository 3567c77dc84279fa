"""What follows a sync run before its end is told, and holds up nobody but those who wait for that run."""

import asyncio
import dataclasses

import pytest

from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.errors import BackendUnavailable
from memoryd_server.sync.progress import SyncMode


@pytest.fixture
def held(fixture):
    """What follows a run waits for `go`."""
    held = asyncio.Event()

    async def after(_, outcome):
        await held.wait()
        return dataclasses.replace(outcome, unchanged_files=7)

    fixture.coordinator.attach(after, None)
    fixture.engine.free = True
    return held


async def test_the_end_is_told_after_what_follows(fixture, held):
    run = await fixture.coordinator.request(SyncTrigger.MANUAL)
    await fixture.pass_begun()
    async with asyncio.timeout(10):
        while fixture.coordinator.active is not None:
            await fixture.monitor.next_change()
    assert not run.finished.is_set()
    held.set()
    await asyncio.wait_for(run.finished.wait(), 10)
    assert run.outcome.unchanged_files == 7
    assert fixture.ended == [run]


async def test_the_next_run_does_not_wait_for_it(fixture, held):
    first = await fixture.coordinator.request(SyncTrigger.MANUAL)
    await fixture.pass_begun()
    async with asyncio.timeout(10):
        while fixture.coordinator.active is not None:
            await fixture.monitor.next_change()
    second = await fixture.coordinator.request(SyncTrigger.APPEND, SyncMode.FULL)
    await fixture.pass_begun()
    assert second is not first
    assert fixture.coordinator.find(first.sync_id) is first
    held.set()
    await asyncio.wait_for(first.finished.wait(), 10)
    await asyncio.wait_for(second.finished.wait(), 10)


@pytest.mark.parametrize("error", [BackendUnavailable("no qmd"), ValueError("a bug")])
async def test_what_fails_then_fails_the_run_and_not_the_index(fixture, error):
    async def after(*_):
        raise error

    fixture.coordinator.attach(after, None)
    fixture.engine.free = True
    run = await fixture.coordinator.request(SyncTrigger.MANUAL)
    await asyncio.wait_for(run.finished.wait(), 10)
    assert run.outcome is None
    assert str(error) in run.failure.message
    assert fixture.coordinator.last_error is None
    assert fixture.monitor.current.whole


async def test_stopping_waits_for_it(fixture, held):
    await fixture.coordinator.request(SyncTrigger.MANUAL)
    await fixture.pass_begun()
    stopping = asyncio.ensure_future(fixture.coordinator.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    held.set()
    await asyncio.wait_for(stopping, 10)
