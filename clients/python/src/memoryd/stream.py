"""The events of a streaming call."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc
import grpc.aio

from memoryd.failure import MemorydError, typed_errors

_Event = TypeVar("_Event")


class Stream(Generic[_Event]):
    """An iterator over the events of a streaming call.

    The call is cancelled when the `with` block ends, when `close` is called, or when the stream is garbage-collected.
    A sync run continues without the stream, unless its request says otherwise. Reading from a cancelled stream raises
    `MemorydError` with the code CANCELLED.
    """

    def __init__(self, call: Any, addresses: tuple[str, ...] = ()) -> None:
        self._call = call
        self._addresses = addresses

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[_Event]:
        return self

    def __next__(self) -> _Event:
        with typed_errors(self._addresses):
            return next(self._call)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Cancel the call, if it has not ended. Can be called from another thread."""
        self._call.cancel()


class AsyncStream(Generic[_Event]):
    """The asyncio form of `Stream`, for `async for` and `async with`."""

    def __init__(self, call: Any, addresses: tuple[str, ...] = ()) -> None:
        self._call = call
        self._addresses = addresses

    def __del__(self) -> None:
        # gRPC keeps a running call alive. After the event loop is closed, there is no call to cancel.
        with suppress(RuntimeError):
            self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[_Event]:
        return self

    async def __anext__(self) -> _Event:
        try:
            with typed_errors(self._addresses):
                event = await self._call.read()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._call.cancelled() or (task is not None and task.cancelling()):
                raise
            raise MemorydError(grpc.StatusCode.CANCELLED, message="the stream was closed") from None
        if event is grpc.aio.EOF:
            raise StopAsyncIteration
        return event  # type: ignore[no-any-return]

    def close(self) -> None:
        """Cancel the call, if it has not ended."""
        self._call.cancel()
