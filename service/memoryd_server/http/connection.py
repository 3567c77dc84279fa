"""A connection: uvicorn's HTTP/1.1 protocol with time limits for clients that send or read too slowly.

uvicorn parses requests with h11 and passes them to an ASGI application. A connection is closed if the headers of a
request do not arrive in time, and aborted if its client does not read a response. Malformed requests are answered and
logged here, because uvicorn does not pass them to the application.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from memoryd_server.http.refusals import Refusal
from memoryd_server.http.request_headers import MOST_HEADER_BYTES

CONNECTION_KEY = "memoryd_connection"
"""The connection of a request, in the state of its ASGI scope."""

SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of connections and requests, in seconds and bytes. `linger_seconds` is the time for a refused body.

    `body_bytes` is the size of one body, `all_body_bytes` that of all bodies of requests in progress.
    """

    connections: int = 1_024
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    keep_alive_seconds: float = 60.0
    handshake_seconds: float = 10.0
    linger_seconds: float = 1.0
    body_bytes: int = 4 * 2**20
    all_body_bytes: int = 64 * 2**20


def protocol_config(app: Any, limits: HttpLimits) -> Config:
    """Return the configuration of uvicorn's protocol: no log, no WebSockets, no forwarded addresses."""
    config = Config(
        app,
        http=H11Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=limits.keep_alive_seconds,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )
    config.load()
    return config


class HttpConnection(H11Protocol):  # type: ignore[misc] # uvicorn is optional, and not followed by mypy
    """A connection until `connection_lost`, which calls `on_lost`.

    `reply_seconds` returns the time to read a response or, if its argument is true, one message of an event stream.
    `on_refused` receives the status of a request that was refused here. `on_unread` is called if the client has not
    read a response in time.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: HttpLimits,
        *,
        reply_seconds: Callable[[bool], float],
        on_refused: Callable[[Refusal], None],
        on_unread: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.app_state: dict[str, Any] = {}
        super().__init__(config, state, {CONNECTION_KEY: self}, loop)
        self.logger = _silent_logger()
        self.access_log = False
        self.is_event_stream = False
        self._is_refused = False
        self._limits = limits
        self._reply_seconds = reply_seconds
        self._on_refused = on_refused
        self._on_unread = on_unread
        self._on_lost = on_lost
        self._header_limit: asyncio.TimerHandle | None = None
        self._read_limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the time limit of the first request."""
        super().connection_made(transport)
        # `pause_writing` is called, and the time to read begins, when anything waits to be read.
        transport.set_write_buffer_limits(high=1, low=0)
        self._start_header_limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limits."""
        super().connection_lost(exc)
        self._stop_header_limit()
        self._stop_read_limit()
        self._unset_keepalive_if_required()
        self.app_state = {}
        self._on_lost()

    def data_received(self, data: bytes) -> None:
        """Parse `data` in parts no larger than the headers may be, which bounds the work for one refused request."""
        if not self._is_refused and (self.cycle is None or self.cycle.response_complete):
            self._start_header_limit()
        for start in range(0, len(data), MOST_HEADER_BYTES):
            if self._is_refused or self.transport.is_closing():
                return
            super().data_received(data[start : start + MOST_HEADER_BYTES])

    def handle_events(self) -> None:
        """Stop the time limit of the headers when a request has begun."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_header_limit()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- the method of the parser
        """Refuse data that is not HTTP; called by the parser."""
        self._refuse(Refusal(400, "INVALID_REQUEST", "the request is not valid HTTP/1.1, or its headers are too large"))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer if no response is in progress, and close the connection when the client has had time to read."""
        self._on_refused(refusal)
        self._is_refused = True
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
            return
        self.transport.write(_raw_response(refusal))
        # A connection that is closed while data arrive is reset, and the client does not get the response.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._stop_header_limit()
        self._header_limit = self.loop.call_later(self._limits.linger_seconds, self.transport.abort)
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def shutdown(self) -> None:
        """Close the connection, after the response in progress if there is one."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _start_header_limit(self) -> None:
        if self._header_limit is None:
            self._header_limit = self.loop.call_later(self._limits.header_seconds, self._refuse_late_headers)

    def _stop_header_limit(self) -> None:
        if self._header_limit is not None:
            self._header_limit.cancel()
            self._header_limit = None

    def _refuse_late_headers(self) -> None:
        if not (self._is_refused or self.transport.is_closing()):
            seconds = self._limits.header_seconds
            self._refuse(Refusal(408, "REQUEST_TIMEOUT", f"no request arrived within {seconds:g} s"))

    def pause_writing(self) -> None:
        """Start the client's time to read, because a part of a response waits to be read."""
        super().pause_writing()
        if self._read_limit is None:
            self._read_limit = self.loop.call_later(self._reply_seconds(self.is_event_stream), self._cut)

    def resume_writing(self) -> None:
        """Stop the client's time to read."""
        super().resume_writing()
        self._stop_read_limit()

    def _stop_read_limit(self) -> None:
        if self._read_limit is not None:
            self._read_limit.cancel()
            self._read_limit = None

    def _cut(self) -> None:
        self._on_unread()
        self.transport.abort()

    async def drain(self) -> None:
        """Return when the client has read all that was sent, or the connection is lost."""
        await self.flow.drain()

    def abort(self) -> None:
        """Close the connection without sending the rest of a response."""
        self.transport.abort()


def _raw_response(refusal: Refusal) -> bytes:
    body = refusal.json_rpc_body()
    headers = [*refusal.headers(), *SECURITY_HEADERS, (b"connection", b"close"), (b"content-length", b"%d" % len(body))]
    head = b"".join(b"%s: %s\r\n" % header for header in headers)
    phrase = {400: b"Bad Request", 408: b"Request Timeout"}[refusal.status]
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (refusal.status, phrase, head, body)


def _silent_logger() -> logging.Logger:
    """Return a logger that writes nothing: the daemon's log has its own events, without what clients sent."""
    # One of its own: a named logger would be a setting of the whole process.
    logger = logging.Logger("memoryd.http", logging.CRITICAL + 1)  # noqa: LOG001
    logger.addHandler(logging.NullHandler())
    return logger
