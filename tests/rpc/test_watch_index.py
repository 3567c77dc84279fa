"""WatchIndex sends the state immediately, then each change, and heartbeats."""

import asyncio

import pytest

from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import TIMEOUT, check_refused, paths

FAST = {"agents": {"defaults": {"memorySearch": {"sync": {"watchDebounceMs": 50}}}}}
READY, EMPTY = memory_pb2.INDEX_STATE_READY, memory_pb2.INDEX_STATE_EMPTY


def watch(running, **request):
    return aiter(running.stub.WatchIndex(pb.WatchIndexRequest(**request), timeout=TIMEOUT))


async def first_matching(states, wanted):
    """The first state that is as wanted; the ones before it are told when none is."""
    seen = []
    async with asyncio.timeout(8):
        async for state in states:
            seen.append(state)
            if wanted(state):
                return state
    raise AssertionError(seen)


async def test_the_first_state_comes_at_once_and_whole(serve, home):
    home.write(a="one")
    running = await serve()
    revision = (await running.synced()).index_revision
    async with asyncio.timeout(1):
        state = await anext(watch(running))
    assert (state.agent_id, state.state, state.index_revision, state.dirty) == ("main", READY, revision, False)
    assert state.time.seconds > 0
    assert not state.heartbeat
    assert not state.HasField("active_sync")
    assert [watcher.mode for watcher in state.watchers] == [memory_pb2.WATCHER_MODE_OFF]


async def test_watching_starts_nothing(serve, home):
    home.write(a="one")
    running = await serve()
    states = watch(running, heartbeat_interval={"seconds": 1})
    first = await anext(states)
    assert first.state == EMPTY
    state = await anext(states)
    assert (state.heartbeat, state.HasField("active_sync")) == (True, False)
    assert state.index_revision == first.index_revision


async def test_a_run_shows_from_its_start_to_its_end(serve, home):
    home.many(1_500)
    running = await serve()
    states = watch(running)
    await anext(states)
    sync = asyncio.create_task(running.synced())
    busy = await first_matching(states, lambda state: state.HasField("active_sync"))
    assert busy.state == memory_pb2.INDEX_STATE_BUILDING
    assert busy.active_sync.sync_id
    done = await first_matching(states, lambda state: not state.HasField("active_sync"))
    completed = await sync
    assert (done.index_revision, done.state, done.pending_files) == (completed.index_revision, READY, 0)


@pytest.mark.parametrize("settings", [FAST, {**FAST, "memoryd": {"watcher": {"mode": "polling", "pollSeconds": 0.2}}}])
async def test_a_written_file_is_indexed_and_reported_without_a_call(serve, home, settings):
    home.write(a="one")
    running = await serve(settings, background=True)
    states = watch(running)
    before = await first_matching(states, lambda state: state.state == READY)
    home.write(b="zebra")
    after = await first_matching(states, lambda state: state.index_revision > before.index_revision)
    assert after.agent_id == "main"
    assert paths(await running.search("zebra", min_revision=after.index_revision)) == ["memory/b.md"]
    (home.workspace / "memory" / "b.md").unlink()
    gone = await first_matching(states, lambda state: state.index_revision > after.index_revision)
    assert gone.index_revision > after.index_revision
    assert not (await running.search("zebra")).results


@pytest.mark.slow
async def test_the_end_of_a_run_is_reported_without_waiting_for_a_heartbeat(serve, home):
    running = await serve()
    for number in range(15):
        states = watch(running, heartbeat_interval={"seconds": 10})
        await anext(states)
        home.write(**{f"n{number}": "text"})
        reached = (await running.synced()).index_revision
        async with asyncio.timeout(3):
            async for state in states:
                if state.index_revision >= reached and not state.HasField("active_sync"):
                    break


@pytest.mark.slow
async def test_states_come_at_most_some_ten_times_a_second(serve, home):
    home.many(1_500)
    running = await serve({"memoryd": {"filesPerTransaction": 1}})
    states = watch(running)
    loop = asyncio.get_running_loop()
    began, count = loop.time(), 0
    sync = asyncio.create_task(running.synced())
    async for state in states:
        count += 1
        if sync.done() and not state.HasField("active_sync"):
            break
    assert count <= 10 * (loop.time() - began) + 3


async def test_an_agent_s_watcher_hears_of_no_other_agent(serve, home):
    other = home.root / "other"
    (other / "memory").mkdir(parents=True)
    running = await serve({"agents": {"list": [{"id": "main"}, {"id": "other", "workspace": str(other)}]}})
    states = watch(running, agent_id="other", heartbeat_interval={"seconds": 1})
    before = (await anext(states)).index_revision
    home.write(a="one")
    await running.sync()
    state = await anext(states)
    assert (state.agent_id, state.heartbeat, state.index_revision) == ("other", True, before)


async def test_a_watch_stream_ends_when_the_daemon_stops_and_does_not_hold_it(serve):
    running = await serve()
    states = watch(running)
    await anext(states)
    async with asyncio.timeout(3):
        stopping = asyncio.create_task(running.stop_daemon())
        await check_refused(states, "UNAVAILABLE", "SHUTTING_DOWN", retry=True)
        await stopping
