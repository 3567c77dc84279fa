"""Id, admission, decoding, log, errors of every call.

What every call passes: a request id, the token and its agents, the limits, the log, and errors as statuses.

A call over TCP begins with its headers: its token is checked and its place taken before a request is read, and it ends
if the request does not come in time. gRPC's library runs a handler before the first request has arrived only if the
method takes a stream of requests, so that is how such calls are handled; on the wire there is no difference. A unary
call over the Unix socket, whose callers are trusted, begins when its request is there, which costs less.

Requests of a call from the bytes that arrive: after admission, within a time, and refused with what is wrong.

Who is let in, and what they may use.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_health.v1 import health

from memoryd_server.access import ALL_AGENTS_GRANT, CallLimits, Credentials, Grant, RateLimiter, confine
from memoryd_server.errors import (
    AgentNotFound,
    DeadlineTooShort,
    FieldViolation,
    InvalidRequest,
    MemorydError,
    ShuttingDown,
    TokenInvalid,
    TokenMissing,
)
from memoryd_server.observe import Meter
from memoryd_server.rpc.errors import REQUEST_ID_KEY, abort, code_of
from memoryd_server.rpc.wire import Context


class RequestDecoder:
    """Makes the requests of one method, of the type that `deserialize` returns.

    gRPC would deserialize before any of our code sees the call: for callers without a token too, and with UNKNOWN for
    bytes that are not a message. A call waits `seconds` for its first request.
    """

    def __init__(self, deserialize: Callable[[bytes], Any] | None, seconds: float) -> None:
        self._deserialize = deserialize
        self._seconds = seconds

    def request(self, data: Any) -> Any:
        """Return the request in `data`.

        Raises:
            InvalidRequest: the bytes are not a message of the method's type.
        """
        if self._deserialize is None:
            return data
        try:
            return self._deserialize(data)
        except DecodeError as error:
            words = "the bytes are no message of this method's type; regenerate the client from memoryd's protos"
            raise InvalidRequest([FieldViolation("request", words)]) from error

    async def only(self, context: Context) -> Any:
        """Return the one request of a call.

        Raises:
            DeadlineTooShort: it did not arrive in time.
            InvalidRequest: it is not a message of the method's type, or the client sent none.
        """
        data = await self._first(context)
        if data is grpc.aio.EOF:
            raise InvalidRequest([FieldViolation("request", "the call ended without a request; send one message")])
        return self.request(data)

    async def each(self, context: Context) -> AsyncIterator[Any]:
        """Return an iterator over the requests of a stream, which raises as `only` does, but for a stream of none."""
        return self._each(context)

    async def _each(self, context: Context) -> AsyncGenerator[Any, None]:
        data = await self._first(context)
        while data is not grpc.aio.EOF:
            yield self.request(data)
            data = await context.read()

    async def _first(self, context: Context) -> Any:
        try:
            async with asyncio.timeout(self._seconds):
                return await context.read()
        except TimeoutError:
            raise DeadlineTooShort(
                f"no request arrived within {self._seconds:g} s of the call's headers; send it together with them"
            ) from None


# A stream on which nothing happens ends this long after its token was revoked, at the latest.
RECHECK_SECONDS = 2.0


class Authorizer:
    """Which calls are let in. Tokens are asked for on TCP only; a caller on the Unix socket is the owner.

    `admission` says how many.
    """

    def __init__(self, access: Credentials, limits: CallLimits) -> None:
        self._access = access
        self.admission = RateLimiter(limits)
        self.recheck_seconds = RECHECK_SECONDS
        self._stopping = False

    def close(self) -> None:
        """Lets no further call in but those that ask for the daemon's health."""
        self._stopping = True

    async def admit(self, context: Context, *, about_health: bool) -> Grant:
        """Lets a call in or refuses it. Calls that ask for the health are let in while the daemon stops.

        Raises:
            ShuttingDown, TokenMissing, TokenInvalid: why it is refused.
        """
        if self._stopping and not about_health:
            raise shutting_down()
        return await self.identify(context)

    async def identify(self, context: Context) -> Grant:
        """What the caller may use at this moment, by the tokens' files as they are now.

        Raises:
            TokenMissing, TokenInvalid: the caller is nobody we know.
        """
        if not asks_for_token(context):
            return ALL_AGENTS_GRANT
        token = _presented(context)
        await self._access.refresh_tokens()
        return self._granted(token)

    def grant_of(self, context: Context) -> Grant:
        """Return what the caller may use, by the tokens as they were last read.

        Raises:
            TokenMissing, TokenInvalid: the call has no token, or one that is not valid.
        """
        return self._granted(_presented(context)) if asks_for_token(context) else ALL_AGENTS_GRANT

    def _granted(self, token: bytes) -> Grant:
        grant = self._access.grant(token)
        if grant is None:
            raise _not_ours()
        return grant


def _presented(context: Context) -> bytes:
    """Return the bearer token of a call.

    Raises:
        TokenMissing, TokenInvalid: there is none, or the authorization has another scheme.
    """
    authorization = dict(context.invocation_metadata() or ()).get("authorization")
    if not authorization:
        raise TokenMissing('this listener asks for a token; send the metadata "authorization: Bearer <token>"')
    given = authorization.encode() if isinstance(authorization, str) else authorization
    scheme, _, token = given.partition(b" ")
    if scheme.lower() != b"bearer":
        raise _not_ours()
    return token.strip()


def _not_ours() -> TokenInvalid:
    return TokenInvalid("the bearer token is not, or no longer, one of this daemon's")


def asks_for_token(context: Context) -> bool:
    """Whether the call came in where tokens are asked for."""
    return not context.peer().startswith("unix:")


def shutting_down() -> ShuttingDown:
    """Return the error of calls that come, or are still open, while the daemon stops."""
    return ShuttingDown("the daemon is stopping; try again when it is back", retry_after_seconds=5.0)


_MOST_REQUEST_ID_CHARS = 128

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
        self._log = log
        self._meter = meter
        self._over_tcp = over_tcp
        self._request_seconds = request_seconds

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the wrapped handler of a method; None for an unknown method, which gRPC answers itself."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = handler_call_details.method
        decoder = RequestDecoder(handler.request_deserializer, self._request_seconds)
        codec = {"request_deserializer": None, "response_serializer": handler.response_serializer}
        if handler.unary_unary is not None and not self._over_tcp:
            call = self._unary(method, decoder, handler.unary_unary)
            return grpc.unary_unary_rpc_method_handler(call, **codec)
        if handler.unary_unary is not None:
            call = self._unary_over_tcp(method, decoder, handler.unary_unary)
            return grpc.stream_unary_rpc_method_handler(call, **codec)
        if handler.unary_stream is not None:
            stream = self._stream(method, decoder.only, handler.unary_stream)
            return grpc.stream_stream_rpc_method_handler(stream, **codec)
        if handler.stream_stream is not None:
            stream = self._stream(method, decoder.each, handler.stream_stream)
            return grpc.stream_stream_rpc_method_handler(stream, **codec)
        return handler

    def _unary(self, method: str, decoder: RequestDecoder, inner: _Unary) -> _Unary:
        async def call(data: Any, context: Context) -> Any:
            async with self._served(method, context) as grant:
                request = decoder.request(data)
                confine(request, grant)
                with self._place(method, grant):
                    return await inner(request, context)

        return call

    def _unary_over_tcp(self, method: str, decoder: RequestDecoder, inner: _Unary) -> _Unary:
        async def call(_: Any, context: Context) -> Any:
            async with self._served(method, context) as grant:
                with self._place(method, grant):
                    request = await decoder.only(context)
                    confine(request, grant)
                    return await inner(request, context)

        return call

    def _place(self, method: str, grant: Grant) -> AbstractContextManager[None]:
        admission = self._gate.admission
        return admission.health_call(grant) if _is_about_health(method) else admission.call(grant)

    def _stream(self, method: str, received: Callable[[Context], Awaitable[Any]], inner: _Stream) -> _Stream:
        async def call(_: Any, context: Context) -> AsyncGenerator[Any, None]:
            async with self._served(method, context) as grant:
                with self._gate.admission.stream(grant, about_health=_is_about_health(method)):
                    request = await received(context)
                    confine(request, grant)
                    async with aclosing(self._while_admitted(inner(request, context), context)) as messages:
                        async for message in messages:
                            yield message

        return call

    async def _while_admitted(self, answer: AsyncGenerator[Any, None], context: Context) -> AsyncGenerator[Any, None]:
        """The messages of a stream, until its caller's token is revoked or expires.

        Raises:
            TokenInvalid: that has happened.
        """
        async with aclosing(answer):
            if not asks_for_token(context):
                async for message in answer:
                    yield message
                return
            while True:
                message = await self._next_message(answer, context)
                if message is None:
                    return
                await self._gate.identify(context)
                yield message

    async def _next_message(self, answer: AsyncGenerator[Any, None], context: Context) -> Any:
        """The next message, None at the end. While none comes, the token is looked at all the same."""
        step = asyncio.ensure_future(anext(answer, None))
        try:
            while not (await asyncio.wait((step,), timeout=self._gate.recheck_seconds))[0]:
                await self._gate.identify(context)
            return step.result()
        finally:
            if not step.done():
                step.cancel()
                await asyncio.wait((step,))

    @asynccontextmanager
    async def _served(self, method: str, context: Context) -> AsyncIterator[Grant]:
        request_id = _request_id(context)
        call = {"method": method, "request_id": request_id}
        began = time.monotonic()
        grant = ALL_AGENTS_GRANT
        await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
        code = grpc.StatusCode.UNKNOWN.name
        try:
            grant = await self._gate.admit(context, about_health=_is_about_health(method))
            yield grant
        except MemorydError as error:
            code = code_of(error).name
            self._log.info("refuse-call", **call, **_caller(grant), code=code, reason=error.reason)
            await abort(context, _told_to(grant, error), request_id)
        except grpc.aio.AbortError:
            raise
        except (asyncio.CancelledError, GeneratorExit):
            code = grpc.StatusCode.CANCELLED.name
            raise
        except Exception:  # noqa: BLE001 -- the edge: a bug becomes a status and a log line
            code = grpc.StatusCode.INTERNAL.name
            self._log.exception("fail-call", **call, **_caller(grant))
            message = f"memoryd met a fault of its own; its log tells more under request id {request_id}"
            await abort(context, MemorydError(message, metadata={"request_id": request_id}), request_id)
        else:
            code = grpc.StatusCode.OK.name
            elapsed_ms = round((time.monotonic() - began) * 1000, 2)
            self._log.debug("serve-call", **call, **_caller(grant), elapsed_ms=elapsed_ms)
        finally:
            self._meter.call_ended(method.removeprefix("/"), code, time.monotonic() - began)


def _is_about_health(method: str) -> bool:
    # A probe must hear NOT_SERVING while the daemon stops, and SERVING while it is merely busy.
    return method.startswith(f"/{health.SERVICE_NAME}/")


def _caller(grant: Grant) -> dict[str, str]:
    return {"token_id": grant.token_id} if grant.token_id else {}


def _told_to(grant: Grant, error: MemorydError) -> MemorydError:
    """The error as its caller may know it: which agents there are is not for every one of them."""
    if grant.limited and isinstance(error, AgentNotFound):
        return AgentNotFound("this token names an agent that is not, or no longer, configured")
    return error


def _request_id(context: Context) -> str:
    """The caller's request id when it is fit for a log line, else a new one."""
    given = dict(context.invocation_metadata() or ()).get(REQUEST_ID_KEY)
    if isinstance(given, str) and given.isascii() and given.isprintable() and 0 < len(given) <= _MOST_REQUEST_ID_CHARS:
        return given
    return uuid.uuid4().hex
