"""Check of the address where Prometheus fetches figures: whether they are there, and are memoryd's."""

import time
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from memoryd_server.observe.doctor import Check, failure, warning, well

_NAME = "metrics"
_PATIENCE_SECONDS = 5.0
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


def check_metrics(host: str, port: int, *, running: bool) -> Check:
    """Fetches the figures as Prometheus would; `running` tells whether the daemon does.

    `port` 0 is any free one, which cannot be known. Blocks for some seconds at most.
    """
    if port == 0:
        return well(_NAME, f"at any free port of {host}, which the daemon's log names (serve-metrics); not tried")
    url = f"http://{_dialled(host)}:{port}/metrics"
    try:
        found = _fetch(url)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        return _nobody(url, error, running=running)
    except httpx.HTTPError as error:
        return _silent(url, error, running=running)
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


def _fetch(url: str) -> _Fetched:
    began = time.monotonic()
    # A proxy of the environment has no part in it.
    with httpx.Client(trust_env=False, timeout=_PATIENCE_SECONDS) as client, client.stream("GET", url) as response:
        if response.status_code != httpx.codes.OK:
            raise _StrangerError(f"it refuses with HTTP {response.status_code}")
        text = _text_of(response, began + 2 * _PATIENCE_SECONDS)
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


def _text_of(response: httpx.Response, deadline: float) -> str:
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise _StrangerError(f"it sends more than {_MOST_BYTES} bytes")
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("it came to no end")
    return b"".join(parts).decode("utf-8", "replace")


def _nobody(url: str, error: httpx.HTTPError, *, running: bool) -> Check:
    if not running:
        return well(_NAME, f"nobody is at {url} yet; the daemon serves its figures there")
    advice = "restart the daemon, which takes up memoryd.metrics.listen when it starts"
    return warning(_NAME, f"nobody answers at {url}: {error}", _NO_FIGURES, advice)


def _silent(url: str, error: httpx.HTTPError, *, running: bool) -> Check:
    told = f"what listens at {url} sends no figures: {error or type(error).__name__}"
    if not running:
        return failure(_NAME, told, _NO_START, _MOVE)
    advice = "try again; if it stays so, see who listens there, and where it is memoryd, look at its log"
    return warning(_NAME, told, _NO_FIGURES, advice)
