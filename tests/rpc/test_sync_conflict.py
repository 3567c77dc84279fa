"""`SyncRequest.on_conflict`: a FULL sync during a run fails, or waits for the end of the run."""

import asyncio
import threading

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from fake_qmd.installs import make_fake
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import sync_event_pb2
from rpc.qmd_calls import qmd_settings
from rpc.sync_streams import CANCEL, FULL, check_stream, follow, rest
from rpc.wire import check_refused, kinds_of, refused
from waiting import eventually

ABORT, WAIT = sync_event_pb2.ON_CONFLICT_ABORT, sync_event_pb2.ON_CONFLICT_WAIT
WAITING = sync_event_pb2.SYNC_PHASE_WAITING
SECOND = Duration(seconds=1)


@pytest.fixture
async def held(serve, home, pause_sync):
    """A daemon and a run under way that ends when `release` is called."""
    home.write(a="zebra", b="lion")
    running = await serve()
    paused = pause_sync(running)
    stream = follow(running)
    assert (await anext(stream)).started
    await paused.until_reached()
    return running, stream, paused


def wait_for_run(running, **request):
    return follow(running, mode=FULL, on_conflict=WAIT, **request)


async def check_waits(stream):
    event = await anext(stream)
    assert event.progress.phase == WAITING
    assert event.cursor
    return event


@pytest.mark.parametrize("value", [0, ABORT])
async def test_a_full_sync_fails_by_default_and_the_message_names_the_way_to_wait(held, value):
    running, stream, paused = held
    found = await check_refused(
        follow(running, mode=FULL, on_conflict=value),
        "ABORTED",
        "SYNC_CONFLICT",
        retry=True,
        mentions="ON_CONFLICT_WAIT",
    )
    assert "INCREMENTAL" in found.message
    paused.release()
    await rest(stream)


async def test_an_unknown_value_is_invalid(serve):
    running = await serve()
    unknown = follow(running, mode=FULL, on_conflict=9)
    await check_refused(unknown, "INVALID_ARGUMENT", "INVALID_REQUEST", violations=["on_conflict"])


async def test_a_full_sync_waits_and_then_rebuilds(held, home):
    running, first, paused = held
    stream = wait_for_run(running, heartbeat_interval=SECOND)
    waited = await check_waits(stream)
    beat = await anext(stream)
    assert (beat.WhichOneof("event"), beat.sequence, beat.cursor) == ("heartbeat", waited.sequence, waited.cursor)
    assert 0.5 < beat.heartbeat.elapsed.ToMilliseconds() / 1000 < 60
    # The run under way has made its plan: it does not know this file.
    home.write(late="heron")
    paused.release()
    under_way = await rest(first)
    events = await rest(stream)
    events = events[[event.WhichOneof("event") for event in events].index("started") :]
    check_stream(events)
    assert {event.sync_id for event in events} == {waited.sync_id} != {under_way[-1].sync_id}
    assert (events[0].started.mode, events[0].started.attached) == (FULL, False)
    assert events[0].started.index_revision == under_way[-1].completed.index_revision
    assert events[-1].completed.indexed_files == 3
    assert [line["sync_id"] for line in running.logged("complete-sync")] == [under_way[-1].sync_id, waited.sync_id]


async def test_without_a_run_it_starts_immediately(serve, home):
    home.write(a="zebra")
    events = await (await serve()).sync(mode=FULL, on_conflict=WAIT)
    check_stream(events)
    assert WAITING not in [event.progress.phase for event in events]


async def test_an_incremental_sync_joins_whatever_the_value(held):
    running, first, paused = held
    joined = follow(running, on_conflict=WAIT)
    assert (await anext(joined)).started.attached
    paused.release()
    assert (await rest(joined))[-1].completed == (await rest(first))[-1].completed


async def test_callers_that_wait_share_one_rebuild(held):
    running, first, paused = held
    streams = [wait_for_run(running) for _ in range(4)]
    waits = [await check_waits(stream) for stream in streams]
    assert len({event.sync_id for event in waits}) == 1
    paused.release()
    await rest(first)
    ends = await asyncio.gather(*map(rest, streams))
    assert all(events[-1].completed == ends[0][-1].completed for events in ends)
    assert all(not event.started.attached for events in ends for event in events)
    assert len(running.logged("complete-sync")) == 2


async def test_a_caller_that_leaves_ends_its_wait_only(held):
    running, first, paused = held
    stays = wait_for_run(running)
    run_id = (await check_waits(stays)).sync_id
    leaves = running.stub.Sync(pb.SyncRequest(mode=FULL, on_conflict=WAIT, on_disconnect=CANCEL))
    assert (await leaves.read()).progress.phase == WAITING
    queued = running.memory().index.coordinator.find(run_id)
    assert queued.followers == 2
    leaves.cancel()
    await eventually(lambda: queued.followers == 1)
    paused.release()
    await rest(first)
    assert (await rest(stays))[-1].completed.indexed_files == 2


async def test_no_rebuild_starts_after_all_callers_have_left(held):
    running, first, paused = held
    cancelled = running.stub.Sync(pb.SyncRequest(mode=FULL, on_conflict=WAIT))
    waited = await cancelled.read()
    late = running.stub.Sync(pb.SyncRequest(mode=FULL, on_conflict=WAIT), timeout=0.5)
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await rest(late)
    assert failure.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    cancelled.cancel()
    await eventually(lambda: running.memory().index.coordinator.find(waited.sync_id) is None)
    paused.release()
    await rest(first)
    assert not (await running.status()).HasField("active_sync")
    assert [line["mode"] for line in running.logged("complete-sync")] == ["INCREMENTAL"]
    await check_refused(follow(running, cursor=waited.cursor), "OUT_OF_RANGE", "CURSOR_EXPIRED")


async def test_a_stream_that_waits_is_resumed_by_its_cursor(held):
    running, first, paused = held
    stays = wait_for_run(running)
    event = await check_waits(stays)
    again = follow(running, cursor=event.cursor)
    paused.release()
    await rest(first)
    events = await rest(again)
    assert kinds_of(events)[0] == "started"
    assert events[-1] == (await rest(stays))[-1]
    assert {each.sync_id for each in events} == {event.sync_id}


async def test_a_stop_of_the_daemon_ends_the_wait(held):
    running, first, paused = held
    stream = wait_for_run(running)
    await check_waits(stream)
    stop = asyncio.ensure_future(running.stop_daemon())
    await check_refused(stream, "UNAVAILABLE", "SHUTTING_DOWN", retry=True)
    paused.release()
    await refused(rest(first))
    await stop


async def test_with_qmd_as_the_only_index_a_full_sync_waits_too(serve, qmd_home, tmp_path):
    fake = make_fake(tmp_path / "bin")
    running = await serve(qmd_settings(fake.path, fallback="none"), at=qmd_home)
    index, go = running.memory().index, threading.Event()
    index.writer_thread.submit(go.wait)
    first = follow(running)
    started = await anext(first)
    second = wait_for_run(running)
    waited = await check_waits(second)
    go.set()
    assert {event.sync_id for event in await rest(first)} == {started.sync_id}
    events = await rest(second)
    assert {event.sync_id for event in events} == {waited.sync_id}
    assert kinds_of(events)[-1] == "completed"
    assert [run.mode for run in index.coordinator.runs()] == ["FULL", "INCREMENTAL"]
