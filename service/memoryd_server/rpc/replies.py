"""Replies until their clients have read them: the limits on their bytes, and the time after which a call is cancelled.

HTTP/2 lets a client delay a reply for as long as it likes, and gRPC keeps the reply in memory until then. A call
therefore keeps its place, and the bytes of its reply count, until gRPC has sent the reply. gRPC runs each call in a
task that ends at this moment; the handler of the call runs in the same task.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from memoryd_server.access import Grant, RateLimiter
from memoryd_server.observe import Log

# A refused reply makes the client repeat its call, so only the replies of calls that change nothing are refused.
_READING = frozenset(
    {
        "MemorySearch",
        "ExplainMiss",
        "MemoryGet",
        "MemoryHistory",
        "Status",
        "SessionContext",
        "ListAgents",
        "ListFiles",
        "Recall",
        "RecallBlock",
        "ListEntries",
        "SuggestCapture",
    }
)

Serializer = Callable[[Any], bytes] | None


def _current_call() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("not called by the handler of a call")
    return task


class HeldPlaces:
    """Places of the current call. They are left when its reply is sent, or when the call has ended otherwise."""

    def __init__(self) -> None:
        self._places: list[AbstractContextManager[None]] = []
        _current_call().add_done_callback(self._leave)

    def enter(self, place: AbstractContextManager[None]) -> None:
        """Enter `place`.

        Raises:
            TooManyRequests: as `place` when it is entered.
        """
        place.__enter__()
        self._places.append(place)

    def _leave(self, _call: "asyncio.Task[Any]") -> None:
        # An ExitStack would do the same, at three times the cost.
        for place in reversed(self._places):
            place.__exit__(None, None, None)


class ReplyLimiter:
    """Bounds the bytes of unread replies, and the seconds that clients may take to read one."""

    def __init__(self, admission: RateLimiter, log: Log) -> None:
        self._admission = admission
        self._log = log

    def send(self, method: str, grant: Grant, held: HeldPlaces, message: Any, serializer: Serializer) -> bytes:
        """Return the bytes of the reply to a unary call, which count among its `held` places.

        Raises:
            TooManyRequests: there are too many bytes of unread replies, and the call can be repeated.
        """
        data = _serialized(message, serializer)
        refusable = method.rpartition("/")[2] in _READING
        held.enter(self._admission.reply(grant, len(data), refusable=refusable))
        held.enter(self._time_limit(method, grant, self._admission.limits.reply_seconds))
        return data

    @contextmanager
    def streamed(self, method: str, grant: Grant, message: Any, serializer: Serializer) -> Iterator[bytes]:
        """Yield the bytes of a stream's message; the block ends when the message is sent."""
        data = _serialized(message, serializer)
        with (
            self._admission.reply(grant, len(data), refusable=False),
            self._time_limit(method, grant, self._admission.limits.stream_reply_seconds),
        ):
            yield data

    @contextmanager
    def _time_limit(self, method: str, grant: Grant, seconds: float) -> Iterator[None]:
        """Cancel the current call if the block does not end in time."""
        handler = _current_call()
        limit = asyncio.get_running_loop().call_later(seconds, self._cancel, handler, method, grant)
        try:
            yield
        finally:
            limit.cancel()

    def _cancel(self, handler: "asyncio.Task[Any]", method: str, grant: Grant) -> None:
        caller = {"token_id": grant.token_id} if grant.token_id else {}
        self._log.warning("cancel-unread-reply", method=method, **caller)
        cancel_call(handler)


def _serialized(message: Any, serializer: Serializer) -> bytes:
    data: bytes = message if serializer is None else serializer(message)
    return data


def cancel_call(handler: "asyncio.Task[Any]") -> None:
    """Cancel the call whose handler runs in the task `handler`, also while its reply is being sent.

    gRPC has no function for this. It resets the stream and frees the reply once nothing refers to the call any more,
    and a second task of gRPC, which waits for the end of the call and for `handler`, refers to it. gRPC itself keeps
    the first call of a server until the server stops, and the latest call until the next one.
    """
    watchers = [task for task in asyncio.all_tasks() if task is not handler and _refers_to(task, handler)]
    handler.cancel()
    for watcher in watchers:
        watcher.cancel()


def _refers_to(task: "asyncio.Task[Any]", other: "asyncio.Task[Any]") -> bool:
    """Return whether the coroutine of `task` is gRPC's and has `other` among its variables."""
    coroutine = task.get_coro()
    if getattr(coroutine, "__qualname__", "") != "_schedule_rpc_coro":
        return False
    return any(found is other for variables in gc.get_referents(coroutine) for found in gc.get_referents(variables))
