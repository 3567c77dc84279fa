"""The stream of one MCP session between `memoryd mcp` and a daemon.

This module calls McpService itself, because the client library has no API for it.
"""

import asyncio
from typing import Any

import grpc
import grpc.aio

from memoryd._channel import metadata, open_channel_async
from memoryd._targets import has_names, target_of
from memoryd.discovery import Endpoint
from memoryd.failure import MemorydError, decode
from memoryd.v1.mcp_service_pb2 import SessionRequest
from memoryd.v1.mcp_service_pb2_grpc import McpServiceStub

# A connection over TCP can break without a sign of it.
_KEEPALIVE_SECONDS = 30.0
# The first session of a daemon waits until the packages of MCP are imported.
_OPEN_SECONDS = 30.0

# gRPC's own, for a connection that breaks while a message is sent.
_CONNECTION_ERRORS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED)

_RESTARTED = "a daemon of another version runs; restart it with the version of this command"


class StreamEnded(Exception):
    """The stream has ended, with a message for people.

    `is_absent` is whether no daemon answers, or it stops: another one may answer soon.
    """

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.is_absent = is_absent


class SessionStream:
    """An open session. One task sends and one task receives."""

    def __init__(self, channel: grpc.aio.Channel, call: Any, address: str) -> None:
        self._channel = channel
        self._call = call
        self._address = address
        self._end = f"the daemon at {address} ended the session"

    async def send(self, text: bytes) -> None:
        """Send one message; wait while the daemon does not read.

        Raises:
            StreamEnded: the stream has ended; `receive` raises the reason.
        """
        await self._write(SessionRequest(message=text.decode()))

    async def _write(self, request: SessionRequest) -> None:
        try:
            await self._call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            raise StreamEnded(self._end, is_absent=True) from None

    async def open(self, agent_id: str) -> None:
        """Open the session: when the daemon has admitted the call, send the agent, and wait until it is accepted.

        Raises:
            StreamEnded: the daemon does not answer or refuses the session.
        """
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await self.receive()
                await self._write(SessionRequest(agent_id=agent_id))
                await self.receive()
        except StreamEnded as ended:
            if not ended.is_absent:
                raise
            raise StreamEnded(f"no daemon answers at {self._address}: {ended.message}", is_absent=True) from None
        except TimeoutError:
            words = f"the daemon at {self._address} did not open a session within {_OPEN_SECONDS:g} s"
            raise StreamEnded(words, is_absent=True) from None

    async def receive(self) -> bytes:
        """Return the next message.

        Raises:
            StreamEnded: the stream has ended.
        """
        try:
            response = await self._call.read()
        except grpc.RpcError as error:
            raise self._ended(error) from None
        if response is grpc.aio.EOF:
            raise StreamEnded(self._end, is_absent=True)
        return response.message.encode()  # type: ignore[no-any-return]

    def _ended(self, error: grpc.RpcError) -> StreamEnded:
        failure = decode(error)
        # The daemon gives a reason for all of its own errors. Without one, the connection has failed.
        is_absent = failure.code is grpc.StatusCode.UNAVAILABLE or (
            failure.code in _CONNECTION_ERRORS and not failure.reason
        )
        return StreamEnded(_message(failure, self._address), is_absent=is_absent)

    async def close(self) -> None:
        """End the session now."""
        self._call.cancel()
        await self._channel.close()


def _message(failure: MemorydError, address: str) -> str:
    """Return what is wrong with the session, and what to do about it."""
    code, message = failure.code, failure.message or failure.code.name
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return f"{message}; give a file with a valid token with --token-file or MEMORYD_TOKEN_FILE"
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return f"{message}; name an agent that the token allows with --agent"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and failure.retry_after_seconds is not None:
        return f"{message} (retry after {failure.retry_after_seconds:g} s)"
    if code is grpc.StatusCode.UNIMPLEMENTED and not failure.reason:
        return f"the daemon at {address} does not know MCP sessions: {_RESTARTED}"
    return message


async def open_stream(endpoint: Endpoint, agent_id: str) -> SessionStream:
    """Open a session with the daemon at `endpoint`.

    Raises:
        StreamEnded: the daemon does not answer or refuses the session.
        OSError: a TLS file of the endpoint cannot be read.
        memoryd.client.MemorydError: there are several addresses, and no host name can be resolved.
    """
    names = has_names(endpoint.addresses)
    target = await asyncio.to_thread(target_of, endpoint.addresses) if names else None
    channel = open_channel_async(endpoint, _KEEPALIVE_SECONDS if endpoint.over_tcp else None, target)
    call = McpServiceStub(channel).Session(metadata=metadata(endpoint.token))  # type: ignore[no-untyped-call]
    stream = SessionStream(channel, call, endpoint.address)
    try:
        await stream.open(agent_id)
    except BaseException:
        await stream.close()
        raise
    return stream
