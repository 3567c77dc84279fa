"""What every call passes: a request id, the token and its agents, limits, decoding, the log, and errors as statuses.

A call over TCP begins with its headers: its token is checked and it counts towards the limits before a request is read,
and it ends if the request does not arrive in time. gRPC's library runs a handler before the first request has arrived
only if the method takes a stream of requests, so such calls are handled as streams; on the wire there is no difference.
A unary call over the Unix socket, whose callers are trusted, begins with its request, which costs less. Every call
counts towards the limits until its reply is sent.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from typing import Any

import grpc
import structlog

from memoryd_server.access import Grant
from memoryd_server.errors import MemorydError
from memoryd_server.observe import Meter
from memoryd_server.rpc.authorization import (
    Authorizer,
    CallRecorder,
    address_request,
    fit_request_id,
    is_about_health,
    requires_token,
)
from memoryd_server.rpc.errors import REQUEST_ID_KEY, abort
from memoryd_server.rpc.mcp_service import MCP_SERVICE
from memoryd_server.rpc.replies import HeldPlaces, ReplyLimiter, Serializer
from memoryd_server.rpc.requests import SMALL_REQUEST_BYTES, RequestDecoder
from memoryd_server.rpc.wire import Context

# A stream of reflection waits for its client's next question, for as long as the client likes.
_REFLECTION = "/grpc.reflection."

# Its requests are messages of their own, and are not kept.
_SESSION = f"/{MCP_SERVICE}/"

_Unary = Callable[[Any, Context], Awaitable[Any]]
_Stream = Callable[[Any, Context], AsyncGenerator[Any, None]]

REQUEST_SECONDS = 10.0
"""How long a call over TCP waits for its request. 4 MiB in this time are 3.4 Mbit/s."""


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of every service of one server; `over_tcp` if it listens on TCP."""

    def __init__(
        self,
        gate: Authorizer,
        log: structlog.typing.FilteringBoundLogger,
        meter: Meter,
        *,
        over_tcp: bool,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._gate = gate
        self._calls = CallRecorder(gate, log, meter)
        self._over_tcp = over_tcp
        self._request_seconds = request_seconds
        self._replies = ReplyLimiter(gate.admission, log)
        self._wrapped: dict[str, Any] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the wrapped handler of a method; None for an unknown method, which gRPC answers itself."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            wrapped = self._wrapped[method] = self._wrap(method, handler)
        return wrapped

    def _wrap(self, method: str, handler: Any) -> Any:
        is_unary = handler.unary_unary is not None
        most_bytes = None if is_unary or method.startswith(_SESSION) else SMALL_REQUEST_BYTES
        decoder = RequestDecoder(handler.request_deserializer, self._request_seconds, most_bytes=most_bytes)
        serializer = handler.response_serializer
        if is_unary and not self._over_tcp:
            return grpc.unary_unary_rpc_method_handler(self._unary(method, decoder, handler.unary_unary, serializer))
        if is_unary:
            call = self._unary_over_tcp(method, decoder, handler.unary_unary, serializer)
            return grpc.stream_unary_rpc_method_handler(call)
        if handler.unary_stream is not None:
            stream = self._stream(method, decoder.only, handler.unary_stream, serializer)
            return grpc.stream_stream_rpc_method_handler(stream)
        if handler.stream_stream is not None:
            stream = self._stream(method, decoder.each, handler.stream_stream, serializer)
            return grpc.stream_stream_rpc_method_handler(stream)
        return handler

    def _unary(self, method: str, decoder: RequestDecoder, inner: _Unary, serializer: Serializer) -> _Unary:
        async def call(data: Any, context: Context) -> Any:
            async with self._served(method, context) as (grant, held):
                request = decoder.request(data)
                address_request(request, grant)
                held.enter(self._place(method, grant))
                async with self._gate.running.handled():
                    message = await inner(request, context)
                return self._replies.send(method, grant, held, message, serializer)

        return call

    def _unary_over_tcp(self, method: str, decoder: RequestDecoder, inner: _Unary, serializer: Serializer) -> _Unary:
        async def call(_: Any, context: Context) -> Any:
            async with self._served(method, context) as (grant, held):
                held.enter(self._place(method, grant))
                async with self._gate.running.handled(waits=True):
                    request = await decoder.only(context)
                address_request(request, grant)
                async with self._gate.running.handled():
                    message = await inner(request, context)
                return self._replies.send(method, grant, held, message, serializer)

        return call

    def _place(self, method: str, grant: Grant) -> AbstractContextManager[None]:
        admission = self._gate.admission
        return admission.token_place(grant) if is_about_health(method) else admission.call(grant)

    def _stream(
        self, method: str, received: Callable[[Context], Awaitable[Any]], inner: _Stream, serializer: Serializer
    ) -> _Stream:
        async def call(_: Any, context: Context) -> AsyncGenerator[Any, None]:
            async with self._served(method, context) as (grant, held):
                held.enter(self._gate.admission.stream(grant, about_health=is_about_health(method)))
                async with self._gate.running.handled(waits=True):
                    request = await received(context)
                address_request(request, grant)
                answer = inner(request, context)
                waits = method.startswith(_REFLECTION)
                async with aclosing(self._while_admitted(method, answer, context, waits=waits)) as messages:
                    async for message in messages:
                        with self._replies.streamed(method, grant, message, serializer) as data:
                            yield data

        return call

    async def _while_admitted(
        self, method: str, answer: AsyncGenerator[Any, None], context: Context, *, waits: bool
    ) -> AsyncGenerator[Any, None]:
        """Yield the messages of a stream, until its caller's token is revoked, expires or loses the method's scope.

        Raises:
            TokenInvalid: the token was revoked or has expired.
            ScopeMissing: the token has lost the scope.
            ShuttingDown: as `RunningCalls.handled`.
        """
        async with aclosing(answer):
            while True:
                async with self._gate.running.handled(waits=waits):
                    message = await self._next_message(method, answer, context)
                if message is None:
                    return
                await self._gate.readmit(method, context)
                yield message

    async def _next_message(self, method: str, answer: AsyncGenerator[Any, None], context: Context) -> Any:
        """Return the next message, None at the end. While it waits, the token is checked at intervals."""
        if not requires_token(context):
            return await anext(answer, None)
        step = asyncio.ensure_future(anext(answer, None))
        # The caller may leave when the step has failed; asyncio would report its exception as never retrieved.
        step.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            while not (await asyncio.wait((step,), timeout=self._gate.recheck_seconds))[0]:
                await self._gate.readmit(method, context)
            return step.result()
        finally:
            if not step.done():
                step.cancel()
                await asyncio.wait((step,))

    @asynccontextmanager
    async def _served(self, method: str, context: Context) -> AsyncIterator[tuple[Grant, HeldPlaces]]:
        request_id = _request_id(context)
        held = HeldPlaces()
        held.enter(self._gate.running.arrived())
        await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
        try:
            async with self._calls.recorded(method, context, request_id) as grant:
                held.enter(self._gate.running.admitted())
                yield grant, held
        except MemorydError as error:
            await abort(context, error, request_id)


def _request_id(context: Context) -> str:
    return fit_request_id(dict(context.invocation_metadata() or ()).get(REQUEST_ID_KEY))
