"""Concurrent edits and appends of one file by several clients: no acknowledged change is lost."""

import asyncio
import contextlib
import fcntl

import grpc
import pytest

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1.memory_service_pb2_grpc import MemoryServiceStub
from rpc.editing import EDITS, all_versions, content, digest, files_of, history, kind, move, write
from rpc.wire import TIMEOUT, check_refused, paths, refusal
from waiting import eventually

PATH = "memory/a.md"
CLIENTS = 5
EDITS_A_CLIENT = 10


@contextlib.asynccontextmanager
async def clients(running, count):
    """Clients with a connection of their own each."""
    # Channels to one address share a connection, unless their options differ.
    channels = [
        grpc.aio.insecure_channel(running.address, options=[("grpc.use_local_subchannel_pool", 1), ("memoryd.n", n)])
        for n in range(count)
    ]
    try:
        yield [MemoryServiceStub(channel) for channel in channels]
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))


async def until_written(stub, change):
    """Write what `change` makes of the file until the file is the one that was read; return the response."""
    while True:
        seen = await stub.MemoryGet(pb.MemoryGetRequest(path=PATH), timeout=TIMEOUT)
        try:
            return await stub.MemoryWrite(change(seen), timeout=TIMEOUT)
        except grpc.aio.AioRpcError as error:
            if refusal(error).reason != "CONTENT_CHANGED":
                raise


def inserting(text):
    return lambda seen: pb.MemoryWriteRequest(
        path=PATH, expected_sha256=seen.content_sha256, insert={"after_line": 0, "text": text}
    )


def replacing(text):
    return lambda seen: pb.MemoryWriteRequest(
        path=PATH, expected_sha256=seen.content_sha256, content=f"{seen.text}{text}\n"
    )


async def test_fifty_concurrent_edits_of_one_file_lose_none(serve, home):
    home.put(PATH, "first\n")
    running = await serve(EDITS)

    async def work(stub, client):
        made = [inserting, replacing]
        return [
            await until_written(stub, made[number % 2](f"client{client}edit{number}"))
            for number in range(EDITS_A_CLIENT)
        ]

    async with clients(running, CLIENTS) as stubs:
        done = await asyncio.gather(*(work(stub, number) for number, stub in enumerate(stubs)))
    lines = content(home, PATH).decode().splitlines()
    wanted = {f"client{client}edit{number}" for client in range(CLIENTS) for number in range(EDITS_A_CLIENT)}
    assert sorted(lines) == sorted([*wanted, "first"])
    versions = (await all_versions(running, PATH))[::-1]
    # Each write replaced what the one before it had written.
    assert [version.before_sha256 for version in versions] == [
        digest("first\n"),
        *(version.after_sha256 for version in versions[:-1]),
    ]
    assert versions[-1].after_sha256 == digest(content(home, PATH))
    assert {version.version_id for version in versions} == {each.version_id for some in done for each in some}


async def test_of_concurrent_writes_of_what_all_have_seen_one_succeeds(serve, home):
    home.put(PATH, "first\n")
    running = await serve(EDITS)
    calls = [write(running, PATH, "first\n", content=f"written by {number}\n") for number in range(50)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    written = [number for number, each in enumerate(done) if not isinstance(each, Exception)]
    assert len(written) == 1
    assert content(home, PATH).decode() == f"written by {written[0]}\n"
    refusals = [refusal(each) for each in done if isinstance(each, Exception)]
    assert {each.reason for each in refusals} == {"CONTENT_CHANGED"}
    assert {each.metadata["content_sha256"] for each in refusals} == {digest(content(home, PATH))}
    assert len((await history(running)).versions) == 1


async def test_concurrent_appends_and_edits_of_one_file_lose_none(serve, home):
    home.put(PATH, "first\n")
    running = await serve(EDITS)

    async def append(stub, number):
        request = pb.MemoryAppendRequest(path=PATH, text=f"appended{number}", idempotency_key=f"k{number}")
        return await stub.MemoryAppend(request, timeout=TIMEOUT)

    async with clients(running, 2) as (one, other):
        replies = await asyncio.gather(
            *(append(one, number) for number in range(20)),
            *(until_written(other, inserting(f"inserted{number}")) for number in range(10)),
        )
    lines = content(home, PATH).decode().splitlines()
    wanted = [f"appended{number}" for number in range(20)] + [f"inserted{number}" for number in range(10)]
    assert sorted(lines) == sorted([*wanted, "first"])
    revision = max(reply.index_revision for reply in replies)
    for word in ("appended19", "inserted9"):
        assert paths(await running.search(word, min_revision=revision)) == [PATH]


async def test_concurrent_moves_of_one_file_leave_it_under_one_path(serve, home):
    home.put(PATH, "first\n")
    running = await serve(EDITS)
    targets = [f"memory/b{number}.md" for number in range(10)]
    done = await asyncio.gather(*(move(running, PATH, target, "first\n") for target in targets), return_exceptions=True)
    (path,) = [each.path for each in done if not isinstance(each, Exception)]
    assert files_of(home) == {path: b"first\n"}
    assert {refusal(each).reason for each in done if isinstance(each, Exception)} == {"CONTENT_CHANGED"}
    assert [kind(version) for version in await all_versions(running, path)] == ["MOVE"]


@pytest.mark.faults
async def test_an_edit_waits_for_a_lock_that_another_program_holds(serve, home):
    file = home.put(PATH, "first\n")
    running = await serve(EDITS)
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = await check_refused(
            running.stub.MemoryWrite(
                pb.MemoryWriteRequest(path=PATH, expected_sha256=digest("first\n"), content="x"), timeout=1
            ),
            "UNAVAILABLE",
            "INDEX_BUSY",
            retry=True,
        )
        assert found.metadata["path"] == PATH
        assert content(home, PATH) == b"first\n"
        waiting = asyncio.ensure_future(write(running, PATH, "first\n", content="second\n"))
        queue = running.memory().workspace.writes
        await eventually(lambda: queue.waiting)
        # Other files do not wait for it.
        await write(running, "memory/b.md", content="x")
        fcntl.flock(held, fcntl.LOCK_UN)
        await waiting
    assert content(home, PATH) == b"second\n"
    assert len((await history(running, PATH)).versions) == 1
