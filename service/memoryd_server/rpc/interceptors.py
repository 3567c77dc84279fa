"""What every call goes through: a request id, the token and its agents, the limits, the log, and errors as statuses."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health

from memoryd_server.access import EVERYTHING, Grant
from memoryd_server.errors import AgentNotFound, MemorydError
from memoryd_server.observe.meter import Meter
from memoryd_server.rpc.decoding import Decoder
from memoryd_server.rpc.gate import RECHECK_SECONDS, Gate, asks_for_token, confine
from memoryd_server.rpc.grpc_types import Context
from memoryd_server.rpc.status_mapping import REQUEST_ID_KEY, abort, code_of

_MOST_REQUEST_ID_CHARS = 128


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of every service on the server."""

    def __init__(self, gate: Gate, log: structlog.typing.FilteringBoundLogger, meter: Meter) -> None:
        self._gate = gate
        self._log = log
        self._meter = meter

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
        decoder = Decoder(handler.request_deserializer)
        codec = {"request_deserializer": None, "response_serializer": handler.response_serializer}
        if handler.unary_unary is not None:
            call = self._unary(method, decoder.request, handler.unary_unary)
            return grpc.unary_unary_rpc_method_handler(call, **codec)
        if handler.unary_stream is not None:
            stream = self._stream(method, decoder.request, handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(stream, **codec)
        if handler.stream_stream is not None:
            stream = self._stream(method, decoder.requests, handler.stream_stream)
            return grpc.stream_stream_rpc_method_handler(stream, **codec)
        return handler

    def _unary(
        self, method: str, decoded: Callable[[Any], Any], inner: Callable[[Any, Context], Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        async def call(data: Any, context: Context) -> Any:
            async with self._served(method, context) as grant:
                request = decoded(data)
                confine(request, grant)
                if _is_about_health(method):
                    return await inner(request, context)
                with self._gate.admission.call(grant):
                    return await inner(request, context)

        return call

    def _stream(
        self, method: str, decoded: Callable[[Any], Any], inner: Callable[[Any, Context], Any]
    ) -> Callable[..., AsyncIterator[Any]]:
        async def call(data: Any, context: Context) -> AsyncIterator[Any]:
            async with self._served(method, context) as grant:
                request = decoded(data)
                confine(request, grant)
                with self._gate.admission.stream(grant, about_health=_is_about_health(method)):
                    answer = inner(request, context)
                    if isinstance(answer, AsyncGenerator):
                        async with aclosing(self._while_admitted(answer, context)) as messages:
                            async for message in messages:
                                yield message
                    else:
                        # The health service writes to the context instead of yielding.
                        await self._gate.until_closed(answer, context)

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
            while not (await asyncio.wait((step,), timeout=RECHECK_SECONDS))[0]:
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
        grant = EVERYTHING
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
