"""SessionRecord: the state of an MCP session that `memoryd mcp` needs to replace the session when the daemon stops.

Requests in progress are answered with an error. The handshake and the subscriptions of the old session are sent again
in the new one, and the client does not get their responses. Versions of MCP from 2026-07-28 on have neither.
"""

from dataclasses import dataclass
from typing import Any

from memoryd_server.json_rpc import RequestId, RpcMessage, dumped, failed_response, id_key

MOST_SUBSCRIPTIONS = 50
"""The maximum number of subscriptions that a new session repeats."""

_MOST_URI_CHARS = 8_192
_LISTEN = "subscriptions/listen"
_REPLAY = "memoryd-replay-"


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request without a response. `uri` is set for the begin or the end of a subscription."""

    method: str
    request_id: RequestId
    uri: str = ""


class SessionRecord:
    """The requests in progress, the handshake and the subscriptions of one client."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingRequest] = {}
        self._replayed: set[str] = set()
        self._replays = 0
        self._initialize: dict[str, Any] | None = None
        self._initialized: dict[str, Any] | None = None
        self._subscriptions: set[str] = set()

    @property
    def waits(self) -> bool:
        """Whether the client waits for a response. The response to a subscription comes at its end."""
        return any(request.method != _LISTEN for request in self._pending.values())

    def sent(self, message: RpcMessage) -> None:
        """Record a message of the client."""
        if message.cancelled_key:
            # A cancelled request gets no response.
            self._pending.pop(message.cancelled_key, None)
        if message.method == "notifications/initialized":
            self._initialized = message.value
        if not message.is_request:
            return
        uri = _uri_of(message)
        self._pending[message.key] = PendingRequest(message.method, message.request_id, uri)
        if message.method == "initialize":
            self._initialize, self._initialized = message.value, None
            self._subscriptions.clear()
        elif message.method == "resources/subscribe":
            if uri and len(self._subscriptions) < MOST_SUBSCRIPTIONS:
                self._subscriptions.add(uri)
        elif message.method == "resources/unsubscribe":
            self._subscriptions.discard(uri)

    def received(self, message: RpcMessage) -> bool:
        """Record a message of the daemon; return whether the client gets it."""
        if not message.is_response:
            return True
        if message.key in self._replayed:
            self._replayed.discard(message.key)
            return False
        request = self._pending.pop(message.key, None)
        if request is not None and "error" in message.value:
            if request.method == "initialize":
                self._initialize = None
            elif request.method == "resources/subscribe":
                self._subscriptions.discard(request.uri)
        return True

    def failed(self, reason: str) -> list[bytes]:
        """Return the responses to the requests in progress, which end with the session."""
        responses = [failed_response(request.method, request.request_id, reason) for request in self._pending.values()]
        self._pending.clear()
        self._replayed.clear()
        return responses

    def replay(self) -> list[bytes]:
        """Return the messages with which a new session begins, so that it is in the state of the old one."""
        if self._initialize is None:
            return []
        messages = [self._repeated(self._initialize)]
        if self._initialized is not None:
            messages.append(dumped(self._initialized))
            for uri in sorted(self._subscriptions):
                subscribe = {"jsonrpc": "2.0", "method": "resources/subscribe", "params": {"uri": uri}}
                messages.append(self._repeated(subscribe))
        return messages

    def _repeated(self, request: dict[str, Any]) -> bytes:
        """Return a request with a new id, whose response is not for the client."""
        self._replays += 1
        request_id = f"{_REPLAY}{self._replays}"
        self._replayed.add(id_key(request_id))
        return dumped({**request, "id": request_id})


def _uri_of(message: RpcMessage) -> str:
    """Return the URI of a subscription, empty for other requests and for a URI that is too long to keep."""
    uri = message.params.get("uri") if message.method.endswith("subscribe") else None
    return uri if isinstance(uri, str) and len(uri) <= _MOST_URI_CHARS else ""
