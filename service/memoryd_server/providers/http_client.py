"""HTTP client of an embedding provider: one host, one connection pool, a time limit on every wait."""

import base64
import ipaddress
import json
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import httpx
from pydantic_core import from_json

from memoryd_server.errors import EmbeddingOutage, EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.foreign_text import MAX_BRACKETS, is_bounded, parse_json
from memoryd_server.providers.api_keys import KEY_COOLDOWN_SECONDS, QUOTA_COOLDOWN_SECONDS, ApiKeyPool, Header
from memoryd_server.providers.http_errors import SecretRedactor, public_url, raise_for
from memoryd_server.providers.pacing import (
    CallerStopped,
    RateLimited,
    Throttle,
    ThrottleConfig,
    TransientFailure,
    WaitLimit,
)
from memoryd_server.system import release_free_memory

INDEXING_SECONDS = 120.0
"""Time limit of an indexing call to a remote server."""
CONNECT_SECONDS = 10.0
MAX_REPLY_BYTES = 64 * 2**20
"""Maximum size of an answer. 64 vectors of 12,288 numbers are 17 MB of JSON; parsed JSON takes several times more."""
LARGE_REPLY_BYTES = 8 * 2**20
"""The memory of a longer reply is returned to the system: the C library would keep up to 64 MiB of it."""
MAX_ERROR_BYTES = 2**20
"""Of a longer error, the rest is not read."""
MAX_LINE_BYTES = 8 * 2**20
"""Maximum size of a line in the output of a batch job. A line has one vector."""
MAX_DOWNLOAD_REQUESTS = 30
"""The output of a batch job may take as long as this number of indexing calls: one hour for most providers."""
CONNECTIONS = 16
JSON = "application/json"

_AUTHORIZATION = "authorization"
# OpenSSL's code for an untrusted certificate. A retry would fail the same way.
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class OutcomeUnknown(EmbeddingUnavailable):
    """A call failed, and it is unknown whether the server carried it out."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to `path` below the base URL. `root` is a prefix put before the base URL's own path."""

    method: str
    path: str
    content: bytes = b""
    content_type: str = JSON
    root: str = ""
    query: str = ""


class HttpClient:
    """Sends requests to one provider, which messages call `name`. Thread-safe.

    Each call carries one of `keys`, which are headers; a header of the same name in `headers` replaces it. User and
    password of the address are sent as Basic authorization unless a key or header sets it. None of these secrets occurs
    in a message.

    Raises:
        EmbeddingUnavailable: the address, a key or a header is invalid.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        keys: Sequence[Header] = (),
        *,
        indexing_seconds: float = INDEXING_SECONDS,
        pace: ThrottleConfig | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        fixed = {
            **_basic_authorization(base_url, keys),
            **{header.lower(): value for header, value in (headers or {}).items()},
        }
        key_headers = [{header: value for header, value in key.items() if header not in fixed} for key in keys]
        for sent in (fixed, *key_headers):
            _validate(base_url, sent, name)
        self._name = f"{name} at {public_url(base_url)}"
        self._base_url = base_url
        self._redactor = SecretRedactor(_secrets(base_url, (fixed, *key_headers)))
        self._keys = ApiKeyPool(key_headers)
        self.pace = pace or ThrottleConfig()
        self._throttle = Throttle(
            self._name, self.pace.requests_per_minute, first_pause_seconds=self.pace.first_pause_seconds
        )
        self._client = _client(base_url, fixed)
        self._indexing_seconds = indexing_seconds
        self._max_reply_bytes = max_reply_bytes
        self._lock = threading.Lock()
        self._calls = self._failures = 0

    @property
    def failures(self) -> int:
        """Number of requests without a usable answer."""
        return self._failures

    @property
    def calls(self) -> int:
        """Number of requests sent."""
        return self._calls

    @property
    def name(self) -> str:
        """Name and public URL of the provider."""
        return self._name

    @property
    def retries(self) -> int:
        """Number of retried calls."""
        return self._throttle.retries

    def post(self, path: str, body: Mapping[str, Any], wait_limit: WaitLimit) -> Any:
        """Post `body` as JSON and return the decoded answer. Retries rate limits, server errors and connection errors.

        Raises:
            EmbeddingQuotaExceeded, EmbeddingUnavailable, RequestRefused, CallerStopped: see their docstrings.
        """
        request = HttpRequest("POST", path, json.dumps(body).encode())
        return self._throttle.attempt(lambda: self._post_with_any_key(request, wait_limit), wait_limit)

    def post_once(self, path: str, body: Mapping[str, Any], wait_limit: WaitLimit) -> Any:
        """Post `body` as `post` does, but only once, and without a wait for an earlier cooldown.

        Raises:
            EmbeddingQuotaExceeded, EmbeddingUnavailable, RequestRefused: see their docstrings.
        """
        request = HttpRequest("POST", path, json.dumps(body).encode())
        try:
            return self._post_with_any_key(request, wait_limit)
        except TransientFailure as failure:
            raise EmbeddingOutage(str(failure), retry_after_seconds=failure.retry_after_seconds) from failure

    def ask(self, request: HttpRequest, wait_limit: WaitLimit, *, idempotent: bool = True) -> Any:
        """Return the decoded answer to a batch job request. Uses the first key: only the creator can access a job.

        Retries as `post` does. If not `idempotent`, retries only requests that the server certainly did not carry out,
        and raises `OutcomeUnknown` if that is not certain.

        Raises:
            EmbeddingQuotaExceeded, EmbeddingUnavailable, ResourceMissing, OutcomeUnknown, RequestRefused,
                CallerStopped: see their docstrings.
        """
        key = self._keys.header(0)
        if idempotent:
            return self._throttle.attempt(lambda: self._send(request, key, wait_limit), wait_limit)
        return self._throttle.attempt(lambda: self._send_at_most_once(request, key, wait_limit), wait_limit)

    def _send_at_most_once(self, request: HttpRequest, key: Header, wait_limit: WaitLimit) -> Any:
        try:
            return self._send(request, key, wait_limit)
        except RateLimited:
            raise
        except TransientFailure as failure:
            raise OutcomeUnknown(str(failure)) from failure

    def lines(self, request: HttpRequest, wait_limit: WaitLimit) -> Iterator[bytes]:
        """Yield the lines of an answer that may exceed memory. Uses the first key; does not retry.

        The whole answer may take `MAX_DOWNLOAD_REQUESTS` times as long as an indexing call.

        Raises:
            EmbeddingQuotaExceeded, EmbeddingUnavailable, ResourceMissing, CallerStopped: see their docstrings; also
                between two lines.
        """
        self._count()
        try:
            with self._translate_errors():
                yield from self._lines(request, wait_limit)
        except TransientFailure as failure:
            raise EmbeddingUnavailable(str(failure)) from failure

    def _lines(self, request: HttpRequest, wait_limit: WaitLimit) -> Iterator[bytes]:
        rest = bytearray()
        began = time.monotonic()
        with self._stream(request, self._keys.header(0), self._indexing_seconds) as response:
            if response.status_code != httpx.codes.OK:
                error = self._read(response, began + self._indexing_seconds)
                self._raise_for_status(response.status_code, response.headers, error)
            self._check_encoding(response)
            for part in response.iter_bytes():
                if wait_limit.should_stop():
                    raise CallerStopped
                if time.monotonic() > began + MAX_DOWNLOAD_REQUESTS * self._indexing_seconds:
                    raise EmbeddingOutage(f"{self._name} did not send the whole answer in time")
                # Only the new part is searched for line breaks, so that a long line is not read again with each part.
                end, *begun = part.split(b"\n")
                rest += end
                whole = []
                for line in begun:
                    whole.append(bytes(rest))
                    rest = bytearray(line)
                if any(len(line) > MAX_LINE_BYTES for line in (*whole, rest)):
                    raise EmbeddingUnavailable(f"{self._name} returned a line of more than {MAX_LINE_BYTES} bytes")
                yield from whole
        yield bytes(rest)

    def _post_with_any_key(self, request: HttpRequest, wait_limit: WaitLimit) -> Any:
        """Send the request with each key at most once; a key that the server limits is followed by the next one."""
        for tried in range(1, len(self._keys) + 1):
            number = self._keys.current()
            try:
                return self._send(request, self._keys.header(number), wait_limit)
            except RateLimited as limit:
                another = self._keys.cool_down(number, limit.retry_after_seconds or KEY_COOLDOWN_SECONDS)
                if not another or tried == len(self._keys):
                    raise
            except EmbeddingQuotaExceeded:
                another = self._keys.cool_down(number, QUOTA_COOLDOWN_SECONDS)
                if not another or tried == len(self._keys):
                    raise
        raise AssertionError("the last key raised")

    def _send(self, request: HttpRequest, key: Header, wait_limit: WaitLimit) -> Any:
        self._count()
        try:
            return self._receive_json(request, key, wait_limit)
        except CallerStopped:
            raise
        except Exception as error:
            with self._lock:
                self._failures += 1
            _clear_frames(error)
            raise

    def _receive_json(self, request: HttpRequest, key: Header, wait_limit: WaitLimit) -> Any:
        with self._translate_errors():
            status, headers, reply = self._exchange(request, key, wait_limit)
        is_large = len(reply) > LARGE_REPLY_BYTES
        try:
            self._raise_for_status(status, headers, reply)
            with suppress(ValueError):
                return parse_reply(reply)
        finally:
            del reply
            if is_large:
                release_free_memory()
        # Not raised from the decoder's error, which contains the whole reply.
        raise TransientFailure(f"{self._name} returned invalid JSON", is_outage=False)

    def _raise_for_status(self, status: int, headers: Mapping[str, str], reply: bytes) -> None:
        if status != HTTPStatus.OK:
            raise_for(status, headers, reply, self._name, self._redactor)

    def _count(self) -> None:
        with self._lock:
            self._calls += 1

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate transport errors into memoryd's errors."""
        try:
            yield
        except httpx.ReadTimeout as error:
            raise EmbeddingOutage(f"{self._name} did not answer in time") from error
        except httpx.LocalProtocolError:
            # The message of the httpx error contains the header.
            raise EmbeddingUnavailable(f"{self._name}: the key or a header has characters that HTTP forbids") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            if _UNTRUSTED in str(error):
                raise EmbeddingOutage(f"{self._name}: {self._describe(error)}") from error
            raise TransientFailure(f"{self._name}: {self._describe(error)}") from error
        except (httpx.HTTPError, RuntimeError) as error:
            # RuntimeError: the client was closed during the request.
            raise EmbeddingUnavailable(f"{self._name}: {self._describe(error)}") from error

    def redact(self, text: str) -> str:
        """Return a server's text ready for a message: on one line, of bounded length, without secrets."""
        return self._redactor.clean(text)

    def _describe(self, error: Exception) -> str:
        return self._redactor.clean(str(error)) or type(error).__name__

    def _exchange(
        self, request: HttpRequest, key: Header, wait_limit: WaitLimit
    ) -> tuple[int, Mapping[str, str], bytes]:
        left = min(wait_limit.left(), self._indexing_seconds)
        if left <= 0:
            raise EmbeddingOutage(f"{self._name}: no time was left for the request")
        until = time.monotonic() + left
        with self._stream(request, key, left) as response:
            return response.status_code, response.headers, self._read(response, until)

    def _check_encoding(self, response: httpx.Response) -> None:
        if "," in response.headers.get("content-encoding", ""):
            # Each encoding multiplies the size by up to a thousand, before the next check of the size.
            raise EmbeddingUnavailable(f"{self._name} returned an answer that is compressed more than once")

    def _read(self, response: httpx.Response, until: float) -> bytes:
        """Return the body of an answer; of a long error, only its beginning."""
        self._check_encoding(response)
        is_error = response.status_code != httpx.codes.OK
        # Joined at the end: a growing buffer would be copied many times.
        parts: list[bytes] = []
        size = 0
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            if time.monotonic() > until:
                raise EmbeddingOutage(f"{self._name} did not answer in time")
            if is_error and size > MAX_ERROR_BYTES:
                break
            if size > self._max_reply_bytes:
                parts.clear()
                release_free_memory()
                raise EmbeddingOutage(f"{self._name} returned more than {self._max_reply_bytes} bytes")
        return b"".join(parts)

    def _stream(self, request: HttpRequest, key: Header, seconds: float) -> AbstractContextManager[httpx.Response]:
        url = _url_below(self._base_url, request)
        headers = {"content-type": request.content_type, **key} if request.content else key
        timeout = httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        content = request.content or None
        return self._client.stream(request.method, url, content=content, headers=headers, timeout=timeout)

    def close(self) -> None:
        """Close the connections and end all waiting."""
        self._throttle.close()
        self._client.close()


_UNPARSED: Final = object()


def parse_reply(reply: bytes) -> Any:
    """Return the value that `parse_json` returns, several times as fast for a reply that consists of numbers.

    Raises:
        ValueError: as `parse_json`.
    """
    value = _parse_fast(reply)
    return parse_json(reply) if value is _UNPARSED else value


def _parse_fast(reply: bytes) -> Any:
    """Return the value of a reply; `_UNPARSED` if `parse_json` has to decide.

    pydantic's decoder refuses text that `parse_json` repairs, accepts deeper nesting, and does not bound ints.
    """
    if reply.count(b"[") + reply.count(b"{") <= MAX_BRACKETS:
        with suppress(ValueError):
            value = from_json(reply, cache_strings="none")
            if is_bounded(value):
                return value
    return _UNPARSED


def _clear_frames(error: BaseException) -> None:
    """Delete the local variables in the tracebacks of an error and of its causes.

    The error is kept as the reason of later degradations, and the variables would keep the reply in memory.
    """
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


def _url_below(base_url: str, request: HttpRequest) -> str:
    """Return the URL of a request below `base_url`: its query is kept at the end, user and password are removed."""
    parts = urlsplit(base_url)
    host = parts.netloc.rpartition("@")[2]
    query = "&".join(filter(None, (request.query, parts.query)))
    return urlunsplit((parts.scheme, host, request.root + parts.path.rstrip("/") + request.path, query, ""))


def _basic_authorization(base_url: str, keys: Sequence[Header]) -> Header:
    """Return the Basic authorization header for the user in `base_url`; empty without a user or if a key sets it."""
    user = base_url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    if not user or any(_AUTHORIZATION in key for key in keys):
        return {}
    return {_AUTHORIZATION: "Basic " + base64.b64encode(unquote(user).encode()).decode()}


def _validate(base_url: str, headers: Mapping[str, str], name: str) -> None:
    try:
        url = httpx.URL(public_url(base_url))
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise EmbeddingUnavailable(f"{name}: the base URL must begin with http:// or https:// and name a host")
    if not all(f"{key}{value}".isascii() and f"{key}{value}".isprintable() for key, value in headers.items()):
        raise EmbeddingUnavailable(f"{name}: the key or a header has characters that HTTP forbids")


def _secrets(base_url: str, sent: Sequence[Header]) -> list[str]:
    """Return all potential secrets: header values, whole and without the scheme, and those in the address."""
    values = [value for headers in sent for value in headers.values()]
    parts = urlsplit(base_url)
    in_address = [parts.password or "", unquote(parts.password or ""), *(value for _, value in parse_qsl(parts.query))]
    return [*values, *(word for value in values for word in value.split()[-1:]), *in_address]


def is_loopback(url: str) -> bool:
    """Return whether `url` is on this machine, which is never reached through a proxy.

    So are all spellings of the address that the system accepts, such as 127.1, and 0.0.0.0, which servers print.
    """
    host = (urlsplit(url).hostname or "").removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host if ":" in host else socket.inet_aton(host))
    except (OSError, ValueError):
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return host.split() == [host] and (address.is_loopback or address.is_unspecified)


def _client(base_url: str, headers: Mapping[str, str]) -> httpx.Client:
    trust_env = not is_loopback(base_url)
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    # Loading the authorities takes a tenth of a second. http: without a proxy needs none, so it trusts none.
    needs_none = not trust_env and urlsplit(base_url).scheme == "http"
    verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if needs_none else certificates(trust_env)
    return httpx.Client(headers=headers, trust_env=trust_env, verify=verify, limits=limits)


def certificates(trust_env: bool) -> ssl.SSLContext:
    """Return a context that trusts the authorities of httpx and of the system, which may include private ones."""
    context = httpx.create_ssl_context(trust_env=trust_env)
    context.load_default_certs()
    return context
