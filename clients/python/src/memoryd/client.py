"""Thin clients: the service's methods with keyword arguments, deadlines, retries and typed errors.

    with connect() as client:
        for result in client.search(query="who owns the cache?").results:
            print(result.path, result.start_line, result.snippet)

and, with asyncio,

    async with connect_async() as client:
        async for event in client.sync():
            print(event.WhichOneof("event"))

Each method takes the fields of its request as keyword arguments, or one request message.
"""

from types import TracebackType
from typing import Literal, Self

import grpc
import grpc.aio

from memoryd._calls import Asynchronous, Blocking
from memoryd._channel import metadata, open_channel, open_channel_async
from memoryd._methods import MemoryMethods
from memoryd.discovery import Surroundings, find
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
    """Returns a client of the daemon at `unix:PATH` or `HOST:PORT`. The connection is made by the first call.

    What is not given is looked for in the environment and where a daemon of this user would be; `clients/README.md`
    tells the order. `token` is sent as bearer token over TCP; `""` means none, and `tls=False` no TLS. `timeout` in
    seconds replaces the documented deadline of each call that has one. `keepalive` is the time between two pings of the
    connection in seconds, 10 at least; there are none without it.

    Raises:
        OSError: a file of the token or of TLS cannot be read.
        ValueError: the address is none, a file holds no token, or the token would travel in the clear beyond this
            machine.
    """
    endpoint = find(Surroundings.of_this_process(), address, token, tls)
    return MemorydClient(open_channel(endpoint, keepalive), endpoint.token, timeout)


def connect_async(
    address: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    *,
    tls: Tls | Literal[False] | None = None,
    keepalive: float | None = None,
) -> "AsyncMemorydClient":
    """As `connect`, for the event loop that runs; it is not awaited itself.

    Raises:
        OSError, ValueError: as `connect`.
    """
    endpoint = find(Surroundings.of_this_process(), address, token, tls)
    return AsyncMemorydClient(open_channel_async(endpoint, keepalive), endpoint.token, timeout)


class MemorydClient(MemoryMethods, Blocking):
    """Calls one daemon; may be shared by threads. Every method raises `MemorydError` for a status that is not OK.

    `entries` has the calls that concern entries. A channel that is given is closed with the client.
    """

    def __init__(self, channel: grpc.Channel, token: str | None = None, timeout: float | None = None) -> None:
        super().__init__(MemoryServiceStub(channel), metadata(token), timeout)  # type: ignore[no-untyped-call]
        self._channel = channel
        self.entries = EntryClient(EntryServiceStub(channel), metadata(token), timeout)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; calls under way end as cancelled."""
        self._channel.close()


class AsyncMemorydClient(MemoryMethods, Asynchronous):
    """As `MemorydClient`, with methods that are awaited and streams for `async for`; belongs to one event loop."""

    def __init__(self, channel: grpc.aio.Channel, token: str | None = None, timeout: float | None = None) -> None:
        super().__init__(MemoryServiceStub(channel), metadata(token), timeout)  # type: ignore[no-untyped-call]
        self._channel = channel
        stub = EntryServiceStub(channel)  # type: ignore[no-untyped-call]
        self.entries = AsyncEntryClient(stub, metadata(token), timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; calls under way end as cancelled."""
        await self._channel.close()
