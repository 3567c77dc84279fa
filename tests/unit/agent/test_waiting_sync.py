"""A FULL run that is requested during a run, and waits for its end."""

import asyncio

import pytest

from memoryd_server.agent.sync_run import Heartbeat, RunCompleted, RunProgress, RunStarted, SyncTrigger
from memoryd_server.errors import DiskFull, ShuttingDown
from memoryd_server.sync.progress import SyncMode, SyncPhase

MANUAL = SyncTrigger.MANUAL
FULL, INCREMENTAL = SyncMode.FULL, SyncMode.INCREMENTAL


async def waiting(fixture):
    """Return a FULL run that waits, with one follower, as `Agent.sync` counts it."""
    run = await fixture.coordinator.request(MANUAL, FULL, wait_on_conflict=True)
    run.followers += 1
    return run


async def test_a_full_run_starts_when_the_run_under_way_has_ended(fixture):
    first = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    run = await waiting(fixture)
    assert (run.sync_id != first.sync_id, run.finished.is_set()) == (True, False)
    assert fixture.coordinator.active is first
    fixture.let_a_pass_end()
    await first.finished.wait()
    await fixture.pass_begun()
    assert fixture.coordinator.active is run
    fixture.let_a_pass_end()
    await run.finished.wait()
    assert fixture.engine.modes == [INCREMENTAL, FULL]
    assert fixture.ended == [first, run]


async def test_without_a_run_under_way_it_starts_immediately(fixture):
    fixture.engine.free = True
    run = await waiting(fixture)
    assert fixture.coordinator.active is run
    await run.finished.wait()
    assert fixture.engine.modes == [FULL]


async def test_callers_that_wait_share_one_run_and_later_ones_get_the_next(fixture):
    first = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    runs = [await waiting(fixture) for _ in range(5)]
    assert len(set(runs)) == 1
    fixture.let_a_pass_end()
    await first.finished.wait()
    await fixture.pass_begun()
    # The run under way may have read the files before this call.
    late = await waiting(fixture)
    assert late is not runs[0]
    fixture.engine.free = True
    await late.finished.wait()
    assert fixture.engine.modes == [INCREMENTAL, FULL, FULL]


async def test_it_also_waits_for_a_full_run(fixture):
    first = await fixture.coordinator.request(MANUAL, FULL)
    await fixture.pass_begun()
    run = await waiting(fixture)
    assert run is not first
    fixture.engine.free = True
    await run.finished.wait()
    assert fixture.engine.modes == [FULL, FULL]


async def test_an_incremental_run_joins_the_run_under_way_and_does_not_wait(fixture):
    first = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    run = await waiting(fixture)
    assert await fixture.coordinator.request(MANUAL, wait_on_conflict=True) is first
    fixture.engine.free = True
    await run.finished.wait()
    assert fixture.engine.modes == [INCREMENTAL, INCREMENTAL, FULL]


async def test_the_end_of_a_failed_run_starts_it_too(fixture):
    first = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    run = await waiting(fixture)
    fixture.engine.fails = DiskFull("full")
    fixture.let_a_pass_end()
    await first.finished.wait()
    assert isinstance(first.failure, DiskFull)
    fixture.engine.free = True
    await run.finished.wait()
    assert (run.failure, run.outcome.revision) == (None, 2)


async def test_the_end_of_a_cancelled_run_starts_it_too(fixture):
    first = await fixture.coordinator.request(MANUAL)
    first.followers += 1
    await fixture.pass_begun()
    run = await waiting(fixture)
    fixture.coordinator.leave(first, cancel=True)
    await first.finished.wait()
    fixture.engine.free = True
    await run.finished.wait()
    assert (first.failure.reason, run.failure) == ("SYNC_CANCELLED", None)


@pytest.mark.parametrize("cancel", [False, True])
async def test_it_is_not_started_if_every_caller_has_left(fixture, cancel):
    first = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    run = await waiting(fixture)
    assert await waiting(fixture) is run
    fixture.coordinator.leave(run, cancel=cancel)
    assert fixture.coordinator.find(run.sync_id) is run
    fixture.coordinator.leave(run, cancel=cancel)
    assert fixture.coordinator.find(run.sync_id) is None
    fixture.engine.free = True
    await first.finished.wait()
    assert (fixture.coordinator.active, fixture.engine.modes) == (None, [INCREMENTAL])


async def test_a_stop_ends_the_wait_before_the_run_under_way_has_ended(fixture):
    first = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    run = await waiting(fixture)
    stop = asyncio.ensure_future(fixture.coordinator.stop())
    await run.finished.wait()
    assert isinstance(run.failure, ShuttingDown)
    assert run.failure.retry_after_seconds
    assert not first.finished.is_set()
    with pytest.raises(ShuttingDown):
        await waiting(fixture)
    await stop
    assert fixture.engine.modes == [INCREMENTAL]


async def test_followers_see_that_it_waits_then_its_start(fixture):
    first = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    run = await waiting(fixture)
    events = run.follow(0, 0.01)
    shown = await anext(events)
    assert shown.body.progress.phase is SyncPhase.WAITING
    assert isinstance((await anext(events)).body, Heartbeat)
    fixture.let_a_pass_end()
    await first.finished.wait()
    await fixture.pass_begun()
    async for event in events:
        if not isinstance(event.body, Heartbeat):
            break
    assert isinstance(event.body, RunStarted)
    assert event.body.start_time_ns > shown.time_ns
    assert event.sequence > shown.sequence
    fixture.engine.free = True
    assert isinstance([event async for event in events][-1].body, RunCompleted)


async def test_a_follower_that_comes_after_the_start_does_not_see_the_wait(fixture):
    first = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    run = await waiting(fixture)
    fixture.let_a_pass_end()
    await first.finished.wait()
    fixture.engine.free = True
    await run.finished.wait()
    bodies = [event.body async for event in run.follow(0, 60)]
    assert isinstance(bodies[0], RunStarted)
    assert all(body.progress.phase is not SyncPhase.WAITING for body in bodies if isinstance(body, RunProgress))
