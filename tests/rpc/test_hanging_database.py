"""A PostgreSQL server that stops answering fails the calls at their deadlines, and none after it continues."""

import time

import grpc
import httpx
import pytest

from memoryd.v1 import memory_service_pb2 as pb
from postgres_server import running_server
from rpc.wire import paths
from waiting import eventually

pytest.importorskip("psycopg")

pytestmark = pytest.mark.postgres

DEADLINE_SECONDS = 2.0
LATE_SECONDS = 2.0


async def search(running, seconds=DEADLINE_SECONDS):
    return await running.stub.MemorySearch(pb.MemorySearchRequest(query="crane"), timeout=seconds)


async def is_unused(running):
    """Whether no connection of the daemon is in use, and its metrics say that the index cannot be read."""
    async with httpx.AsyncClient(trust_env=False, timeout=50) as client:
        text = (await client.get(running.daemon.metrics_url)).text
    return 'memoryd_database_connections{state="in_use"} 0.0' in text and 'memoryd_index_up{agent="main"} 0.0' in text


async def test_searches_end_at_their_deadlines_and_succeed_when_the_server_continues(serve, home):
    with running_server(durable=True) as server:
        home.write(a="a crane\n")
        store, metrics = {"url": server.url, "documents": "folder"}, {"listen": "127.0.0.1:0"}
        running = await serve({"memoryd": {"store": store, "metrics": metrics}})
        await running.synced()
        assert paths(await running.search("crane")) == ["memory/a.md"]
        with server.hanging():
            for _ in range(3):
                started = time.monotonic()
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await search(running)
                assert error.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
                assert time.monotonic() - started < DEADLINE_SECONDS + LATE_SECONDS
            # Reading a memory file does not need the server.
            assert (await running.get("memory/a.md")).text == "a crane\n"
            # No search holds a connection any longer. A scrape needs the server too, and is answered without it.
            await eventually(lambda: is_unused(running), seconds=60)

        async def answered():
            try:
                return paths(await search(running, 10)) == ["memory/a.md"]
            except grpc.aio.AioRpcError:
                return False

        # After a slow failure to connect, the daemon tries again a second later.
        await eventually(answered)
        home.write(b="a crane too\n")
        await running.synced()
        assert len(paths(await running.search("crane"))) == 2
        await running.stop()
