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
    """A request and its response, from the headers to the last byte that the client reads."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, admission: RateLimiter) -> None:
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
        self._started = self._completed = False
        self._held_bytes = 0
        self._limit: asyncio.Timeout | None = None
        self._ended_by: Refusal | None = None

    @property
    def started(self) -> bool:
        """Whether the response has begun."""
        return self._started

    @property
    def waits(self) -> bool:
        """Whether the client waits for events of its session. The subscriptions of later versions end themselves."""
        return self.connection.is_event_stream and self.scope["method"] == "GET"

    async def read_body(self, request: RequestHeaders, limits: HttpLimits, budget: BodyBudget) -> bytes:
        """Return the body, which counts in `budget` until `release`.

        Raises:
            Refusal: it is too large or late, or the bodies of other requests leave no room.
            ClientLeft: the client closed the connection.
        """
        if request.body_bytes > limits.body_bytes:
            raise _too_large(limits)
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        raise ClientLeft
                    part = message.get("body", b"")
                    self._hold(len(part), budget)
                    body += part
                    if len(body) > limits.body_bytes:
                        raise _too_large(limits)
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            why = f"the body of the request did not arrive within {limits.body_seconds:g} s"
            raise Refusal(408, "REQUEST_TIMEOUT", why) from None

    def _hold(self, size: int, budget: BodyBudget) -> None:
        if budget.used and budget.used + size > budget.most_bytes:
            why = f"the requests in progress have {budget.used:,} bytes; try again when one has ended"
            raise Refusal(503, "TOO_MANY_REQUESTS", why, retry_after_seconds=_BODY_RETRY_SECONDS)
        budget.used += size
        self._held_bytes += size

    def release(self, budget: BodyBudget) -> None:
        """Leave the budget."""
        budget.used -= self._held_bytes
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
        """Return the headers of the application with those of every response, which replace others."""
        added = [*SECURITY_HEADERS, (b"x-request-id", self.request_id.encode()), *self.added_headers]
        names = {name for name, _ in added}
        return [*(header for header in given if header[0].lower() not in names), *added]

    async def respond(self, status: int, content_type: bytes = b"", body: bytes = b"") -> None:
        """Send a whole response."""
        headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))] if content_type else []
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: Refusal, *, discard_seconds: float) -> None:
        """Send a refusal and close the connection. Discards a body that is still arriving for `discard_seconds`."""
        body = refusal.body()
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
            Refusal: it was ended.
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

    def end(self, refusal: Refusal) -> None:
        """End the handling of the request, if it is in progress, with a refusal."""
        if self._limit is not None and self._ended_by is None:
            self._ended_by = refusal
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def complete(self) -> None:
        """End a response that was interrupted, so that the client sees a complete stream of events."""
        if self._started and not self._completed:
            if self.connection.is_event_stream:
                await self.send({"type": "http.response.body"})
            else:
                self.connection.abort()


def _too_large(limits: HttpLimits) -> Refusal:
    return Refusal(413, "INVALID_REQUEST", f"the body of the request is larger than {limits.body_bytes:,} bytes")
