"""Checks of the daemon's Unix sockets, and of the addresses of its metrics and of HTTP."""

import errno
import os
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from memoryd_server.doctor.checks import Check, failure, warning, well

# sockaddr_un has 108 bytes, including the closing NUL.
MAX_PATH_BYTES = 107

_SOCKET_TIMEOUT_SECONDS = 2.0


def check_socket(path: Path) -> Iterator[Check]:
    """Check that a socket can be created at `path`, who can open it, and that a process listens at it."""
    name = "socket"
    size = len(os.fsencode(path))
    if size > MAX_PATH_BYTES:
        yield failure(
            name,
            f"the path {path} is {size} bytes long; the system allows {MAX_PATH_BYTES}",
            "the daemon does not start",
            "choose a shorter one with --listen unix:PATH or memoryd.listen",
        )
        return
    yield from _check_folder(name, path.parent)
    try:
        mode = path.lstat().st_mode
    except OSError:
        yield well(name, f"{path} does not exist yet; the daemon creates it")
        return
    if not stat.S_ISSOCK(mode):
        yield failure(
            name,
            f"{path} is not a socket",
            "the daemon does not start, and does not remove it",
            "move it away, or choose another path",
        )
        return
    if stat.S_IMODE(mode) & 0o077:
        yield warning(
            name,
            f"other users can open {path} (mode {stat.S_IMODE(mode):04o})",
            "any user who can open the socket can use every agent without a token",
            f"chmod 600 {path}",
        )
    yield _check_connection(name, path)


def _check_folder(name: str, folder: Path) -> Iterator[Check]:
    if not folder.exists():
        return
    mode = folder.stat().st_mode
    if not os.access(folder, os.W_OK | os.X_OK):
        yield failure(
            name,
            f"{folder} cannot be written",
            "the daemon cannot create its socket there",
            "make it writable for the daemon's user, or choose another path",
        )
    elif stat.S_IMODE(mode) & 0o022 and not mode & stat.S_ISVTX:
        yield warning(
            name,
            f"other users can write {folder} (mode {stat.S_IMODE(mode):04o})",
            "they can replace the daemon's socket, and read what clients send",
            f"chmod go-w {folder}, or choose another path",
        )


def _check_connection(name: str, path: Path) -> Check:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SOCKET_TIMEOUT_SECONDS)
        try:
            connection.connect(str(path))
        except OSError as error:
            return _connection_failed(name, path, error)
    return well(name, f"a process listens at {path}")


def _connection_failed(name: str, path: Path, error: OSError) -> Check:
    if error.errno == errno.ECONNREFUSED:
        return warning(
            name,
            f"no process listens at {path}",
            "a daemon was killed and left its socket; clients that connect to it fail with UNAVAILABLE",
            "start the daemon, which replaces it",
        )
    return failure(
        name,
        f"connecting to {path} failed: {error.strerror or error}",
        "commands and clients of this user cannot reach the daemon there",
        "run the command as the daemon's user, or name another daemon with --address",
    )


_NAME = "metrics"

_METRICS_TIMEOUT_SECONDS = 5.0

# The metrics of a hundred agents take some hundred kilobytes.
_MAX_BYTES = 16 * 2**20

_NO_METRICS = "Prometheus gets no metrics; the memory works"
_NO_START = "Prometheus gets no metrics of this daemon, which does not start while another program has its address"
_FREE_ADDRESS = "stop the program that listens there, or choose another memoryd.metrics.listen; then restart the daemon"


@dataclass(frozen=True, slots=True)
class _MetricsReply:
    """The number of metrics, memoryd's version, and the time of the request."""

    metrics: int
    version: str
    elapsed_seconds: float


class _OtherProgramError(Exception):
    """The program that answers is not memoryd; the message says why."""


def check_metrics(
    host: str,
    port: int,
    *,
    running: bool,
    timeout_seconds: float = _METRICS_TIMEOUT_SECONDS,
    max_bytes: int = _MAX_BYTES,
) -> Check:
    """Fetch the metrics as Prometheus does; `running` is whether the daemon runs.

    `port` 0 is any free port, which is unknown. Blocks for some seconds at most.
    """
    if port == 0:
        return well(_NAME, f"at any free port of {host}, which the daemon logs (serve-metrics); not checked")
    url = f"http://{_url_host(host)}:{port}/metrics"
    try:
        reply = _fetch(url, timeout_seconds, max_bytes)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        return _not_listening(url, error, running=running)
    except httpx.HTTPError as error:
        return _request_failed(url, error, running=running)
    except _OtherProgramError as error:
        return failure(_NAME, f"the program that answers at {url} is not memoryd: {error}", _NO_START, _FREE_ADDRESS)
    if not running:
        return failure(_NAME, f"another memoryd, {reply.version}, answers at {url}", _NO_START, _FREE_ADDRESS)
    elapsed_ms = round(reply.elapsed_seconds * 1000)
    return well(_NAME, f"{url} answers in {elapsed_ms} ms: {reply.metrics} metrics of memoryd {reply.version}")


def _url_host(host: str) -> str:
    """Return the host of a URL at which this machine reaches a listener at `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- connected to, not listened at
    return f"[{host}]" if ":" in host else host


def _fetch(url: str, timeout_seconds: float, max_bytes: int) -> _MetricsReply:
    began = time.monotonic()
    # trust_env=False: a proxy in the environment is not used.
    with (
        httpx.Client(trust_env=False, timeout=timeout_seconds) as client,
        client.stream("GET", url) as response,
    ):
        if response.status_code != httpx.codes.OK:
            raise _OtherProgramError(f"it answers with HTTP {response.status_code}")
        text = _read_text(response, began + 2 * timeout_seconds, max_bytes)
    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, IndexError) as error:
        raise _OtherProgramError("it sends no metrics in Prometheus's format") from error
    versions = [
        sample.labels.get("version", "")
        for family in families
        if family.name == "memoryd_build_info"
        for sample in family.samples
    ]
    if not versions:
        raise _OtherProgramError("its metrics are those of another program")
    return _MetricsReply(len(families), versions[0], time.monotonic() - began)


def _read_text(response: httpx.Response, deadline: float, max_bytes: int) -> str:
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise _OtherProgramError(f"it sends more than {max_bytes} bytes")
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("the response did not end in time")
    return b"".join(parts).decode("utf-8", "replace")


def _not_listening(url: str, error: httpx.HTTPError, *, running: bool) -> Check:
    if not running:
        return well(_NAME, f"no program listens at {url} yet; the daemon serves its metrics there")
    advice = "restart the daemon, which reads memoryd.metrics.listen when it starts"
    return warning(_NAME, f"no program answers at {url}: {error}", _NO_METRICS, advice)


def _request_failed(url: str, error: httpx.HTTPError, *, running: bool) -> Check:
    detail = f"the program that listens at {url} sends no metrics: {error or type(error).__name__}"
    if not running:
        return failure(_NAME, detail, _NO_START, _FREE_ADDRESS)
    advice = "try again; if it fails again, find out which program listens there; if it is memoryd, check its log"
    return warning(_NAME, detail, _NO_METRICS, advice)


_HTTP = "HTTP"
_HEALTH_BYTES = 64
_HTTP_MEANING = "clients of MCP over HTTP cannot reach the daemon"
_HTTP_TAKEN = "the daemon does not start while another program has this address"
_FREE_HTTP = "stop the program that listens there, or choose another memoryd.http.listen; then restart the daemon"


def check_http(host: str, port: int, *, tls: bool, running: bool, timeout_seconds: float = 5.0) -> Check:
    """Request `/healthz`; `running` is whether the daemon runs. Certificates are not verified.

    `port` 0 is any free port, which is unknown. Blocks for some seconds at most.
    """
    if port == 0:
        return well(_HTTP, f"at any free port of {host}, which the daemon logs (serve-http); not checked")
    url = f"{'https' if tls else 'http'}://{_url_host(host)}:{port}/healthz"
    try:
        status, text = _answer(url, port, timeout_seconds)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        if not running:
            return well(_HTTP, f"no program listens at {url} yet; the daemon serves HTTP there")
        advice = "restart the daemon, which reads memoryd.http.listen when it starts"
        return warning(_HTTP, f"no program answers at {url}: {error}", _HTTP_MEANING, advice)
    except httpx.HTTPError as error:
        detail = f"the program that listens at {url} does not answer: {error or type(error).__name__}"
        return failure(_HTTP, detail, _HTTP_MEANING if running else _HTTP_TAKEN, _FREE_HTTP)
    if running and (status, text) == (httpx.codes.OK, b"ok\n"):
        return well(_HTTP, f"{url} answers")
    detail = f"another program, or another memoryd, answers at {url} with HTTP {status}"
    return failure(_HTTP, detail, _HTTP_TAKEN, _FREE_HTTP)


def _answer(url: str, port: int, timeout_seconds: float) -> tuple[int, bytes]:
    """Return the status and the beginning of the body."""
    with (
        # trust_env=False: a proxy in the environment is not used. The certificate may be for another name.
        httpx.Client(trust_env=False, timeout=timeout_seconds, verify=False) as client,  # noqa: S501
        client.stream("GET", url, headers={"host": f"localhost:{port}"}) as response,
    ):
        return response.status_code, next(response.iter_raw(_HEALTH_BYTES), b"")
