"""The headers of a request, checked before its token: size, duplicates, target, Host and Origin.

A web page cannot choose its `Host` and `Origin` headers. Both are checked, so that a page whose host name resolves to
loopback (DNS rebinding) cannot reach any route.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memoryd_server.access import Address
from memoryd_server.http.refusals import Refusal

MOST_HEADER_BYTES = 16 * 1024
MOST_HEADERS = 100

_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?", re.ASCII)
_SCHEMES = ("http", "https")
_ONCE = frozenset(
    {b"host", b"origin", b"authorization", b"content-length", b"transfer-encoding", b"content-type", b"memoryd-agent"}
    | {b"mcp-session-id", b"mcp-protocol-version"}
)
_AGENT_ID = re.compile(r"[a-z0-9_][a-z0-9_-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AllowedSources:
    """The values of `Host` and `Origin` that are accepted: the configured ones, and those of `hosts` with any port."""

    hosts: frozenset[str]
    configured_hosts: frozenset[str]
    configured_origins: frozenset[str]

    @classmethod
    def of(cls, listen: Address, hosts: Iterable[str], origins: Iterable[str]) -> "AllowedSources":
        """Return those of a listener with the configured hosts and origins."""
        own = f"[{listen.host}]" if ":" in listen.host else listen.host
        return cls(
            frozenset({*_LOOPBACK_HOSTS, own.lower()}),
            frozenset(map(str.lower, hosts)),
            frozenset(map(str.lower, origins)),
        )

    def allows_host(self, value: str) -> bool:
        """Return whether a value of the header `Host`, in lower case, is accepted."""
        found = _HOST.fullmatch(value)
        if found is None:
            return False
        return found[1] in self.hosts or not self.configured_hosts.isdisjoint((found[1], value))

    def allows_origin(self, value: str) -> bool:
        """Return whether a value of the header `Origin`, in lower case, is accepted."""
        if value in self.configured_origins:
            return True
        scheme, separator, host = value.partition("://")
        found = _HOST.fullmatch(host)
        return bool(separator) and scheme in _SCHEMES and found is not None and found[1] in self.hosts


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The parts of a request that decide whether it is served."""

    method: str
    target: bytes
    headers: Mapping[bytes, bytes]

    def text(self, name: bytes) -> str:
        """Return a header as text; empty if it is missing."""
        return self.headers.get(name, b"").decode("latin-1").strip()

    @property
    def has_body(self) -> bool:
        """Whether the headers announce a body."""
        return b"transfer-encoding" in self.headers or self.text(b"content-length") not in {"", "0"}

    @property
    def body_bytes(self) -> int:
        """The announced size of the body; 0 if it is unknown."""
        length = self.text(b"content-length")
        return int(length) if length.isdigit() else 0

    @property
    def origin(self) -> str:
        """The origin of the web page that sends the request, in lower case; empty without one."""
        return self.text(b"origin").lower()

    @property
    def is_from_own_page(self) -> bool:
        """Whether the web page that sends the request has the host and the port of the header `Host`.

        The scheme may be another one than that of the connection, because a proxy may have ended TLS.
        """
        return self.origin in {f"{scheme}://{self.text(b'host').lower()}" for scheme in _SCHEMES}

    @property
    def agent_id(self) -> str:
        """The agent that the request names; empty if it names none.

        Raises:
            Refusal: the header is not an agent id.
        """
        agent_id = self.text(b"memoryd-agent").lower()
        if agent_id and not _AGENT_ID.fullmatch(agent_id):
            raise Refusal(400, "INVALID_REQUEST", "the header Memoryd-Agent is not the id of an agent")
        return agent_id

    @property
    def token(self) -> bytes:
        """The bearer token.

        Raises:
            Refusal: there is none.
        """
        scheme, _, token = self.headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise Refusal(401, "TOKEN_MISSING", 'a token is required; send the header "Authorization: Bearer <token>"')
        return token.strip()


def read_headers(method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> RequestHeaders:
    """Return the headers of a request; their names are in lower case.

    Raises:
        Refusal: they are too large, contradictory, or name the target in another form than a path.
    """
    if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers) > MOST_HEADER_BYTES:
        message = f"the headers are larger than {MOST_HEADER_BYTES} bytes or more than {MOST_HEADERS}"
        raise Refusal(431, "HEADERS_TOO_LARGE", message)
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in found and name in _ONCE:
            raise _malformed(f"the header {name.decode('latin-1')} occurs more than once")
        found[name] = value
    if b"transfer-encoding" in found and b"content-length" in found:
        raise _malformed("the request has both Transfer-Encoding and Content-Length")
    if not target.startswith(b"/"):
        raise _malformed("the target of the request is not a path")
    return RequestHeaders(method, target, found)


def check_source(request: RequestHeaders, allowed: AllowedSources) -> None:
    """Check `Host` and `Origin`. A request without `Origin` is not from a web page.

    Raises:
        Refusal: one of them is not allowed.
    """
    host = request.text(b"host").lower()
    if not allowed.allows_host(host):
        message = (
            "the header Host names another host; use the address of memoryd, or add it to memoryd.http.allowedHosts"
        )
        raise Refusal(421, "HOST_NOT_ALLOWED", message)
    if b"origin" in request.headers and not (request.is_from_own_page or allowed.allows_origin(request.origin)):
        message = "requests of this web page are not allowed; add its origin to memoryd.http.allowedOrigins"
        raise Refusal(403, "ORIGIN_NOT_ALLOWED", message)


def _malformed(message: str) -> Refusal:
    return Refusal(400, "INVALID_REQUEST", message)
