"""Sync streams a run from start to end to each caller that started it, joined it or resumed it."""

import asyncio

import pytest

from memoryd.v1 import memory_pb2, sync_event_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.sync_streams import CANCEL, FULL, SESSION_START, check_stream, follow, rest
from rpc.wire import check_refused, kinds_of, paths, refused, trigger
from waiting import eventually


async def test_a_run_begins_with_started_and_ends_with_completed(serve, home):
    home.many(1_500)
    home.put("MEMORY.md", "zebra")
    running = await serve()
    before = (await running.status()).index.revision
    events = await running.sync(trigger=SESSION_START, reason="a test", session_key="agent:main:x")
    check_stream(events)
    started = events[0].started
    assert (started.mode, trigger(started.trigger)) == (sync_event_pb2.SYNC_MODE_INCREMENTAL, "SESSION_START")
    assert not started.attached
    assert not started.dry_run
    assert started.index_revision == before
    assert started.start_time.seconds > 0
    progress = [event.progress for event in events if event.WhichOneof("event") == "progress"]
    assert len(progress) >= 2
    assert [p.completed_files for p in progress] == sorted(p.completed_files for p in progress)
    assert (progress[-1].completed_files, progress[-1].total_files) == (1_501, 1_501)
    assert progress[-1].completed_chunks == progress[-1].total_chunks > 1_500
    assert any(p.HasField("eta") for p in progress)
    completed = events[-1].completed
    assert (completed.indexed_files, completed.unchanged_files, completed.removed_files, completed.failed_files) == (
        1_501,
        0,
        0,
        0,
    )
    assert completed.changed
    assert completed.chunks == progress[-1].total_chunks
    assert completed.index_revision == (await running.status()).index.revision > 0
    assert completed.elapsed.ToMilliseconds() > 0
    assert not completed.HasField("estimate")


@pytest.mark.slow
async def test_progress_is_reported_at_most_some_ten_times_a_second(serve, home):
    home.many(2_500)
    events = await (await serve()).sync()
    seconds = events[-1].completed.elapsed.ToMilliseconds() / 1000
    assert kinds_of(events).count("progress") <= 10 * seconds + 5


async def test_an_unchanged_file_is_not_indexed_again(serve, home):
    home.write(a="one", b="two", c="three")
    running = await serve()
    first = await running.synced()
    second = await running.synced()
    assert (second.changed, second.indexed_files, second.unchanged_files) == (False, 0, 3)
    assert second.index_revision == first.index_revision
    home.write(a="one more")
    (home.workspace / "memory" / "b.md").unlink()
    third = await running.synced()
    assert (third.changed, third.indexed_files, third.unchanged_files, third.removed_files) == (True, 1, 1, 1)
    assert third.index_revision > second.index_revision


async def test_a_bad_file_is_reported_and_the_others_are_indexed(serve, home):
    home.write(good="zebra", big="x" * 2_000, nul="a\0zebra", latin=b"caf\xe9 zebra", empty="")
    running = await serve({"memoryd": {"limits": {"maxFileBytes": 1_000}}})
    events = await running.sync()
    check_stream(events)
    (failed,) = [event.file_failed for event in events if event.WhichOneof("event") == "file_failed"]
    assert (failed.path, failed.source) == ("memory/big.md", memory_pb2.SOURCE_MEMORY)
    assert "2000" in failed.error
    assert (events[-1].completed.indexed_files, events[-1].completed.failed_files) == (4, 1)
    assert set(paths(await running.search("zebra"))) == {"memory/good.md", "memory/nul.md", "memory/latin.md"}


async def test_a_second_caller_joins_and_both_see_the_end(serve, home, pause_sync):
    home.write(a="one", b="two")
    running = await serve()
    held = pause_sync(running)
    first = follow(running)
    opening = await anext(first)
    await held.until_reached()
    second = follow(running)
    joined = await anext(second)
    assert joined.sync_id == opening.sync_id
    assert (opening.started.attached, joined.started.attached) == (False, True)
    held.release()
    ends = [(await rest(stream))[-1].completed for stream in (first, second)]
    assert ends[0] == ends[1]
    assert ends[0].indexed_files == 2


async def test_a_file_written_before_a_sync_is_in_the_index_when_it_completes(serve, home, pause_sync):
    home.write(a="one")
    running = await serve()
    held = pause_sync(running)
    first = follow(running)
    await held.until_reached()
    # The run has made its plan: it knows nothing of this file.
    home.write(late="zebra")
    second = follow(running)
    assert (await anext(second)).started.attached
    held.release()
    check_stream([await anext(first), *await rest(first)])
    completed = (await rest(second))[-1].completed
    assert paths(await running.search("zebra", min_revision=completed.index_revision)) == ["memory/late.md"]


async def test_many_callers_each_find_what_they_wrote(serve, home):
    home.many(300)
    running = await serve()

    async def one(number):
        await asyncio.sleep(number / 1000)
        home.put(f"memory/mine{number}.md", f"zebra{number}")
        await running.sync()
        return paths(await running.search(f"zebra{number}"))

    found = await asyncio.gather(*(one(number) for number in range(40)))
    assert found == [[f"memory/mine{number}.md"] for number in range(40)]


async def test_a_follower_comes_back_to_a_run_under_way(serve, home, pause_sync):
    home.write(**{f"big{n}": "x" * 200 for n in range(3)}, good="fine")
    running = await serve({"memoryd": {"limits": {"maxFileBytes": 100}}})
    held = pause_sync(running, at=2)
    call = running.stub.Sync(pb.SyncRequest())
    seen = []
    async for event in call:
        seen.append(event)
        if kinds_of(seen).count("file_failed") == 2:
            break
    call.cancel()
    await held.until_reached()
    again = follow(running, cursor=seen[-1].cursor)
    held.release()
    later = await rest(again)
    assert {event.sync_id for event in later} == {seen[0].sync_id}
    assert all(event.sequence > seen[-1].sequence for event in later)
    assert kinds_of(seen + later).count("file_failed") == 3
    assert kinds_of(later)[-1] == "completed"
    assert "started" not in kinds_of(later)


async def test_a_cursor_works_after_the_end_of_its_run(serve, home):
    home.write(a="one")
    running = await serve()
    events = await running.sync()
    for event in events:
        later = await running.sync(cursor=event.cursor)
        assert later[-1] == events[-1]
        assert {e.sync_id for e in later} == {events[0].sync_id}
    # Nothing ran again for it.
    assert len(running.logged("complete-sync")) == 1


async def test_a_cursor_is_forgotten_after_some_more_runs(serve):
    running = await serve()
    cursor = (await running.sync())[0].cursor
    for _ in range(8):
        await running.sync()
    await check_refused(follow(running, cursor=cursor), "OUT_OF_RANGE", "CURSOR_EXPIRED")


async def test_a_cursor_beyond_the_end_is_no_way_around_completed(serve):
    from memoryd_server.rpc.wire import make_cursor  # noqa: PLC0415 -- a forger's tool

    running = await serve()
    sync_id = (await running.sync())[0].sync_id
    for sequence in (-5, 10**6, 10**30):
        assert kinds_of(await running.sync(cursor=make_cursor(sync_id, sequence)))[-1] == "completed"


async def test_a_dry_run_estimates_and_writes_nothing(serve, home):
    home.write(a="one", b="two", gone="three")
    running = await serve()
    before = (await running.status()).index.revision
    events = await running.sync(dry_run=True)
    assert kinds_of(events) == ["started", "completed"]
    assert events[0].started.dry_run
    estimate = events[-1].completed.estimate
    assert (estimate.files, estimate.removed_files, estimate.chunks) == (3, 0, 3)
    assert (estimate.cache_misses, estimate.estimated_tokens) == (0, 0)
    assert not events[-1].completed.changed
    index = (await running.status()).index
    assert (index.revision, index.files, index.pending_files) == (before, 0, 3)
    await running.sync()
    (home.workspace / "memory" / "gone.md").unlink()
    home.write(a="changed")
    estimate = (await running.synced(dry_run=True)).estimate
    # What was written within the second before it was read is read again, since its times cannot tell.
    assert 1 <= estimate.files <= 2
    assert estimate.removed_files == 1
    assert (await running.synced(dry_run=True, mode=FULL)).estimate.files == 2


async def test_a_dry_run_neither_joins_nor_disturbs_a_run(serve, home, pause_sync):
    home.write(a="one")
    running = await serve()
    held = pause_sync(running)
    real = follow(running)
    opening = await anext(real)
    await held.until_reached()
    dry = await running.sync(dry_run=True)
    assert dry[0].sync_id != opening.sync_id
    assert not dry[0].started.attached
    held.release()
    assert (await rest(real))[-1].completed.indexed_files == 1


async def test_a_heartbeat_shows_that_a_silent_run_is_alive(serve, home, pause_sync):
    home.write(a="one")
    running = await serve()
    held = pause_sync(running)
    stream = follow(running, heartbeat_interval={"seconds": 1})
    events = []
    async for event in stream:
        events.append(event)
        if event.WhichOneof("event") == "heartbeat":
            held.release()
    check_stream(events)
    (beat,) = [event.heartbeat for event in events if event.WhichOneof("event") == "heartbeat"]
    assert beat.elapsed.ToMilliseconds() >= 900


async def test_the_first_event_comes_at_once(serve, home, pause_sync):
    home.write(a="one")
    running = await serve()
    pause_sync(running)
    async with asyncio.timeout(1):
        assert (await anext(follow(running))).WhichOneof("event") == "started"
        assert (await anext(follow(running))).WhichOneof("event") == "started"


async def test_a_search_answers_throughout_a_full_rebuild(serve, home, pause_sync):
    home.write(a="zebra", b="lion")
    running = await serve()
    before = (await running.synced()).index_revision
    held = pause_sync(running, at=1)
    stream = follow(running, mode=FULL)
    assert (await anext(stream)).started.mode == FULL
    await held.until_reached()
    answer = await running.search("zebra")
    assert paths(answer) == ["memory/a.md"]
    assert answer.info.index_revision == before
    assert answer.info.index_state == memory_pb2.INDEX_STATE_BUILDING
    status = await running.status()
    assert status.active_sync.mode == FULL
    assert status.active_sync.progress.total_files == 2
    held.release()
    events = await rest(stream)
    assert sync_event_pb2.SYNC_PHASE_SWAPPING in [event.progress.phase for event in events]
    completed = events[-1].completed
    assert completed.index_revision > before
    assert completed.changed
    assert completed.indexed_files == 2
    answer = await running.search("zebra")
    assert (paths(answer), answer.info.index_revision) == (["memory/a.md"], completed.index_revision)
    assert not (await running.status()).index.dirty


async def test_a_run_stops_when_its_only_follower_leaves_and_asked_for_that(serve, home, pause_sync):
    home.many(20)
    running = await serve({"memoryd": {"filesPerTransaction": 1}})
    held = pause_sync(running, at=5)
    call = running.stub.Sync(pb.SyncRequest(on_disconnect=CANCEL))
    cursor = (await call.read()).cursor
    await held.until_reached()
    call.cancel()
    run = running.memory().index.coordinator.active
    await eventually(lambda: run.stop_requested)
    held.release()
    await eventually(lambda: running.logged("end-sync"))
    status = await running.status()
    assert 0 < status.index.files < 20
    assert not status.HasField("active_sync")
    await check_refused(follow(running, cursor=cursor), "ABORTED", "SYNC_CANCELLED")
    assert (await running.synced()).indexed_files + status.index.files == 20


@pytest.mark.parametrize("others", [{}, {"on_disconnect": CANCEL}])
async def test_a_run_goes_on_while_another_follows_it(serve, home, pause_sync, others):
    home.many(20)
    running = await serve()
    held = pause_sync(running, at=5)
    leaver = running.stub.Sync(pb.SyncRequest(on_disconnect=CANCEL))
    await leaver.read()
    stayer = follow(running, **others)
    await anext(stayer)
    leaver.cancel()
    run = running.memory().index.coordinator.active
    await eventually(lambda: run.followers == 1)
    held.release()
    assert (await rest(stayer))[-1].completed.indexed_files == 20


async def test_a_run_goes_on_when_its_follower_leaves(serve, home, pause_sync):
    home.many(20)
    running = await serve()
    held = pause_sync(running, at=5)
    call = running.stub.Sync(pb.SyncRequest())
    await call.read()
    call.cancel()
    run = running.memory().index.coordinator.active
    await eventually(lambda: run.followers == 0)
    held.release()
    (ended,) = await eventually(lambda: running.logged("complete-sync"))
    assert ended["indexed"] == 20


async def test_a_run_that_is_being_stopped_takes_no_joiner_with_it(serve, home, pause_sync, monkeypatch):
    home.many(20)
    running = await serve()
    held = pause_sync(running, at=5)
    leaver = running.stub.Sync(pb.SyncRequest(on_disconnect=CANCEL))
    opening = await leaver.read()
    await held.until_reached()
    leaver.cancel()
    run = running.memory().index.coordinator.active
    await eventually(lambda: run.stop_requested)
    coordinator, asked = running.memory().index.coordinator, asyncio.Event()
    request = coordinator.request

    async def noted(*args, **options):
        asked.set()
        return await request(*args, **options)

    monkeypatch.setattr(coordinator, "request", noted)
    late = follow(running)
    await asked.wait()
    held.release()
    events = await rest(late)
    check_stream(events)
    assert events[0].sync_id != opening.sync_id
    assert (await running.status()).index.files == 20


@pytest.mark.slow
async def test_a_slow_reader_blocks_no_other_and_misses_no_failure(serve, home):
    count = 3_000
    home.write(**{f"big{n:04}-{'x' * 100}": "x" * 200 for n in range(count)})
    running = await serve({"memoryd": {"limits": {"maxFileBytes": 100}}})
    lazy = running.stub.Sync(pb.SyncRequest())
    await lazy.read()
    assert (await running.synced()).failed_files == count
    failed = set()
    while (event := await lazy.read()) and event.WhichOneof("event") != "completed":
        if event.WhichOneof("event") == "file_failed":
            failed.add(event.file_failed.path)
    assert len(failed) == count


async def test_a_reader_that_stopped_reading_can_still_leave(serve, home):
    home.write(**{f"big{n:04}-{'x' * 100}": "x" * 200 for n in range(2_000)})
    running = await serve({"memoryd": {"limits": {"maxFileBytes": 100}}})
    lazy = running.stub.Sync(pb.SyncRequest(on_disconnect=CANCEL))
    await lazy.read()
    run = running.runs()[0]
    lazy.cancel()
    await eventually(lambda: run.followers == 0)


async def test_agents_sync_concurrently(serve, home, pause_sync):
    other = home.root / "other"
    (other / "memory").mkdir(parents=True)
    (other / "memory" / "note.md").write_text("lion")
    home.write(a="zebra")
    running = await serve({"agents": {"list": [{"id": "main"}, {"id": "other", "workspace": str(other)}]}})
    held = pause_sync(running)
    first = follow(running)
    await held.until_reached()
    assert (await running.synced(agent_id="other")).indexed_files == 1
    held.release()
    assert kinds_of(await rest(first))[-1] == "completed"


async def test_a_stop_ends_a_run_at_a_file_and_says_so(serve, home, pause_sync):
    home.many(20)
    running = await serve()
    held = pause_sync(running, at=5)
    stream = follow(running)
    await held.until_reached()
    stopping = asyncio.create_task(running.stop_daemon())
    run = running.memory().index.coordinator.active
    await eventually(lambda: run.stop_requested)
    held.release()
    found = await refused(stream)
    assert (found.code, found.reason) == ("ABORTED", "SYNC_CANCELLED")
    assert found.retry_seconds
    await stopping
