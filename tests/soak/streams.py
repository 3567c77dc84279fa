"""Clients with streams: followers of syncs and of the index, slow ones, and ones that never read."""

import asyncio
import contextlib

from memoryd.messages import ON_DISCONNECT_CANCEL, SYNC_MODE_FULL, SYNC_MODE_INCREMENTAL
from memoryd.v1 import entry_service_pb2, memory_service_pb2
from raw_http2 import RawConnection
from soak.world import SingleAttempts
from soak.writers import follow_sync

SERVICE = "/memoryd.v1.MemoryService/"
ENTRIES = "/memoryd.v1.EntryService/"
STUCK_CALLS = {
    SERVICE + "WatchIndex": memory_service_pb2.WatchIndexRequest(),
    SERVICE + "Sync": memory_service_pb2.SyncRequest(),
    SERVICE + "MemorySearch": memory_service_pb2.MemorySearchRequest(query="heron", max_results=50),
    SERVICE + "ListFiles": memory_service_pb2.ListFilesRequest(),
    ENTRIES + "ListEntries": entry_service_pb2.ListEntriesRequest(),
}


async def watches(world):
    """Follow the index for a while, with pauses between two events; revisions never decrease."""
    async with world.connect() as client:
        while not world.stop.is_set():
            agent = world.any_agent()
            seconds, slow = world.chance.uniform(0.5, 5.0), world.chance.choice([0.0, 0.5])

            async def follow(agent_id, seconds=seconds, slow=slow, agent=agent):
                seen = agent.revision
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds), client.watch(agent_id=agent_id) as stream:
                        async for state in stream:
                            world.see_revision(agent, state.index_revision, seen)
                            seen = state.index_revision
                            await asyncio.sleep(slow)

            await world.call("WatchIndex", follow, agent_id=agent.agent_id)
            await world.pause(0.0, 0.2)


async def syncs(world):
    """Follow syncs of all kinds to their ends, or leave them."""
    async with world.connect() as client:
        while not world.stop.is_set():
            agent, chance = world.any_agent(), world.chance
            kind = chance.random()
            if kind < 0.25:
                await leave_sync(world, client, agent)
            else:
                mode = SYNC_MODE_FULL if kind < 0.4 else SYNC_MODE_INCREMENTAL
                await follow_sync(world, client, agent, mode=mode, dry_run=0.4 < kind < 0.55)
            await world.pause(0.2, 1.5)


async def leave_sync(world, client, agent):
    """Begin a sync and close the stream early; with half of them, the run is to be cancelled."""

    async def leave(**fields):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(world.chance.uniform(0.0, 0.3)), client.sync(**fields) as stream:
                async for _ in stream:
                    pass

    await world.call(
        "Sync", leave, agent_id=agent.agent_id, on_disconnect=world.chance.choice([0, ON_DISCONNECT_CANCEL])
    )


async def unread_streams(world):
    """Open streams with a gRPC library, and never read them."""
    while not world.stop.is_set():
        single = SingleAttempts(world.address)
        async with single.client as client:
            streams = [client.watch(agent_id=agent) for agent in world.agents for _ in range(3)]
            streams += [client.sync(agent_id=agent) for agent in world.agents]
            await world.pause(1.0, 4.0)
            for stream in streams:
                stream.close()
        await world.pause(0.5, 2.0)


async def stuck_connections(world):
    """Open connections whose windows are of zero bytes, so that no answer can be sent, and close them later."""
    while not world.stop.is_set():
        connection = None
        with contextlib.suppress(OSError):
            connection = RawConnection(world.address, window=0)
            for method, request in STUCK_CALLS.items():
                connection.open_many(method, 4, message=request.SerializeToString())
        await world.pause(1.0, 5.0)
        if connection is not None:
            connection.close()
        await world.pause(0.5, 2.0)
