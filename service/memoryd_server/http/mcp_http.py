"""MCP over streamable HTTP, as an ASGI application for one path.

Versions of MCP before 2026-07-28 have sessions. A session belongs to the user of the request that opened it
(`scope["user"]`); other users get the response for an unknown session. Later versions have no sessions.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_RETRY_SECONDS = "5"
_COUNTED = "memoryd-counted"


@dataclass(frozen=True, slots=True)
class McpLimits:
    """Limits of MCP over HTTP.

    `max_sessions` is for all users, half of it for each of them. A session without a request ends after
    `idle_seconds`.
    """

    max_sessions: int = 256
    idle_seconds: float = 1_800.0
    max_body_bytes: int = 4 * 1024 * 1024

    @property
    def user_sessions(self) -> int:
        """The most sessions of one user."""
        return -(-self.max_sessions // 2)


class McpHttpApp:
    """The ASGI application. Requests are served within `run`, which can be entered once."""

    def __init__(self, server: Server[Any], limits: McpLimits, log: structlog.typing.FilteringBoundLogger) -> None:
        self._limits = limits
        self._log = log
        self._manager = StreamableHTTPSessionManager(
            server,
            session_idle_timeout=limits.idle_seconds,
            max_request_body_size=limits.max_body_bytes,
            max_sessions=limits.max_sessions,
        )
        self._sessions: Counter[str] = Counter()
        self._opening: Counter[str] = Counter()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Serve sessions until the block ends, which ends them all."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if not _opens_session(scope):
            await self._manager.handle_request(scope, receive, send)
            return
        user = scope["user"].username
        if self._sessions[user] + self._opening[user] >= self._limits.user_sessions:
            message = "this token has too many open MCP sessions; end one, or wait until an unused one has expired"
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": message}}
            await JSONResponse(error, 503, headers={"Retry-After": _RETRY_SECONDS})(scope, receive, send)
            return
        self._opening[user] += 1
        try:
            await self._manager.handle_request(scope, receive, send)
        finally:
            self._opening[user] -= 1
            self._opening += Counter()  # Removes the users without any.

    def opened(self, connection: Connection, user: str) -> None:
        """Count a session that begins, until it ends."""
        session = connection.session_id
        if connection.state.setdefault(_COUNTED, False):
            return
        connection.state[_COUNTED] = True
        self._log.debug("open-mcp-session", session=session, transport="http")
        self._sessions[user] += 1

        def closed() -> None:
            self._sessions[user] -= 1
            self._sessions += Counter()
            self._log.debug("close-mcp-session", session=session)

        connection.exit_stack.callback(closed)

    @property
    def sessions(self) -> int:
        """The number of open sessions."""
        return self._sessions.total()


def _opens_session(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    version = headers.get(MCP_PROTOCOL_VERSION_HEADER.encode(), b"").decode("latin-1")
    is_modern = bool(version) and version not in HANDSHAKE_PROTOCOL_VERSIONS
    return not is_modern and MCP_SESSION_ID_HEADER.encode() not in headers
