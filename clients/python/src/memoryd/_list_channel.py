"""Channels to several addresses with host names, as far as the stubs of a client use channels.

The host names are looked up at the first call, and again in the background when a call is made half a minute or more
after the last lookup. If they have other IP addresses then, the next calls use a new channel of gRPC. The previous one
is closed when its last call has ended.
"""

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from memoryd._targets import Lookup

_Channel = TypeVar("_Channel", grpc.Channel, grpc.aio.Channel)

# gRPC itself looks up the host name of one address again after this time at the earliest.
_LOOKUP_SECONDS = 30.0


class _Opened(Generic[_Channel]):
    """A channel of gRPC, its target, and the number of its running calls."""

    def __init__(self, target: str, channel: _Channel) -> None:
        self.target = target
        self.channel: _Channel = channel
        self.running = 0


class _Channels(Generic[_Channel]):
    """The channels of one client: the current one, and earlier ones that still have calls."""

    def __init__(
        self, lookup: Lookup, open_channel: Callable[[str], _Channel], lookup_seconds: float = _LOOKUP_SECONDS
    ) -> None:
        """`open_channel` opens a channel to a target."""
        self._lookup = lookup
        self._open_channel: Callable[[str], _Channel] = open_channel
        self._lookup_seconds = lookup_seconds
        self._next_lookup = math.inf
        self._current: _Opened[_Channel] | None = None
        self._open: set[_Opened[_Channel]] = set()
        self._closed = False

    def _is_due(self) -> bool:
        """Return whether the caller has to look up the names again."""
        if time.monotonic() < self._next_lookup:
            return False
        self._next_lookup = math.inf
        return True

    def _switch(self, target: str) -> None:
        """Use a channel to this target for the next calls."""
        self._next_lookup = time.monotonic() + self._lookup_seconds
        previous = self._current
        if self._closed or (previous is not None and previous.target == target):
            return
        self._current = _Opened(target, self._open_channel(target))
        self._open.add(self._current)
        if previous is not None:
            self._close_unused(previous)

    def _used(self) -> _Opened[_Channel]:
        """Return the current channel, with one more running call."""
        if self._current is None or self._closed:
            raise ValueError("the client is closed")
        self._current.running += 1
        return self._current

    def _release(self, opened: _Opened[_Channel]) -> None:
        opened.running -= 1
        self._close_unused(opened)

    def _close_unused(self, opened: _Opened[_Channel]) -> None:
        if opened in self._open and opened is not self._current and opened.running == 0:
            self._open.remove(opened)
            self._close_channel(opened.channel)

    def _close_channel(self, channel: _Channel) -> None:
        raise NotImplementedError


class ListChannel(_Channels[grpc.Channel]):
    """The channels of a blocking client. Thread-safe."""

    def __init__(
        self, lookup: Lookup, open_channel: Callable[[str], grpc.Channel], lookup_seconds: float = _LOOKUP_SECONDS
    ) -> None:
        super().__init__(lookup, open_channel, lookup_seconds)
        self._lock = threading.Lock()

    def unary_unary(self, method: str, **codec: Any) -> Callable[..., Any]:
        """Return the function that makes a call with one answer."""

        def call(request: Any, **options: Any) -> Any:
            opened = self._begin()
            try:
                return opened.channel.unary_unary(method, **codec)(request, **options)
            finally:
                self._end(opened)

        return call

    def unary_stream(self, method: str, **codec: Any) -> Callable[..., Any]:
        """Return the function that opens a stream."""

        def call(request: Any, **options: Any) -> Any:
            opened = self._begin()
            try:
                stream: Any = opened.channel.unary_stream(method, **codec)(request, **options)
            except BaseException:
                self._end(opened)
                raise
            if not stream.add_callback(partial(self._end, opened)):
                self._end(opened)
            return stream

        return call

    def close(self) -> None:
        """Close all channels and cancel running calls."""
        with self._lock:
            self._closed = True
            opened = list(self._open)
            self._open.clear()
        for each in opened:
            each.channel.close()

    def _begin(self) -> _Opened[grpc.Channel]:
        with self._lock:
            if self._current is None and not self._closed:
                self._switch(self._lookup.target())
            elif self._is_due():
                threading.Thread(target=self._look_up_again, name="memoryd-lookup", daemon=True).start()
            return self._used()

    def _look_up_again(self) -> None:
        target = self._lookup.target()
        with self._lock:
            self._switch(target)

    def _end(self, opened: _Opened[grpc.Channel]) -> None:
        with self._lock:
            self._release(opened)

    def _close_channel(self, channel: grpc.Channel) -> None:
        # On another thread: `close` waits for gRPC's thread, which may be the current one, at the end of a stream.
        with suppress(RuntimeError):
            # The interpreter starts no thread while it ends; the channel then ends with the process.
            threading.Thread(target=channel.close, name="memoryd-close", daemon=True).start()


class AsyncListChannel(_Channels[grpc.aio.Channel]):
    """The channels of an asyncio client. Names are looked up in threads."""

    def __init__(
        self, lookup: Lookup, open_channel: Callable[[str], grpc.aio.Channel], lookup_seconds: float = _LOOKUP_SECONDS
    ) -> None:
        super().__init__(lookup, open_channel, lookup_seconds)
        self._first: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def unary_unary(self, method: str, **codec: Any) -> Callable[..., Awaitable[Any]]:
        """Return the function that makes a call with one answer."""

        async def call(request: Any, **options: Any) -> Any:
            opened = await self._begin()
            try:
                return await opened.channel.unary_unary(method, **codec)(request, **options)
            finally:
                self._release(opened)

        return call

    def unary_stream(self, method: str, **codec: Any) -> Callable[..., "_StartedStream"]:
        """Return the function that opens a stream."""

        async def start(request: Any, options: dict[str, Any]) -> Any:
            opened = await self._begin()
            try:
                stream: Any = opened.channel.unary_stream(method, **codec)(request, **options)
            except BaseException:
                self._release(opened)
                raise
            stream.add_done_callback(lambda _: self._release(opened))
            return stream

        return lambda request, **options: _StartedStream(start(request, options))

    async def close(self) -> None:
        """Close all channels and cancel running calls."""
        self._closed = True
        opened = list(self._open)
        self._open.clear()
        for each in opened:
            await each.channel.close()

    async def _begin(self) -> _Opened[grpc.aio.Channel]:
        if self._current is None and not self._closed:
            # The callers that come before the names are resolved wait for the same lookup.
            self._first = self._first or asyncio.create_task(self._look_up())
            await asyncio.shield(self._first)
        elif self._is_due():
            self._start(self._look_up())
        return self._used()

    async def _look_up(self) -> None:
        try:
            self._switch(await asyncio.to_thread(self._lookup.target))
        finally:
            self._first = None

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _close_channel(self, channel: grpc.aio.Channel) -> None:
        self._start(channel.close())


class _StartedStream:
    """The part of a streaming call of asyncio that `AsyncStream` uses, for a call that begins after a lookup."""

    def __init__(self, start: Coroutine[Any, Any, Any]) -> None:
        self._started = asyncio.create_task(start)
        # A stream that is never read does not report its failure.
        self._started.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def read(self) -> Any:
        """Return the next event, or `grpc.aio.EOF`."""
        return await (await asyncio.shield(self._started)).read()

    def cancel(self) -> None:
        """Cancel the call, also before it has begun."""
        if not self._started.cancel() and self._has_call():
            self._started.result().cancel()

    def cancelled(self) -> bool:
        """Return whether `cancel` ended the call."""
        return self._started.cancelled() or (self._has_call() and self._started.result().cancelled())

    def _has_call(self) -> bool:
        return self._started.done() and not self._started.cancelled() and self._started.exception() is None
