"""POST with JSON to one host, over one connection pool, with a limit on every wait."""

import base64
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import httpx

from memoryd_server.embed.http_errors import Discretion, public_url, raise_for
from memoryd_server.embed.keys import QUOTA_REST_SECONDS, REST_SECONDS, Header, KeyRing
from memoryd_server.embed.pacing import Pace, Pacer, Patience, RateLimited, Transient
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable

INDEXING_SECONDS = 120.0
"""A call of indexing takes no longer, where the server is a remote one."""
CONNECT_SECONDS = 10.0
MOST_REPLY_BYTES = 256 * 2**20
CONNECTIONS = 16

_AUTHORIZATION = "authorization"
# OpenSSL's word for a certificate that nobody vouches for: another try would not mend that.
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class HttpCalls:
    """Calls one provider. `name` is how messages call it. Thread-safe.

    `keys` are the headers that carry a key, one of them in each call; one of `headers` of the same name replaces it.
    User and password in the address are sent where neither says otherwise. Nothing of all these gets into a message.

    Raises:
        EmbeddingUnavailable: nothing can be sent with this address, key or headers.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        keys: Sequence[Header] = (),
        *,
        indexing_seconds: float = INDEXING_SECONDS,
        pace: Pace | None = None,
    ) -> None:
        fixed = {**_basic(base_url, keys), **{header.lower(): value for header, value in (headers or {}).items()}}
        rings = [{header: value for header, value in key.items() if header not in fixed} for key in keys]
        for sent in (fixed, *rings):
            _check(base_url, sent, name)
        self._name = f"{name} at {public_url(base_url)}"
        self._base_url = base_url
        self._discretion = Discretion(_secrets(base_url, (fixed, *rings)))
        self._keys = KeyRing(rings)
        self.pace = pace or Pace()
        self._pacer = Pacer(self._name, self.pace.requests_per_minute)
        self._client = _client(base_url, fixed)
        self._indexing_seconds = indexing_seconds
        self._lock = threading.Lock()
        self._calls = 0

    @property
    def calls(self) -> int:
        """Requests that were sent."""
        return self._calls

    @property
    def name(self) -> str:
        """The provider and where it is."""
        return self._name

    @property
    def retries(self) -> int:
        """Calls that were made again."""
        return self._pacer.retries

    def post(self, path: str, body: Mapping[str, Any], patience: Patience) -> Any:
        """The decoded answer. Rate limits, faults of the server and of the connection are met with retries.

        Raises:
            EmbeddingQuotaExceeded, EmbeddingUnavailable, RequestRefused, Stopped: as their docstrings say.
        """
        content = json.dumps(body).encode()
        return self._pacer.attempt(lambda: self._with_some_key(path, content, patience), patience)

    def _with_some_key(self, path: str, content: bytes, patience: Patience) -> Any:
        """Asks with each key at most once: with the next one when the server limits the one before."""
        for tried in range(1, len(self._keys) + 1):
            number = self._keys.current()
            try:
                return self._once(path, content, self._keys.header(number), patience)
            except RateLimited as limit:
                another = self._keys.rest(number, limit.retry_after_seconds or REST_SECONDS)
                if not another or tried == len(self._keys):
                    raise
            except EmbeddingQuotaExceeded:
                another = self._keys.rest(number, QUOTA_REST_SECONDS)
                if not another or tried == len(self._keys):
                    raise
        raise AssertionError("the last key raised")

    def _once(self, path: str, content: bytes, key: Header, patience: Patience) -> Any:
        with self._lock:
            self._calls += 1
        try:
            status, headers, reply = self._exchange(path, content, key, patience)
        except httpx.ReadTimeout as error:
            raise EmbeddingUnavailable(f"{self._name} did not answer in time") from error
        except httpx.LocalProtocolError:
            # Its message repeats the header.
            raise EmbeddingUnavailable(f"{self._name}: the key or a header has characters that HTTP forbids") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            if _UNTRUSTED in str(error):
                raise EmbeddingUnavailable(f"{self._name}: {self._said(error)}") from error
            raise Transient(f"{self._name}: {self._said(error)}") from error
        except (httpx.HTTPError, RuntimeError) as error:
            # RuntimeError: the client was closed meanwhile.
            raise EmbeddingUnavailable(f"{self._name}: {self._said(error)}") from error
        raise_for(status, headers, reply, self._name, self._discretion)
        try:
            return json.loads(reply)
        except ValueError as error:
            raise Transient(f"{self._name} answers with something that is no whole JSON") from error

    def _said(self, error: Exception) -> str:
        return self._discretion.clean(str(error)) or type(error).__name__

    def _exchange(
        self, path: str, content: bytes, key: Header, patience: Patience
    ) -> tuple[int, Mapping[str, str], bytes]:
        left = min(patience.left(), self._indexing_seconds)
        if left <= 0:
            raise EmbeddingUnavailable(f"{self._name}: no time was left to ask it")
        until = time.monotonic() + left
        timeout = httpx.Timeout(left, connect=min(left, CONNECT_SECONDS))
        reply = bytearray()
        headers = {"content-type": "application/json", **key}
        url = _beneath(self._base_url, path)
        with self._client.stream("POST", url, content=content, headers=headers, timeout=timeout) as response:
            for part in response.iter_bytes():
                reply += part
                if time.monotonic() > until:
                    raise EmbeddingUnavailable(f"{self._name} did not answer in time")
                if len(reply) > MOST_REPLY_BYTES:
                    raise EmbeddingUnavailable(f"{self._name} answers with more than {MOST_REPLY_BYTES} bytes")
            return response.status_code, response.headers, bytes(reply)

    def close(self) -> None:
        """Ends the waiting and the connections."""
        self._pacer.close()
        self._client.close()


def _beneath(base_url: str, path: str) -> str:
    """The address of `path` beneath `base_url`, whose query stays at the end and whose password stays here."""
    parts = urlsplit(base_url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/") + path, parts.query, ""))


def _basic(base_url: str, keys: Sequence[Header]) -> Header:
    """The header that an address with a user stands for, where no key needs its place."""
    user = base_url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    if not user or any(_AUTHORIZATION in key for key in keys):
        return {}
    return {_AUTHORIZATION: "Basic " + base64.b64encode(unquote(user).encode()).decode()}


def _check(base_url: str, headers: Mapping[str, str], name: str) -> None:
    try:
        url = httpx.URL(public_url(base_url))
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise EmbeddingUnavailable(f"{name}: the base URL must begin with http:// or https:// and name a host")
    if not all(f"{key}{value}".isascii() and f"{key}{value}".isprintable() for key, value in headers.items()):
        raise EmbeddingUnavailable(f"{name}: the key or a header has characters that HTTP forbids")


def _secrets(base_url: str, sent: Sequence[Header]) -> list[str]:
    """Whatever could be one: header values, whole and without the scheme, and what stands in the address."""
    values = [value for headers in sent for value in headers.values()]
    parts = urlsplit(base_url)
    in_address = [parts.password or "", unquote(parts.password or ""), *(value for _, value in parse_qsl(parts.query))]
    return [*values, *(word for value in values for word in value.split()[-1:]), *in_address]


def is_loopback(url: str) -> bool:
    """Whether `url` names this machine, which no proxy may stand before."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _client(base_url: str, headers: Mapping[str, str]) -> httpx.Client:
    trust_env = not is_loopback(base_url)
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    return httpx.Client(headers=headers, trust_env=trust_env, verify=certificates(trust_env), limits=limits)


def certificates(trust_env: bool) -> ssl.SSLContext:
    """The authorities that come with httpx, and those of the system: a company's own are only there."""
    context = httpx.create_ssl_context(trust_env=trust_env)
    context.load_default_certs()
    return context
