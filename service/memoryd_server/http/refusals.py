"""HTTP responses to refused requests, with the same reasons as the errors of gRPC."""

import json
import math
from collections.abc import Mapping

from memoryd_server.errors import MemorydError

_STATUSES: Mapping[str, int] = {
    "INVALID_REQUEST": 400,
    "TOKEN_MISSING": 401,
    "TOKEN_INVALID": 401,
    "AGENT_FORBIDDEN": 403,
    "SCOPE_MISSING": 403,
    "AGENT_NOT_FOUND": 404,
    "TOO_MANY_REQUESTS": 429,
    "SHUTTING_DOWN": 503,
}

_INVALID_REQUEST = -32600
_SERVER_ERROR = -32000
_FIRST_SERVER_STATUS = 500

Header = tuple[bytes, bytes]


class Refusal(Exception):
    """A request that is not served: its status, the reason for programs and a message for people."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        headers: tuple[Header, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self._headers = headers

    @classmethod
    def of(cls, error: MemorydError) -> "Refusal":
        """Return the refusal of a call's error."""
        status = _STATUSES.get(error.reason, _FIRST_SERVER_STATUS)
        return cls(status, error.reason, error.message, retry_after_seconds=error.retry_after_seconds)

    def headers(self) -> list[Header]:
        """Return the headers of the response, without those of every response."""
        found = [(b"content-type", b"application/json"), *self._headers]
        if self.status == 401:  # noqa: PLR2004 -- Unauthorized
            # Without `resource_metadata`, which would announce OAuth.
            found.append((b"www-authenticate", b"Bearer"))
        if self.retry_after_seconds is not None:
            found.append((b"retry-after", str(math.ceil(self.retry_after_seconds)).encode()))
        return found

    def body(self) -> bytes:
        """Return the body of the response, a JSON-RPC error, as MCP clients read it."""
        code = _SERVER_ERROR if self.status >= _FIRST_SERVER_STATUS else _INVALID_REQUEST
        error = {"code": code, "message": self.message, "data": {"reason": self.reason}}
        return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
