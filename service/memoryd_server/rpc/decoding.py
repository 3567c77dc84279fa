"""Bytes of a call into its request: after the caller was let in, and with a refusal that says what is wrong."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from google.protobuf.message import DecodeError

from memoryd_server.errors import FieldViolation, InvalidRequest


class Decoder:
    """Makes the requests of one method, of the type that `deserialize` gives.

    gRPC would do so before any of our code sees the call: for callers without a token too, and with UNKNOWN for bytes
    that are no message.
    """

    def __init__(self, deserialize: Callable[[bytes], Any] | None) -> None:
        self._deserialize = deserialize

    def request(self, data: Any) -> Any:
        """The request.

        Raises:
            InvalidRequest: the bytes are none.
        """
        if self._deserialize is None:
            return data
        try:
            return self._deserialize(data)
        except DecodeError as error:
            words = "the bytes are no message of this method's type; regenerate the client from memoryd's protos"
            raise InvalidRequest([FieldViolation("request", words)]) from error

    async def requests(self, stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The requests of a stream, as they come.

        Raises:
            InvalidRequest: one of them is none.
        """
        async for data in stream:
            yield self.request(data)
