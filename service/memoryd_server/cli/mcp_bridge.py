"""Bridge: copies messages from standard input to a session of the daemon, and responses to standard output.

A session that ends, because its daemon was killed or restarted, is replaced when the client sends its next message.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from memoryd_server.cli.mcp_connector import ConnectionFailed
from memoryd_server.cli.mcp_record import SessionRecord
from memoryd_server.cli.mcp_stream import StreamEnded
from memoryd_server.json_rpc import MalformedMessage, failed_response, read_message

LAST_RESPONSES_SECONDS = 0.6
"""The time that responses in progress have after the end of standard input."""

_LOST = "the call may or may not have been executed; try again"


class Stream(Protocol):
    """A session with the daemon; see `SessionStream`."""

    async def send(self, text: bytes) -> None:
        """Send one message."""

    async def receive(self) -> bytes:
        """Return the next message."""

    async def close(self) -> None:
        """End the session."""


class Bridge:
    """Copies messages until the input ends. `connect` opens a session, and `warn` reports a problem to the operator."""

    def __init__(
        self,
        line: Callable[[], Awaitable[bytes | MalformedMessage | None]],
        respond: Callable[[bytes], Awaitable[None]],
        connect: Callable[[], Awaitable[Stream]],
        warn: Callable[[str], None],
    ) -> None:
        self._line = line
        self._respond = respond
        self._connect = connect
        self._warn = warn
        self._record = SessionRecord()
        self._stream: Stream | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()
        # Why the session ended; empty while it is open.
        self._end_reason = ""
        self._warned = ""

    async def run(self) -> None:
        """Copy messages until the input ends and its requests have their responses.

        Raises:
            OSError: the client does not read its responses any more.
        """
        try:
            while (line := await self._line()) is not None:
                await self._forward(line)
            await self._last_responses()
        finally:
            await self._close()

    async def _forward(self, line: bytes | MalformedMessage) -> None:
        try:
            if isinstance(line, MalformedMessage):
                raise line
            message = read_message(line)
        except MalformedMessage as malformed:
            await self._respond(malformed.response)
            return
        try:
            stream = await self._session()
        except ConnectionFailed as failure:
            self._report(str(failure))
            if message.is_request:
                await self._respond(failed_response(message.method, message.request_id, str(failure)))
            return
        self._record.sent(message)
        try:
            await stream.send(line)
        except StreamEnded:
            await self._end_session()
            await self._fail_requests()

    async def _session(self) -> Stream:
        """Return the open session, or open one that is in the state of the last one."""
        if self._end_reason or (self._receiving is not None and self._receiving.done()):
            await self._end_session()
        if self._stream is None:
            stream = self._stream = await self._connect()
            self._end_reason = ""
            replay = self._record.replay()
            self._receiving = asyncio.create_task(self._receive(stream))
            with suppress(StreamEnded):
                for text in replay:
                    await stream.send(text)
        return self._stream

    async def _receive(self, stream: Stream) -> None:
        """Pass on the messages of a session; at its end, answer the requests in progress."""
        try:
            while True:
                text = await stream.receive()
                if self._is_for_client(text):
                    await self._respond(text)
                self._progress.set()
        except StreamEnded as ended:
            reason = f"the memory daemon stopped ({ended.message})" if ended.is_absent else ended.message
            self._report(reason)
            # Set first: the client may send its next message before this task has passed on the last of the failures.
            self._end_reason = f"{reason}; {_LOST}"
            await self._fail_requests()
        finally:
            self._progress.set()

    def _is_for_client(self, text: bytes) -> bool:
        try:
            return self._record.received(read_message(text))
        except MalformedMessage as malformed:
            self._report(f"the daemon sent a message that is not JSON-RPC: {malformed}")
            return False

    def _report(self, problem: str) -> None:
        """Warn of a problem, unless it is the same as the last one."""
        if problem != self._warned:
            self._warned = problem
            self._warn(problem)

    async def _fail_requests(self) -> None:
        for response in self._record.failed(self._end_reason):
            await self._respond(response)

    async def _end_session(self) -> None:
        """Drop a session that has ended."""
        receiving, self._receiving = self._receiving, None
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()
        if receiving is not None:
            await receiving

    async def _last_responses(self) -> None:
        # The end of the stream would cancel the requests in progress.
        while self._record.waits and self._receiving is not None and not self._receiving.done():
            self._progress.clear()
            await self._progress.wait()

    async def _close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
        if self._stream is not None:
            await self._stream.close()
