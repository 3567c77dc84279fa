"""Requests of a call from the bytes that arrive: after admission, within a time, and refused with what is wrong."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from memoryd_server.errors import DeadlineTooShort, FieldViolation, InvalidRequest
from memoryd_server.rpc.grpc_types import Context


class Decoder:
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
