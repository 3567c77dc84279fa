"""Clients of a daemon: the methods of the services with keyword arguments, deadlines, retries and typed errors.

    with connect() as client:
        for result in client.search(query="who owns the cache?").results:
            print(result.path, result.start_line, result.snippet)

With asyncio:

    async with connect_async() as client:
        async for event in client.sync():
            print(event.WhichOneof("event"))

Each method accepts the fields of its request as keyword arguments, or one request message.
"""

from types import TracebackType
from typing import Any, Literal, Self

import grpc
import grpc.aio

from memoryd._calls import Asynchronous, Blocking
from memoryd._channel import client_channel, client_channel_async, metadata
from memoryd._list_channel import AsyncListChannel, ListChannel
from memoryd._methods import MemoryMethods
from memoryd.discovery import Environment, find_endpoint
from memoryd.entry_client import AsyncEntryClient, EntryClient
from memoryd.failure import MemorydError, Violation
from memoryd.stream import AsyncStream, Stream
from memoryd.tls import Tls
from memoryd.v1.entry_service_pb2_grpc import EntryServiceStub
from memoryd.v1.memory_service_pb2_grpc import MemoryServiceStub

__all__ = [
    "AsyncMemorydClient",
    "AsyncStream",
    "MemorydClient",
    "MemorydError",
    "Stream",
    "Tls",
    "Violation",
    "connect",
    "connect_async",
]


def connect(
    address: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    *,
    tls: Tls | Literal[False] | None = None,
    keepalive: float | None = None,
) -> "MemorydClient":
    """Return a client of the daemon at `address`, `unix:PATH` or `HOST:PORT`. The first call opens the connection.

    `address` can also be a list of the replicas of one fleet, `HOST:PORT,HOST:PORT`. Calls are distributed over the
    addresses that are connected. The first call looks up the host names of a list; later calls look them up again in
    the background, at most every half a minute.

    Arguments that are not given are taken from the environment and from the state directory, in the order described in
    `clients/README.md`. `token` is sent as a bearer token over TCP. `token=""` sends no token, and `tls=False` disables
    TLS. `timeout`, in seconds, replaces the documented deadline of each unary call. `keepalive` is the time between two
    pings in seconds, at least 10; by default no pings are sent.

    Raises:
        OSError: a token file or TLS file cannot be read.
        ValueError: an address is invalid, a token file contains no token, or the token would be sent to another
            machine without TLS.
    """
    endpoint = find_endpoint(Environment.of_process(), address, token, tls)
    return MemorydClient(client_channel(endpoint, keepalive), endpoint.token, timeout, endpoint.addresses)


def connect_async(
    address: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    *,
    tls: Tls | Literal[False] | None = None,
    keepalive: float | None = None,
) -> "AsyncMemorydClient":
    """Return an asyncio client for the running event loop. The arguments are those of `connect`; do not await the call.

    Raises:
        OSError, ValueError: as for `connect`.
    """
    endpoint = find_endpoint(Environment.of_process(), address, token, tls)
    return AsyncMemorydClient(client_channel_async(endpoint, keepalive), endpoint.token, timeout, endpoint.addresses)


class MemorydClient(MemoryMethods, Blocking):
    """A client of a daemon, or of the replicas of a fleet. It can be shared by threads.

    Every method raises `MemorydError` for a status other than OK. The methods for entries are in `entries`.
    `close` also closes `channel`. `addresses` are those of the channel, for error messages.
    """

    def __init__(
        self,
        channel: grpc.Channel | ListChannel,
        token: str | None = None,
        timeout: float | None = None,
        addresses: tuple[str, ...] = (),
    ) -> None:
        memory: Any = MemoryServiceStub(channel)  # type: ignore[no-untyped-call]
        entries: Any = EntryServiceStub(channel)  # type: ignore[no-untyped-call]
        super().__init__(memory, metadata(token), timeout, addresses)
        self._channel = channel
        self.entries = EntryClient(entries, metadata(token), timeout, addresses)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and cancel running calls."""
        self._channel.close()


class AsyncMemorydClient(MemoryMethods, Asynchronous):
    """The asyncio form of `MemorydClient`: methods are awaited, and streams are read with `async for`.

    A client belongs to one event loop.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel | AsyncListChannel,
        token: str | None = None,
        timeout: float | None = None,
        addresses: tuple[str, ...] = (),
    ) -> None:
        memory: Any = MemoryServiceStub(channel)  # type: ignore[no-untyped-call]
        entries: Any = EntryServiceStub(channel)  # type: ignore[no-untyped-call]
        super().__init__(memory, metadata(token), timeout, addresses)
        self._channel = channel
        self.entries = AsyncEntryClient(entries, metadata(token), timeout, addresses)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection and cancel running calls."""
        await self._channel.close()
