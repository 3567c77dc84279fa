"""What every call passes: a request id, the token and its agents, limits, decoding, the log, and errors as statuses.

A call over TCP begins with its headers: its token is checked and it counts towards the limits before a request is read,
and it ends if the request does not arrive in time. gRPC's library runs a handler before the first request has arrived
only if the method takes a stream of requests, so such calls are handled as streams; on the wire there is no difference.
A unary call over the Unix socket, whose callers are trusted, begins with its request, which costs less. Every call
counts towards the limits until its reply is sent.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health

from memoryd_server.access import ALL_AGENTS_GRANT, CallLimits, Credentials, Grant, RateLimiter, confine
from memoryd_server.errors import (
    AgentNotFound,
    MemorydError,
    ShuttingDown,
    TokenInvalid,
    TokenMissing,
)
from memoryd_server.observe import Meter
from memoryd_server.rpc.errors import REQUEST_ID_KEY, abort, code_of, release_after_call
from memoryd_server.rpc.replies import HeldPlaces, ReplyLimiter, Serializer
from memoryd_server.rpc.requests import SMALL_REQUEST_BYTES, RequestDecoder, name_agent
from memoryd_server.rpc.wire import Context

# After the grace of a stop, calls get this time to send their errors; after the last of them, refusals in progress do.
_LAST_REPLIES_SECONDS = 0.2
_LAST_REFUSALS_SECONDS = 0.2


class RunningCalls:
    """The calls in progress, until their replies are sent. Belongs to the event loop's thread.

    gRPC's own stop would end calls with CANCELLED, without a reason: those that arrive while it stops, and those that
    still run. A stop therefore refuses calls and lets gRPC serve until the last one has ended.
    """

    def __init__(self) -> None:
        self._admitted = self._all = 0
        self._changed = asyncio.Event()
        # The handlers that end when a stop begins, and those that get its grace.
        self._waiting: set[asyncio.Timeout] = set()
        self._working: set[asyncio.Timeout] = set()
        self._closed = self._ended = False

    @contextmanager
    def arrived(self) -> Iterator[None]:
        """Count a call that may be refused."""
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1
            self._wake()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count an admitted call."""
        self._admitted += 1
        try:
            yield
        finally:
            self._admitted -= 1
            self._wake()

    def _wake(self) -> None:
        self._changed.set()

    @asynccontextmanager
    async def handled(self, *, waits: bool = False) -> AsyncIterator[None]:
        """Run a handler, which ends when the grace of a stop ends or, if it `waits` for its client, when a stop begins.

        Raises:
            ShuttingDown: it was ended.
        """
        limits, is_over = (self._waiting, self._closed) if waits else (self._working, self._ended)
        try:
            async with asyncio.timeout(0 if is_over else None) as limit:
                limits.add(limit)
                try:
                    yield
                finally:
                    limits.discard(limit)
        except TimeoutError:
            if limit.expired():
                raise shutting_down() from None
            raise

    def close(self) -> None:
        """End the handlers that wait for their clients."""
        self._closed = True
        _end(self._waiting)

    async def finish(self, grace_seconds: float) -> None:
        """Wait for the admitted calls for the grace, then end the others with `ShuttingDown`."""
        if not await self._wait(lambda: not self._admitted, grace_seconds):
            self._ended = True
            _end(self._working)
            await self._wait(lambda: not self._admitted, _LAST_REPLIES_SECONDS)
        await self._wait(lambda: not self._all, _LAST_REFUSALS_SECONDS)

    async def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        return condition()


def _end(limits: Iterable[asyncio.Timeout]) -> None:
    for limit in limits:
        if not limit.expired():  # A handler that is ending already has no limit to change.
            limit.reschedule(asyncio.get_running_loop().time())


# The longest time that a stream without messages stays open after its token was revoked.
RECHECK_SECONDS = 2.0


class Authorizer:
    """Decides which calls are admitted. Tokens are required on TCP only; a caller on the Unix socket is the owner.

    `admission` limits how many calls run, and how often.
    """

    def __init__(self, access: Credentials, limits: CallLimits) -> None:
        self._access = access
        self.admission = RateLimiter(limits)
        self.running = RunningCalls()
        self.recheck_seconds = RECHECK_SECONDS
        self._stopping = False

    def close(self) -> None:
        """Admit no further calls, except those about the daemon's health."""
        self._stopping = True
        self.running.close()

    async def admit(self, context: Context, *, about_health: bool) -> Grant:
        """Admit a call and return what its caller may use. Calls about health are admitted while the daemon stops.

        Raises:
            ShuttingDown, TokenMissing, TokenInvalid: the call is refused.
        """
        if self._stopping and not about_health:
            raise shutting_down()
        return await self.identify(context)

    async def identify(self, context: Context) -> Grant:
        """Return what the caller may use now, by the current token files.

        Raises:
            TokenMissing, TokenInvalid: the call has no valid token.
        """
        if not requires_token(context):
            return ALL_AGENTS_GRANT
        token = _presented(context)
        await self._access.refresh_tokens()
        return self._granted(token)

    def grant_of(self, context: Context) -> Grant:
        """Return what the caller may use, by the tokens as they were last read.

        Raises:
            TokenMissing, TokenInvalid: the call has no token, or one that is not valid.
        """
        return self._granted(_presented(context)) if requires_token(context) else ALL_AGENTS_GRANT

    def _granted(self, token: bytes) -> Grant:
        grant = self._access.grant(token)
        if grant is None:
            raise _invalid_token()
        return grant


def _presented(context: Context) -> bytes:
    """Return the bearer token of a call.

    Raises:
        TokenMissing, TokenInvalid: there is none, or the authorization has another scheme.
    """
    authorization = dict(context.invocation_metadata() or ()).get("authorization")
    if not authorization:
        raise TokenMissing('this listener requires a token; send the metadata "authorization: Bearer <token>"')
    header = authorization.encode() if isinstance(authorization, str) else authorization
    scheme, _, token = header.partition(b" ")
    if scheme.lower() != b"bearer":
        raise _invalid_token()
    return token.strip()


def _invalid_token() -> TokenInvalid:
    return TokenInvalid("the bearer token is unknown to this daemon, revoked or expired")


def requires_token(context: Context) -> bool:
    """Return whether the call came through a listener that requires tokens."""
    return not context.peer().startswith("unix:")


def shutting_down() -> ShuttingDown:
    """Return the error of calls that arrive, or are still open, while the daemon stops."""
    return ShuttingDown("the daemon is stopping; try again after its restart", retry_after_seconds=5.0)


_MOST_REQUEST_ID_CHARS = 128

# A stream of reflection waits for its client's next question, for as long as the client likes.
_REFLECTION = "/grpc.reflection."

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
        decoder = RequestDecoder(
            handler.request_deserializer, self._request_seconds, most_bytes=None if is_unary else SMALL_REQUEST_BYTES
        )
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
                _address(request, grant)
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
                _address(request, grant)
                async with self._gate.running.handled():
                    message = await inner(request, context)
                return self._replies.send(method, grant, held, message, serializer)

        return call

    def _place(self, method: str, grant: Grant) -> AbstractContextManager[None]:
        admission = self._gate.admission
        return admission.health_call(grant) if _is_about_health(method) else admission.call(grant)

    def _stream(
        self, method: str, received: Callable[[Context], Awaitable[Any]], inner: _Stream, serializer: Serializer
    ) -> _Stream:
        async def call(_: Any, context: Context) -> AsyncGenerator[Any, None]:
            async with self._served(method, context) as (grant, held):
                held.enter(self._gate.admission.stream(grant, about_health=_is_about_health(method)))
                async with self._gate.running.handled(waits=True):
                    request = await received(context)
                _address(request, grant)
                answer = inner(request, context)
                waits = method.startswith(_REFLECTION)
                async with aclosing(self._while_admitted(answer, context, waits=waits)) as messages:
                    async for message in messages:
                        with self._replies.streamed(method, grant, message, serializer) as data:
                            yield data

        return call

    async def _while_admitted(
        self, answer: AsyncGenerator[Any, None], context: Context, *, waits: bool
    ) -> AsyncGenerator[Any, None]:
        """Yield the messages of a stream, until its caller's token is revoked or expires.

        Raises:
            TokenInvalid: the token was revoked or has expired.
            ShuttingDown: as `RunningCalls.handled`.
        """
        async with aclosing(answer):
            while True:
                async with self._gate.running.handled(waits=waits):
                    message = await self._next_message(answer, context)
                if message is None:
                    return
                await self._gate.identify(context)
                yield message

    async def _next_message(self, answer: AsyncGenerator[Any, None], context: Context) -> Any:
        """Return the next message, None at the end. While it waits, the token is checked at intervals."""
        if not requires_token(context):
            return await anext(answer, None)
        step = asyncio.ensure_future(anext(answer, None))
        # The caller may leave when the step has failed; asyncio would report its exception as never retrieved.
        step.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            while not (await asyncio.wait((step,), timeout=self._gate.recheck_seconds))[0]:
                await self._gate.identify(context)
            return step.result()
        finally:
            if not step.done():
                step.cancel()
                await asyncio.wait((step,))

    @asynccontextmanager
    async def _served(self, method: str, context: Context) -> AsyncIterator[tuple[Grant, HeldPlaces]]:
        request_id = _request_id(context)
        call = {"method": method, "request_id": request_id}
        began = time.monotonic()
        grant = ALL_AGENTS_GRANT
        held = HeldPlaces()
        held.enter(self._gate.running.arrived())
        await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
        code = grpc.StatusCode.UNKNOWN.name
        try:
            grant = await self._gate.admit(context, about_health=_is_about_health(method))
            held.enter(self._gate.running.admitted())
            yield grant, held
        except MemorydError as error:
            code = code_of(error).name
            self._log.info("refuse-call", **call, **_caller(grant), code=code, reason=error.reason)
            await abort(context, _visible_to(grant, error), request_id)
        except grpc.aio.AbortError as aborted:
            # Of a library's service, such as the health service. The services of memoryd raise a MemorydError.
            code = context.code().name
            release_after_call(aborted)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            code = grpc.StatusCode.CANCELLED.name
            raise
        except Exception:  # noqa: BLE001 -- the edge: a bug becomes a status and a log line
            code = grpc.StatusCode.INTERNAL.name
            self._log.exception("fail-call", **call, **_caller(grant))
            message = f"internal error of memoryd; its log has the details under request id {request_id}"
            await abort(context, MemorydError(message, metadata={"request_id": request_id}), request_id)
        else:
            code = grpc.StatusCode.OK.name
            elapsed_ms = round((time.monotonic() - began) * 1000, 2)
            self._log.debug("serve-call", **call, **_caller(grant), elapsed_ms=elapsed_ms)
        finally:
            self._meter.call_ended(method.removeprefix("/"), code, time.monotonic() - began)


def _address(request: Any, grant: Grant) -> None:
    name_agent(request)
    confine(request, grant)


def _is_about_health(method: str) -> bool:
    # A health check must get NOT_SERVING while the daemon stops, and SERVING while it is merely busy.
    return method.startswith(f"/{health.SERVICE_NAME}/")


def _caller(grant: Grant) -> dict[str, str]:
    return {"token_id": grant.token_id} if grant.token_id else {}


def _visible_to(grant: Grant, error: MemorydError) -> MemorydError:
    """Return the error as its caller may see it: a limited token does not show which agents are configured."""
    if grant.limited and isinstance(error, AgentNotFound):
        return AgentNotFound("this token allows an agent that is not configured")
    return error


def _request_id(context: Context) -> str:
    """Return the caller's request id if it is fit for a log line, else a new one."""
    given = dict(context.invocation_metadata() or ()).get(REQUEST_ID_KEY)
    if isinstance(given, str) and given.isascii() and given.isprintable() and 0 < len(given) <= _MOST_REQUEST_ID_CHARS:
        return given
    return uuid.uuid4().hex
