"""One run at a time: callers join it, and each one's files are in when it ends."""

import asyncio

import pytest

from memoryd_server.agent.coordinator import MOST_PASSES, REMEMBERED_RUNS
from memoryd_server.agent.state import IndexState
from memoryd_server.agent.sync_run import SyncTrigger
from memoryd_server.errors import DiskFull, IndexUnavailable, ShuttingDown, SyncCancelled, SyncConflict
from memoryd_server.sync.progress import SyncMode

MANUAL = SyncTrigger.MANUAL


async def test_a_caller_during_a_run_joins_it_and_makes_it_look_again(fixture):
    run = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    joined = await fixture.coordinator.request(SyncTrigger.APPEND)
    assert joined is run
    fixture.let_a_pass_end()
    await fixture.pass_begun()
    assert not run.finished.is_set()
    fixture.let_a_pass_end()
    await run.finished.wait()
    assert fixture.engine.modes == [SyncMode.INCREMENTAL] * 2
    assert run.outcome.indexed_files == 2


async def test_any_number_of_joiners_of_one_pass_cost_one_pass_more(fixture):
    run = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    assert {await fixture.coordinator.request(MANUAL) for _ in range(10)} == {run}
    fixture.engine.free = True
    await run.finished.wait()
    assert len(fixture.engine.modes) == 2


async def test_a_run_nobody_joins_makes_one_pass(fixture):
    fixture.engine.free = True
    for _ in range(3):
        run = await fixture.coordinator.request(MANUAL)
        await run.finished.wait()
    assert len(fixture.engine.modes) == 3
    assert len({id(ended) for ended in fixture.ended}) == 3


async def test_a_full_run_during_a_run_is_refused_and_names_it(fixture):
    run = await fixture.coordinator.request(MANUAL)
    with pytest.raises(SyncConflict, match=run.sync_id):
        await fixture.coordinator.request(MANUAL, SyncMode.FULL)
    fixture.engine.free = True
    await run.finished.wait()
    assert (await fixture.coordinator.request(MANUAL, SyncMode.FULL)).mode is SyncMode.FULL


async def test_a_joiner_of_a_full_run_does_not_make_it_full_twice(fixture):
    run = await fixture.coordinator.request(MANUAL, SyncMode.FULL)
    await fixture.pass_begun()
    assert await fixture.coordinator.request(MANUAL) is run
    fixture.engine.free = True
    await run.finished.wait()
    assert fixture.engine.modes == [SyncMode.FULL, SyncMode.INCREMENTAL]


async def test_joiners_without_end_do_not_keep_a_run_from_ending(fixture):
    first = await fixture.coordinator.request(MANUAL)
    for _ in range(MOST_PASSES):
        await fixture.pass_begun()
        waiting = asyncio.ensure_future(fixture.coordinator.request(MANUAL))
        await asyncio.sleep(0)
        fixture.let_a_pass_end()
    await first.finished.wait()
    assert len(fixture.engine.modes) == MOST_PASSES
    late = await waiting
    assert late is not first


async def test_a_pass_that_leaves_off_for_changed_files_is_followed_by_another(fixture):
    fixture.engine.yields = [True, True, True]
    run = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    fixture.monitor.update(dirty=True)
    fixture.let_a_pass_end()
    await fixture.pass_begun()
    assert not fixture.monitor.current.dirty
    assert not run.finished.is_set()
    fixture.let_a_pass_end()
    await run.finished.wait()
    assert (fixture.engine.modes, run.outcome.yielded) == ([SyncMode.INCREMENTAL] * 2, False)


async def test_leaving_off_any_number_of_times_keeps_nobody_from_joining(fixture):
    fixture.engine.yields = [True] * (2 * MOST_PASSES)
    run = await fixture.coordinator.request(MANUAL)
    for _ in range(2 * MOST_PASSES - 1):
        await fixture.pass_begun()
        fixture.monitor.update(dirty=True)
        fixture.let_a_pass_end()
    await fixture.pass_begun()
    assert await fixture.coordinator.request(SyncTrigger.APPEND) is run
    assert fixture.engine.should_yield(), "one who has joined waits for no vectors"
    fixture.engine.free = True
    await run.finished.wait()
    assert len(fixture.engine.modes) == 2 * MOST_PASSES + 1


async def test_stopping_ends_the_run_under_way_and_starts_no_other(fixture):
    run = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    await fixture.coordinator.stop()
    assert run.finished.is_set()
    assert isinstance(run.failure, SyncCancelled)
    assert run.failure.retry_after_seconds
    assert "a fresh Sync goes on" in run.failure.message
    with pytest.raises(ShuttingDown):
        await fixture.coordinator.request(MANUAL)


async def test_a_failed_run_is_remembered_as_such_and_the_next_one_heals(fixture):
    fixture.engine.free = True
    fixture.engine.fails = DiskFull("full")
    run = await fixture.coordinator.request(MANUAL)
    await run.finished.wait()
    assert run.failure is fixture.coordinator.last_error
    assert fixture.monitor.current.dirty
    assert not fixture.monitor.current.syncing
    run = await fixture.coordinator.request(MANUAL)
    await run.finished.wait()
    assert fixture.coordinator.last_error is None
    assert run.outcome is not None


async def test_a_fault_of_ours_ends_the_run_for_its_followers_too(fixture):
    fixture.engine.free = True
    fixture.engine.fails = ZeroDivisionError("oops")
    run = await fixture.coordinator.request(MANUAL)
    with pytest.raises(IndexUnavailable, match="ZeroDivisionError: oops"):
        async for _ in run.follow(0, 60):
            pass
    assert isinstance(run.failure.__cause__, ZeroDivisionError)
    assert fixture.ended == [run]
    assert fixture.coordinator.active is None


async def test_the_next_run_may_start_as_soon_as_a_follower_hears_of_the_end(fixture):
    fixture.engine.free = True
    run = await fixture.coordinator.request(MANUAL)
    async for _ in run.follow(0, 60):
        pass
    assert fixture.coordinator.active is None
    assert fixture.coordinator.start(MANUAL) is not run


async def test_past_runs_are_found_until_they_are_many(fixture):
    fixture.engine.free = True
    runs = []
    for _ in range(REMEMBERED_RUNS + 2):
        runs.append(await fixture.coordinator.request(MANUAL))
        await runs[-1].finished.wait()
    assert [fixture.coordinator.find(run.sync_id) for run in runs] == [None, None, *runs[2:]]
    assert fixture.coordinator.find("unknown") is None


async def test_the_board_tells_what_goes_on(fixture):
    assert fixture.monitor.current.state is IndexState.EMPTY
    run = await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    assert fixture.monitor.current.state is IndexState.BUILDING
    assert fixture.monitor.current.pending_files == 9
    fixture.monitor.update(dirty=True)
    fixture.let_a_pass_end()
    await run.finished.wait()
    assert fixture.monitor.current.state is IndexState.STALE, "what changed during the run is not in it"
    fixture.engine.free = True
    run = await fixture.coordinator.request(MANUAL)
    await run.finished.wait()
    assert fixture.monitor.current.state is IndexState.READY
    assert fixture.monitor.current.revision == 2


async def test_who_waits_for_a_revision_is_woken_by_it(fixture):
    waiting = asyncio.ensure_future(fixture.monitor.reached(1))
    await fixture.coordinator.request(MANUAL)
    await fixture.pass_begun()
    assert not waiting.done()
    fixture.let_a_pass_end()
    await asyncio.wait_for(waiting, 10)
