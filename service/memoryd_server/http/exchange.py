"""HttpExchange: one request and its response, with the limits on the request's body and on unread response bytes.

The body of a request is read before it is handled, within a time limit and a limit on the bytes of all requests. After
a refusal, the body is read and discarded for a short time. Otherwise the connection would be reset before the client
has read the refusal.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from memoryd_server.access import ALL_AGENTS_GRANT, Grant, RateLimiter
from memoryd_server.errors import MemorydError
from memoryd_server.http.connection import CONNECTION_KEY, SECURITY_HEADERS, HttpConnection, HttpLimits
from memoryd_server.http.refusals import Header, Refusal
from memoryd_server.http.request_headers import RequestHeaders
from memoryd_server.rpc import LocalCaller

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_BODY_RETRY_SECONDS = 1.0
_EVENT_STREAM = b"text/event-stream"
INSPECTOR_PREFIX = b"/inspector/"
"""The beginning of the paths whose errors are not JSON-RPC errors."""

CLIENT_CLOSED_REQUEST = 499
"""The status, for the metrics, of a request whose client left before a response."""


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


class BodyBudget:
    """The bytes of the bodies of all requests in progress."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.used = 0


class HttpExchange:
    """A request and its response, from the headers to the last byte that the client reads.

    `added_headers` are headers of the response, which replace those of every response.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        admission: RateLimiter,
        limits: HttpLimits,
        body_budget: BodyBudget,
    ) -> None:
        self.scope = scope
        self.connection: HttpConnection = scope["state"].pop(CONNECTION_KEY)
        self.connection.is_event_stream = False
        self.route = "other"
        self.request_id = ""
        self.caller: LocalCaller | None = None
        self.grant: Grant = ALL_AGENTS_GRANT
        self.added_headers: list[Header] = []
        self.status = CLIENT_CLOSED_REQUEST
        self._receive = receive
        self._send = send
        self._admission = admission
        self._limits = limits
        self._body_budget = body_budget
        self._started = self._completed = False
        self._held_bytes = 0
        self._limit: asyncio.Timeout | None = None
        self._ended_by: Exception | None = None

    @property
    def started(self) -> bool:
        """Whether the response has begun."""
        return self._started

    @property
    def waits(self) -> bool:
        """Whether the client waits for events of its session. Subscriptions and watches, by POST, end themselves."""
        return self.connection.is_event_stream and self.scope["method"] == "GET"

    @property
    def client_host(self) -> str:
        """The address of the client, or of the proxy that it uses; empty if it has left."""
        return self.scope["client"][0] if self.scope["client"] else ""

    async def read_body(self, request: RequestHeaders, most_bytes: int | None = None) -> bytes:
        """Return the body, which counts in the budget of all bodies until `release`.

        Raises:
            Refusal: it is too large or late, or the bodies of other requests leave no room.
            ClientLeft: the client closed the connection.
        """
        most = self._limits.body_bytes if most_bytes is None else min(most_bytes, self._limits.body_bytes)
        if request.body_bytes > most:
            raise _too_large(most)
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        raise ClientLeft
                    part = message.get("body", b"")
                    self._hold(len(part))
                    body += part
                    if len(body) > most:
                        raise _too_large(most)
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            why = f"the body of the request did not arrive within {self._limits.body_seconds:g} s"
            raise Refusal(408, "REQUEST_TIMEOUT", why) from None

    def _hold(self, size: int) -> None:
        budget = self._body_budget
        if budget.used and budget.used + size > budget.most_bytes:
            why = f"the requests in progress have {budget.used:,} bytes; try again when one has ended"
            raise Refusal(503, "TOO_MANY_REQUESTS", why, retry_after_seconds=_BODY_RETRY_SECONDS)
        budget.used += size
        self._held_bytes += size

    def release(self) -> None:
        """Leave the budget of all bodies."""
        self._body_budget.used -= self._held_bytes
        self._held_bytes = 0

    def replay(self, body: bytes) -> Receive:
        """Return a `receive` that returns the body, then what the connection reports."""
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return messages.pop() if messages else await self._receive()

        return receive

    async def send(self, message: Message) -> None:
        """Send a part of the response, and return when the client has read it."""
        if message["type"] == "http.response.start":
            self._start(message)
            await self._send({**message, "headers": self._headers(message.get("headers", ()))})
            return
        self._completed = not message.get("more_body", False)
        with self._admission.reply(self.grant, len(message.get("body", b"")), refusable=False):
            await self._send(message)
            await self.connection.drain()

    def _start(self, message: Message) -> None:
        self._started = True
        self.status = message["status"]
        content_type = dict(message.get("headers", ())).get(b"content-type", b"")
        self.connection.is_event_stream = content_type.startswith(_EVENT_STREAM)

    def _headers(self, given: Sequence[Header]) -> list[Header]:
        """Return `given`, replaced by the headers of every response, and these by the added ones."""
        every = (*SECURITY_HEADERS, (b"x-request-id", self.request_id.encode()))
        return _replaced(_replaced(given, every), self.added_headers)

    async def respond(self, status: int, content_type: bytes = b"", body: bytes = b"") -> None:
        """Send a whole response."""
        headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))] if content_type else []
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def start_events(self) -> None:
        """Begin a response that is a stream of events."""
        # The second header is for nginx, which otherwise sends the events when its buffer is full.
        headers = [(b"content-type", _EVENT_STREAM + b"; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send_event(self, data: bytes) -> None:
        """Send an event of one line, and return when the client has read it."""
        await self.send({"type": "http.response.body", "body": b"data: %s\n\n" % data, "more_body": True})

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal and close the connection. Discards a body that is still arriving for a short time."""
        discard_seconds = self._limits.linger_seconds
        is_of_inspector = self.scope["raw_path"].startswith(INSPECTOR_PREFIX)
        body = refusal.body() if is_of_inspector else refusal.json_rpc_body()
        headers = [*refusal.headers(), (b"connection", b"close"), (b"content-length", b"%d" % len(body))]
        await self.send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": True})
        if discard_seconds:
            with suppress(TimeoutError):
                async with asyncio.timeout(discard_seconds):
                    while (await self._receive()).get("more_body", False):
                        pass
        await self.send({"type": "http.response.body"})

    @asynccontextmanager
    async def handled(self) -> AsyncIterator[None]:
        """Handle the request in the block, which `end` ends.

        Raises:
            Exception: what `end` was called with.
        """
        try:
            async with asyncio.timeout(None) as self._limit:
                yield
        except TimeoutError:
            if self._ended_by is None:
                raise
            raise self._ended_by from None
        finally:
            self._limit = None

    def end(self, error: Refusal | MemorydError | ClientLeft) -> None:
        """End the handling of the request, if it is in progress, with an exception."""
        if self._limit is not None and self._ended_by is None:
            self._ended_by = error
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def wait_until_left(self) -> None:
        """Return when the client has closed the connection, or the response is complete. The body must be read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def complete(self) -> None:
        """End a response that was interrupted, so that the client sees a complete stream of events."""
        if self._started and not self._completed:
            if self.connection.is_event_stream:
                await self.send({"type": "http.response.body"})
            else:
                self.connection.abort()


def _replaced(headers: Sequence[Header], by: Sequence[Header]) -> list[Header]:
    names = {name for name, _ in by}
    return [*(header for header in headers if header[0].lower() not in names), *by]


def _too_large(most_bytes: int) -> Refusal:
    return Refusal(413, "INVALID_REQUEST", f"the body of the request is larger than {most_bytes:,} bytes")
