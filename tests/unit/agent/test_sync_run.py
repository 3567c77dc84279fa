"""Followers of a run receive every kept event, the latest progress and the result, at whatever time they join."""

import asyncio
import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.agent.sync_run import (
    RATE_SNAPSHOTS,
    Heartbeat,
    RemainingTime,
    RunCompleted,
    RunProgress,
    RunStarted,
    SyncRun,
    SyncTrigger,
)
from memoryd_server.errors import DiskFull
from memoryd_server.model import FileFailure, Source
from memoryd_server.sync.progress import SyncMode, SyncOutcome, SyncPhase, SyncProgress

LONG = 60.0


def new_run():
    steps = itertools.count(1)
    return SyncRun("id", SyncMode.INCREMENTAL, SyncTrigger.MANUAL, now_ns=lambda: next(steps), monotonic=lambda: 0.0)


def failure(number):
    return FileFailure(f"memory/{number}.md", Source.MEMORY, "no")


def snapshot(number):
    return SyncProgress(phase=SyncPhase.INDEXING, completed_files=number, total_files=100)


async def all_events(run, after=0, heartbeat=LONG):
    return [event async for event in run.follow(after, heartbeat)]


def kinds(events):
    return [type(event.body).__name__ for event in events]


def embedding(completed, cached=0, total=1_000, **more):
    return SyncProgress(
        phase=SyncPhase.EMBEDDING, completed_chunks=completed, cached_chunks=cached, total_chunks=total, **more
    )


def test_the_remaining_time_of_embedding_follows_the_measured_rate():
    remaining = RemainingTime()
    assert remaining.estimate(embedding(0), 5.0) is None
    assert remaining.estimate(embedding(100), 15.0) == pytest.approx(90.0)
    # Nothing was done since, so the rate is the same.
    assert remaining.estimate(embedding(100), 20.0) == pytest.approx(90.0)
    assert remaining.estimate(embedding(1_000), 100.0) == 0.0


def test_vectors_from_the_cache_are_soon_forgotten_by_the_remaining_time():
    remaining = RemainingTime()
    remaining.estimate(embedding(0, total=10_000), 0.0)
    remaining.estimate(embedding(5_000, cached=5_000, total=10_000), 1.0)
    for number in range(1, RATE_SNAPSHOTS + 1):
        found = remaining.estimate(embedding(5_000 + 100 * number, total=10_000), 1.0 + 10 * number)
    assert found == pytest.approx((5_000 - 100 * RATE_SNAPSHOTS) / 10)


def test_the_remaining_time_is_unknown_during_batch_jobs_and_begins_again_with_a_new_pass():
    remaining = RemainingTime()
    remaining.estimate(embedding(0), 0.0)
    assert remaining.estimate(embedding(500), 10.0) == pytest.approx(10.0)
    assert remaining.estimate(embedding(500, batch_jobs=2), 11.0) is None
    assert remaining.estimate(embedding(500), 3_000.0) is None
    assert remaining.estimate(embedding(600), 3_010.0) == pytest.approx(40.0)
    assert remaining.estimate(embedding(0, total=50), 3_020.0) is None
    assert remaining.estimate(embedding(10, total=50), 3_021.0) == pytest.approx(4.0)
    assert remaining.estimate(SyncProgress(), 3_022.0) is None


async def test_a_late_follower_sees_every_kept_event_and_the_last_snapshot():
    run = new_run()
    run.started(7)
    for number in range(50):
        run.progressed(snapshot(number))
        run.file_failed(failure(number))
    run.progressed(snapshot(99))
    run.completed(SyncOutcome(8))
    events = await all_events(run)
    assert kinds(events) == ["RunStarted", *["FileFailure"] * 50, "RunProgress", "RunCompleted"]
    assert events[-2].body.progress.completed_files == 99
    assert isinstance(events[0].body, RunStarted)
    assert isinstance(events[-1].body, RunCompleted)


async def test_sequences_rise_and_a_cursor_gives_what_came_after():
    run = new_run()
    run.started(0)
    for number in range(5):
        run.file_failed(failure(number))
    run.completed(SyncOutcome(1))
    events = await all_events(run)
    sequences = [event.sequence for event in events]
    assert sequences == sorted(set(sequences))
    for place, event in enumerate(events[:-1]):
        assert await all_events(run, after=event.sequence) == events[place + 1 :]
    assert await all_events(run, after=events[-1].sequence) == events[-1:], "the end is told in any case"


async def test_a_slow_follower_misses_snapshots_and_nothing_else():
    run = new_run()
    run.started(0)
    seen = []
    follower = run.follow(0, LONG)
    seen.append(await anext(follower))
    for number in range(1000):
        run.progressed(snapshot(number))
        if number % 100 == 0:
            run.file_failed(failure(number))
    run.completed(SyncOutcome(1))
    seen += [event async for event in follower]
    assert kinds(seen).count("FileFailure") == 10
    assert kinds(seen).count("RunProgress") == 1
    assert kinds(seen)[-1] == "RunCompleted"


async def test_a_follower_that_keeps_up_sees_each_snapshot():
    run = new_run()
    run.started(0)
    follower = run.follow(0, LONG)
    assert isinstance((await anext(follower)).body, RunStarted)
    for number in range(5):
        waiting = asyncio.ensure_future(anext(follower))
        await asyncio.sleep(0)
        run.progressed(snapshot(number))
        assert (await waiting).body.progress.completed_files == number
    run.completed(SyncOutcome(1))
    assert kinds([event async for event in follower]) == ["RunCompleted"]


async def test_a_failure_is_raised_after_the_events():
    run = new_run()
    run.started(0)
    run.file_failed(failure(1))
    run.failed(DiskFull("full"))
    follower = run.follow(0, LONG)
    seen = [await anext(follower) for _ in range(2)]
    with pytest.raises(DiskFull, match="full"):
        await anext(follower)
    assert kinds(seen) == ["RunStarted", "FileFailure"]
    assert run.outcome is None


async def test_every_follower_hears_of_the_failure():
    run = new_run()
    run.started(0)
    followers = [asyncio.ensure_future(all_events(run)) for _ in range(5)]
    await asyncio.sleep(0)
    run.failed(DiskFull("full"))
    assert all(isinstance(e, DiskFull) for e in await asyncio.gather(*followers, return_exceptions=True))


async def test_a_quiet_run_beats_and_the_beats_move_no_cursor():
    run = new_run()
    run.started(0)
    follower = run.follow(0, 0.001)
    first = await anext(follower)
    beats = [await anext(follower) for _ in range(3)]
    assert {type(beat.body) for beat in beats} == {Heartbeat}
    assert {beat.sequence for beat in beats} == {first.sequence}
    run.completed(SyncOutcome(1))
    assert kinds([event async for event in follower])[-1] == "RunCompleted"


async def test_a_follower_that_leaves_stops_no_other():
    run = new_run()
    run.started(0)
    leaving, staying = run.follow(0, LONG), run.follow(0, LONG)
    await anext(leaving)
    await anext(staying)
    waiting = asyncio.ensure_future(anext(leaving))
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    run.completed(SyncOutcome(1))
    assert kinds([event async for event in staying]) == ["RunCompleted"]


@given(st.lists(st.sampled_from("pfy"), max_size=60), st.integers(0, 1))
def test_whatever_happens_between_no_kept_event_is_missed_doubled_or_out_of_order(steps, after):
    async def scenario():
        run = new_run()
        run.started(0)
        seen = asyncio.ensure_future(all_events(run, after))
        for number, step in enumerate(steps):
            if step == "p":
                run.progressed(snapshot(number))
            elif step == "f":
                run.file_failed(failure(number))
            else:
                await asyncio.sleep(0)
        run.completed(SyncOutcome(1))
        events = await seen
        kept = [e for e in events if not isinstance(e.body, RunProgress)]
        assert kept == [e for e in run._kept if e.sequence > after]
        sequences = [event.sequence for event in events]
        assert sequences == sorted(set(sequences))

    asyncio.run(scenario())


async def test_the_time_of_a_wait_is_not_part_of_the_run():
    now = [100.0]
    run = SyncRun("id", SyncMode.FULL, SyncTrigger.MANUAL, now_ns=lambda: int(now[0]), monotonic=lambda: now[0])
    run.waiting()
    now[0] = 160.0
    assert run.elapsed_seconds == 60.0
    run.started(5)
    now[0] = 163.0
    run.completed(SyncOutcome(1))
    started, completed = [event.body for event in await all_events(run)]
    assert (started.start_time_ns, completed.elapsed_seconds) == (160, 3.0)
