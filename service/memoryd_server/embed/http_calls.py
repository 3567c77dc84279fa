"""POST with JSON to one host, over one connection pool, with a limit on every wait."""

import ipaddress
import json
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from memoryd_server.embed.http_errors import Discretion, public_url, raise_for
from memoryd_server.embed.pacing import Pacer, Patience, Transient
from memoryd_server.errors import EmbeddingUnavailable

INDEXING_SECONDS = 120.0
"""A call of indexing takes no longer."""
CONNECT_SECONDS = 10.0
MOST_REPLY_BYTES = 256 * 2**20
CONNECTIONS = 16


class HttpCalls:
    """Calls one provider. `name` is how messages call it; `secrets` never get into one. Thread-safe.

    Raises:
        EmbeddingUnavailable: nothing can be sent with this address, key or headers.
    """

    def __init__(self, name: str, base_url: str, headers: Mapping[str, str], secrets: tuple[str, ...]) -> None:
        _check(base_url, headers, name)
        self._name = f"{name} at {public_url(base_url)}"
        self._base_url = base_url.rstrip("/")
        self._discretion = Discretion(secrets)
        self._pacer = Pacer(self._name)
        self._client = _client(base_url, headers)
        self.calls = 0

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
        return self._pacer.attempt(lambda: self._once(path, body, patience), patience)

    def _once(self, path: str, body: Mapping[str, Any], patience: Patience) -> Any:
        self.calls += 1
        content = json.dumps(body).encode()
        try:
            status, headers, reply = self._exchange(path, content, patience)
        except httpx.ReadTimeout as error:
            raise EmbeddingUnavailable(f"{self._name} did not answer in time") from error
        except httpx.LocalProtocolError:
            # Its message repeats the header.
            raise EmbeddingUnavailable(f"{self._name}: the key or a header has characters that HTTP forbids") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
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

    def _exchange(self, path: str, content: bytes, patience: Patience) -> tuple[int, Mapping[str, str], bytes]:
        left = min(patience.left(), INDEXING_SECONDS)
        if left <= 0:
            raise EmbeddingUnavailable(f"{self._name}: no time was left to ask it")
        until = time.monotonic() + left
        timeout = httpx.Timeout(left, connect=min(left, CONNECT_SECONDS))
        reply = bytearray()
        headers = {"content-type": "application/json"}
        url = self._base_url + path
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


def _check(base_url: str, headers: Mapping[str, str], name: str) -> None:
    try:
        url = httpx.URL(public_url(base_url))
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise EmbeddingUnavailable(f"{name}: the base URL must begin with http:// or https:// and name a host")
    if not all(f"{key}{value}".isascii() and f"{key}{value}".isprintable() for key, value in headers.items()):
        raise EmbeddingUnavailable(f"{name}: the key or a header has characters that HTTP forbids")


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
