"""JSON-RPC messages of MCP, as the daemon's session and `memoryd mcp` see them: kinds, ids, and errors.

Only the envelope of a message is read here. Its contents are checked by the MCP server.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from memoryd_server.foreign_text import MAX_DEPTH, is_nested_deeper, valid_text

MOST_MESSAGE_BYTES = 4 * 2**20 - 1024
"""The size of one message. A gRPC message of 4 MiB has room for it."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
SERVER_ERROR = -32000

RequestId = str | int | None

# In the object whose brace begins or ends the text, so that these are keys of the message itself.
_JSONRPC = rb'"jsonrpc"\s{0,4}:\s{0,4}"2\.0"\s{0,4}'
_ID_KEY = rb'"id"\s{0,4}:\s{0,4}'
_ID = rb'(\d{1,18}|"[\w.:-]{1,128}")\s{0,4}'
_FIRST_ID = re.compile(rb"\s{0,16}\{\s{0,16}(?:" + _JSONRPC + rb",\s{0,4})?" + _ID_KEY + _ID + rb",")
_LAST_ID = re.compile(_ID_KEY + _ID + rb"(?:,\s{0,4}" + _JSONRPC + rb")?\}\s{0,16}\Z")
_ID_WINDOW = 512


@dataclass(frozen=True, slots=True)
class RpcMessage:
    """The envelope of a message. `method` is empty for a response, and `key` for a notification.

    `key` is equal for equal ids. `value` is the whole message.
    """

    value: dict[str, Any]
    method: str
    key: str

    @property
    def is_request(self) -> bool:
        """Whether the message expects a response."""
        return bool(self.method and self.key)

    @property
    def is_response(self) -> bool:
        """Whether the message is a result or an error."""
        return not self.method

    @property
    def request_id(self) -> RequestId:
        """The id of the message; None if it has none."""
        return _known_id(self.value.get("id"))

    @property
    def params(self) -> dict[str, Any]:
        """The parameters; empty if there are none, or if they are not an object."""
        params = self.value.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def cancelled_key(self) -> str:
        """The key of the request that a notification cancels; empty for any other message."""
        is_cancellation = self.method == "notifications/cancelled" and not self.key
        return id_key(self.params.get("requestId")) if is_cancellation else ""


class MalformedMessage(Exception):
    """The text is not a JSON-RPC message. `response` is the error to answer with."""

    def __init__(self, code: int, message: str, request_id: RequestId = None) -> None:
        super().__init__(message)
        self.response = error_response(request_id, code, message)


def read_message(text: bytes) -> RpcMessage:
    """Return the envelope of a message.

    Raises:
        MalformedMessage: the text is not JSON, or not a JSON-RPC message.
    """
    if len(text) > MOST_MESSAGE_BYTES:
        raise oversized_message(text[:_ID_WINDOW], text[-_ID_WINDOW:])
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(PARSE_ERROR, f"the message is not JSON in UTF-8: {str(error)[:200]}") from None
    if isinstance(value, list):
        raise MalformedMessage(INVALID_REQUEST, "a batch of messages is not supported; send one message per line")
    if not isinstance(value, dict):
        raise MalformedMessage(INVALID_REQUEST, "the message is not a JSON object")
    if is_nested_deeper(value, MAX_DEPTH):
        message = f"the message has lists or objects that are nested deeper than {MAX_DEPTH} levels"
        raise MalformedMessage(INVALID_REQUEST, message, _known_id(value.get("id")))
    method = value.get("method", "")
    if not isinstance(method, str) or not (method or "result" in value or "error" in value):
        message = "the message is neither a request nor a response; set `method`, `result` or `error`"
        raise MalformedMessage(INVALID_REQUEST, message, _known_id(value.get("id")))
    if method and "id" in value and not id_key(value["id"]):
        raise MalformedMessage(INVALID_REQUEST, "`id` is neither a text nor a whole number")
    return RpcMessage(value, method, id_key(value.get("id")))


def oversized_message(start: bytes, end: bytes) -> MalformedMessage:
    """Return the error for a message that is too long, from its first and last bytes, which contain its id if known."""
    message = f"the message has more than {MOST_MESSAGE_BYTES:,} bytes; send less text at a time"
    return MalformedMessage(INVALID_REQUEST, message, _id_at_an_end(start, end))


def _id_at_an_end(start: bytes, end: bytes) -> RequestId:
    """Return the id of a message if it is the first or the last key, where JSON-RPC libraries write it."""
    found = _FIRST_ID.match(start) or _LAST_ID.search(end)
    return None if found is None else _known_id(json.loads(found[1]))


def _known_id(value: object) -> RequestId:
    # The MCP server refuses a text with a lone surrogate, and cannot repeat it in a response.
    if isinstance(value, str):
        return value if valid_text(value) == value else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def id_key(value: object) -> str:
    """Return a text that is equal for equal ids of requests; empty if `value` is not an id."""
    known = _known_id(value)
    return "" if known is None else json.dumps(known)


def dumped(value: dict[str, Any]) -> bytes:
    """Return a message as one line, without the line break."""
    return json.dumps(value, separators=(",", ":")).encode()


def error_response(request_id: RequestId, code: int, message: str) -> bytes:
    """Return an error as one line."""
    return dumped({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def failed_response(method: str, request_id: RequestId, message: str) -> bytes:
    """Return the response to a request that cannot be served: a tool's result, which the model reads, or an error.

    The result is valid in every version of the protocol.
    """
    if method != "tools/call":
        return error_response(request_id, SERVER_ERROR, message)
    result = {"content": [{"type": "text", "text": message}], "isError": True, "resultType": "complete"}
    return dumped({"jsonrpc": "2.0", "id": request_id, "result": result})
