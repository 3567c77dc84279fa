"""A typed program that uses the client: `mypy --strict` accepts every line except the marked errors."""

from collections.abc import Mapping
from typing import assert_type

import grpc

from memoryd.client import (
    AsyncMemorydClient,
    AsyncStream,
    MemorydClient,
    MemorydError,
    Stream,
    Tls,
    connect,
    connect_async,
)
from memoryd.v1 import entry_service_pb2 as entries
from memoryd.v1 import memory_service_pb2 as pb


def blocking() -> None:
    with connect("unix:/tmp/m.sock", timeout=2.0, tls=Tls(ca_file="ca.pem"), keepalive=10.0) as client:
        assert_type(client, MemorydClient)
        assert_type(client.search(query="x", max_results=3), pb.MemorySearchResponse)
        assert_type(client.recall(text="x", remember_shown=True), pb.MemoryRecallResponse)
        assert_type(client.get(pb.MemoryGetRequest(path="MEMORY.md"), timeout=1.0), pb.MemoryGetResponse)
        assert_type(client.entries.recall(query="x"), entries.RecallResponse)
        with client.sync() as events:
            assert_type(events, Stream[pb.SyncResponse])
            for event in events:
                assert_type(event, pb.SyncResponse)
        client.get(pb.StatusRequest())  # type: ignore[arg-type]
        client.search(query="x", timeout="soon")  # type: ignore[arg-type]
        client.serach(query="x")  # type: ignore[attr-defined]
        client.search(query="x").resluts  # type: ignore[attr-defined] # noqa: B018


async def asynchronous() -> None:
    async with connect_async(token="", tls=False) as client:
        assert_type(client, AsyncMemorydClient)
        assert_type(await client.append(text="x"), pb.MemoryAppendResponse)
        assert_type(await client.entries.list(), entries.ListEntriesResponse)
        async with client.watch() as events:
            assert_type(events, AsyncStream[pb.WatchIndexResponse])
            async for event in events:
                assert_type(event, pb.WatchIndexResponse)
        client.status().index  # type: ignore[attr-defined] # noqa: B018
        for _ in client.sync():  # type: ignore[attr-defined]
            pass


def failing(error: MemorydError) -> None:
    assert_type(error.code, grpc.StatusCode)
    assert_type(error.metadata, Mapping[str, str])
    assert_type(error.retry_after_seconds, float | None)
    for violation in error.violations:
        assert_type(violation.field, str)
