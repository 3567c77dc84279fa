"""Sockets and the metrics address.

Checks of the Unix sockets that the daemon listens on, or is to.

Check of the address where Prometheus fetches figures: whether they are there, and are memoryd's.
"""

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

# sockaddr_un holds 108 bytes with the closing NUL.
MOST_PATH_BYTES = 107

_SOCKET_TIMEOUT_SECONDS = 2.0


def check_socket(path: Path) -> Iterator[Check]:
    """Whether a socket can be made at `path`, who can open it, and whether anybody answers."""
    name = "socket"
    size = len(os.fsencode(path))
    if size > MOST_PATH_BYTES:
        yield failure(
            name,
            f"the path {path} is {size} bytes long; the system allows {MOST_PATH_BYTES}",
            "the daemon does not start",
            "choose a shorter one with --listen unix:PATH or memoryd.listen",
        )
        return
    yield from _folder(name, path.parent)
    try:
        mode = path.lstat().st_mode
    except OSError:
        yield well(name, f"nothing is at {path} yet; the daemon makes it")
        return
    if not stat.S_ISSOCK(mode):
        yield failure(
            name,
            f"{path} is no socket",
            "the daemon does not start, and removes nothing",
            "move it away, or choose another path",
        )
        return
    if stat.S_IMODE(mode) & 0o077:
        yield warning(
            name,
            f"{path} can be opened by others (mode {stat.S_IMODE(mode):04o})",
            "whoever can open the socket may use every agent, without a token",
            f"chmod 600 {path}",
        )
    yield _answer(name, path)


def _folder(name: str, folder: Path) -> Iterator[Check]:
    if not folder.exists():
        return
    mode = folder.stat().st_mode
    if not os.access(folder, os.W_OK | os.X_OK):
        yield failure(
            name,
            f"{folder} cannot be written",
            "the daemon cannot make its socket there",
            "make it writable for the daemon's user, or choose another path",
        )
    elif stat.S_IMODE(mode) & 0o022 and not mode & stat.S_ISVTX:
        yield warning(
            name,
            f"others can write {folder} (mode {stat.S_IMODE(mode):04o})",
            "they can put a socket of their own in the place of the daemon's, and read what clients send",
            f"chmod go-w {folder}, or choose another path",
        )


def _answer(name: str, path: Path) -> Check:
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(_SOCKET_TIMEOUT_SECONDS)
        try:
            one.connect(str(path))
        except OSError as error:
            return _silent_socket(name, path, error)
    return well(name, f"{path} is listened at")


def _silent_socket(name: str, path: Path, error: OSError) -> Check:
    if error.errno == errno.ECONNREFUSED:
        return warning(
            name,
            f"nobody listens at {path}",
            "a daemon was killed and left its socket; clients that dial it fail with UNAVAILABLE",
            "start the daemon, which replaces it",
        )
    return failure(
        name,
        f"{path} cannot be dialled: {error.strerror or error}",
        "no command and no client of this user reaches the daemon there",
        "run the command as the daemon's user, or name another daemon with --address",
    )


_NAME = "metrics"

_METRICS_TIMEOUT_SECONDS = 5.0

# Those of a hundred agents take some hundred kilobytes.
_MOST_BYTES = 16 * 2**20

_NO_FIGURES = "Prometheus gets no figures; the memory works"
_NO_START = "Prometheus gets no figures of this daemon, which does not start while another has its address"
_MOVE = "stop what listens there, or choose another memoryd.metrics.listen; then start the daemon anew"


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What memoryd told: how many figures, its version, and how long that took."""

    figures: int
    version: str
    elapsed_seconds: float


class _StrangerError(Exception):
    """Who answers is not memoryd; the message says what it does."""


def check_metrics(
    host: str,
    port: int,
    *,
    running: bool,
    timeout_seconds: float = _METRICS_TIMEOUT_SECONDS,
    max_bytes: int = _MOST_BYTES,
) -> Check:
    """Fetches the figures as Prometheus would; `running` tells whether the daemon does.

    `port` 0 is any free one, which cannot be known. Blocks for some seconds at most.
    """
    if port == 0:
        return well(_NAME, f"at any free port of {host}, which the daemon's log names (serve-metrics); not tried")
    url = f"http://{_dialled(host)}:{port}/metrics"
    try:
        found = _fetch(url, timeout_seconds, max_bytes)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        return _nobody(url, error, running=running)
    except httpx.HTTPError as error:
        return _silent_metrics(url, error, running=running)
    except _StrangerError as error:
        return failure(_NAME, f"what answers at {url} is not memoryd: {error}", _NO_START, _MOVE)
    if not running:
        return failure(_NAME, f"another memoryd, {found.version}, answers at {url}", _NO_START, _MOVE)
    elapsed_ms = round(found.elapsed_seconds * 1000)
    return well(_NAME, f"{url} answers in {elapsed_ms} ms: {found.figures} figures of memoryd {found.version}")


def _dialled(host: str) -> str:
    """Where this machine reaches what listens at `host`, as a URL has it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- dialled, not listened at
    return f"[{host}]" if ":" in host else host


def _fetch(url: str, timeout_seconds: float, max_bytes: int) -> _Fetched:
    began = time.monotonic()
    # A proxy of the environment has no part in it.
    with (
        httpx.Client(trust_env=False, timeout=timeout_seconds) as client,
        client.stream("GET", url) as response,
    ):
        if response.status_code != httpx.codes.OK:
            raise _StrangerError(f"it refuses with HTTP {response.status_code}")
        text = _text_of(response, began + 2 * timeout_seconds, max_bytes)
    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, IndexError) as error:
        raise _StrangerError("it sends no figures that Prometheus could read") from error
    versions = [
        sample.labels.get("version", "")
        for family in families
        if family.name == "memoryd_build_info"
        for sample in family.samples
    ]
    if not versions:
        raise _StrangerError("its figures are another program's")
    return _Fetched(len(families), versions[0], time.monotonic() - began)


def _text_of(response: httpx.Response, deadline: float, max_bytes: int) -> str:
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise _StrangerError(f"it sends more than {max_bytes} bytes")
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("it came to no end")
    return b"".join(parts).decode("utf-8", "replace")


def _nobody(url: str, error: httpx.HTTPError, *, running: bool) -> Check:
    if not running:
        return well(_NAME, f"nobody is at {url} yet; the daemon serves its figures there")
    advice = "restart the daemon, which takes up memoryd.metrics.listen when it starts"
    return warning(_NAME, f"nobody answers at {url}: {error}", _NO_FIGURES, advice)


def _silent_metrics(url: str, error: httpx.HTTPError, *, running: bool) -> Check:
    told = f"what listens at {url} sends no figures: {error or type(error).__name__}"
    if not running:
        return failure(_NAME, told, _NO_START, _MOVE)
    advice = "try again; if it stays so, see who listens there, and where it is memoryd, look at its log"
    return warning(_NAME, told, _NO_FIGURES, advice)
