"""Replies that their clients do not read: a call counts until its reply is sent, and is cancelled after a time."""

import asyncio
import contextlib

import pytest

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1.entry_service_pb2 import DESCRIPTOR as ENTRY_FILE
from memoryd.v1.memory_service_pb2 import DESCRIPTOR as MEMORY_FILE
from memoryd_server.rpc import replies
from raw_http2 import DATA, RawConnection
from rpc.callers import bearer, health, new_token
from rpc.wire import TIMEOUT, check_refused
from waiting import eventually

pytestmark = pytest.mark.attacks

GET = "/memoryd.v1.MemoryService/MemoryGet"
WATCH_INDEX = "/memoryd.v1.MemoryService/WatchIndex"
REQUEST = pb.MemoryGetRequest(path="memory/long.md").SerializeToString()
LONG = ("the heron nests by the weir " * 40 + "\n") * 100
# A recall remembers what it has shown.
CHANGES_SOMETHING = {
    "MemoryRecall",
    "Sync",
    "WatchIndex",
    "MemoryAppend",
    "MemoryWrite",
    "MemoryMove",
    "MemoryRestore",
    "MemoryForget",
    "SessionArchive",
    "SessionAppend",
    "Remember",
    "Forget",
}
WITHOUT_LONG_REPLY = {"FlushDecision"}


@pytest.fixture
async def limited(serve, home):
    """Starts a daemon with one long note on TCP and on a socket, with these limits."""
    home.write(long=LONG)

    async def limited(**limits):
        listen = ["127.0.0.1:0", f"unix:{home.socket}"]
        running = await serve({"memoryd": {"listen": listen, "limits": limits}}, listen=None)
        assert len((await get(running, new_token(home)[1])).text) > 100_000
        # The place of a call is freed shortly after its client has the reply.
        await eventually(lambda: (admission(running).calls, admission(running).reply_bytes) == (0, 0))
        return running

    return limited


def get(running, token):
    return running.stub.MemoryGet(pb.MemoryGetRequest(path="memory/long.md"), timeout=TIMEOUT, **bearer(token))


@contextlib.asynccontextmanager
async def unread(address, method, count, token, request=REQUEST):
    """`count` calls whose replies the client gives no room, until the block ends."""
    connection = await asyncio.to_thread(RawConnection, address, window=0)
    try:
        connection.open_many(method, count, token, request)
        yield connection
    finally:
        connection.close()


def admission(running):
    return running.gate.admission


async def test_call_counts_until_its_reply_is_read(limited, home):
    running = await limited(tokenConcurrentCalls=3)
    (_, greedy), (_, other) = new_token(home), new_token(home)
    async with unread(running.address, GET, 3, greedy):
        await eventually(lambda: admission(running).reply_bytes > 3 * len(LONG))
        assert admission(running).calls == 3
        found = await check_refused(get(running, greedy), "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", retry=True)
        assert found.metadata == {"limit": "tokenConcurrentCalls"}
        assert (await get(running, other)).text
        assert await health(running, **bearer(greedy)) == 1
    await eventually(lambda: (admission(running).calls, admission(running).reply_bytes) == (0, 0))
    assert (await get(running, greedy)).text


async def test_unread_bytes_of_one_token_are_bounded(limited, home):
    running = await limited(tokenUnreadReplyBytes=len(LONG) * 2 + 10_000)
    (_, greedy), (_, other) = new_token(home), new_token(home)
    async with unread(running.address, GET, 6, greedy) as connection:
        # Four of the six are refused: their statuses need no room.
        await asyncio.to_thread(connection.read_until, lambda: len(connection.ended) == 4)
        assert 2 * len(LONG) < admission(running).reply_bytes < 3 * len(LONG)
        found = await check_refused(get(running, greedy), "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", retry=True)
        assert found.metadata == {"limit": "tokenUnreadReplyBytes"}
        assert (await get(running, other)).text
    await eventually(lambda: admission(running).reply_bytes == 0)
    assert (await get(running, greedy)).text


async def test_unread_bytes_of_the_owner_are_bounded_by_the_total(limited, home):
    running = await limited(maxUnreadReplyBytes=len(LONG) + 10_000)
    async with unread(f"unix:{home.socket}", GET, 1, None):
        await eventually(lambda: admission(running).reply_bytes > len(LONG))
        found = await check_refused(
            get(running, new_token(home)[1]), "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", retry=True
        )
        assert found.metadata == {"limit": "maxUnreadReplyBytes"}
    await eventually(lambda: admission(running).reply_bytes == 0)


async def test_call_whose_reply_is_not_read_in_time_is_cancelled(limited, home):
    running = await limited(replySeconds=1)
    token_id, token = new_token(home)
    async with unread(running.address, GET, 5, token) as connection:
        await eventually(lambda: len(running.logged("cancel-unread-reply")) == 5)
        await eventually(lambda: (admission(running).calls, admission(running).reply_bytes) == (0, 0))
        # gRPC resets a stream when it frees the reply. It keeps the latest call until the next one.
        assert (await get(running, token)).text
        assert await asyncio.to_thread(connection.read_until, lambda: len(connection.ended) == 5)
        assert not any(kind == DATA for frames in connection.received.values() for kind, _ in frames)
    (event, *others) = running.logged("cancel-unread-reply")
    assert (event["method"], event["token_id"], len(others)) == (GET, token_id, 4)


async def test_stream_whose_message_is_not_read_in_time_is_cancelled(limited, home):
    running = await limited(streamReplySeconds=1)
    _, token = new_token(home)
    reading = running.stub.WatchIndex(pb.WatchIndexRequest(), **bearer(token))
    await reading.read()
    async with unread(running.address, WATCH_INDEX, 4, token, b"") as connection:
        await eventually(lambda: len(running.logged("cancel-unread-reply")) == 4)
        await eventually(lambda: admission(running).streams == 1)
        assert (await get(running, token)).text
        assert await asyncio.to_thread(connection.read_until, lambda: len(connection.ended) == 4)
    home.write(new="the kestrel hovers")
    assert [event async for event in running.stub.Sync(pb.SyncRequest(), **bearer(token))]
    assert (await reading.read()).index_revision > 0


def test_reply_of_a_call_that_changes_something_is_never_refused():
    services = [
        file.services_by_name[name] for file, name in ((MEMORY_FILE, "MemoryService"), (ENTRY_FILE, "EntryService"))
    ]
    methods = {method.name for service in services for method in service.methods}
    assert methods - CHANGES_SOMETHING - WITHOUT_LONG_REPLY == replies._READING
