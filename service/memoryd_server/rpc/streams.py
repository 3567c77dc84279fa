"""Sync and WatchIndex: runs and states carried to one follower each. A slow follower slows nobody but itself."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from memoryd.v1 import memory_service_pb2
from memoryd_server.backend import AgentMemory, SyncRun, SyncTrigger
from memoryd_server.errors import CursorExpired, ShuttingDown
from memoryd_server.rpc.sync_conversion import sync_response, watch_response
from memoryd_server.rpc.times import timestamp
from memoryd_server.rpc.validation import SyncCall

# At most ten states a second.
STATE_INTERVAL_SECONDS = 0.1


async def follow_sync(memory: AgentMemory, call: SyncCall) -> AsyncGenerator[memory_service_pb2.SyncResponse, None]:
    """The events of the run that `call` starts, joins or resumes, to its end.

    Raises:
        CursorExpired: the run to resume is forgotten.
        PathNotAllowed, FileNotFound: the transcript that was compacted is none, or is not there.
        SyncConflict: a FULL run was asked for during a run.
        MemorydError: what ended the run.
    """
    known = memory.coordinator.active
    run, after = await _run_of(memory, call)
    run.followers += 1
    try:
        async with aclosing(run.follow(after, call.heartbeat_seconds)) as events:
            async for event in events:
                yield sync_response(run, event, attached=run is known)
    finally:
        run.followers -= 1
        if call.cancel_on_disconnect and run.followers == 0 and not run.finished.is_set():
            run.stop_asked = True


async def _run_of(memory: AgentMemory, call: SyncCall) -> tuple[SyncRun, int]:
    """The run to follow, and the sequence after which to begin."""
    if call.resume is not None:
        sync_id, sequence = call.resume
        run = memory.coordinator.find(sync_id)
        if run is None:
            raise CursorExpired(
                "the run of this cursor is forgotten; start a fresh Sync, which finds most files unchanged"
            )
        return run, sequence
    if call.dry_run:
        return await memory.estimate(call.mode, call.ask), 0
    if call.transcript:
        await memory.require_transcript(call.transcript)
    if call.trigger is SyncTrigger.SESSION_START:
        # What this run does is not to be done again by the session's first search.
        memory.session_starts.is_first(call.session_key)
    return await memory.coordinator.request(call.trigger, call.mode, call.ask), 0


async def follow_index(
    memory: AgentMemory, heartbeat_seconds: float
) -> AsyncGenerator[memory_service_pb2.WatchIndexResponse, None]:
    """The state of an index at once, then after each change, and heartbeats between; without end.

    Raises:
        ShuttingDown: the daemon stops, and would otherwise wait for its watchers, or it opens the memory anew.
    """
    heartbeat = False
    while not memory.board.current.closing:
        change = asyncio.ensure_future(memory.board.next_change())
        try:
            yield watch_response(
                memory.config.agent_id,
                timestamp(time.time_ns()),
                memory.board.current,
                memory.coordinator.active,
                memory.watched_roots(),
                heartbeat=heartbeat,
            )
            done, _ = await asyncio.wait([change], timeout=heartbeat_seconds)
        finally:
            change.cancel()
        heartbeat = not done
        if done and not memory.board.current.closing:
            await asyncio.sleep(STATE_INTERVAL_SECONDS)
    raise ShuttingDown(
        "the daemon is stopping, or opens this memory anew with other settings; watch again", retry_after_seconds=1.0
    )
