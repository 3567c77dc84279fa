"""HTTP responses to refused requests, with the same reasons as the errors of gRPC."""

import json
import math
from collections.abc import Mapping, Sequence

from memoryd_server.errors import FieldViolation, InvalidRequest, MemorydError

_STATUSES: Mapping[str, int] = {
    "INVALID_REQUEST": 400,
    "CURSOR_MALFORMED": 400,
    "CURSOR_EXPIRED": 400,
    "EDITS_DISABLED": 400,
    "MEMORY_DISABLED": 400,
    "EMBEDDING_NOT_CONFIGURED": 400,
    "WORKSPACE_READ_ONLY": 400,
    "INDEX_TOO_NEW": 400,
    "STATE_READ_ONLY": 400,
    "TOKEN_MISSING": 401,
    "TOKEN_INVALID": 401,
    "AGENT_FORBIDDEN": 403,
    "SCOPE_MISSING": 403,
    "PATH_NOT_ALLOWED": 403,
    "AGENT_NOT_FOUND": 404,
    "FILE_NOT_FOUND": 404,
    "ENTRY_NOT_FOUND": 404,
    "VERSION_NOT_FOUND": 404,
    "CONTENT_CHANGED": 409,
    "SYNC_CONFLICT": 409,
    "SYNC_CANCELLED": 409,
    "EMBEDDING_QUOTA_EXCEEDED": 429,
    "DISK_FULL": 429,
    "TOO_MANY_REQUESTS": 429,
    "INTERNAL": 500,
    "NOT_IMPLEMENTED": 501,
    "EMBEDDING_UNAVAILABLE": 503,
    "BACKEND_UNAVAILABLE": 503,
    "INDEX_BUSY": 503,
    "INDEX_UNAVAILABLE": 503,
    "ENTRIES_UNAVAILABLE": 503,
    "HISTORY_UNAVAILABLE": 503,
    "SHUTTING_DOWN": 503,
    "REVISION_NOT_REACHED": 504,
    "DEADLINE_TOO_SHORT": 504,
}
"""The HTTP status of the gRPC status of each reason, by the mapping of google/rpc/code.proto."""

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
        violations: Sequence[FieldViolation] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.violations = tuple(violations)
        self._headers = headers

    @classmethod
    def of(cls, error: MemorydError) -> "Refusal":
        """Return the refusal of a call's error."""
        status = _STATUSES.get(error.reason, _FIRST_SERVER_STATUS)
        violations = error.violations if isinstance(error, InvalidRequest) else ()
        retry = error.retry_after_seconds
        return cls(status, error.reason, error.message, retry_after_seconds=retry, violations=violations)

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
        """Return the body of the response for the page of the inspector."""
        error: dict[str, object] = {"reason": self.reason, "message": self.message}
        if self.retry_after_seconds is not None:
            error["retryAfterSeconds"] = self.retry_after_seconds
        if self.violations:
            error["violations"] = [{"field": each.field, "description": each.description} for each in self.violations]
        return json.dumps({"error": error}).encode()

    def json_rpc_body(self) -> bytes:
        """Return the body of the response, a JSON-RPC error, as MCP clients read it."""
        code = _SERVER_ERROR if self.status >= _FIRST_SERVER_STATUS else _INVALID_REQUEST
        error = {"code": code, "message": self.message, "data": {"reason": self.reason}}
        return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
