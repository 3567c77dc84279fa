"""What every call goes through: a request id, the token, the limit, the log, and errors as statuses."""

import asyncio
import hmac
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health

from memoryd_server.errors import MemorydError, ShuttingDown, TokenInvalid, TokenMissing, TooManyRequests
from memoryd_server.rpc.grpc_types import Context
from memoryd_server.rpc.status_mapping import REQUEST_ID_KEY, abort, code_of

# A watch on the daemon's health gets this long to tell that it is stopping.
LAST_WORD_SECONDS = 0.2

_MOST_REQUEST_ID_CHARS = 128


class Gate:
    """Which calls are let in. `tokens` are asked for on TCP only; a caller on the Unix socket is the owner."""

    def __init__(self, tokens: tuple[str, ...], max_concurrent_calls: int) -> None:
        self._tokens = tokens
        self._max_concurrent_calls = max_concurrent_calls
        self.calls = 0
        self._stopping = asyncio.Event()

    def close(self) -> None:
        """Lets no further call in but those that ask for the daemon's health."""
        self._stopping.set()

    async def until_closed(self, watch: Awaitable[None]) -> None:
        """Carries out what has no end of its own, a watch on the daemon's health, until the gate closes.

        Raises:
            ShuttingDown: the gate has closed, and the watch has had the time to say so.
        """
        work, closed = asyncio.ensure_future(watch), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((work, closed), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((work,), timeout=LAST_WORD_SECONDS)
            if not work.done():
                raise _shutting_down()
            work.result()
        finally:
            work.cancel()
            closed.cancel()

    def check(self, context: Context, *, about_health: bool) -> None:
        """Lets a call in or refuses it. Calls that ask for the health are let in while the daemon stops.

        Raises:
            ShuttingDown, TooManyRequests, TokenMissing, TokenInvalid: why it is refused.
        """
        if self._stopping.is_set() and not about_health:
            raise _shutting_down()
        if self._tokens and not context.peer().startswith("unix:"):
            self.check_token(dict(context.invocation_metadata() or ()).get("authorization"))

    def check_token(self, authorization: str | bytes | None) -> None:
        """Compares a bearer token in constant time."""
        if not authorization:
            raise TokenMissing('this listener asks for a token; send the metadata "authorization: Bearer <token>"')
        given = authorization.encode() if isinstance(authorization, str) else authorization
        scheme, _, token = given.partition(b" ")
        matches = [hmac.compare_digest(token.strip(), known.encode()) for known in self._tokens]
        if scheme.lower() != b"bearer" or not any(matches):
            raise TokenInvalid("the bearer token is not one of this daemon's")

    def enter(self) -> None:
        """Counts a unary call in.

        Raises:
            TooManyRequests: as many are at work as are allowed.
        """
        if self.calls >= self._max_concurrent_calls:
            raise TooManyRequests(
                f"{self.calls} calls are at work, the limit is {self._max_concurrent_calls}; try again shortly",
                retry_after_seconds=0.5,
            )
        self.calls += 1

    def leave(self) -> None:
        """Counts it out."""
        self.calls -= 1


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of every service on the server."""

    def __init__(self, gate: Gate, log: structlog.typing.FilteringBoundLogger) -> None:
        self._gate = gate
        self._log = log

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The handler of a method, wrapped; None for an unknown method, which gRPC answers itself."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = handler_call_details.method
        codec = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._unary(method, handler.unary_unary), **codec)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self._stream(method, handler.unary_stream), **codec)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._stream(method, handler.stream_stream), **codec)
        return handler

    def _unary(self, method: str, inner: Callable[[Any, Context], Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, context: Context) -> Any:
            async with self._served(method, context):
                if _is_about_health(method):
                    return await inner(request, context)
                self._gate.enter()
                try:
                    return await inner(request, context)
                finally:
                    self._gate.leave()

        return call

    def _stream(self, method: str, inner: Callable[[Any, Context], Any]) -> Callable[..., AsyncIterator[Any]]:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async with self._served(method, context):
                answer = inner(request, context)
                if isinstance(answer, AsyncGenerator):
                    async with aclosing(answer):
                        async for message in answer:
                            yield message
                else:
                    # The health service writes to the context instead of yielding.
                    await self._gate.until_closed(answer)

        return call

    @asynccontextmanager
    async def _served(self, method: str, context: Context) -> AsyncIterator[None]:
        request_id = _request_id(context)
        began = time.monotonic()
        await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
        try:
            self._gate.check(context, about_health=_is_about_health(method))
            yield
        except MemorydError as error:
            code = code_of(error).name
            self._log.info("refuse-call", method=method, request_id=request_id, code=code, reason=error.reason)
            await abort(context, error, request_id)
        except grpc.aio.AbortError:
            raise
        except Exception:  # noqa: BLE001 -- the edge: a bug becomes a status and a log line
            self._log.exception("fail-call", method=method, request_id=request_id)
            message = f"memoryd met a fault of its own; its log tells more under request id {request_id}"
            await abort(context, MemorydError(message, metadata={"request_id": request_id}), request_id)
        else:
            elapsed_ms = round((time.monotonic() - began) * 1000, 2)
            self._log.debug("serve-call", method=method, request_id=request_id, elapsed_ms=elapsed_ms)


def _is_about_health(method: str) -> bool:
    # A probe must hear NOT_SERVING while the daemon stops, and SERVING while it is merely busy.
    return method.startswith(f"/{health.SERVICE_NAME}/")


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("the daemon is stopping; try again when it is back", retry_after_seconds=5.0)


def _request_id(context: Context) -> str:
    """The caller's request id when it is fit for a log line, else a new one."""
    given = dict(context.invocation_metadata() or ()).get(REQUEST_ID_KEY)
    if isinstance(given, str) and given.isprintable() and 0 < len(given) <= _MOST_REQUEST_ID_CHARS:
        return given
    return uuid.uuid4().hex
