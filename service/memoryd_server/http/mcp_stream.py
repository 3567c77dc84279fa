"""One MCP session over a pair of message streams, such as standard input and output of `memoryd mcp`.

Each message is one JSON-RPC message as UTF-8. The client's first request decides which versions of MCP apply: those
with a handshake if it is `initialize`, otherwise 2026-07-28 and later, which have none.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from memoryd_server.foreign_text import parse_json
from memoryd_server.http.mcp_calls import SessionOwner

MOST_UNSENT = 64
"""While this number of messages waits for the client to read, no more messages of the client are read."""

_LAST_WRITES_SECONDS = 1.0

Write = Callable[[bytes], Awaitable[None]]


@dataclass(slots=True)
class StreamSession:
    """A session over streams: its owner, and how many of its requests are being handled."""

    owner: SessionOwner
    running: int = 0


async def serve_session(
    server: Server[Any],
    session: StreamSession,
    read: AsyncIterator[bytes],
    write: Write,
    options: InitializationOptions,
) -> None:
    """Serve a session until `read` ends; requests in progress are then cancelled.

    Raises:
        Exception: as `read` and `write` do.
    """
    outgoing, unsent = anyio.create_memory_object_stream[SessionMessage]()
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception]()
    channel = _Channel(read, write, incoming, unsent, outgoing.clone())
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(channel.receive_all, group.cancel_scope)
            group.start_soon(channel.send_all, group.cancel_scope)
            await serve_dual_era_loop(server, received, outgoing, lifespan_state=session, init_options=options)
            await channel.finish()
            group.cancel_scope.cancel()
    finally:
        channel.close()
        received.close()
        outgoing.close()
    if channel.failure is not None:
        raise channel.failure


class _Channel:
    """Copies messages between the streams of a session and the server, as fast as the client reads its own."""

    def __init__(
        self,
        read: AsyncIterator[bytes],
        write: Write,
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
        unsent: MemoryObjectReceiveStream[SessionMessage],
        errors: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        self._read = read
        self._write = write
        self._incoming = incoming
        self._unsent = unsent
        self._errors = errors
        self._sent = anyio.Event()
        self._ended = anyio.Event()
        self.failure: Exception | None = None

    async def receive_all(self, scope: anyio.CancelScope) -> None:
        """Pass the client's messages on until there are no more."""
        try:
            async with self._incoming:
                async for data in self._read:
                    await self._wait_for_client()
                    await self._receive(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # The session has ended.
        except Exception as error:  # noqa: BLE001 -- raised by `serve_session`
            self.failure = error
            scope.cancel()

    async def _receive(self, data: bytes) -> None:
        try:
            message = types.jsonrpc_message_adapter.validate_json(data, by_name=False)
        except ValidationError:
            message = None
        # The package takes a request with an invalid ID for a notification, and would not answer it.
        if message is None or (isinstance(message, types.JSONRPCNotification) and "id" in json.loads(data)):
            await self._errors.send(SessionMessage(_refusal(data)))
            return
        await self._incoming.send(SessionMessage(message))

    async def _wait_for_client(self) -> None:
        while self._unsent.statistics().tasks_waiting_send >= MOST_UNSENT:
            self._sent = anyio.Event()
            await self._sent.wait()

    async def send_all(self, scope: anyio.CancelScope) -> None:
        """Write the server's messages until the session ends."""
        try:
            async for sent in self._unsent:
                self._sent.set()
                await self._write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
        except Exception as error:  # noqa: BLE001 -- raised by `serve_session`
            self.failure = error
            scope.cancel()
        finally:
            self._ended.set()

    async def finish(self) -> None:
        """Write the last messages of a session that has ended, for a short time at most."""
        self._errors.close()
        with anyio.move_on_after(_LAST_WRITES_SECONDS):
            await self._ended.wait()

    def close(self) -> None:
        """Release the streams."""
        for stream in (self._incoming, self._unsent, self._errors):
            stream.close()


def _refusal(data: bytes) -> types.JSONRPCError:
    """Return the answer to a message that is not valid."""
    try:
        value = parse_json(data)
    except ValueError:
        return _error(None, types.PARSE_ERROR, "the message is not valid JSON")
    request_id = value.get("id") if isinstance(value, dict) else None
    named = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
    if isinstance(value, list):
        return _error(named, types.INVALID_REQUEST, "batches are not supported; send one message at a time")
    return _error(named, types.INVALID_REQUEST, "the message is not a JSON-RPC 2.0 message")


def _error(request_id: str | int | None, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))
