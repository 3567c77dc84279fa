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
    """The events of a streaming call, as they come.

    Leaving its `with` block, `close`, or losing sight of it ends the call; a sync run goes on unless its request asked
    otherwise. Reading on from a stream that was ended so raises the `MemorydError` CANCELLED.
    """

    def __init__(self, call: Any) -> None:
        self._call = call

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[_Event]:
        return self

    def __next__(self) -> _Event:
        with typed_errors():
            return next(self._call)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the call; of no effect on one that has ended. May be called from another thread."""
        self._call.cancel()


class AsyncStream(Generic[_Event]):
    """As `Stream`, for `async for` and `async with`."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __del__(self) -> None:
        # gRPC keeps a call alive while it goes on. After the loop was closed there is nothing left to end.
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
            with typed_errors():
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
        """Ends the call; of no effect on one that has ended."""
        self._call.cancel()
