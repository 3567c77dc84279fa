"""Calls of the services from another edge in this process, such as HTTP, with the same tokens, limits, log and metrics.

Requests and responses are in proto3 JSON, so that only this package knows the generated code.
"""

import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

import structlog
from google.protobuf import json_format
from google.protobuf.message import Message

from memoryd.v1 import memory_service_pb2
from memoryd_server.access import Grant
from memoryd_server.errors import FieldViolation, InvalidRequest
from memoryd_server.observe import Meter
from memoryd_server.rpc.authorization import Authorizer, CallRecorder, address_request
from memoryd_server.rpc.health import SERVICE
from memoryd_server.rpc.memory_service import MemoryService
from memoryd_server.rpc.method_scopes import METHOD_SCOPES
from memoryd_server.rpc.wire import Context, cut_text

_METHODS = memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"].methods_by_name


@dataclass(frozen=True, slots=True)
class LocalCaller:
    """Who calls: the bearer token as it was presented, or None for a caller who needs none, as on the Unix socket.

    `seconds` is the time that each call has; None if the caller sets no deadline. Has those methods of gRPC's context
    that the services use.
    """

    token: bytes | None
    seconds: float | None = None
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, context: Context) -> "LocalCaller":
        """Return the caller of a gRPC call, for calls on its behalf."""
        authorization = dict(context.invocation_metadata() or ()).get("authorization") or b""
        header = authorization.encode() if isinstance(authorization, str) else authorization
        trusted = context.peer().startswith("unix:")
        return cls(None if trusted else header.partition(b" ")[2].strip())

    def peer(self) -> str:
        """Return the kind of the connection, as gRPC names it."""
        return "unix:" if self.token is None else "local"

    def invocation_metadata(self) -> tuple[tuple[str, bytes], ...]:
        """Return the token as metadata."""
        return (("authorization", b"Bearer " + self.token),) if self.token else ()

    def time_remaining(self) -> float | None:
        """Return the time that a call has, in seconds."""
        return self.seconds


class LocalCalls:
    """Calls the methods of MemoryService by name. Use it on the event loop's thread."""

    def __init__(
        self,
        service: MemoryService,
        gate: Authorizer,
        log: structlog.typing.FilteringBoundLogger,
        meter: Meter,
    ) -> None:
        self._service = service
        self._gate = gate
        self._calls = CallRecorder(gate, log, meter)

    async def identify(self, caller: LocalCaller) -> Grant:
        """Return what the caller may use now, by the current token files.

        Raises:
            ShuttingDown, TokenMissing, TokenInvalid: the caller may not call.
        """
        return await self._gate.admit(_context(caller), about_health=False)

    async def permitted(self, methods: Iterable[str], caller: LocalCaller) -> frozenset[str]:
        """Return those of the methods that the caller's scopes allow, by the current token files.

        Raises:
            TokenMissing, TokenInvalid: the caller has no valid token.
        """
        grant = await self._gate.identify(_context(caller))
        return frozenset(method for method in methods if grant.may(METHOD_SCOPES[_full_name(method)]))

    async def call(self, method: str, request: Mapping[str, Any], caller: LocalCaller) -> dict[str, Any]:
        """Call a unary method, such as `MemorySearch`, and return its response.

        Raises:
            MemorydError: the call was refused or failed; InvalidRequest also if `request` is no request of the method.
        """
        context = _context(caller)
        async with self._calls.recorded(_full_name(method), context, caller.request_id) as grant:
            with self._gate.running.arrived(), self._gate.running.admitted():
                message = _read(method, request)
                address_request(message, grant)
                with self._gate.admission.call(grant):
                    async with self._gate.running.handled():
                        return _json(await getattr(self._service, method)(message, context))

    async def stream(
        self, method: str, request: Mapping[str, Any], caller: LocalCaller
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Call a method that streams its responses, such as `Sync`, and yield them until it ends.

        Close the iterator to end the call. It ends with an error when the caller's token is revoked or loses the scope
        of the method, or when the daemon stops.

        Raises:
            MemorydError: as `call`.
        """
        context = _context(caller)
        name = _full_name(method)
        async with self._calls.recorded(name, context, caller.request_id) as grant:
            with self._gate.running.arrived(), self._gate.running.admitted():
                message = _read(method, request)
                address_request(message, grant)
                with self._gate.admission.stream(grant, about_health=False):
                    async with aclosing(getattr(self._service, method)(message, context)) as responses:
                        while True:
                            async with self._gate.running.handled():
                                response = await anext(responses, None)
                            if response is None:
                                return
                            await self._gate.readmit(name, context)
                            yield _json(response)


def _full_name(method: str) -> str:
    return f"/{SERVICE}/{method}"


def _context(caller: LocalCaller) -> Context:
    return cast("Context", caller)


def _read(method: str, request: Mapping[str, Any]) -> Message:
    """Return a request in proto3 JSON as a message.

    Raises:
        InvalidRequest: it has an unknown field, or a value of the wrong type.
    """
    message = getattr(memory_service_pb2, _METHODS[method].input_type.name)()
    try:
        json_format.ParseDict(dict(request), message)
    except (json_format.ParseError, OverflowError) as error:
        # The second one is raised for an enum with an infinite number. The text has the value, which can be long.
        raise InvalidRequest([FieldViolation("request", cut_text(str(error)))]) from error
    return cast("Message", message)


def _json(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(message)
