"""The asyncio client, where it differs from the blocking one; the table of all clients runs with both."""

import asyncio
import gc

import grpc
import pytest

from memoryd.client import AsyncMemorydClient, MemorydClient, MemorydError, connect, connect_async
from memoryd.entry_client import AsyncEntryClient, EntryClient
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs


class Servicer(stubs.MemoryServiceServicer):
    """Keeps the appends that it gets, and never ends a watch by itself."""

    def __init__(self):
        self.appends = []
        self.ended = asyncio.Event()

    async def MemoryAppend(self, request, context):
        self.appends.append(request)
        return pb.MemoryAppendResponse()

    async def WatchIndex(self, request, context):
        context.add_done_callback(lambda _: self.ended.set())
        yield pb.WatchIndexResponse(agent_id="main")
        await asyncio.Event().wait()


@pytest.fixture
async def served(tmp_path):
    servicer, server = Servicer(), grpc.aio.server()
    stubs.add_MemoryServiceServicer_to_server(servicer, server)
    servicer.address = f"unix:{tmp_path}/m.sock"
    server.add_insecure_port(servicer.address)
    await server.start()
    yield servicer
    await server.stop(None)


async def ended(served):
    await asyncio.wait_for(served.ended.wait(), 20)


async def test_both_clients_have_the_same_methods():
    for blocking, asynchronous in ((MemorydClient, AsyncMemorydClient), (EntryClient, AsyncEntryClient)):
        names = {name for name in dir(blocking) if not name.startswith("_")}
        assert names == {name for name in dir(asynchronous) if not name.startswith("_")}
        for name in names - {"close", "entries"}:
            assert getattr(blocking, name) is getattr(asynchronous, name)
            assert getattr(blocking, name).__doc__


async def test_a_task_that_is_cancelled_stays_cancelled(served):
    async with connect_async(served.address) as client:
        events = client.watch()
        await anext(events)

        async def follow():
            async for _ in events:
                pass

        task = asyncio.create_task(follow())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended(served)


async def test_a_stream_that_was_closed_raises_the_clients_error(served):
    async with connect_async(served.address) as client:
        async with client.watch() as events:
            await anext(events)
        with pytest.raises(MemorydError) as caught:
            await anext(events)
        assert caught.value.code == grpc.StatusCode.CANCELLED
        await ended(served)


async def test_a_stream_that_is_closed_while_it_is_read_raises_the_clients_error(served):
    async with connect_async(served.address) as client:
        events = client.watch()
        await anext(events)
        reading = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.05)
        events.close()
        with pytest.raises(MemorydError) as caught:
            await reading
        assert caught.value.code == grpc.StatusCode.CANCELLED


async def test_leaving_a_loop_ends_the_call(served):
    async def first(client):
        async for event in client.watch():
            return event
        return None

    async with connect_async(served.address) as client:
        assert (await first(client)).agent_id == "main"
        gc.collect()
        await ended(served)


async def test_leaving_a_blocking_loop_ends_the_call(served):
    def first():
        with connect(served.address) as client:
            for event in client.watch():
                assert event.agent_id == "main"
                break
            gc.collect()
            asyncio.run_coroutine_threadsafe(ended(served), loop).result(30)

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(first)


async def test_an_append_gets_a_key_of_its_own_and_the_request_stays_as_it_is(served):
    request = pb.MemoryAppendRequest(text="x")
    async with connect_async(served.address) as client:
        await client.append(request)
        await client.append(request)
        await client.append(text="x", idempotency_key="mine")
    first, second, third = (each.idempotency_key for each in served.appends)
    assert request == pb.MemoryAppendRequest(text="x")
    assert first != second
    assert 1 <= len(first) <= 128
    assert third == "mine"


async def test_a_daemon_that_is_away_is_unavailable(tmp_path):
    async with connect_async(f"unix:{tmp_path}/none.sock", timeout=20) as client:
        with pytest.raises(MemorydError) as caught:
            await client.list_agents()
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE


async def test_a_request_and_fields_together_are_refused(served):
    async with connect_async(served.address) as client:
        with pytest.raises(TypeError, match="MemoryGetRequest"):
            await client.get(pb.MemoryGetRequest(path="x"), path="y")
